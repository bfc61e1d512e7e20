"""Informers of one selection over a shared store: one copy, kept by whoever is there."""

import asyncio

import pytest
from tests.unit.runtime.test_informers import FlakyStore

from muster.api import core
from muster.api.objects import Key
from muster.runtime.clock import VirtualClock
from muster.runtime.informers import Informer, Shared
from muster.store.embedded import EmbeddedStore
from muster.store.protocol import Create, Event, Patch, Selection, Store
from muster.testing.virtual import on_virtual_time

MAPS = Selection(core.CONFIG_MAP)


class Listener:
    """An informer, and what its handler has heard."""

    def __init__(self, store: Store, clock: VirtualClock, tasks: asyncio.TaskGroup) -> None:
        self.informer = Informer(store, MAPS, clock=clock)
        self.heard: list[str] = []
        self.informer.on_event(self._hear)
        self._task = tasks.create_task(self.informer.run(), name="informer")

    def _hear(self, event: Event) -> None:
        assert event.object is not None
        self.heard.append(f"{event.change.value} {event.object.key.name}")

    def leave(self) -> None:
        self._task.cancel()


def a_map(name: str) -> Create:
    return Create(core.CONFIG_MAP, {"metadata": {"namespace": "default", "name": name}})


@on_virtual_time
async def test_one_watch_serves_all(clock: VirtualClock) -> None:
    async with EmbeddedStore.in_memory(clock=clock) as inner, asyncio.TaskGroup() as tasks:
        far = FlakyStore(inner)
        store = Shared(far)
        listeners = [Listener(store, clock, tasks) for _ in range(3)]
        await clock.sleep(1)
        await store.write([a_map("a")])
        await clock.sleep(1)
        assert [one.heard for one in listeners] == [["ADDED a"]] * 3
        assert (far.lists, far.watches) == (1, 1)
        for one in listeners:
            one.leave()


@on_virtual_time
async def test_when_the_one_who_keeps_it_goes_the_others_miss_nothing(clock: VirtualClock) -> None:
    async with EmbeddedStore.in_memory(clock=clock) as inner, asyncio.TaskGroup() as tasks:
        store = Shared(inner)
        first, second = Listener(store, clock, tasks), Listener(store, clock, tasks)
        await clock.sleep(1)
        first.leave()
        await store.write([a_map("a")])
        await clock.sleep(1)
        assert second.heard == ["ADDED a"]
        assert first.heard == []
        second.leave()


@on_virtual_time
async def test_who_comes_late_is_told_what_is_there(clock: VirtualClock) -> None:
    async with EmbeddedStore.in_memory(clock=clock) as inner, asyncio.TaskGroup() as tasks:
        store = Shared(inner)
        early = Listener(store, clock, tasks)
        await store.write([a_map("b"), a_map("a")])
        await clock.sleep(1)
        late = Listener(store, clock, tasks)
        late.informer.index_by("name", lambda found: [found.key.name])
        assert not late.informer.is_synced
        await late.informer.synced()
        assert late.heard == ["ADDED a", "ADDED b"]
        assert [found.key.name for found in late.informer.by_index("name", "b")] == ["b"]
        early.leave()
        late.leave()


@on_virtual_time
async def test_after_all_have_gone_nobody_is_shown_the_past(clock: VirtualClock) -> None:
    async with EmbeddedStore.in_memory(clock=clock) as inner, asyncio.TaskGroup() as tasks:
        store = Shared(inner)
        first = Listener(store, clock, tasks)
        await store.write([a_map("a")])
        await clock.sleep(1)
        first.leave()
        await clock.sleep(1)
        await store.write([Patch(core.CONFIG_MAP, Key("default", "a"), {"data": {"x": "1"}})])
        second = Listener(store, clock, tasks)
        assert second.informer.get(Key("default", "a")) is None
        await second.informer.synced()
        found = second.informer.get(Key("default", "a"))
        assert found is not None
        assert found.read(core.ConfigMap).data == {"x": "1"}
        assert second.heard == ["ADDED a"]
        second.leave()


@on_virtual_time
async def test_a_handler_that_raises_ends_its_own_informer_alone(clock: VirtualClock) -> None:
    def fail(_: Event) -> None:
        raise ZeroDivisionError

    async with EmbeddedStore.in_memory(clock=clock) as inner, asyncio.TaskGroup() as tasks:
        store = Shared(inner)
        keeper = Listener(store, clock, tasks)
        await keeper.informer.synced()
        failing = Informer(store, MAPS, clock=clock)
        failing.on_event(fail)
        other = Listener(store, clock, tasks)

        async def run() -> None:
            with pytest.raises(ExceptionGroup) as raised:
                await failing.run()
            assert raised.group_contains(ZeroDivisionError)

        ending = tasks.create_task(run(), name="failing informer")
        await failing.synced()
        await store.write([a_map("a")])
        await ending
        await store.write([a_map("b")])
        await clock.sleep(1)
        assert keeper.heard == other.heard == ["ADDED a", "ADDED b"]
        keeper.leave()
        other.leave()
