"""Names of peers for processes that have no resolver of their own."""

import random

import pytest

from muster.agent import peers
from muster.agent.environment import Sources
from muster.agent.peers import Peers, Resolver
from muster.api import core
from muster.api.kinds import Kind
from muster.api.objects import Key, Object, view_of
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


PATTERN = peers.pattern_of(a_pod())
assert PATTERN is not None
KNOWN = Peers(PATTERN, {"ddp-master-0": "10.0.0.1", "ddp-worker-0": "10.0.0.2"})

TEXTS = {
    "alone": ("ddp-master-0.ddp", "10.0.0.1"),
    "with a port": ("ddp-master-0.ddp:2222", "10.0.0.1:2222"),
    "in a list": ("ddp-master-0.ddp,ddp-worker-0.ddp,ddp-worker-1.ddp", "10.0.0.1,10.0.0.2,ddp-worker-1.ddp"),
    "in a document": ('{"ps":["ddp-master-0.ddp:1"]}', '{"ps":["10.0.0.1:1"]}'),
    "in full": ("tcp://ddp-master-0.ddp.ns.svc.cluster.local:1", "tcp://10.0.0.1:1"),
    "of a namespace": ("ddp-master-0.ddp.ns.svc", "10.0.0.1"),
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
    assert (
        KNOWN.hosts_file("ddp") == "10.0.0.1\tddp-master-0.ddp ddp-master-0\n10.0.0.2\tddp-worker-0.ddp ddp-worker-0\n"
    )


def test_a_pod_without_a_subdomain_has_no_peers():
    assert peers.pattern_of(a_pod(None)) is None


def test_what_a_variable_says_alone_is_needed():
    texts = ["ddp-a-0.ddp", "ddp-b-0.ddp:80", "ddp-c-0.ddp,ddp-d-0.ddp", "see ddp-e-0.ddp"]
    assert PATTERN is not None
    assert peers.named_alone(PATTERN, texts) == {"ddp-a-0", "ddp-b-0"}
    assert peers.mentioned(PATTERN, texts) == {f"ddp-{letter}-0" for letter in "abcde"}


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
        assert await resolver.find(asking, {"ddp-master-0"}, ()) == {}
        assert clock.monotonic() == began
        assert await resolver.find(asking, (), {"ddp-master-0"}) == {}
        assert clock.monotonic() - began == pytest.approx(peers.PATIENCE_SECONDS, abs=0.2)
        await write_one(store, Bind(core.POD, Key("default", "ddp-master-0"), "n"))
        assert await resolver.find(asking, (), {"ddp-master-0"}) == {"ddp-master-0": "10.0.0.9"}
