"""What only the embedded store promises, beyond the suite that every store passes."""

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.api import core, errors, scheduling
from muster.api.objects import Key
from muster.api.selectors import parse_labels
from muster.runtime.clock import SystemClock, VirtualClock, VirtualLoop
from muster.store.embedded import EmbeddedStore
from muster.store.journal import Row
from muster.store.protocol import Change, Create, Delete, Event, Patch, Refused, Selection, Write, Written, write_one
from muster.testing.stores import config_map, pod, take


class FailingJournal:
    """Takes what it is told to take."""

    is_slow = True

    def __init__(self) -> None:
        self.is_full = False
        self.rows: list[Row] = []

    def load(self) -> tuple[int, Sequence[Row]]:
        return 0, ()

    def commit(self, rows: Sequence[Row], revision: int) -> None:
        if self.is_full:
            raise errors.Unavailable("disk full")
        self.rows += rows

    def close(self) -> None: ...


async def test_a_write_that_cannot_be_made_durable_is_refused_and_never_seen() -> None:
    journal = FailingJournal()
    async with EmbeddedStore(journal, clock=SystemClock()) as store:
        await write_one(store, Create(core.CONFIG_MAP, config_map("before")))
        before = store.revision
        watch = store.watch(Selection(core.CONFIG_MAP))
        journal.is_full = True
        with pytest.raises(errors.Unavailable, match="disk full"):
            await write_one(store, Create(core.CONFIG_MAP, config_map("lost")))
        assert store.revision == before
        journal.is_full = False
        await write_one(store, Create(core.CONFIG_MAP, config_map("after")))
        (event,) = await take(watch, 1)
        assert event.object is not None
        assert event.object.key.name == "after"
        assert event.object.revision == before + 1


async def test_a_batch_larger_than_a_group_is_answered_whole() -> None:
    async with EmbeddedStore.in_memory(clock=SystemClock()) as store:
        results = await store.write([Create(core.CONFIG_MAP, config_map(f"c{n}")) for n in range(1000)])
        assert all(isinstance(result, Written) for result in results)
        again = await store.write([Create(core.CONFIG_MAP, config_map(f"c{n}")) for n in range(1000)])
        assert all(isinstance(result, Refused) for result in again)


async def test_a_cancelled_caller_does_not_stop_the_others() -> None:
    async with EmbeddedStore.in_memory(clock=SystemClock()) as store:
        impatient = asyncio.ensure_future(store.write([Create(core.CONFIG_MAP, config_map("a"))]))
        await asyncio.sleep(0)
        impatient.cancel()
        await write_one(store, Create(core.CONFIG_MAP, config_map("b")))
        assert len((await store.list(Selection(core.CONFIG_MAP))).items) == 2


