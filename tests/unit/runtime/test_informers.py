"""Informers over a real store in memory, and over one whose watches break, lag and expire."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.api import core, errors
from muster.api.kinds import Kind
from muster.api.objects import Key, Object
from muster.runtime.clock import VirtualClock, run_virtual
from muster.runtime.informers import Informer, all_synced, by_owner
from muster.store.embedded import EmbeddedStore
from muster.store.protocol import (
    Change,
    Create,
    Delete,
    Event,
    Page,
    Patch,
    Result,
    Revision,
    Selection,
    Store,
    Write,
)
from muster.testing.virtual import on_virtual_time

MAPS = Selection(core.CONFIG_MAP)


@dataclass
class FlakyStore:
    """A store whose watches end with the given error when told to, and whose list may answer from the past."""

    inner: Store
    error: Exception | None = None
    stale: Page | None = None
    lists: int = 0
    watches: int = 0

    async def get(self, kind: Kind, key: Key) -> Object:
        return await self.inner.get(kind, key)

    async def list(self, selection: Selection, *, limit: int = 0, token: str = "") -> Page:
        self.lists += 1
        page, self.stale = self.stale, None
        return page or await self.inner.list(selection, limit=limit, token=token)

    async def watch(
        self, selection: Selection, *, since: Revision | None = None, bookmarks: bool = False
    ) -> AsyncIterator[Sequence[Event]]:
        self.watches += 1
        async for events in self.inner.watch(selection, since=since, bookmarks=bookmarks):
            if self.error is not None:
                error, self.error = self.error, None
                raise error
            yield events

    async def write(self, writes: Sequence[Write]) -> Sequence[Result]:
        return await self.inner.write(writes)


def a_map(name: str, **data: str) -> Create:
    return Create(core.CONFIG_MAP, {"metadata": {"namespace": "default", "name": name}, "data": data})


def changed(name: str, **data: str) -> Patch:
    return Patch(core.CONFIG_MAP, Key("default", name), {"data": data})


def gone(name: str) -> Delete:
    return Delete(core.CONFIG_MAP, Key("default", name))


@asynccontextmanager
async def running(informer: Informer) -> AsyncIterator[list[tuple[str, str]]]:
    """The informer, running and synced, and what its handler hears."""
    heard: list[tuple[str, str]] = []

    def listen(event: Event) -> None:
        assert event.object is not None
        heard.append((event.change.value, event.object.key.name))

    informer.on_event(listen)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(informer.run(), name="informer")
        await informer.synced()
        yield heard
        task.cancel()


@on_virtual_time
async def test_it_lists_then_follows(clock: VirtualClock) -> None:
    async with EmbeddedStore.in_memory(clock=clock) as store:
        await store.write([a_map("a", x="1")])
        informer = Informer(store, MAPS, clock=clock)
        async with running(informer) as heard:
            assert heard == [("ADDED", "a")]
            await store.write([a_map("b"), changed("a", x="2"), gone("b")])
            await clock.sleep(1)
            assert heard == [("ADDED", "a"), ("ADDED", "b"), ("MODIFIED", "a"), ("DELETED", "b")]
            found = informer.get(Key("default", "a"))
            assert found is not None
            assert found.read(core.ConfigMap).data == {"x": "2"}
            assert informer.get(Key("default", "b")) is None
            assert [item.key.name for item in informer.items()] == ["a"]


@pytest.mark.parametrize("error", [errors.Expired("too old"), errors.Unavailable("restarting"), OSError("reset")])
def test_a_broken_watch_is_relisted_and_handlers_hear_only_the_difference(error: Exception) -> None:
    async def main(clock: VirtualClock) -> None:
        async with EmbeddedStore.in_memory(clock=clock) as inner:
            store = FlakyStore(inner)
            await store.write([a_map("stays"), a_map("changes"), a_map("goes")])
            async with running(Informer(store, MAPS, clock=clock)) as heard:
                heard.clear()
                store.error = error
                await store.write([changed("changes", x="1"), gone("goes"), a_map("comes")])
                await clock.sleep(5)
                assert sorted(heard) == [("ADDED", "comes"), ("DELETED", "goes"), ("MODIFIED", "changes")]
                assert store.lists == 2
                await store.write([changed("stays", x="1")])
                await clock.sleep(1)
                assert heard[-1] == ("MODIFIED", "stays")

    run_virtual(main)


@on_virtual_time
async def test_an_object_made_again_under_its_name_is_seen_to_go_first(clock: VirtualClock) -> None:
    async with EmbeddedStore.in_memory(clock=clock) as inner:
        store = FlakyStore(inner)
        await store.write([a_map("a")])
        async with running(Informer(store, MAPS, clock=clock)) as heard:
            store.error = errors.Expired("too old")
            await store.write([gone("a"), a_map("a")])
            await clock.sleep(5)
            assert heard == [("ADDED", "a"), ("DELETED", "a"), ("ADDED", "a")]


@on_virtual_time
async def test_a_list_from_the_past_is_not_shown(clock: VirtualClock) -> None:
    async with EmbeddedStore.in_memory(clock=clock) as inner:
        store = FlakyStore(inner)
        await store.write([a_map("deleted-since"), a_map("changed-since", x="old")])
        past = await inner.list(MAPS)
        informer = Informer(store, MAPS, clock=clock)
        async with running(informer) as heard:
            await store.write([gone("deleted-since"), changed("changed-since", x="new")])
            await clock.sleep(1)
            heard.clear()
            store.stale, store.error = past, errors.Unavailable("failover")
            await store.write([a_map("trigger")])
            await clock.sleep(5)
            assert heard == [("ADDED", "trigger")]
            found = informer.get(Key("default", "changed-since"))
            assert found is not None
            assert found.read(core.ConfigMap).data == {"x": "new"}


@on_virtual_time
async def test_relists_back_off_while_the_store_is_away(clock: VirtualClock) -> None:
    class Away(FlakyStore):
        async def list(self, selection: Selection, *, limit: int = 0, token: str = "") -> Page:
            self.lists += 1
            raise errors.Unavailable("away")

    async with EmbeddedStore.in_memory(clock=clock) as inner:
        store = Away(inner)
        with suppress(TimeoutError):
            async with asyncio.timeout(60):
                await Informer(store, MAPS, clock=clock).run()
        assert 8 < store.lists < 20


@on_virtual_time
async def test_a_resync_tells_of_everything_again(clock: VirtualClock) -> None:
    async with EmbeddedStore.in_memory(clock=clock) as store:
        await store.write([a_map("a"), a_map("b")])
        async with running(Informer(store, MAPS, clock=clock, resync=30)) as heard:
            heard.clear()
            await clock.sleep(65)
            assert heard == [("MODIFIED", "a"), ("MODIFIED", "b")] * 2


@on_virtual_time
async def test_indices_follow_changes(clock: VirtualClock) -> None:
    async with EmbeddedStore.in_memory(clock=clock) as store:
        informer = Informer(store, MAPS, clock=clock)
        informer.index_by("colour", lambda found: [found.labels["colour"]] * 2 if "colour" in found.labels else [])
        async with running(informer):
            await store.write([a_map("a"), a_map("b")])
            await store.write(
                [
                    Patch(core.CONFIG_MAP, Key("default", name), {"metadata": {"labels": {"colour": "red"}}})
                    for name in ("a", "b")
                ]
            )
            await clock.sleep(1)
            assert {item.key.name for item in informer.by_index("colour", "red")} == {"a", "b"}
            await store.write(
                [
                    Patch(core.CONFIG_MAP, Key("default", "a"), {"metadata": {"labels": {"colour": "blue"}}}),
                    gone("b"),
                ]
            )
            await clock.sleep(1)
            assert not informer.by_index("colour", "red")
            assert [item.key.name for item in informer.by_index("colour", "blue")] == ["a"]
        late = Informer(store, MAPS, clock=clock)
        late.index_by("owner", by_owner)
        async with running(late):
            owner = {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "some-uid"}
            body = {"metadata": {"ownerReferences": [owner]}}
            await store.write([Patch(core.CONFIG_MAP, Key("default", "a"), body)])
            await clock.sleep(1)
            assert [item.key.name for item in late.by_index("owner", "some-uid")] == ["a"]
            late.index_by("name", lambda found: [found.key.name])
            assert [item.key.name for item in late.by_index("name", "a")] == ["a"]


@on_virtual_time
async def test_all_synced_waits_for_each(clock: VirtualClock) -> None:
    async with EmbeddedStore.in_memory(clock=clock) as store, asyncio.TaskGroup() as group:
        informers = [Informer(store, MAPS, clock=clock), Informer(store, Selection(core.NAMESPACE), clock=clock)]
        assert not informers[0].is_synced
        tasks = [group.create_task(informer.run(), name="informer") for informer in informers]
        await all_synced(informers)
        assert all(informer.is_synced for informer in informers)
        for task in tasks:
            task.cancel()


_STEPS = st.lists(
    st.tuples(
        st.sampled_from(["create", "change", "delete", "break", "expire", "rest"]), st.sampled_from(["a", "b", "c"])
    ),
    max_size=40,
)


class Replay:
    """A handler that insists on a sane sequence of events and keeps what they lead to."""

    def __init__(self) -> None:
        self.objects: dict[Key, Object] = {}

    def __call__(self, event: Event) -> None:
        assert event.object is not None
        key = event.object.key
        match event.change:
            case Change.ADDED:
                assert key not in self.objects
                self.objects[key] = event.object
            case Change.MODIFIED:
                assert self.objects[key].revision < event.object.revision
                assert self.objects[key].uid == event.object.uid
                self.objects[key] = event.object
            case Change.DELETED:
                del self.objects[key]


async def take(step: str, name: str, number: int, store: FlakyStore, clock: VirtualClock) -> None:
    match step:
        case "create":
            await store.write([a_map(name)])
        case "change":
            await store.write([changed(name, x=str(number))])
        case "delete":
            await store.write([gone(name)])
        case "break":
            store.error = OSError("reset")
        case "expire":
            store.error = errors.Expired("too old")
        case "rest":
            await clock.sleep(0.3)


@settings(max_examples=60, deadline=None)
@given(steps=_STEPS)
def test_replaying_what_was_heard_gives_the_store(steps: list[tuple[str, str]]) -> None:
    async def main(clock: VirtualClock) -> None:
        async with EmbeddedStore.in_memory(clock=clock) as inner:
            store = FlakyStore(inner)
            informer, replay = Informer(store, MAPS, clock=clock), Replay()
            informer.on_event(replay)
            async with running(informer):
                for number, (step, name) in enumerate(steps):
                    await take(step, name, number, store, clock)
                store.error = None
                await clock.sleep(60)
            expected = {found.key: found.revision for found in (await inner.list(MAPS)).items}
            assert {key: found.revision for key, found in replay.objects.items()} == expected
            assert {found.key: found.revision for found in informer.items()} == expected

    run_virtual(main)
