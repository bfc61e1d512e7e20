"""What goes wrong between a store and a real API server: connections break, and the server has too much to do."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from msgspec import structs

from muster.access import kubeconfig
from muster.access.kubeconfig import Cluster
from muster.api import core, errors, raw
from muster.api.kinds import Kind
from muster.api.meta import Resource
from muster.api.objects import Key
from muster.runtime.clock import SystemClock
from muster.runtime.informers import Informer
from muster.store.connection import Connection, Response
from muster.store.kubernetes import KubernetesStore
from muster.store.protocol import Create, Delete, Refused, Selection, Write, Written
from muster.testing.stores import config_map


class Relay:
    """Stands between a store and its server, and can cut all connections at once."""

    def __init__(self, host: str, port: int) -> None:
        self._server = (host, port)
        self._open: set[asyncio.StreamWriter] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(*self._server)
        self._open |= {writer, back}
        await asyncio.gather(self._pass_on(reader, back), self._pass_on(there, writer))
        self._open -= {writer, back}

    async def _pass_on(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await source.read(1 << 16):
                target.write(data)
                await target.drain()
        target.close()

    def cut(self) -> None:
        for writer in self._open:
            writer.transport.abort()


@asynccontextmanager
async def relayed(cluster: Cluster) -> AsyncIterator[tuple[Relay, Cluster]]:
    there = urlsplit(cluster.url)
    assert there.hostname is not None
    assert there.port is not None
    relay = Relay(there.hostname, there.port)
    server = await asyncio.start_server(relay.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        url = there._replace(netloc=f"127.0.0.1:{port}").geturl()
        yield relay, replace(cluster, url=url, server_name=cluster.server_name or there.hostname)
    finally:
        server.close()
        relay.cut()


async def until_written(store: KubernetesStore, write: Create) -> None:
    """As controllers do it: again where the answer is lost, and then the object may be there."""
    while True:
        (result,) = await store.write([write])
        if isinstance(result, Written) or isinstance(result.error, errors.AlreadyExists):
            return
        assert isinstance(result.error, errors.Unavailable)
        await asyncio.sleep(0.01)


async def test_nothing_is_lost_or_done_twice_while_connections_break(cluster, store, namespace):
    entropy = random.Random(7)
    names = [f"c{number:03}" for number in range(200)]
    heard: list[tuple[str, str]] = []
    async with relayed(cluster) as (relay, through), KubernetesStore(through) as shaky:
        informer = Informer(shaky, Selection(core.CONFIG_MAP, namespace), clock=SystemClock())
        informer.on_event(lambda event: heard.append((event.change, event.object.key.name)) if event.object else None)
        following = asyncio.ensure_future(informer.run())

        for start in range(0, len(names), 10):
            some = names[start : start + 10]
            asyncio.get_running_loop().call_later(entropy.uniform(0.0, 0.03), relay.cut)
            writes = [Create(core.CONFIG_MAP, config_map(name, namespace=namespace)) for name in some]
            await asyncio.gather(*(until_written(shaky, write) for write in writes), asyncio.sleep(0.03))
        async with asyncio.timeout(20):
            while sum(key.name in names for key in (found.key for found in informer.items())) < len(names):
                await asyncio.sleep(0.05)
        following.cancel()
    own = [name for _, name in heard if name in names]
    assert sorted(own) == names, "each was heard of once"
    found = (await store.list(Selection(core.CONFIG_MAP, namespace))).items
    assert [item.key.name for item in found if item.key.name in names] == names


# Priority and fairness

LEVEL = Kind(
    "flowcontrol.apiserver.k8s.io", "v1", "PriorityLevelConfiguration", "prioritylevelconfigurations", Resource, False
)
FLOW = Kind("flowcontrol.apiserver.k8s.io", "v1", "FlowSchema", "flowschemas", Resource, False)
BINDING = Kind("rbac.authorization.k8s.io", "v1", "ClusterRoleBinding", "clusterrolebindings", Resource, False)
USER = "muster-test-flood"


def limits() -> list[Create]:
    """Our user may have one request under way, and none may wait."""
    limited = {"nominalConcurrencyShares": 1, "borrowingLimitPercent": 0, "limitResponse": {"type": "Reject"}}
    subject = {"kind": "User", "user": {"name": USER}}
    rules = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"], "namespaces": ["*"], "clusterScope": True}]
    flow = {
        "priorityLevelConfiguration": {"name": USER},
        "matchingPrecedence": 100,
        "rules": [{"subjects": [subject], "resourceRules": rules}],
    }
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
    user = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": USER}
    return [
        Create(LEVEL, {"metadata": {"name": USER}, "spec": {"type": "Limited", "limited": limited}}),
        Create(FLOW, {"metadata": {"name": USER}, "spec": flow}),
        Create(BINDING, {"metadata": {"name": USER}, "roleRef": role, "subjects": [user]}),
    ]


@pytest.fixture
async def limited(store: KubernetesStore, configuration: Path, tmp_path: Path) -> AsyncIterator[Cluster]:
    writes: list[Write] = [*limits()]
    assert not [result for result in await store.write(writes) if isinstance(result, Refused)]
    content = raw.decode_yaml(configuration.read_bytes())[0]
    for user in content["users"]:
        user["user"]["as"] = USER
    path = tmp_path / "config"
    path.write_text(raw.to_yaml(content))
    yield kubeconfig.read(path)
    await store.write([Delete(write.kind, Key("", USER)) for write in writes])


async def test_a_server_that_has_too_much_to_do_is_asked_again_later(limited, namespace, monkeypatch):
    turned_away = []
    ask_once = Connection._ask_once

    async def counting(self, request, credential) -> Response:
        response = await ask_once(self, request, credential)
        if response.status == 429:
            turned_away.append(response.headers["Retry-After"])
        return response

    monkeypatch.setattr(Connection, "_ask_once", counting)
    writes = [Create(core.CONFIG_MAP, config_map(f"c{number:03}", namespace=namespace)) for number in range(150)]
    async with KubernetesStore(limited) as store:
        for _ in range(20):  # the server needs a moment to take up its new rules
            results = await store.write(
                [structs.replace(write, options=structs.replace(write.options, dry_run=True)) for write in writes]
            )
            assert all(isinstance(result, Written) for result in results)
            if turned_away:
                break
        results = await store.write(writes)
    assert all(isinstance(result, Written) for result in results)
    assert turned_away
    assert all(after.isdigit() for after in turned_away)
