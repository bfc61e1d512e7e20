"""The server dies before or after each single thing that it does for an allocation: whatever the moment, the task runs
at most once, nothing of it is left in the end, and whoever owns it is told."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import partial
from typing import TypeAlias, TypeVar

import pytest
from sqlalchemy import Connection
from tests.unit.tasks.service_worlds import DONE, ID, PART, Life, Sessions, World, alive

from muster.accounts.callers import UserId
from muster.engines.protocol import AllocationId, Request, ResourceId
from muster.runtime.clock import VirtualClock, run_virtual
from muster.tasks.allocation_states import Phase, Signal
from muster.testing.engines import PretendEngine, PretendMachine
from muster.testing.inline_database import InlineDatabase

T = TypeVar("T")
Scenario: TypeAlias = Callable[[Life, VirtualClock], Awaitable[None]]


class Fate:
    """Counts what is done, and lets the server die at the moment it was given: nothing after it is done."""

    def __init__(self, moment: int) -> None:
        self.moments = 0
        self.died = asyncio.Event()
        self._moment = moment

    async def pass_by(self) -> None:
        self.moments += 1
        if self.moments >= self._moment > 0:
            self.died.set()
            await asyncio.Event().wait()


class MortalDatabase(InlineDatabase):
    fate: Fate

    async def write(self, change: Callable[[Connection], T]) -> T:
        await self.fate.pass_by()
        done = await super().write(change)
        await self.fate.pass_by()
        return done


class MortalSessions(Sessions):
    fate: Fate

    async def open_allocation(self, user: UserId, task: str, allocation: str) -> str:
        opened = await super().open_allocation(user, task, allocation)
        await self.fate.pass_by()
        return opened

    async def close_task(self, task: str, allocation: str = "") -> None:
        await super().close_task(task, allocation)
        await self.fate.pass_by()


class MortalEngine(PretendEngine):
    def __init__(self, machine: PretendMachine, fate: Fate, births: list[AllocationId]) -> None:
        super().__init__(machine)
        self._fate = fate
        self._births = births

    async def allocate(self, request: Request, secrets: Mapping[str, str], *, is_restored: bool = False) -> None:
        await self._fate.pass_by()
        await super().allocate(request, secrets, is_restored=is_restored)
        if not is_restored:
            self._births.append(request.allocation)
        await self._fate.pass_by()

    async def kill(self, allocation: AllocationId, resources: Collection[ResourceId]) -> None:
        await self._fate.pass_by()
        await super().kill(allocation, resources)
        await self._fate.pass_by()

    async def release(self, allocation: AllocationId) -> None:
        await self._fate.pass_by()
        await super().release(allocation)
        await self._fate.pass_by()


async def ends_well(life: Life, clock: VirtualClock) -> None:
    await life.start()
    await clock.sleep(1)
    life.finish(exit=DONE)
    await clock.sleep(1)


async def is_killed(life: Life, clock: VirtualClock) -> None:
    await life.start()
    await clock.sleep(1)
    await life.service.signal(ID, Signal.KILL, "enough")
    await clock.sleep(1)


async def is_killed_while_it_waits(life: Life, clock: VirtualClock) -> None:
    await life.start(slots=5)
    await life.service.signal(ID, Signal.KILL, "enough")
    await clock.sleep(1)


async def is_preempted(life: Life, clock: VirtualClock) -> None:
    await life.start(is_preemptible=True)
    await clock.sleep(1)
    await life.harness.ready(ID)
    await life.service.signal(ID, Signal.PREEMPT, "room is needed")
    await life.harness.acknowledge(ID)
    life.finish(exit=DONE)
    await clock.sleep(1)


SCENARIOS: Mapping[str, Scenario] = {
    act.__name__: act for act in (ends_well, is_killed, is_killed_while_it_waits, is_preempted)
}


class Story:
    """One task, over two lives of the server."""

    def __init__(self, clock: VirtualClock) -> None:
        self.world = World(clock, MortalDatabase(), sessions=MortalSessions())
        self.births: list[AllocationId] = []

    def _new_fate(self, moment: int) -> Fate:
        fate = Fate(moment)
        assert isinstance(self.world.database, MortalDatabase)
        assert isinstance(self.world.sessions, MortalSessions)
        self.world.database.fate = self.world.sessions.fate = fate
        return fate

    async def begin(self, scenario: Scenario, moment: int) -> int:
        """How many moments there were, as far as it came."""
        world, clock = self.world, self.world.clock
        self._new_fate(0)
        await world.task("t")
        fate = self._new_fate(moment)
        async with alive(world, engine := MortalEngine(world.machine, fate, self.births)) as life:
            life.engine = engine

            async def act() -> None:
                await scenario(life, clock)

            acting, dying = asyncio.create_task(act()), asyncio.create_task(fate.died.wait())
            await asyncio.wait({acting, dying}, return_when=asyncio.FIRST_COMPLETED)
            for task in (acting, dying):
                task.cancel()
            await asyncio.gather(acting, dying, return_exceptions=True)
        return fate.moments

    async def end(self) -> None:
        """The server is back. What still runs ends by itself, and nobody waits any longer for what does not."""
        world = self.world
        async with alive(world, engine := MortalEngine(world.machine, self._new_fate(0), self.births)) as life:
            for _ in range(5):
                await world.clock.sleep(60)
                state = life.service.state(ID)
                if state is not None and state.phase is Phase.PENDING:
                    await life.service.signal(ID, Signal.KILL, "enough")
                elif state is not None:
                    engine.finish(PART, DONE)
            assert life.service.count == 0
            assert (dict(life.service.ports.taken), life.service.proxies.find("t")) == ({}, None)


def moments(scenario: Scenario) -> int:
    found = []

    async def count(clock: VirtualClock) -> None:
        found.append(await Story(clock).begin(scenario, 0))

    run_virtual(count)
    return found[0]


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_server_dies_at_any_moment(name: str) -> None:
    scenario = SCENARIOS[name]
    count = moments(scenario)
    assert count > 10

    async def one(clock: VirtualClock, moment: int) -> None:
        story = Story(clock)
        await story.begin(scenario, moment)
        await story.end()
        world = story.world
        rows = await world.database.read(lambda c: c.exec_driver_sql("SELECT phase, is_open FROM allocations").all())
        assert len(story.births) <= 1, "it was made twice"
        assert (world.machine.entries, world.sessions.open) == ({}, {})
        assert [tuple(row) for row in rows] in ([], [("TERMINATED", 0)])
        # Told twice only where it died before it could write down that it has told.
        assert len(rows) <= len(world.exits) <= 2 * len(rows)
        assert len({exit.ended.reason for exit in world.exits}) <= 1, "it ended in two ways"
        if story.births:
            assert world.exits

    for moment in range(1, count + 1):
        run_virtual(partial(one, moment=moment))
