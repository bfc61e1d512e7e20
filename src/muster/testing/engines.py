"""What every engine promises, as tests; and an engine that runs nothing, for tests of those who use one."""

import asyncio
import itertools
import weakref
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Protocol

import pytest
from msgspec.structs import replace

from muster.api import errors, fields
from muster.api.raw import Document
from muster.engines.protocol import (
    AllocationId,
    Caveat,
    Delayed,
    Event,
    Exit,
    Failed,
    Failure,
    Granted,
    Pool,
    PreemptionAsked,
    Released,
    Request,
    Resource,
    ResourceChanged,
    ResourceId,
    ResourceManager,
    ResourceState,
)
from muster.runtime.clock import Clock, VirtualClock, run_virtual

SLOTS = 4
"""Of the one node that engines under test have."""


def a_request(name: str = "t.1", **more: object) -> Request:
    template: Document = {"spec": {"containers": [{"name": "main", "image": "host", "command": ["true"]}]}}
    found = Request(
        allocation=AllocationId(name), task=name.rpartition(".")[0] or name, task_type="COMMAND", template=template
    )
    return replace(found, **more)


@dataclass
class _Entry:
    request: Request
    secrets: Mapping[str, str]
    resources: dict[ResourceId, Resource] = field(default_factory=dict)


class PretendMachine:
    """What engines of a test share: it stays when an engine is gone."""

    def __init__(self, slots: int = SLOTS) -> None:
        self.slots = slots
        self.entries: dict[AllocationId, _Entry] = {}
        self.kills: list[ResourceId] = []
        self.is_deaf = False
        """Kills are lost."""


class PretendEngine:
    """Grants in order, as long as there are slots; runs what it granted until it is told to `finish` it."""

    def __init__(self, machine: PretendMachine | None = None) -> None:
        self.machine = machine or PretendMachine()
        self._followed: set[AllocationId] = set()
        self._inboxes: weakref.WeakSet[asyncio.Queue[Event]] = weakref.WeakSet()

    async def run(self) -> None:
        await asyncio.Event().wait()

    async def check(self, request: Request) -> Sequence[Caveat]:
        if request.pool not in ("", "default"):
            raise errors.NotFound(f'resources.resource_pool: there is no pool "{request.pool}"')
        if request.is_single_node and request.slots > self.machine.slots:
            problem = fields.invalid("resources.slots", request.slots, f"no node has more than {self.machine.slots}")
            raise errors.invalid("Allocation", request.allocation, [problem])
        return [Caveat.CURRENT_SLOTS_EXCEEDED] if request.slots > self.machine.slots else []

    async def allocate(self, request: Request, secrets: Mapping[str, str], *, is_restored: bool = False) -> None:
        id = request.allocation
        if is_restored:
            self._take_up(id)
            return
        await self.check(request)
        if id in self._followed:
            return
        self._followed.add(id)
        self.machine.entries[id] = _Entry(request, dict(secrets))
        self._grant()

    def _take_up(self, id: AllocationId) -> None:
        if id not in self.machine.entries:
            raise errors.NotFound(f"nothing is left of allocation {id}")
        self._followed.add(id)
        known = self.machine.entries[id].resources
        if known:
            self._publish(Granted(id, tuple(known.values()), is_recovered=True))

    async def kill(self, allocation: AllocationId, resources: Collection[ResourceId]) -> None:
        known = self.machine.entries[allocation].resources if allocation in self.machine.entries else {}
        self.machine.kills += resources
        for id in [] if self.machine.is_deaf else [id for id in resources if id in known]:
            self.finish(id, Exit(137, Failure.RESOURCES_ABORTED, "it was killed"))

    async def release(self, allocation: AllocationId) -> None:
        self.machine.entries.pop(allocation, None)
        self._followed.discard(allocation)
        self._publish(Released(allocation))
        self._grant()

    async def held(self) -> Collection[AllocationId]:
        return list(self.machine.entries)

    async def pools(self) -> Sequence[Pool]:
        return [Pool("default", "cpu", self.machine.slots, self.machine.slots, ("n1",), is_default=True)]

    def events(self) -> AsyncIterator[Event]:
        inbox: asyncio.Queue[Event] = asyncio.Queue()
        self._inboxes.add(inbox)
        return self._read(inbox)

    async def _read(self, inbox: asyncio.Queue[Event]) -> AsyncIterator[Event]:
        while True:
            yield await inbox.get()

    # What a test makes happen

    def finish(self, resource: ResourceId, exit: Exit) -> None:
        for id, entry in self.machine.entries.items():
            found = entry.resources.get(resource)
            if found is not None and found.state is not ResourceState.TERMINATED:
                entry.resources[resource] = ended = replace(found, state=ResourceState.TERMINATED, exit=exit)
                self._publish(ResourceChanged(id, ended))
        self._grant()

    def ask_back(self, allocation: AllocationId) -> None:
        self._publish(PreemptionAsked(allocation, "its resources are needed elsewhere"))

    def delay(self, allocation: AllocationId, reason: str) -> None:
        self._publish(Delayed(allocation, reason))

    def fail(self, allocation: AllocationId, failure: Failure, message: str) -> None:
        self._publish(Failed(allocation, failure, message))

    def _grant(self) -> None:
        for id, entry in self.machine.entries.items():
            if entry.resources or entry.request.slots > self._free():
                continue
            rank0 = Resource(id=ResourceId(f"{id}-0"), rank=0, node="n1", slots=entry.request.slots)
            entry.resources = {rank0.id: rank0}
            self._publish(Granted(id, (rank0,)))
            for state in (ResourceState.PULLING, ResourceState.STARTING, ResourceState.RUNNING):
                address = "127.0.0.1" if state is ResourceState.RUNNING else ""
                entry.resources[rank0.id] = now = replace(rank0, state=state, address=address)
                self._publish(ResourceChanged(id, now))

    def _free(self) -> int:
        live = [r for e in self.machine.entries.values() for r in e.resources.values()]
        return self.machine.slots - sum(r.slots for r in live if r.state is not ResourceState.TERMINATED)

    def _publish(self, event: Event) -> None:
        if event.allocation in self._followed or isinstance(event, Released):
            for inbox in self._inboxes:
                inbox.put_nowait(event)


