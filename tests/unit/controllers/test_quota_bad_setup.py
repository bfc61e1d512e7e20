"""What an administrator may get wrong: it is said where it is wrong, other queues go on, nothing that runs is lost."""

from tests.unit.controllers.quota_worlds import World, a_flavor, a_local_queue, a_queue, a_workload, a_world

from muster.api import core, kueue
from muster.api.objects import Key
from muster.runtime.clock import VirtualClock
from muster.store.protocol import Create, Patch, write_one
from muster.testing.virtual import on_virtual_time

CQ = kueue.CLUSTER_QUEUE


def a_cohort(name: str, parent: str) -> dict:
    version = "kueue.x-k8s.io/v1beta2"
    return {"apiVersion": version, "kind": "Cohort", "metadata": {"name": name}, "spec": {"parentName": parent}}


def a_topology(*levels: str) -> dict:
    spec = {"levels": [{"nodeLabel": level} for level in levels]}
    return {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Topology", "metadata": {"name": "t"}, "spec": spec}


async def add_node(world: World, name: str, **labels: str) -> None:
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2023-01-01T00:00:00Z"}
    status = {"allocatable": {"cpu": "8", "pods": "10"}, "conditions": [ready]}
    node = {"metadata": {"name": name, "labels": {"pool": "a", **labels}}, "status": status}
    await write_one(world.store, Create(core.NODE, node))


async def goes_on(world: World) -> None:
    """Another queue admits as if nothing were wrong."""
    await world.make(a_queue("other"), a_local_queue("other", "other"), a_workload("good", queue="other"))
    await world.clock.sleep(5)
    assert await world.is_admitted("good")


@on_virtual_time
async def test_a_circle_of_cohorts(clock: VirtualClock) -> None:
    async with a_world(clock) as world:
        await world.make(a_queue(cohortName="a"), a_local_queue(), a_workload("runs"))
        await clock.sleep(3)
        assert await world.is_admitted("runs")
        await world.make(a_cohort("a", "b"), a_cohort("b", "a"))
        await clock.sleep(1)
        await world.make(a_workload())
        await clock.sleep(7)
        assert (await world.conditions(CQ, "cq"))["Active"] == ("False", "CohortCycle")
        assert "a -> b -> a" in await world.message("Active", CQ, "cq")
        assert await world.message("QuotaReserved") == "ClusterQueue cq is inactive"
        assert await world.is_admitted("runs")
        await goes_on(world)
        await world.delete(kueue.COHORT, "b")
        await clock.sleep(8)
        assert await world.is_admitted()


@on_virtual_time
async def test_a_flavor_or_a_check_that_is_not_there(clock: VirtualClock) -> None:
    async with a_world(clock) as world:
        checks = {"admissionChecks": [{"name": "lost"}]}
        await world.make(a_queue(flavor="gone", admissionChecksStrategy=checks), a_local_queue(), a_workload())
        await clock.sleep(3)
        assert (await world.conditions(CQ, "cq"))["Active"] == ("False", "FlavorNotFound")
        message = await world.message("Active", CQ, "cq")
        assert "missing ResourceFlavor(s): gone" in message
        assert "missing AdmissionCheck(s): lost" in message
        assert (await world.conditions())["QuotaReserved"] == ("False", "Suspended")
        await goes_on(world)
        await world.make(a_flavor("gone"))
        await world.change(CQ, "cq", {"spec": {"admissionChecksStrategy": None}})
        await clock.sleep(5)
        assert await world.is_admitted()


@on_virtual_time
async def test_a_quota_below_what_is_in_use(clock: VirtualClock) -> None:
    async with a_world(clock) as world:
        await world.make(a_queue(cpu="4"), a_local_queue(), a_workload("runs", cpu="3"))
        await clock.sleep(3)
        await world.change(CQ, "cq", {"spec": a_queue(cpu="1")["spec"]})
        await clock.sleep(1)
        await world.make(a_workload())
        await clock.sleep(8)
        assert (await world.conditions(CQ, "cq"))["QuotaExceeded"] == ("True", "UsageAboveQuota")
        assert await world.is_admitted("runs"), "nothing that runs is lost"
        assert not await world.is_admitted()
        await goes_on(world)


@on_virtual_time
async def test_a_topology_level_that_no_node_has(clock: VirtualClock) -> None:
    async with a_world(clock) as world:
        await world.make(a_topology("rack", "kubernetes.io/hostname"))
        await world.make(a_flavor("tas", topologyName="t", nodeLabels={"pool": "a"}))
        await add_node(world, "n")
        asking = a_workload()
        asking["spec"]["podSets"][0]["topologyRequest"] = {"required": "rack"}
        await world.make(a_queue(flavor="tas"), a_local_queue(), asking)
        await clock.sleep(8)
        assert (await world.conditions(CQ, "cq"))["NodesMissing"] == ("True", "NoNodeForTopology")
        message = await world.message("NodesMissing", CQ, "cq")
        assert message.endswith("flavor tas, topology t: no node of the flavor has the label rack")
        assert (await world.conditions())["QuotaReserved"] == ("False", "TopologyPlacementFailed")
        await goes_on(world)
        labels = {"metadata": {"labels": {"rack": "r1", "kubernetes.io/hostname": "n"}}}
        await write_one(world.store, Patch(core.NODE, Key("", "n"), labels))
        await clock.sleep(8)
        assert (await world.conditions(CQ, "cq"))["NodesMissing"] == ("False", "NodesFound")
        assert await world.is_admitted()


@on_virtual_time
async def test_a_flavor_whose_labels_no_node_has(clock: VirtualClock) -> None:
    async with a_world(clock) as world:
        await world.make(a_topology("rack"), a_flavor("tas", topologyName="t", nodeLabels={"pool": "b"}))
        await world.make(a_queue(flavor="tas"), a_local_queue())
        await clock.sleep(8)
        assert "NodesMissing" not in await world.conditions(CQ, "cq"), "nodes may yet join"
        await add_node(world, "n", rack="r1")
        await clock.sleep(8)
        assert (await world.message("NodesMissing", CQ, "cq")).endswith("no ready node has the flavor's labels pool=b")


@on_virtual_time
async def test_a_workload_that_could_never_fit(clock: VirtualClock) -> None:
    async with a_world(clock) as world:
        await world.make(a_queue(cpu="2", cohortName="a"), a_queue("more", cpu="2", cohortName="a"), a_local_queue())
        await world.make(a_workload(cpu="5"), a_workload("small"))
        await clock.sleep(5)
        assert (await world.conditions())["QuotaReserved"] == ("False", "ExceedsMaxQuota")
        assert "> maximum capacity (4)" in await world.message("QuotaReserved")
        assert await world.is_admitted("small")
        await goes_on(world)
