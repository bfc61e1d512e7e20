"""Allocations as the platform runs them: admitted by quota, placed as a gang, run once, preempted, ended."""

from tests.unit.tasks.task_worlds import a_cluster_queue, a_world, an_allocation

from muster.api import core, kueue, volcano
from muster.api.muster.names import EndReason
from muster.controllers.allocations import AllocationController
from muster.runtime.clock import VirtualClock
from muster.store.protocol import Patch, Selection, write_one
from muster.testing.builders import a_node
from muster.testing.staging import running
from muster.testing.virtual import on_virtual_time


@on_virtual_time
async def test_one_is_admitted_runs_and_ends(clock: VirtualClock) -> None:
    async with a_world(clock) as world:
        await world.make(an_allocation())
        await clock.sleep(2)
        found = await world.allocation()
        assert (found.status.phase, found.status.pods_ready, found.status.active) == ("Running", 1, 1)
        (resource,) = found.status.resources
        assert (resource.name, resource.rank, resource.node, resource.address) == ("t.1-0", 0, "n1", "127.0.0.1")
        pod = (await world.pods())["t.1-0"]
        env = {variable.name: variable.value for variable in pod.spec.containers[0].env}
        assert env["DET_RESOURCES_ID"] == "t.1-0"
        await world.finish("t.1-0", code=3)
        await clock.sleep(1)
        found = await world.allocation()
        assert (found.status.phase, found.status.resources[0].exit_code) == ("Terminated", 3)
        (workload,) = await world.workloads()
        assert {c.type: c.reason for c in workload.status.conditions}["Finished"] == "Failed"


@on_virtual_time
async def test_a_gang_waits_until_all_of_it_fits(clock: VirtualClock) -> None:
    async with a_world(clock, a_node("n1").cpu(2), a_node("n2").cpu(1)) as world:
        await world.make(an_allocation(pods=2, cpu=2))
        await clock.sleep(5)
        assert await world.phase() == "Pending"
        assert not any(pod.spec.node_name for pod in (await world.pods()).values())
        await write_one(
            world.store,
            Patch(
                core.NODE, a_node("n2").key, {"status": a_node("n2").cpu(2).document()["status"]}, subresource="status"
            ),
        )
        await clock.sleep(30)
        assert await world.phase() == "Running"
        groups = (await world.store.list(Selection(volcano.POD_GROUP))).items
        assert [group.read(volcano.PodGroup).spec.min_member for group in groups] == [2]
        await world.finish("t.1-0", "t.1-1")
        await clock.sleep(1)
        assert await world.phase() == "Terminated"
        assert not (await world.store.list(Selection(volcano.POD_GROUP))).items


@on_virtual_time
async def test_what_waits_for_quota_has_no_pods(clock: VirtualClock) -> None:
    async with a_world(clock) as world:
        await world.make(*a_cluster_queue("small", 1))
        await world.make(an_allocation("a.1", queue="small"), an_allocation("b.1", queue="small"))
        await clock.sleep(3)
        assert (await world.phase("a.1"), await world.phase("b.1")) == ("Running", "Queued")
        assert set(await world.pods()) == {"a.1-0"}
        await world.finish("a.1-0")
        await clock.sleep(3)
        assert await world.phase("b.1") == "Running"


@on_virtual_time
async def test_a_pod_that_is_done_gives_its_quota_back_before_the_others(clock: VirtualClock) -> None:
    async with a_world(clock) as world:
        await world.make(*a_cluster_queue("small", 2))
        await world.make(an_allocation("a.1", pods=2, queue="small"))
        await clock.sleep(3)
        await world.make(an_allocation("b.1", queue="small"))
        await clock.sleep(3)
        assert await world.phase("b.1") == "Queued"
        await world.finish("a.1-1")
        await clock.sleep(3)
        assert (await world.phase("a.1"), await world.phase("b.1")) == ("Running", "Running")


