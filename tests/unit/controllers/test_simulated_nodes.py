"""Nodes that run nothing behave, as far as a store can tell, as nodes do."""

from muster.api import coordination, core
from muster.api.objects import Key, Object
from muster.runtime.clock import Clock, VirtualClock
from muster.store.embedded import EmbeddedStore
from muster.store.protocol import Bind, Create, Delete, Selection, Store
from muster.testing.builders import a_node, a_pod
from muster.testing.nodes import LEASES, RENEW_SECONDS, SimulatedNodes
from muster.testing.staging import running
from muster.testing.virtual import on_virtual_time

KEY = Key("default", "p")


async def phase(store: Store) -> str | None:
    return (await store.get(core.POD, KEY)).read(core.Pod).status.phase


async def renewed(store: Store) -> str | None:
    lease = await store.get(coordination.LEASE, Key(LEASES, "n1"))
    return lease.read(coordination.Lease).spec.renew_time


def two_nodes(store: Store, clock: Clock) -> SimulatedNodes:
    return SimulatedNodes(store, clock, [a_node("n0").cpu(4), a_node("n1").cpu(4)])


@on_virtual_time
async def test_a_pod_that_was_placed_runs_and_ends_as_told(clock: VirtualClock) -> None:
    async with EmbeddedStore.in_memory(clock=clock) as store:
        nodes = two_nodes(store, clock)
        await nodes.register()
        assert len((await store.list(Selection(core.NODE))).items) == 2
        async with running(nodes.run):
            await store.write([Create(core.POD, a_pod("p").document()), Create(core.POD, a_pod("other").document())])
            await store.write([Bind(core.POD, KEY, "n1"), Bind(core.POD, Key("default", "other"), "elsewhere")])
            await clock.sleep(1)
            assert await phase(store) == "Running"
            assert list(nodes.running) == [KEY]
            pod = (await store.get(core.POD, KEY)).read(core.Pod)
            assert {found.type for found in pod.status.conditions if found.status == "True"} >= {
                "Ready",
                "PodScheduled",
            }
            await nodes.finish({KEY: 3})
            assert await phase(store) == "Failed"
            ended = (await store.get(core.POD, KEY)).document()["status"]["containerStatuses"][0]["state"]
            assert ended["terminated"]["exitCode"] == 3


@on_virtual_time
async def test_a_pod_that_is_deleted_goes_and_leases_are_renewed(clock: VirtualClock) -> None:
    async with EmbeddedStore.in_memory(clock=clock) as store:
        nodes = two_nodes(store, clock)
        await nodes.register()
        before = await renewed(store)
        async with running(nodes.run):
            await store.write([Create(core.POD, a_pod("p").document())])
            await store.write([Bind(core.POD, KEY, "n0")])
            await clock.sleep(1)
            await store.write([Delete(core.POD, KEY)])
            await clock.sleep(RENEW_SECONDS)
            assert not (await store.list(Selection(core.POD))).items
            assert not nodes.running
            assert await renewed(store) != before


@on_virtual_time
async def test_a_pod_runs_for_as_long_as_its_program(clock: VirtualClock) -> None:
    async def program(pod: Object) -> int:
        await clock.sleep(5)
        return 4 if pod.key == KEY else 0

    async with EmbeddedStore.in_memory(clock=clock) as store:
        nodes = SimulatedNodes(store, clock, [a_node("n0").cpu(4)], program)
        await nodes.register()
        async with running(nodes.run):
            other = Key("default", "deleted")
            await store.write([Create(core.POD, a_pod(key.name).document()) for key in (KEY, other)])
            await store.write([Bind(core.POD, key, "n0") for key in (KEY, other)])
            await clock.sleep(4)
            assert await phase(store) == "Running"
            await store.write([Delete(core.POD, other, grace_seconds=5)])
            await clock.sleep(2)
            assert await phase(store) == "Failed"
            assert [pod.key for pod in (await store.list(Selection(core.POD))).items] == [KEY]
