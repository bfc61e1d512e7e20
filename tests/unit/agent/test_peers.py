"""Names of peers for processes that have no resolver of their own."""

import random
from collections.abc import Iterator

import pytest

from muster.agent import peers, ports
from muster.agent.environment import Sources
from muster.agent.peers import Peers, Place, Resolver
from muster.api import core, raw
from muster.api.kinds import Kind
from muster.api.objects import Key, Object, view_of
from muster.api.raw import Document
from muster.runtime.clock import VirtualClock
from muster.store.embedded import EmbeddedStore
from muster.store.protocol import Bind, Create, Patch, Selection, write_one
from muster.testing.virtual import on_virtual_time


def a_pod(subdomain: str | None = "ddp") -> core.Pod:
    found = view_of(
        core.POD, {"metadata": {"name": "ddp-worker-0", "namespace": "ns"}, "spec": {"subdomain": subdomain}}
    )
    assert isinstance(found, core.Pod)
    return found


NAMING = peers.naming_of(a_pod())
assert NAMING is not None
KNOWN = Peers(NAMING, {"ddp-master-0": Place("10.0.0.1", {23456: 15001}), "ddp-worker-0": Place("10.0.0.2")})

TEXTS = {
    "alone": ("ddp-master-0.ddp", "10.0.0.1"),
    "with a port": ("ddp-master-0.ddp:2222", "10.0.0.1:2222"),
    "in a list": ("ddp-master-0.ddp,ddp-worker-0.ddp,ddp-worker-1.ddp", "10.0.0.1,10.0.0.2,ddp-worker-1.ddp"),
    "in a document": ('{"ps":["ddp-master-0.ddp:1"]}', '{"ps":["10.0.0.1:1"]}'),
    "in full": ("tcp://ddp-master-0.ddp.ns.svc.cluster.local:1", "tcp://10.0.0.1:1"),
    "of a namespace": ("ddp-master-0.ddp.ns.svc", "10.0.0.1"),
    "with a port that is another": ("tcp://ddp-master-0.ddp:23456/x", "tcp://10.0.0.1:15001/x"),
    "for a command": ("nc -z ddp-master-0.ddp 23456", "nc -z 10.0.0.1 15001"),
    "for a shell": ("/dev/tcp/ddp-master-0.ddp/23456", "/dev/tcp/10.0.0.1/15001"),
    "for a program": ("f('ddp-master-0.ddp', 23456)", "f('10.0.0.1', 15001)"),
    "with a port that only begins so": ("ddp-master-0.ddp:234567", "10.0.0.1:234567"),
    "a name that only begins so": ("ddp-master-0.ddp.example.com", "ddp-master-0.ddp.example.com"),
    "the end of another": ("my-ddp-master-0.ddp", "my-ddp-master-0.ddp"),
    "a file": ("ddp-master-0.ddpx", "ddp-master-0.ddpx"),
    "another domain": ("ddp-master-0.other", "ddp-master-0.other"),
}


@pytest.mark.parametrize(("text", "wanted"), TEXTS.values(), ids=TEXTS.keys())
def test_names_become_addresses(text, wanted):
    assert KNOWN.in_text(text) == wanted


def test_files_are_changed_and_bytes_are_not():
    found = KNOWN.in_sources(
        Sources({"m": {"hosts": b"ddp-master-0.ddp\n", "b": b"\xff"}}, {"s": {"c": b"ddp-worker-0.ddp"}})
    )
    assert found.config_maps == {"m": {"hosts": b"10.0.0.1\n", "b": b"\xff"}}
    assert found.secrets == {"s": {"c": b"10.0.0.2"}}
    assert KNOWN.hosts_file() == "10.0.0.1\tddp-master-0.ddp ddp-master-0\n10.0.0.2\tddp-worker-0.ddp ddp-worker-0\n"


def test_where_names_resolve_files_keep_them_and_only_ports_change():
    text = b"ddp-worker-0.ddp\nddp-master-0.ddp:23456 ddp-master-0.ddp:1\n"
    found = KNOWN.in_sources(Sources({"m": {"hosts": text}}, {}), keeps_names=True)
    assert found.config_maps == {"m": {"hosts": b"ddp-worker-0.ddp\nddp-master-0.ddp:15001 ddp-master-0.ddp:1\n"}}


def test_a_pod_without_a_subdomain_has_no_peers():
    assert peers.naming_of(a_pod(None)) is None


def test_what_a_variable_says_alone_is_needed():
    texts = ["ddp-a-0.ddp", "ddp-b-0.ddp:80", "ddp-c-0.ddp,ddp-d-0.ddp", "see ddp-e-0.ddp"]
    assert NAMING is not None
    assert peers.named_alone(NAMING, dict(enumerate_names(texts))) == {"ddp-a-0", "ddp-b-0"}
    assert peers.mentioned(NAMING, texts) == {f"ddp-{letter}-0" for letter in "abcde"}


def enumerate_names(texts: list[str]) -> Iterator[tuple[str, str]]:
    return ((f"V{number}", text) for number, text in enumerate(texts))


def a_member(name: str = "ddp-worker-0", env: dict[str, str] | None = None) -> core.Pod:
    """Of a PyTorchJob."""
    labels = {"training.kubeflow.org/job-name": "ddp"}
    listed = [{"name": key, "value": value} for key, value in (env or {}).items()]
    spec = {"containers": [{"name": "pytorch", "image": "host", "env": listed}]}
    found = view_of(core.POD, {"metadata": {"name": name, "namespace": "ns", "labels": labels}, "spec": spec})
    assert isinstance(found, core.Pod)
    return found


