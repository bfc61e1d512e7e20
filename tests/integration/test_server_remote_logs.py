"""Logs of a pod on another machine, from the agent's endpoint through the server to a reader; and what pods use."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from muster.agent import certificates, endpoint, tokens
from muster.agent.certificates import Certificate
from muster.agent.logs import LogOptions
from muster.agent.registration import CERTIFICATE
from muster.agent.sampling import Samples
from muster.api import core, errors
from muster.api.objects import Key
from muster.runtime.clock import SystemClock
from muster.server.listening import listening
from muster.server.node_logs import RemoteNodeLogs
from muster.server.node_samples import NodeSamples
from muster.store.embedded import EmbeddedStore
from muster.store.protocol import Bind, Create, Patch
from muster.testing.asgi import AsgiClient
from muster.testing.servers import TOKEN, app_for

NODE_TOKEN = "between-server-and-agents"
FAR = tokens.for_logs(tokens.of_node(NODE_TOKEN, "far"))
LOG = "/k8s/api/v1/namespaces/default/pods/p/log"


class Agent:
    """Keeps the log of one pod, and knows what another uses."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, ...]] = []

    async def samples(self) -> Samples:
        return {"u-1": {"cpu": {"pod_cpu_cores": 1.5}}}

    async def open_logs(
        self, namespace: str, name: str, uid: str, container: str, options: LogOptions
    ) -> AsyncIterator[bytes]:
        self.asked.append((namespace, name, uid, container, str(options.tail)))
        yield b"one\n"
        yield b"two\n"


@pytest.fixture
async def store() -> AsyncIterator[EmbeddedStore]:
    async with EmbeddedStore.in_memory(clock=SystemClock()) as opened:
        pod = {
            "metadata": {"name": "p", "namespace": "default"},
            "spec": {"containers": [{"name": "main", "image": "host"}]},
        }
        await opened.write([Create(core.POD, pod), Create(core.NODE, {"metadata": {"name": "far"}})])
        await opened.write([Bind(core.POD, Key("default", "p"), "far")])
        yield opened


@pytest.fixture
def certificate(tmp_path: Path) -> Certificate:
    return certificates.make("far", tmp_path, SystemClock().now())


async def say_where(store: EmbeddedStore, port: int, fingerprint: str = "ab" * 32) -> None:
    status = {
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
    }
    known = {"metadata": {"annotations": {CERTIFICATE: fingerprint}}}
    key = Key("", "far")
    await store.write([Patch(core.NODE, key, known), Patch(core.NODE, key, {"status": status}, subresource="status")])


async def test_a_log_comes_from_the_pods_own_node(store, certificate):
    agent = Agent()
    application = endpoint.application(agent, token=FAR, clock=SystemClock())
    async with (
        listening(application, tls=certificate.context) as url,
        RemoteNodeLogs(store, NODE_TOKEN) as remote,
    ):
        await say_where(store, int(url.rpartition(":")[2]), certificate.fingerprint)
        client = AsgiClient(app_for(store, node_logs=remote), TOKEN)
        reply = await client.request("GET", LOG, query={"tailLines": "7"})
        assert (reply.status, reply.body) == (200, b"one\ntwo\n")
    uid = (await store.get(core.POD, Key("default", "p"))).uid
    assert agent.asked == [("default", "p", uid, "main", "7")]


@pytest.mark.parametrize("token", [NODE_TOKEN, tokens.for_logs(tokens.of_node(NODE_TOKEN, "near"))])
async def test_an_agent_that_refuses_is_heard(store, certificate, token):
    application = endpoint.application(Agent(), token=token, clock=SystemClock())
    async with (
        listening(application, tls=certificate.context) as url,
        RemoteNodeLogs(store, NODE_TOKEN) as remote,
    ):
        await say_where(store, int(url.rpartition(":")[2]), certificate.fingerprint)
        reply = await AsgiClient(app_for(store, node_logs=remote), TOKEN).request("GET", LOG)
        assert reply.status == 401


async def test_who_has_not_the_nodes_certificate_is_told_nothing(store, certificate, tmp_path):
    agent = Agent()
    application = endpoint.application(agent, token=FAR, clock=SystemClock())
    other = certificates.make("far", tmp_path, SystemClock().now())
    async with listening(application, tls=other.context) as url, RemoteNodeLogs(store, NODE_TOKEN) as remote:
        client = AsgiClient(app_for(store, node_logs=remote), TOKEN)
        await say_where(store, int(url.rpartition(":")[2]), certificate.fingerprint)
        reply = await client.request("GET", LOG)
        assert (reply.status, agent.asked) == (503, [])
        assert "another certificate" in reply.json["message"]
        await say_where(store, int(url.rpartition(":")[2]), "")
        reply = await client.request("GET", LOG)
        assert (reply.status, agent.asked) == (503, [])
        assert "has not said by which certificate" in reply.json["message"]


async def test_an_agent_cannot_send_the_server_elsewhere(store, certificate):
    asked = []

    async def elsewhere(request):
        asked.append(request.url.path)
        return RedirectResponse("/secret")

    application = Starlette(routes=[Route("/{path:path}", elsewhere)])
    async with (
        listening(application, tls=certificate.context) as url,
        RemoteNodeLogs(store, NODE_TOKEN) as remote,
    ):
        await say_where(store, int(url.rpartition(":")[2]), certificate.fingerprint)
        reply = await AsgiClient(app_for(store, node_logs=remote), TOKEN).request("GET", LOG)
        assert (reply.status, len(asked)) == (503, 1)


async def test_an_agent_that_is_away_is_named(store):
    async with RemoteNodeLogs(store, NODE_TOKEN) as remote:
        client = AsgiClient(app_for(store, node_logs=remote), TOKEN)
        reply = await client.request("GET", LOG)
        assert (reply.status, reply.json["reason"]) == (503, "ServiceUnavailable")
        assert 'node "far" has not said where its agent listens' in reply.json["message"]
        await say_where(store, 1)
        reply = await client.request("GET", LOG)
        assert reply.status == 503
        assert 'the agent of node "far" does not answer' in reply.json["message"]
    with pytest.raises(errors.Unavailable):
        await anext(remote.open(await store.get(core.POD, Key("default", "p")), "main", LogOptions()))


async def test_what_pods_use_comes_from_their_node_and_from_nobody_else(store, certificate, tmp_path):
    application = endpoint.application(Agent(), token=FAR, clock=SystemClock())
    async with listening(application, tls=certificate.context) as url, NodeSamples(store, NODE_TOKEN) as nodes:
        port = int(url.rpartition(":")[2])
        await say_where(store, port, certificate.fingerprint)
        assert await nodes.of("far") == {"u-1": {"cpu": {"pod_cpu_cores": 1.5}}}
        with pytest.raises(errors.NotFound):
            await nodes.of("away")
        await say_where(store, port, certificates.make("far", tmp_path, SystemClock().now()).fingerprint)
        with pytest.raises(errors.Unavailable):
            await nodes.of("far")


@pytest.mark.parametrize("answer", [b"[1, 2]", b'{"u-1": {"cpu": 7}}', b"no JSON"])
async def test_an_agent_that_tells_nonsense_is_not_believed(store, certificate, answer):
    async def tell(_request):
        return Response(answer)

    application = Starlette(routes=[Route("/samples", tell)])
    async with listening(application, tls=certificate.context) as url, NodeSamples(store, NODE_TOKEN) as nodes:
        await say_where(store, int(url.rpartition(":")[2]), certificate.fingerprint)
        with pytest.raises(errors.Unavailable, match="did not tell what its pods use"):
            await nodes.of("far")
