"""One copy of each kind for all who watch it."""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence

import pytest

from muster.api import core, errors, volcano
from muster.api.kinds import Kind
from muster.api.objects import Key
from muster.api.selectors import parse_labels
from muster.runtime.clock import VirtualClock
from muster.runtime.informers import Informer
from muster.runtime.mirroring import mirrored
from muster.store.embedded import EmbeddedStore
from muster.store.protocol import Create, Delete, Event, Page, Patch, Refused, Result, Revision, Selection, Write
from muster.testing.virtual import on_virtual_time


class Far:
    """A store far away: counts what is asked, can cut watches, and may not serve a kind yet."""

    def __init__(self, inner: EmbeddedStore) -> None:
        self.inner = inner
        self.lists: list[Selection] = []
        self.watches: list[Selection] = []
        self.missing: set[Kind] = set()
        self.cut: asyncio.Event = asyncio.Event()
        self.error: errors.ApiError = errors.Unavailable("cut")

    async def get(self, kind: Kind, key: Key):
        return await self.inner.get(kind, key)

    async def list(self, selection: Selection, *, limit: int = 0, token: str = "") -> Page:
        if selection.kind in self.missing:
            raise errors.NotFound("the server could not find the requested resource")
        self.lists.append(selection)
        return await self.inner.list(selection, limit=limit, token=token)

    async def watch(
        self, selection: Selection, *, since: Revision | None = None, bookmarks: bool = False
    ) -> AsyncIterator[Sequence[Event]]:
        self.watches.append(selection)
        inner = aiter(self.inner.watch(selection, since=since, bookmarks=bookmarks))
        while True:
            events, cut = asyncio.ensure_future(anext(inner)), asyncio.ensure_future(self.cut.wait())
            try:
                await asyncio.wait([events, cut], return_when=asyncio.FIRST_COMPLETED)
            finally:
                cut.cancel()
                if self.cut.is_set() or not events.done():
                    events.cancel()
                await asyncio.gather(events, cut, return_exceptions=True)
            if self.cut.is_set():
                raise self.error
            yield events.result()

    async def write(self, writes: Sequence[Write]) -> Sequence[Result]:
        return await self.inner.write(writes)


def a_map(name: str, **labels: str) -> Create:
    return Create(core.CONFIG_MAP, {"metadata": {"name": name, "namespace": "default", "labels": labels}})


MAPS = Selection(core.CONFIG_MAP)


def names(informer: Informer) -> list[str]:
    return sorted(found.key.name for found in informer.items())


@on_virtual_time
async def test_many_watchers_cost_one_list_and_one_watch(clock: VirtualClock) -> None:
    async with EmbeddedStore.in_memory(clock=clock) as inner:
        far = Far(inner)
        await inner.write([a_map("a", team="x"), a_map("b")])
        async with mirrored(far, clock) as mirror, asyncio.TaskGroup() as tasks:
            everything, some = (
                Informer(mirror, MAPS, clock=clock),
                Informer(mirror, Selection(core.CONFIG_MAP, labels=parse_labels("team=x")), clock=clock),
            )
            running = [tasks.create_task(informer.run()) for informer in (everything, some)]
            await clock.sleep(1)
            assert (names(everything), names(some)) == (["a", "b"], ["a"])
            away = {"metadata": {"labels": {"team": "y"}}}
            await mirror.write([a_map("c", team="x"), Patch(core.CONFIG_MAP, Key("default", "a"), away)])
            await mirror.write([Delete(core.CONFIG_MAP, Key("default", "b"))])
            await clock.sleep(1)
            assert (names(everything), names(some)) == (["a", "c"], ["c"])
            assert mirror.find(core.CONFIG_MAP, Key("default", "b")) is None
            assert (len(far.lists), len(far.watches)) == (1, 1)
            for task in running:
                task.cancel()


