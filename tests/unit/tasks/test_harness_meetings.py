"""What tasks say and ask of their own allocation: meeting the others, where they are reached, what they found."""

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.unit.tasks.service_worlds import ID, PART, Life, World, alive
from tests.unit.tasks.task_worlds import a_world

from muster.accounts.callers import UserId
from muster.api import errors
from muster.engines.pods import PodsEngine
from muster.engines.protocol import AllocationId, ResourceId
from muster.runtime.clock import VirtualClock
from muster.tasks import allocation_records as records
from muster.tasks.allocation_records import Accelerators
from muster.tasks.allocation_states import Phase, Signal
from muster.tasks.contract import Launch
from muster.testing.builders import a_node
from muster.testing.engines import a_request
from muster.testing.staging import running
from muster.testing.virtual import on_virtual_time

PARTS = [ResourceId(f"t.1-{rank}") for rank in range(2)]


@asynccontextmanager
async def a_gang(clock: VirtualClock) -> AsyncIterator[tuple[World, Life]]:
    """Of two parts, on real controllers, which run."""
    world = World(clock)
    await world.task("t")
    async with a_world(clock, a_node("n1").cpu(2), a_node("n2").cpu(2)) as cluster:
        engine = PodsEngine(cluster.store, clock)
        async with running(engine.run), alive(world, engine) as life:
            await life.service.start(Launch(a_request(slots=4), UserId(1)))
            await clock.sleep(5)
            assert life.state().phase is Phase.RUNNING
            yield world, life


@on_virtual_time
async def test_all_are_answered_when_all_have_asked(clock: VirtualClock) -> None:
    async with a_gang(clock) as (world, life):
        first = asyncio.create_task(life.harness.rendezvous(ID, PARTS[1]))
        await clock.sleep(700)
        assert not first.done()
        assert world.lines.told == [
            ("t", "WARNING", "parts of this task have waited for others for 10 minutes: t.1-0 did not ask yet")
        ]
        again = asyncio.create_task(life.harness.rendezvous(ID, PARTS[1]))
        await clock.sleep(1)
        with pytest.raises(errors.Conflict, match="again"):
            await first
        with pytest.raises(errors.BadRequest, match="no part"):
            await life.harness.rendezvous(ID, ResourceId("t.1-9"))
        chief = await life.harness.rendezvous(ID, PARTS[0])
        other = await again
        assert (chief.rank, other.rank) == (0, 1)
        assert chief.addresses == other.addresses == ["127.0.0.1", "127.0.0.1"]
        assert chief.slots == [2, 2]
        assert life.state().is_ready
        assert await life.harness.rendezvous(ID, PARTS[1]) == other, "who has lost the answer is answered again"


@on_virtual_time
async def test_one_who_has_gone_is_not_counted_and_may_come_again(clock: VirtualClock) -> None:
    async with a_gang(clock) as (_, life):
        gone = asyncio.create_task(life.harness.rendezvous(ID, PARTS[1]))
        await clock.sleep(1)
        gone.cancel()
        await clock.sleep(1)
        waiting = asyncio.create_task(life.harness.rendezvous(ID, PARTS[0]))
        await clock.sleep(1)
        assert not waiting.done()
        await life.harness.rendezvous(ID, PARTS[1])
        await waiting


@on_virtual_time
async def test_whoever_waits_when_it_ends_is_told_so(clock: VirtualClock) -> None:
    async with a_gang(clock) as (world, life):
        meeting = asyncio.create_task(life.harness.rendezvous(ID, PARTS[0]))
        gathering = asyncio.create_task(life.harness.all_gather(ID, "a", 2, {}))
        await clock.sleep(1)
        await life.service.signal(ID, Signal.KILL, "enough")
        await clock.sleep(60)
        for waiting in (meeting, gathering):
            with pytest.raises(errors.Conflict, match="has ended"):
                await waiting
        assert world.exits[0].ended.is_killed