_conforms: ResourceManager = PretendEngine()


# The suite


class EngineWorld(Protocol):
    """An engine over one node of SLOTS slots, and hands to make things happen there."""

    @property
    def engine(self) -> ResourceManager: ...

    async def finish(self, resource: ResourceId, code: int) -> None:
        """Its program ends."""
        ...

    async def ask_back(self, allocation: AllocationId) -> None:
        """Others need the room."""
        ...

    def restarted(self) -> AbstractAsyncContextManager[ResourceManager]:
        """Another engine over the same cluster, after the first has crashed."""
        ...


class _Ears:
    """Hears all that an engine says."""

    def __init__(self, engine: ResourceManager) -> None:
        self._events = engine.events()
        self.heard: list[Event] = []

    async def listen(self) -> None:
        async for event in self._events:
            self.heard.append(event)

    def told(self, name: str) -> list[str]:
        """Events of one allocation as words; changes by their state. Without delays, which need not be told."""
        return [
            event.resource.state if isinstance(event, ResourceChanged) else type(event).__name__
            for event in self.heard
            if event.allocation == name and not isinstance(event, Delayed)
        ]

    def delays(self, name: str) -> list[str]:
        return [event.reason for event in self.heard if isinstance(event, Delayed) and event.allocation == name]


@asynccontextmanager
async def _listening(engine: ResourceManager) -> AsyncIterator[_Ears]:
    ears = _Ears(engine)
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(ears.listen(), name="ears")
        yield ears
        task.cancel()


_LIFE = ["Granted", "PULLING", "STARTING", "RUNNING"]
_SOON = 10.0