@on_virtual_time
async def test_a_watch_that_breaks_goes_on_where_it_was(clock: VirtualClock) -> None:
    async with EmbeddedStore.in_memory(clock=clock) as inner:
        far = Far(inner)
        async with mirrored(far, clock) as mirror, asyncio.TaskGroup() as tasks:
            informer = Informer(mirror, MAPS, clock=clock)
            running = tasks.create_task(informer.run())
            await clock.sleep(1)
            far.cut.set()
            await inner.write([a_map("a")])
            await clock.sleep(0.001)
            far.cut.clear()
            await clock.sleep(30)
            assert names(informer) == ["a"]
            assert (len(far.lists), len(far.watches) > 1) == (1, True)
            running.cancel()


@on_virtual_time
async def test_who_follows_hears_what_went_while_nobody_could_listen(clock: VirtualClock) -> None:
    async with EmbeddedStore.in_memory(clock=clock) as inner:
        far = Far(inner)
        await inner.write([a_map("a"), a_map("b")])
        async with mirrored(far, clock) as mirror, asyncio.TaskGroup() as tasks:
            informer = Informer(mirror, MAPS, clock=clock)
            running = tasks.create_task(informer.run())
            await clock.sleep(1)
            far.error = errors.Expired("too old resource version")
            far.cut.set()
            await clock.sleep(0.001)
            await inner.write([Delete(core.CONFIG_MAP, Key("default", "a")), a_map("c")])
            far.cut.clear()
            await clock.sleep(30)
            assert names(informer) == ["b", "c"]
            running.cancel()


@on_virtual_time
async def test_part_of_a_kind_is_asked_of_the_store_itself(clock: VirtualClock) -> None:
    async with EmbeddedStore.in_memory(clock=clock) as inner:
        far = Far(inner)
        await inner.write([a_map("a")])
        async with mirrored(far, clock) as mirror:
            page = await mirror.list(Selection(core.CONFIG_MAP, "default"))
            assert [found.key.name for found in page.items] == ["a"]
            assert far.watches == []


@on_virtual_time
async def test_a_kind_that_is_not_served_is_told_once_and_taken_up_when_it_is(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with EmbeddedStore.in_memory(clock=clock) as inner:
        far = Far(inner)
        far.missing = {volcano.QUEUE}
        queue = Create(volcano.QUEUE, {"metadata": {"name": "q"}})
        async with mirrored(far, clock) as mirror, asyncio.TaskGroup() as tasks:
            informer = Informer(mirror, Selection(volcano.QUEUE), clock=clock)
            running = tasks.create_task(informer.run())
            with caplog.at_level(logging.WARNING):
                await clock.sleep(300)
            assert informer.is_synced
            assert [record.message.split(" ")[0] for record in caplog.records] == ["queues.scheduling.volcano.sh"]
            refused, written = await mirror.write([queue, a_map("a")])
            assert isinstance(refused, Refused)
            assert refused.error.retryable
            assert "CustomResourceDefinition is missing" in refused.error.message
            assert not isinstance(written, Refused)
            far.missing.clear()
            await inner.write([queue])
            await clock.sleep(30)
            assert "q" in names(informer)
            running.cancel()


@on_virtual_time
async def test_a_store_that_is_away_for_hours_is_told_of_once(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with EmbeddedStore.in_memory(clock=clock) as inner:
        far = Far(inner)
        async with mirrored(far, clock) as mirror:
            mirror.follow([core.CONFIG_MAP])
            await clock.sleep(1)
            with caplog.at_level(logging.WARNING):
                far.cut.set()
                await clock.sleep(3600)
                assert [record.message for record in caplog.records] == [
                    "the watch of configmaps broke; it is taken up again: cut"
                ]
                far.cut.clear()
                await inner.write([a_map("a")])
                await clock.sleep(30)
                assert mirror.find(core.CONFIG_MAP, Key("default", "a")) is not None
                far.cut.set()
                await clock.sleep(60)
                assert len(caplog.records) == 2