def test_members_of_a_pytorch_job_are_hosts_where_a_host_is_meant():
    naming = peers.naming_of(a_member())
    assert naming is not None
    known = Peers(naming, {"ddp-master-0": Place("10.0.0.1", {23456: 15001}), "ddp-worker-0": Place("10.0.0.2")})
    variables = {
        "MASTER_ADDR": "ddp-master-0",
        "MASTER_PORT": "23456",
        "PET_RDZV_ENDPOINT": "ddp-worker-0:23456",
        "OTHER_PORT": "23456",
        "POD_NAME": "ddp-worker-0",
        "URL": "http://ddp-master-0.ns.svc/x",
        "UNKNOWN_HOST": "ddp-worker-7",
        "WORKER_HOST": "ddp-worker-0",
        "WORKER_PORT": "23456",
    }
    assert known.in_variables(variables) == variables | {
        "MASTER_ADDR": "10.0.0.1",
        "MASTER_PORT": "15001",
        "PET_RDZV_ENDPOINT": "10.0.0.2:23456",
        "URL": "http://10.0.0.1/x",
        "WORKER_HOST": "10.0.0.2",
    }
    assert peers.named_alone(naming, variables) == {"ddp-master-0", "ddp-worker-0", "ddp-worker-7"}
    assert known.hosts_file() == "10.0.0.1\tddp-master-0\n10.0.0.2\tddp-worker-0\n"


LISTENING = {
    "the master": ("ddp-master-0", {"MASTER_ADDR": "ddp-master-0", "MASTER_PORT": "23456"}, {23456}),
    "one that looks for the master": ("ddp-worker-0", {"MASTER_ADDR": "ddp-master-0", "MASTER_PORT": "23456"}, set()),
    "where they meet": ("ddp-worker-0", {"PET_RDZV_ENDPOINT": "ddp-worker-0:29400"}, {29400}),
    "one of a cluster": ("ddp-worker-0", {"CLUSTER": '["ddp-worker-0:22","ddp-worker-1:23"]'}, {22}),
    "nobody": ("ddp-worker-0", {"POD_NAME": "ddp-worker-0", "MASTER_PORT": "1", "MY_HOST": "ddp-worker-0"}, set()),
}


@pytest.mark.parametrize(("name", "env", "wanted"), LISTENING.values(), ids=LISTENING.keys())
def test_a_pod_listens_where_its_environment_says_it_is(name, env, wanted):
    assert peers.listened(a_member(name, env)) == wanted


@on_virtual_time
async def test_a_needed_peer_is_waited_for(clock: VirtualClock) -> None:
    async with EmbeddedStore.in_memory(clock=clock, entropy=random.Random(1)) as store:

        async def get(kind: Kind, key: Key) -> Object | None:
            found = [item for item in (await store.list(Selection(kind))).items if item.key == key]
            return found[0] if found else None

        container = {"name": "m", "image": "host"}
        spec = {"subdomain": "ddp", "hostname": "ddp-master-0", "containers": [container]}
        await write_one(
            store, Create(core.POD, {"metadata": {"name": "ddp-master-0", "namespace": "default"}, "spec": spec})
        )
        node = {"metadata": {"name": "n"}}
        await write_one(store, Create(core.NODE, node))
        status = {"status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.9"}]}}
        await write_one(store, Patch(core.NODE, Key("", "n"), status, subresource="status"))
        resolver = Resolver(get, clock)
        asking = view_of(core.POD, {"metadata": {"name": "p", "namespace": "default"}, "spec": {"subdomain": "ddp"}})
        assert isinstance(asking, core.Pod)

        began = clock.monotonic()
        assert await resolver.find(asking, {"ddp-master-0"}) == {}
        assert clock.monotonic() == began
        assert await resolver.find(asking, (), (), {"ddp-master-0"}) == {}
        assert clock.monotonic() - began == pytest.approx(peers.PATIENCE_SECONDS, abs=0.2)
        await write_one(store, Bind(core.POD, Key("default", "ddp-master-0"), "n"))
        assert await resolver.find(asking, (), (), {"ddp-master-0"}) == {"ddp-master-0": Place("10.0.0.9")}


@on_virtual_time
async def test_where_a_peer_listens_is_waited_for_and_never_that_of_an_earlier_pod(clock: VirtualClock) -> None:
    env = [{"name": "MASTER_ADDR", "value": "ddp-master-0"}, {"name": "MASTER_PORT", "value": "23456"}]
    container = {"name": "pytorch", "image": "host", "env": env}
    document: Document = {
        "metadata": {"name": "ddp-master-0", "namespace": "ns", "labels": {"training.kubeflow.org/job-name": "ddp"}},
        "spec": {"nodeName": "n", "containers": [container]},
        "status": {"podIP": "10.0.0.9"},
    }

    async def get(_kind: Kind, _key: Key) -> Object | None:
        return Object(core.POD, raw.encode(document))

    resolver, asking = Resolver(get, clock), a_member()
    assert await resolver.find(asking, {"ddp-master-0"}) == {}, "not told yet"
    assert clock.monotonic() == 0.0
    assert await resolver.find(asking, (), {"ddp-master-0"}) == {}
    assert clock.monotonic() >= peers.PATIENCE_SECONDS
    for port in (15001, 15002):
        document["status"]["conditions"] = [ports.announcement({23456: port})]
        found = await resolver.find(asking, (), {"ddp-master-0"})
        assert found == {"ddp-master-0": Place("10.0.0.9", {23456: port})}