async def test_what_was_accepted_is_finished_before_closing(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    async with EmbeddedStore.on_disk(path, clock=SystemClock()) as store:
        pending = asyncio.ensure_future(store.write([Create(core.CONFIG_MAP, config_map(f"c{n}")) for n in range(600)]))
        await asyncio.sleep(0)
    assert all(isinstance(result, Written) for result in await pending)
    async with EmbeddedStore.on_disk(path, clock=SystemClock()) as store:
        assert len((await store.list(Selection(core.CONFIG_MAP))).items) == 600


async def test_a_closed_store_says_so(tmp_path: Path) -> None:
    store = EmbeddedStore.on_disk(tmp_path / "store.db", clock=SystemClock())
    with pytest.raises(errors.Unavailable):
        await store.write([Create(core.CONFIG_MAP, config_map("a"))])
    async with store:
        pass


async def test_one_process_at_a_time(tmp_path: Path) -> None:
    async with EmbeddedStore.on_disk(tmp_path / "store.db", clock=SystemClock()):
        with pytest.raises(errors.Unavailable, match="another Muster process"):
            EmbeddedStore.on_disk(tmp_path / "store.db", clock=SystemClock())


def test_a_file_that_is_no_store_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    path.write_bytes(b"not a database, but quite long enough to look at" * 100)
    with pytest.raises(errors.InternalError, match="damaged"):
        EmbeddedStore.on_disk(path, clock=SystemClock())


async def test_revisions_go_on_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    async with EmbeddedStore.on_disk(path, clock=SystemClock()) as store:
        made = await write_one(store, Create(core.CONFIG_MAP, config_map("a")))
        await store.write([Delete(core.CONFIG_MAP, Key("default", "a"))])
        last = store.revision
    async with EmbeddedStore.on_disk(path, clock=SystemClock()) as store:
        assert store.revision == last
        with pytest.raises(errors.Expired):
            await take(store.watch(Selection(core.CONFIG_MAP), since=made.revision), 1)  # type: ignore[arg-type]
        assert await take_none(store.watch(Selection(core.CONFIG_MAP), since=last))


async def take_none(watch: AsyncIterator[Sequence[Event]]) -> bool:
    try:
        await asyncio.wait_for(anext(aiter(watch)), 0.05)
    except TimeoutError:
        return True
    return False


async def test_watchers_of_one_selection_share_their_batches() -> None:
    async with EmbeddedStore.in_memory(clock=SystemClock()) as store:
        watches = [aiter(store.watch(Selection(core.CONFIG_MAP))) for _ in range(3)]
        await write_one(store, Create(core.CONFIG_MAP, config_map("a")))
        batches = [await anext(watch) for watch in watches]
        assert batches[0] is batches[1] is batches[2]


def test_bookmarks_come_while_other_kinds_change() -> None:
    loop = VirtualLoop()

    async def main() -> None:
        async with EmbeddedStore.in_memory(clock=VirtualClock(loop)) as store:
            watch = aiter(store.watch(Selection(core.POD), bookmarks=True))
            await write_one(store, Create(core.CONFIG_MAP, config_map("a")))
            (event,) = await anext(watch)
            assert event.change is Change.BOOKMARK
            assert event.revision == store.revision

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(main())


async def test_priorities_come_from_the_class() -> None:
    async with EmbeddedStore.in_memory(clock=SystemClock()) as store:
        await write_one(store, Create(scheduling.PRIORITY_CLASS, {"metadata": {"name": "high"}, "value": 1000}))
        document = pod("a")
        document["spec"]["priorityClassName"] = "high"
        made = await write_one(store, Create(core.POD, document))
        assert made.read(core.Pod).spec.priority == 1000
        document = pod("b")
        document["spec"]["priorityClassName"] = "missing"
        with pytest.raises(errors.Forbidden, match="no PriorityClass with name missing"):
            await write_one(store, Create(core.POD, document))


async def test_nothing_is_created_in_a_namespace_that_ends() -> None:
    async with EmbeddedStore.in_memory(clock=SystemClock()) as store:
        await write_one(store, Create(core.NAMESPACE, {"metadata": {"name": "team"}}))
        await write_one(store, Delete(core.NAMESPACE, Key("", "team")))
        with pytest.raises(errors.Forbidden, match="being terminated"):
            await write_one(store, Create(core.CONFIG_MAP, {"metadata": {"name": "a", "namespace": "team"}}))
        (result,) = await store.write([Patch(core.NAMESPACE, Key("", "team"), {"spec": {"finalizers": None}})])
        assert isinstance(result, Written)
        assert result.is_gone


def test_the_same_seed_gives_the_same_store() -> None:
    def run() -> list[bytes]:
        loop = VirtualLoop()

        async def main() -> list[bytes]:
            async with EmbeddedStore.in_memory(clock=VirtualClock(loop), entropy=random.Random(7)) as store:
                await store.write(
                    [Create(core.POD, {**pod("x"), "metadata": {"generateName": "p-", "namespace": "default"}})] * 5
                )
                return [found.raw for found in (await store.list(Selection(core.POD))).items]

        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            return runner.run(main())

    assert run() == run()


names = st.sampled_from(["a", "b", "c"])
changes = st.one_of(
    names.map(lambda name: Create(core.CONFIG_MAP, config_map(name, labels={"x": "1"}))),
    st.tuples(names, st.sampled_from(["1", "2"])).map(
        lambda pair: Patch(core.CONFIG_MAP, Key("default", pair[0]), {"metadata": {"labels": {"x": pair[1]}}})
    ),
    st.tuples(names, st.sampled_from(["u", "v"])).map(
        lambda pair: Patch(core.CONFIG_MAP, Key("default", pair[0]), {"data": {"k": pair[1]}})
    ),
    names.map(lambda name: Delete(core.CONFIG_MAP, Key("default", name))),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(changes, max_size=25), st.integers(0, 25))
def test_a_watcher_that_replays_events_knows_what_a_list_shows(writes: list[Write], start: int) -> None:
    async def main() -> None:
        selection = Selection(core.CONFIG_MAP, labels=parse_labels("x=1"))
        async with EmbeddedStore.in_memory(clock=SystemClock()) as store:
            await store.write(writes[:start])
            page = await store.list(selection)
            known = {item.key: item.raw for item in page.items}
            watch = aiter(store.watch(selection, since=page.revision))
            await store.write(writes[start:])
            await write_one(store, Create(core.CONFIG_MAP, config_map("end", labels={"x": "1"})))
            while Key("default", "end") not in known:
                for event in await anext(watch):
                    assert event.object is not None
                    if event.change is Change.DELETED:
                        del known[event.object.key]
                    else:
                        assert (event.change is Change.ADDED) == (event.object.key not in known)
                        known[event.object.key] = event.object.raw
            final = await store.list(selection)
            assert known == {item.key: item.raw for item in final.items}

    asyncio.run(main())