@on_virtual_time
async def test_one_that_cannot_be_asked_is_stopped_at_once_and_is_over(clock: VirtualClock) -> None:
    async with a_world(clock) as world:
        await world.make(*a_cluster_queue("small", 1))
        await world.make(an_allocation(queue="small"))
        await clock.sleep(3)
        await world.suspend()
        await clock.sleep(3)
        found = await world.allocation()
        assert found.status.phase == "Terminated"
        assert found.status.resources[0].reason == EndReason.DELETED
        assert not await world.pods()
        await clock.sleep(30)
        assert await world.phase() == "Terminated"


@on_virtual_time
async def test_a_preempted_one_has_its_time_and_holds_its_quota_until_it_is_gone(clock: VirtualClock) -> None:
    preempting = {"preemption": {"withinClusterQueue": "LowerPriority"}}
    async with a_world(clock) as world:
        await world.make(*a_cluster_queue("small", 1, **preempting))
        high = {"kind": "WorkloadPriorityClass", "metadata": {"name": "high"}, "value": 10}
        await world.make({"apiVersion": "kueue.x-k8s.io/v1beta2", **high})
        await world.make(an_allocation("low.1", queue="small", isPreemptible=True, preemptionTimeoutSeconds=60))
        await clock.sleep(3)
        assert await world.phase("low.1") == "Running"
        urgent = an_allocation("high.1", queue="small")
        urgent["metadata"]["labels"] = {"kueue.x-k8s.io/priority-class": "high"}
        await world.make(urgent)
        await clock.sleep(30)
        low = await world.allocation("low.1")
        assert low.spec.suspend
        assert [c.type for c in low.status.conditions if c.status == "True"] == ["Preempting"]
        assert (low.status.phase, await world.phase("high.1")) == ("Running", "Queued")
        await clock.sleep(40)
        assert (await world.phase("low.1"), await world.phase("high.1")) == ("Terminated", "Running")


@on_virtual_time
async def test_suspended_before_it_had_nodes_it_queues_again(clock: VirtualClock) -> None:
    async with a_world(clock, a_node("n1").cpu(1)) as world:
        await world.make(
            an_allocation("a.1"),
        )
        await clock.sleep(2)
        await world.make(an_allocation("b.1"))
        await clock.sleep(2)
        assert await world.phase("b.1") == "Pending"
        await world.suspend("b.1")
        await clock.sleep(2)
        assert (await world.phase("b.1"), set(await world.pods())) == ("Queued", {"a.1-0"})
        await world.patch("b.1", {"spec": {"suspend": False}})
        await world.finish("a.1-0")
        await clock.sleep(5)
        assert await world.phase("b.1") == "Running"


@on_virtual_time
async def test_a_pod_that_somebody_deletes_is_not_made_again(clock: VirtualClock) -> None:
    async with a_world(clock) as world:
        await world.make(an_allocation(pods=2))
        await clock.sleep(3)
        await world.delete_pod("t.1-1")
        await clock.sleep(3)
        found = await world.allocation()
        assert [resource.phase for resource in found.status.resources] == ["Running", "Terminated"]
        assert set(await world.pods()) == {"t.1-0"}


@on_virtual_time
async def test_deleting_it_ends_its_pods_first(clock: VirtualClock) -> None:
    async with a_world(clock) as world:
        await world.make(an_allocation(pods=2))
        await clock.sleep(3)
        await world.delete()
        await clock.sleep(5)
        assert not await world.pods()
        (workload,) = await world.workloads() or [kueue.Workload()]
        assert not workload.spec.pod_sets or "Finished" in {c.type for c in workload.status.conditions}


@on_virtual_time
async def test_what_happened_while_its_controller_was_away_is_found_out(clock: VirtualClock) -> None:
    async with a_world(clock, with_allocations=False) as world:
        await world.make(an_allocation(pods=2))
        async with running(AllocationController(world.store, clock).run):
            await clock.sleep(3)
            assert await world.phase() == "Running"
        await world.finish("t.1-0")
        await world.delete_pod("t.1-1")
        await clock.sleep(3)
        assert await world.phase() == "Running"
        async with running(AllocationController(world.store, clock).run):
            await clock.sleep(1)
            found = await world.allocation()
            assert found.status.phase == "Terminated"
            assert [resource.exit_code for resource in found.status.resources] == [0, None]
            assert set(await world.pods()) == {"t.1-0"}
