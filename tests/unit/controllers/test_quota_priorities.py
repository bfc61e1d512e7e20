"""A priority class whose value changes changes the workloads that refer to it."""

from tests.unit.controllers.quota_worlds import World, a_local_queue, a_queue, a_workload, a_world

from muster.api import kueue
from muster.api.raw import Document
from muster.runtime.clock import VirtualClock
from muster.store.protocol import Create, write_one
from muster.testing.virtual import on_virtual_time

PREEMPTING: Document = {"preemption": {"withinClusterQueue": "LowerPriority"}}


async def make_class(world: World, value: int) -> None:
    document = {"metadata": {"name": "batch"}, "value": value}
    await write_one(world.store, Create(kueue.WORKLOAD_PRIORITY_CLASS, document))


def of_class(name: str, cpu: str = "1", *, kind: str = "WorkloadPriorityClass", priority: int = 10) -> Document:
    group = "kueue.x-k8s.io" if kind == "WorkloadPriorityClass" else "scheduling.k8s.io"
    reference = {"group": group, "kind": kind, "name": "batch"}
    return a_workload(name, cpu, priorityClassRef=reference, priority=priority)


async def priority(world: World, name: str) -> int | None:
    return (await world.get(kueue.WORKLOAD, name)).read(kueue.Workload).spec.priority


@on_virtual_time
async def test_workloads_follow_their_class_whether_they_wait_or_run(clock: VirtualClock) -> None:
    async with a_world(clock) as world:
        await make_class(world, 10)
        await world.make(a_queue(cpu="1"), a_local_queue())
        await world.make(of_class("runs"), of_class("waits"), of_class("other", kind="PriorityClass"))
        done = of_class("done")
        await world.make(done)
        finished = {"type": "Finished", "status": "True", "reason": "Succeeded", "message": ""}
        finished["lastTransitionTime"] = "2023-11-14T22:13:21Z"
        await world.change(kueue.WORKLOAD, "done", {"status": {"conditions": [finished]}}, is_status=True)
        await clock.sleep(2)
        await world.change(kueue.WORKLOAD_PRIORITY_CLASS, "batch", {"value": 70})
        await clock.sleep(2)
        found = {name: await priority(world, name) for name in ("runs", "waits", "other", "done")}
        assert found == {"runs": 70, "waits": 70, "other": 10, "done": 10}

        await world.delete(kueue.WORKLOAD_PRIORITY_CLASS, "batch")
        await clock.sleep(1)
        assert await priority(world, "runs") == 70
        await make_class(world, 5)
        await clock.sleep(1)
        assert await priority(world, "runs") == 5


@on_virtual_time
async def test_a_workload_that_gains_priority_preempts_for_it(clock: VirtualClock) -> None:
    async with a_world(clock) as world:
        await make_class(world, 10)
        await world.make(a_queue(cpu="1", more=PREEMPTING), a_local_queue(), a_workload("runs", priority=50))
        await clock.sleep(1)
        await world.make(of_class("waits"))
        await clock.sleep(2)
        assert await world.is_admitted("runs")
        await world.change(kueue.WORKLOAD_PRIORITY_CLASS, "batch", {"value": 100})
        await clock.sleep(5)
        assert await world.is_admitted("waits")
        assert (await world.conditions(name="runs"))["Preempted"] == ("True", "InClusterQueue")
