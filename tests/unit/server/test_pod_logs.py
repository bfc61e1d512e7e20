import asyncio

import pytest

from muster.agent.logs import LogOptions, parse_query
from muster.api import core, errors, raw
from muster.api.meta import Instant
from muster.api.objects import Key, Object
from muster.server import logs, node_logs
from muster.server.node_logs import LocalNodeLogs
from muster.store.protocol import Bind
from muster.testing.asgi import AsgiClient
from muster.testing.servers import TOKEN, app_for

PODS = "/k8s/api/v1/namespaces/default/pods"


def pod(*containers: str, init: tuple[str, ...] = (), node: str = "n1", default: str = "") -> Object:
    document = {
        "metadata": {"name": "p", "namespace": "default", "annotations": {logs.DEFAULT_CONTAINER: default}},
        "spec": {
            "containers": [{"name": name} for name in containers],
            "initContainers": [{"name": name} for name in init],
            "nodeName": node,
        },
    }
    return Object(core.POD, raw.encode(document))


def test_the_container_is_the_only_one_the_default_or_the_one_asked_for():
    assert logs.container_of(pod("a"), "") == "a"
    assert logs.container_of(pod("a", "b"), "b") == "b"
    assert logs.container_of(pod("a", init=("i",)), "i") == "i"
    assert logs.container_of(pod("a", "b", default="b"), "") == "b"


def test_a_choice_is_listed_where_one_must_be_made():
    with pytest.raises(errors.BadRequest, match=r"choose one of: \[a b\] or one of the init containers: \[i\]"):
        logs.container_of(pod("a", "b", init=("i",)), "")
    with pytest.raises(errors.BadRequest, match=r"container x is not valid for pod p; choose one of: \[a\]"):
        logs.container_of(pod("a"), "x")


async def test_logs_are_streamed_as_text(client, store, node_logs, make_pod):
    await client.request("POST", PODS, json=make_pod())
    await store.write([Bind(core.POD, Key("default", "p"), "n1")])
    node_logs.chunks["p", "main"] = [b"one\n", b"two\n"]
    reply = await client.request("GET", f"{PODS}/p/log", query={"tailLines": "5", "follow": "true", "timestamps": "1"})
    assert (reply.status, reply.header("content-type"), reply.body) == (200, "text/plain", b"one\ntwo\n")
    (options,) = node_logs.asked
    assert (options.tail, options.follow, options.timestamps) == (5, True, True)


@pytest.mark.parametrize(
    ("query", "status", "says"),
    [
        ({}, 400, "waiting to start"),
        ({"container": "other"}, 400, "not valid"),
        ({"tailLines": "many"}, 422, "tailLines"),
        ({"sinceTime": "yesterday"}, 422, "sinceTime"),
    ],
)
async def test_what_cannot_be_shown_is_an_error_and_not_an_empty_log(client, store, make_pod, query, status, says):
    await client.request("POST", PODS, json=make_pod())
    await store.write([Bind(core.POD, Key("default", "p"), "n1")])
    reply = await client.request("GET", f"{PODS}/p/log", query=query)
    assert reply.status == status
    assert says in reply.json["message"]


async def test_a_pod_without_a_node_has_no_logs_yet(client, make_pod):
    await client.request("POST", PODS, json=make_pod())
    reply = await client.request("GET", f"{PODS}/p/log")
    assert reply.status == 400
    assert "no node yet" in reply.json["message"]


async def test_a_reader_that_leaves_stops_the_log(client, store, make_pod):
    await client.request("POST", PODS, json=make_pod())
    await store.write([Bind(core.POD, Key("default", "p"), "n1")])
    closed = asyncio.Event()

    class Endless:
        async def open(self, pod, container, options):
            try:
                yield b"first\n"
                await asyncio.Event().wait()
            finally:
                closed.set()

    reader = AsgiClient(app_for(store, node_logs=Endless()), TOKEN)
    async with reader.stream(f"{PODS}/p/log", query={"follow": "true"}) as stream:
        assert await stream.next() == b"first\n"
    assert closed.is_set()


async def test_agents_of_this_process_are_asked_first():
    def opener(name: str):
        async def open_(pod, container, options):
            yield name.encode()

        return open_

    class Elsewhere:
        open = staticmethod(opener("elsewhere"))

    found = LocalNodeLogs(Elsewhere())
    found.update({"n1": opener("here")})
    assert [chunk async for chunk in found.open(pod("a"), "a", LogOptions())] == [b"here"]
    assert [chunk async for chunk in found.open(pod("a", node="n2"), "a", LogOptions())] == [b"elsewhere"]


def test_a_node_says_where_its_agent_listens():
    def node(**status) -> Object:
        return Object(core.NODE, raw.encode({"metadata": {"name": "n"}, "status": status}))

    endpoint = {"kubeletEndpoint": {"Port": 10250}}
    addresses = [{"type": "Hostname", "address": "n"}, {"type": "InternalIP", "address": "10.0.0.1"}]
    assert node_logs.address(node(addresses=addresses, daemonEndpoints=endpoint)) == "https://10.0.0.1:10250"
    six = [{"type": "InternalIP", "address": "fd00::1"}]
    assert node_logs.address(node(addresses=six, daemonEndpoints=endpoint)) == "https://[fd00::1]:10250"
    with pytest.raises(errors.Unavailable, match="has not said"):
        node_logs.address(node(addresses=addresses))


def test_options_survive_the_way_to_a_remote_agent():
    options = LogOptions(
        follow=True, tail=3, since=Instant(1_700_000_000.5), timestamps=True, previous=True, limit_bytes=9
    )
    assert parse_query(node_logs.query_of(options), Instant(0.0)) == options
    assert parse_query(node_logs.query_of(LogOptions()), Instant(0.0)) == LogOptions()