class EngineSuite:
    """Subclass it, give it a `world`, and let pytest find it. All runs on virtual time."""

    def world(self, clock: VirtualClock) -> AbstractAsyncContextManager[EngineWorld]:
        raise NotImplementedError

    def _run(self, check: "_Check") -> None:
        async def main(clock: VirtualClock) -> None:
            async with self.world(clock) as world, _listening(world.engine) as ears:
                await check(world, ears, clock)

        run_virtual(main)

    def test_a_life_is_told_in_order_and_its_end_once(self) -> None:
        async def check(world: EngineWorld, ears: _Ears, clock: Clock) -> None:
            await world.engine.allocate(a_request(), {"TOKEN": "secret"})
            await clock.sleep(_SOON)
            assert ears.told("t.1") == _LIFE
            await world.finish(ResourceId("t.1-0"), 3)
            await clock.sleep(_SOON)
            assert ears.told("t.1") == [*_LIFE, "TERMINATED"]
            last = ears.heard[-1]
            assert isinstance(last, ResourceChanged)
            assert last.resource.exit is not None
            assert (last.resource.exit.code, last.resource.exit.failure) == (3, Failure.RESOURCES_FAILED)
            await world.engine.release(AllocationId("t.1"))
            await clock.sleep(_SOON)
            assert ears.told("t.1") == [*_LIFE, "TERMINATED", "Released"]
            assert not await world.engine.held()

        self._run(check)

    def test_what_is_asked_twice_is_made_once(self) -> None:
        async def check(world: EngineWorld, ears: _Ears, clock: Clock) -> None:
            await world.engine.allocate(a_request(), {})
            await world.engine.allocate(a_request(), {})
            await clock.sleep(_SOON)
            assert ears.told("t.1") == _LIFE
            assert list(await world.engine.held()) == ["t.1"]

        self._run(check)

    def test_what_does_not_fit_waits_until_it_does(self) -> None:
        async def check(world: EngineWorld, ears: _Ears, clock: Clock) -> None:
            await world.engine.allocate(a_request("a.1", slots=SLOTS), {})
            await clock.sleep(_SOON)
            await world.engine.allocate(a_request("b.1", slots=1), {})
            await clock.sleep(_SOON)
            assert ears.told("b.1") == []
            delays = ears.delays("b.1")
            assert all(delays)
            assert all(before != after for before, after in itertools.pairwise(delays)), "only what has changed"
            await world.finish(ResourceId("a.1-0"), 0)
            await clock.sleep(_SOON)
            assert ears.told("b.1") == _LIFE
            assert ears.delays("b.1") == delays, "what runs is not delayed"

        self._run(check)

    def test_what_was_killed_has_ended_and_was_not_its_own_fault(self) -> None:
        async def check(world: EngineWorld, ears: _Ears, clock: Clock) -> None:
            await world.engine.allocate(a_request(), {})
            await clock.sleep(_SOON)
            await world.engine.kill(AllocationId("t.1"), [ResourceId("t.1-0")])
            await world.engine.kill(AllocationId("t.1"), [ResourceId("t.1-0")])
            await clock.sleep(60)
            assert ears.told("t.1") == [*_LIFE, "TERMINATED"]
            last = ears.heard[-1]
            assert isinstance(last, ResourceChanged)
            assert last.resource.exit is not None
            assert last.resource.exit.failure is Failure.RESOURCES_ABORTED

        self._run(check)

    def test_releasing_what_runs_ends_it(self) -> None:
        async def check(world: EngineWorld, ears: _Ears, clock: Clock) -> None:
            await world.engine.allocate(a_request(slots=SLOTS), {})
            await clock.sleep(_SOON)
            await world.engine.release(AllocationId("t.1"))
            await clock.sleep(60)
            assert ears.told("t.1")[-1] == "Released"
            await world.engine.allocate(a_request("u.1", slots=SLOTS), {})
            await clock.sleep(_SOON)
            assert ears.told("u.1") == _LIFE

        self._run(check)

    def test_releasing_what_is_not_there_is_answered_all_the_same(self) -> None:
        async def check(world: EngineWorld, ears: _Ears, clock: Clock) -> None:
            await world.engine.release(AllocationId("nobody.1"))
            await clock.sleep(_SOON)
            assert ears.told("nobody.1") == ["Released"]

        self._run(check)

    def test_one_whose_room_is_needed_is_asked(self) -> None:
        async def check(world: EngineWorld, ears: _Ears, clock: Clock) -> None:
            await world.engine.allocate(a_request(is_preemptible=True), {})
            await clock.sleep(_SOON)
            await world.ask_back(AllocationId("t.1"))
            await clock.sleep(_SOON)
            assert ears.told("t.1") == [*_LIFE, "PreemptionAsked"]

        self._run(check)

    def test_after_a_crash_what_is_there_is_found_with_all_that_has_happened(self) -> None:
        async def check(world: EngineWorld, _ears: _Ears, clock: Clock) -> None:
            await world.engine.allocate(a_request("a.1"), {})
            await world.engine.allocate(a_request("b.1"), {})
            await clock.sleep(_SOON)
            await world.finish(ResourceId("b.1-0"), 7)
            await clock.sleep(_SOON)
            async with world.restarted() as engine, _listening(engine) as again:
                await clock.sleep(_SOON)
                assert sorted(await engine.held()) == ["a.1", "b.1"]
                assert again.heard == [], "nobody has asked yet"
                for name in ("a.1", "b.1"):
                    await engine.allocate(a_request(name), {}, is_restored=True)
                await clock.sleep(_SOON)
                found = {event.allocation: event for event in again.heard if isinstance(event, Granted)}
                assert all(event.is_recovered for event in found.values())
                states = {name: event.resources[0].state for name, event in found.items()}
                assert states == {"a.1": ResourceState.RUNNING, "b.1": ResourceState.TERMINATED}
                end = found[AllocationId("b.1")].resources[0].exit
                assert end is not None
                assert end.code == 7
                await world.finish(ResourceId("a.1-0"), 0)
                await clock.sleep(_SOON)
                assert again.told("a.1") == ["Granted", "TERMINATED"]

        self._run(check)

    def test_taken_up_again_it_is_told_anew_also_by_the_engine_that_has_told_it_before(self) -> None:
        async def check(world: EngineWorld, ears: _Ears, clock: Clock) -> None:
            await world.engine.allocate(a_request(), {})
            await clock.sleep(_SOON)
            await world.engine.allocate(a_request(), {}, is_restored=True)
            await clock.sleep(_SOON)
            assert ears.told("t.1") == [*_LIFE, "Granted"]
            await world.finish(ResourceId("t.1-0"), 0)
            await clock.sleep(_SOON)
            assert ears.told("t.1") == [*_LIFE, "Granted", "TERMINATED"]

        self._run(check)

    def test_what_is_gone_is_not_made_again_for_who_takes_it_up(self) -> None:
        async def check(world: EngineWorld, ears: _Ears, clock: Clock) -> None:
            with pytest.raises(errors.NotFound, match=r"t\.1"):
                await world.engine.allocate(a_request(), {}, is_restored=True)
            await clock.sleep(_SOON)
            assert (ears.heard, list(await world.engine.held())) == ([], [])

        self._run(check)

    def test_what_can_never_run_is_refused_with_the_field_that_says_so(self) -> None:
        async def check(world: EngineWorld, _ears: _Ears, _clock: Clock) -> None:
            with pytest.raises(errors.NotFound, match="resource_pool"):
                await world.engine.check(a_request(pool="elsewhere"))
            with pytest.raises(errors.Invalid, match=r"resources\.slots"):
                await world.engine.allocate(a_request(slots=SLOTS + 1, is_single_node=True), {})
            assert await world.engine.check(a_request(slots=SLOTS * 2)) == [Caveat.CURRENT_SLOTS_EXCEEDED]
            assert not await world.engine.held()

        self._run(check)

    def test_pools_say_what_they_have(self) -> None:
        async def check(world: EngineWorld, _ears: _Ears, _clock: Clock) -> None:
            found = {pool.name: pool for pool in await world.engine.pools()}
            assert (found["default"].slots, found["default"].is_default) == (SLOTS, True)

        self._run(check)


class _Check(Protocol):
    async def __call__(self, world: EngineWorld, ears: _Ears, clock: Clock, /) -> None: ...
