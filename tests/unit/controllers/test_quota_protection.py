"""What is in use does not vanish."""

import pytest
from tests.unit.controllers.quota_worlds import World, a_flavor, a_local_queue, a_queue, a_workload, a_world

from muster.api import errors, kueue
from muster.api.kinds import Kind
from muster.api.raw import Document
from muster.controllers.quota.protection import FINALIZER
from muster.runtime.clock import VirtualClock
from muster.testing.virtual import on_virtual_time

TOPOLOGY: Document = {
    "apiVersion": "kueue.x-k8s.io/v1beta2",
    "kind": "Topology",
    "metadata": {"name": "dc"},
    "spec": {"levels": [{"nodeLabel": "rack"}]},
}


async def is_there(world: World, kind: Kind, name: str) -> bool:
    try:
        await world.get(kind, name)
    except errors.NotFound:
        return False
    return True


@on_virtual_time
async def test_a_flavor_stays_until_no_queue_lists_it(clock: VirtualClock) -> None:
    async with a_world(clock) as world:
        await world.make(a_queue(), a_queue("second"))
        await clock.sleep(1)
        assert (await world.get(kueue.RESOURCE_FLAVOR, "f")).meta.finalizers == (FINALIZER,)
        await world.delete(kueue.RESOURCE_FLAVOR, "f")
        await clock.sleep(1)
        await world.delete(kueue.CLUSTER_QUEUE, "cq")
        await clock.sleep(1)
        assert not await is_there(world, kueue.CLUSTER_QUEUE, "cq")
        assert (await world.get(kueue.RESOURCE_FLAVOR, "f")).is_terminating
        await world.change(kueue.CLUSTER_QUEUE, "second", {"spec": {"resourceGroups": None}})
        await clock.sleep(1)
        assert not await is_there(world, kueue.RESOURCE_FLAVOR, "f")


@on_virtual_time
async def test_a_queue_stays_until_nothing_holds_quota_in_it(clock: VirtualClock) -> None:
    async with a_world(clock) as world:
        await world.make(a_queue(cpu="1"), a_local_queue(), a_workload("w"), a_workload("waits"))
        await clock.sleep(2)
        assert await world.is_admitted()
        await world.delete(kueue.CLUSTER_QUEUE, "cq")
        await clock.sleep(3)
        assert (await world.conditions(kueue.CLUSTER_QUEUE, "cq"))["Active"] == ("False", "Terminating")
        expected = "Can't admit new workloads; clusterQueue is terminating"
        assert await world.message("Active", kueue.CLUSTER_QUEUE, "cq") == expected
        await world.delete(kueue.WORKLOAD, "w")
        await clock.sleep(3)
        assert not await is_there(world, kueue.CLUSTER_QUEUE, "cq")
        assert not await world.is_admitted("waits")
        assert await world.message("QuotaReserved", name="waits") == "ClusterQueue cq doesn't exist"


@on_virtual_time
async def test_a_topology_stays_until_no_flavor_uses_it(clock: VirtualClock) -> None:
    async with a_world(clock) as world:
        await world.make(TOPOLOGY, a_flavor("racks", topologyName="dc", nodeLabels={"pool": "gpu"}))
        await clock.sleep(1)
        await world.delete(kueue.TOPOLOGY, "dc")
        await clock.sleep(1)
        assert (await world.get(kueue.TOPOLOGY, "dc")).is_terminating
        await world.delete(kueue.RESOURCE_FLAVOR, "racks")
        await clock.sleep(1)
        assert not await is_there(world, kueue.TOPOLOGY, "dc")


@pytest.mark.parametrize("kind", [kueue.RESOURCE_FLAVOR, kueue.CLUSTER_QUEUE, kueue.TOPOLOGY], ids=str)
@on_virtual_time
async def test_what_nobody_uses_goes_at_once_and_others_finalizers_stay(clock: VirtualClock, kind: Kind) -> None:
    async with a_world(clock) as world:
        document = {"ResourceFlavor": a_flavor("x"), "ClusterQueue": a_queue("x"), "Topology": TOPOLOGY}[kind.name]
        document = {**document, "metadata": {"name": "x", "finalizers": ["example.com/mine"]}}
        await world.make(document)
        await clock.sleep(1)
        assert set((await world.get(kind, "x")).meta.finalizers) == {"example.com/mine", FINALIZER}
        await world.delete(kind, "x")
        await clock.sleep(1)
        assert (await world.get(kind, "x")).meta.finalizers == ("example.com/mine",)
        await world.change(kind, "x", {"metadata": {"finalizers": None}})
        await clock.sleep(1)
        assert not await is_there(world, kind, "x")
