import asyncio

import pytest

from muster.api import core, raw
from muster.api.objects import Key
from muster.server import watching
from muster.store.protocol import Create, Delete, Patch
from muster.testing.asgi import AsgiClient, Streaming
from muster.testing.servers import TOKEN, app_for

MAPS = "/k8s/api/v1/namespaces/default/configmaps"
TABLE = {"accept": "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"}


def a_map(name: str, **labels: str) -> Create:
    return Create(core.CONFIG_MAP, {"metadata": {"name": name, "namespace": "default", "labels": labels}})


async def events(stream: Streaming, count: int) -> list[dict]:
    found: list[dict] = []
    async with asyncio.timeout(5):
        while len(found) < count:
            chunk = await stream.next()
            assert chunk, f"the stream ended after {found}"
            found += [raw.decode(line) for line in chunk.splitlines()]
    assert len(found) == count, found
    return found


def shown(found: list[dict]) -> list[tuple[str, str]]:
    return [(event["type"], event["object"]["metadata"].get("name", "")) for event in found]


async def test_without_a_version_what_is_there_comes_first(client, store):
    await store.write([a_map("a"), a_map("b")])
    async with client.stream(MAPS, query={"watch": "1"}) as stream:
        assert shown(await events(stream, 2)) == [("ADDED", "a"), ("ADDED", "b")]
        await store.write([Patch(core.CONFIG_MAP, Key("default", "a"), {"data": {"k": "v"}})])
        await store.write([Delete(core.CONFIG_MAP, Key("default", "b"))])
        assert shown(await events(stream, 2)) == [("MODIFIED", "a"), ("DELETED", "b")]


async def test_from_a_version_only_later_changes_come(client, store):
    await store.write([a_map("a")])
    since = str(store.revision)
    await store.write([a_map("b")])
    async with client.stream(MAPS, query={"watch": "true", "resourceVersion": since}) as stream:
        assert stream.reply.header("content-type") == "application/json"
        assert shown(await events(stream, 1)) == [("ADDED", "b")]


async def test_a_streamed_list_ends_with_a_marked_bookmark(client, store):
    await store.write([a_map("a")])
    query = {
        "watch": "1",
        "sendInitialEvents": "true",
        "resourceVersionMatch": "NotOlderThan",
        "allowWatchBookmarks": "true",
    }
    async with client.stream(MAPS, query=query) as stream:
        first, last = await events(stream, 2)
        assert shown([first]) == [("ADDED", "a")]
        assert last["type"] == "BOOKMARK"
        assert last["object"]["kind"] == "ConfigMap"
        assert last["object"]["metadata"]["annotations"] == {watching.INITIAL_EVENTS_END: "true"}
        assert last["object"]["metadata"]["resourceVersion"] == str(store.revision)


async def test_a_watch_by_name_sees_one_object(client, store):
    async with client.stream(MAPS, query={"watch": "1", "fieldSelector": "metadata.name=b"}) as stream:
        await store.write([a_map("a"), a_map("b")])
        assert shown(await events(stream, 1)) == [("ADDED", "b")]
    async with client.stream(f"{MAPS}/b", query={"watch": "1"}) as stream:
        assert shown(await events(stream, 1)) == [("ADDED", "b")]


async def test_only_the_first_table_of_a_watch_has_columns(client, store):
    await store.write([a_map("a"), a_map("b")])
    async with client.stream(MAPS, query={"watch": "1"}, headers=TABLE) as stream:
        first, second = await events(stream, 2)
        await store.write([a_map("c")])
        (third,) = await events(stream, 1)
    assert [column["name"] for column in first["object"]["columnDefinitions"]] == ["Name", "Data", "Age"]
    assert second["object"]["columnDefinitions"] is None
    assert third["object"]["columnDefinitions"] is None
    assert third["object"]["rows"][0]["cells"][0] == "c"


async def test_a_watch_ends_when_its_time_is_up(client):
    async with client.stream(MAPS, query={"watch": "1", "timeoutSeconds": "1"}) as stream, asyncio.timeout(3):
        assert await stream.next() == b""


async def test_a_version_from_before_memory_ends_in_an_error_event(client, store):
    await store.write([a_map("a")])
    for start in range(90):
        await store.write(
            [Patch(core.CONFIG_MAP, Key("default", "a"), {"data": {"n": f"{start}-{n}"}}) for n in range(250)]
        )
    async with client.stream(MAPS, query={"watch": "1", "resourceVersion": "1"}) as stream:
        assert stream.reply.status == 200
        (event,) = await events(stream, 1)
        assert (event["type"], event["object"]["code"], event["object"]["reason"]) == ("ERROR", 410, "Expired")
        assert await stream.next() == b""


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ({"sendInitialEvents": "true"}, "NotOlderThan"),
        ({"resourceVersionMatch": "NotOlderThan"}, "sendInitialEvents"),
        ({"timeoutSeconds": "soon"}, "timeoutSeconds"),
        ({"resourceVersion": "-1"}, "resourceVersion"),
    ],
)
async def test_bad_parameters_are_told_before_the_stream_begins(client, query, says):
    reply = await client.request("GET", MAPS, query={"watch": "1", **query})
    assert reply.status == 400
    assert says in reply.json["message"]


async def test_equal_watchers_share_the_bytes_of_a_batch(client, app, store, monkeypatch):
    encoded = []
    original = watching.Watching._encode

    def counted(self, batch, rendering):
        encoded.append(batch)
        return original(self, batch, rendering)

    monkeypatch.setattr(watching.Watching, "_encode", counted)
    query = {"watch": "1", "resourceVersion": str(store.revision)}
    async with client.stream(MAPS, query=query) as one, client.stream(MAPS, query=query) as two:
        await asyncio.sleep(0)
        await store.write([a_map("a")])
        assert await events(one, 1) == await events(two, 1)
    assert len(encoded) == 1


async def test_a_watcher_that_leaves_lets_go_of_the_store(store):
    class Counting:
        """The store, with a count of the watches that are open."""

        is_open = 0
        get, list, write = store.get, store.list, store.write

        async def watch(self, selection, **options):
            self.is_open += 1
            try:
                async for batch in store.watch(selection, **options):
                    yield batch
            finally:
                self.is_open -= 1

    counting = Counting()
    async with AsgiClient(app_for(counting), TOKEN).stream(MAPS, query={"watch": "1"}) as stream:
        await store.write([a_map("a")])
        await events(stream, 1)
        assert counting.is_open == 1
    assert counting.is_open == 0


async def test_closing_the_server_ends_its_streams(app, client):
    async with client.stream(MAPS, query={"watch": "1"}) as stream, asyncio.timeout(3):
        app.close()
        assert await stream.next() == b""
    async with client.stream(MAPS, query={"watch": "1"}) as late, asyncio.timeout(3):
        assert await late.next() == b""