@on_virtual_time
async def test_everybody_gets_what_all_bring_and_they_may_gather_again(clock: VirtualClock) -> None:
    world = World(clock)
    await world.task("t")
    async with alive(world) as life:
        await life.start()
        await clock.sleep(1)
        first = asyncio.create_task(life.harness.all_gather(ID, "a", 2, {"from": "a"}))
        await clock.sleep(1)
        repeated = asyncio.create_task(life.harness.all_gather(ID, "a", 2, {"from": "a again"}))
        await clock.sleep(1)
        with pytest.raises(errors.Conflict, match="asked again"):
            await first
        with pytest.raises(errors.BadRequest, match="numPeers"):
            await life.harness.all_gather(ID, "b", 3, {})
        with pytest.raises(errors.BadRequest, match="requestUuid"):
            await life.harness.all_gather(ID, "", 2, {})
        with pytest.raises(errors.BadRequest, match="greater than 0"):
            await life.harness.all_gather(ID, "b", 0, {})
        assert not life.state().is_ready
        got = await life.harness.all_gather(ID, "b", 2, {"from": "b"})
        assert await repeated == got == [{"from": "a again"}, {"from": "b"}]
        assert life.state().is_ready
        assert await life.harness.all_gather(ID, "a", 2, {}) == got, "who has lost the answer gets it again"
        assert await life.harness.all_gather(ID, "c", 1, 7) == [7]


@on_virtual_time
async def test_a_task_may_only_say_that_it_is_reached_where_it_is(clock: VirtualClock) -> None:
    world = World(clock)
    await world.task("t")
    async with alive(world) as life:
        await life.start()
        await clock.sleep(1)
        for address, told in (("169.254.169.254", "not an address of this"), ("localhost", "not an IP")):
            with pytest.raises(errors.BadRequest, match=told):
                await life.harness.proxy_address(ID, address)
        await life.harness.proxy_address(ID, "127.0.0.1")
        assert life.state().proxy_address == "127.0.0.1"


@on_virtual_time
async def test_it_says_how_it_fares(clock: VirtualClock) -> None:
    world = World(clock)
    await world.task("t")
    async with alive(world) as life:
        await life.start()
        await clock.sleep(1)
        await life.harness.waiting(ID)
        assert life.service.state(ID).phase is Phase.WAITING  # type: ignore[union-attr]
        await life.harness.ready(ID)
        assert life.service.state(ID).phase is Phase.RUNNING  # type: ignore[union-attr]
        await life.harness.daemon(ID, PART)
        with pytest.raises(errors.BadRequest, match="no part"):
            await life.harness.daemon(ID, ResourceId("other"))
        found = Accelerators("t.1-0", "n1", "cuda", ["GPU-1"])
        await life.harness.accelerators(ID, Accelerators("t.1-0", "n1", "cuda", []))
        await life.harness.accelerators(ID, found)
        assert await world.database.read(lambda connection: records.accelerators(connection, ID)) == [found]
        with pytest.raises(errors.NotFound):
            await life.harness.accelerators(AllocationId("none.1"), found)


@on_virtual_time
async def test_what_its_platform_says_counts_also_before_it_is_ready(clock: VirtualClock) -> None:
    world = World(clock)
    await world.task("t")
    async with alive(world) as life:
        await life.start(is_preemptible=True)
        await clock.sleep(1)
        await life.harness.preemption_is_near(ID)
        assert await life.harness.should_stop(ID, 0)
        assert world.machine.kills == []


@on_virtual_time
async def test_many_who_wait_for_one_say_so_once(clock: VirtualClock) -> None:
    async with a_gang(clock) as (world, life):
        waiting = [asyncio.create_task(life.harness.all_gather(ID, f"peer{number}", 9, {})) for number in range(8)]
        await clock.sleep(650)
        assert [text for _, _, text in world.lines.told] == ["parts of this task have waited for others for 10 minutes"]
        await clock.sleep(600)
        assert len(world.lines.told) == 2
        for task in waiting:
            task.cancel()


@on_virtual_time
async def test_a_time_that_is_no_number_is_no_time(clock: VirtualClock) -> None:
    async with a_gang(clock) as (_, life):
        for seconds in (math.nan, 0.0, -1.0):
            assert not await life.harness.should_stop(ID, seconds)
