"""What the HTTP store has beyond the conformance suite: connections that fail, watches that the server ends."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from muster.api import core, errors, selectors
from muster.api.objects import Key
from muster.runtime.clock import SystemClock
from muster.server import watching
from muster.store.embedded import EmbeddedStore
from muster.store.http import HttpStore
from muster.store.protocol import Change, Create, Options, Patch, Refused, Selection, Written
from muster.testing.servers import Address, serving

MAPS = Selection(core.CONFIG_MAP, "default")


def a_map(name: str, namespace: str = "default", **data: str) -> Create:
    return Create(core.CONFIG_MAP, {"metadata": {"name": name, "namespace": namespace}, "data": data})


@pytest.fixture
async def behind() -> AsyncIterator[EmbeddedStore]:
    async with EmbeddedStore.in_memory(clock=SystemClock()) as store:
        yield store


@pytest.fixture
async def address(behind: EmbeddedStore) -> AsyncIterator[Address]:
    async with serving(behind) as found:
        yield found


@pytest.fixture
async def remote(address: Address) -> AsyncIterator[HttpStore]:
    async with HttpStore(*address) as store:
        yield store


async def test_a_server_that_is_not_there_is_unavailable():
    async with HttpStore("http://127.0.0.1:1", "token") as store:
        with pytest.raises(errors.Unavailable, match="cannot be reached"):
            await store.get(core.POD, Key("default", "p"))
        with pytest.raises(errors.Unavailable):
            await store.list(MAPS)
        with pytest.raises(errors.Unavailable):
            await anext(store.watch(MAPS))
        results = await store.write([a_map("a"), a_map("b")])
        assert [type(result.error) for result in results if isinstance(result, Refused)] == [errors.Unavailable] * 2


async def test_a_store_that_is_not_open_says_so(address):
    store = HttpStore(*address)
    with pytest.raises(errors.Unavailable, match="not open"):
        await store.list(MAPS)


async def test_a_wrong_token_is_refused(address):
    async with HttpStore(address.url, "wrong") as store:
        with pytest.raises(errors.Unauthorized):
            await store.list(MAPS)
        with pytest.raises(errors.Unauthorized):
            await anext(store.watch(MAPS))


async def test_a_watch_goes_on_where_the_server_ended_it(remote, behind, monkeypatch):
    monkeypatch.setattr(watching, "_DEFAULT_SECONDS", 0.2)
    watch = remote.watch(MAPS, since=behind.revision)
    seen = []
    for number in range(5):
        await behind.write([a_map(f"m{number}")])
        async with asyncio.timeout(5):
            seen += [event.object.key.name for event in await anext(watch)]
        await asyncio.sleep(0.15)
    await watch.aclose()
    assert seen == [f"m{number}" for number in range(5)]


async def test_a_watch_is_told_when_the_server_goes(behind):
    async with AsyncExitStack() as server:
        address = await server.enter_async_context(serving(behind))
        async with HttpStore(*address) as store:
            watch = store.watch(MAPS, since=behind.revision)
            await behind.write([a_map("a")])
            await anext(watch)
            pending = asyncio.ensure_future(anext(watch))
            await asyncio.sleep(0.05)
            await server.aclose()
            with pytest.raises(errors.Unavailable):
                await asyncio.wait_for(pending, 10)


async def test_from_now_on_means_from_the_first_step(behind):
    begun = asyncio.Event()

    class Telling:
        """The store, which tells when somebody watches it."""

        get, list, write = behind.get, behind.list, behind.write

        def watch(self, selection, **options):
            begun.set()
            return behind.watch(selection, **options)

    await behind.write([a_map("before")])
    async with serving(Telling()) as address, HttpStore(*address) as remote:
        watch = remote.watch(MAPS)
        first = asyncio.ensure_future(anext(watch))
        await asyncio.wait_for(begun.wait(), 5)
        await behind.write([a_map("after")])
        (event,) = await asyncio.wait_for(first, 5)
        await watch.aclose()
    assert event.object is not None
    assert (event.change, event.object.key.name) == (Change.ADDED, "after")


async def test_writes_on_one_object_keep_their_order(remote):
    key = Key("default", "a")
    patches = [Patch(core.CONFIG_MAP, key, {"data": {"n": str(number)}}) for number in range(20)]
    results = await remote.write([a_map("a", n="first"), *patches])
    assert all(isinstance(result, Written) for result in results)
    assert (await remote.get(core.CONFIG_MAP, key)).document()["data"] == {"n": "19"}


async def test_what_follows_a_namespace_may_live_in_it(remote):
    results = await remote.write([Create(core.NAMESPACE, {"metadata": {"name": "team"}}), a_map("a", "team")])
    assert all(isinstance(result, Written) for result in results)


async def test_an_empty_batch_has_no_results(remote):
    assert list(await remote.write([])) == []


async def test_a_namespaced_object_without_a_namespace_is_named(remote):
    (result,) = await remote.write([Create(core.CONFIG_MAP, {"metadata": {"name": "a"}})])
    assert isinstance(result, Refused)
    assert [cause.path for cause in result.error.causes] == ["metadata.namespace"]


async def test_a_selector_of_nothing_finds_nothing(remote, behind):
    await behind.write([a_map("a")])
    page = await remote.list(Selection(core.CONFIG_MAP, labels=selectors.from_view(None)))
    assert (list(page.items), page.revision) == ([], behind.revision)


async def test_warnings_come_through(remote):
    document = {"metadata": {"name": "a", "namespace": "default"}, 'odd "field"': 1}
    (result,) = await remote.write([Create(core.CONFIG_MAP, document, Options(unknown_fields="Warn"))])
    assert isinstance(result, Written)
    assert result.warnings == ('unknown field "odd "field""',)
