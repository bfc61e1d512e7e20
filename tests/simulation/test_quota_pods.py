"""Plain pods and pod groups that queue, on virtual time."""

from pathlib import Path

from tests.simulation.quota_platform import Platform, a_class, a_flavor, a_platform, a_queue

from muster.api import core, kueue
from muster.api.raw import Document
from muster.runtime.clock import VirtualClock
from muster.testing.virtual import on_virtual_time

QUEUE = "kueue.x-k8s.io/queue-name"
GROUP = "kueue.x-k8s.io/pod-group-name"
TOTAL = "kueue.x-k8s.io/pod-group-total-count"


def a_pod(name: str, *command: str, queue: str = "", cpu: int = 1, group: str = "", total: int = 0) -> Document:
    container = {
        "name": "main",
        "image": "host",
        "command": list(command),
        "resources": {"requests": {"cpu": str(cpu)}, "limits": {"cpu": str(cpu)}},
    }
    metadata: Document = {"name": name, "namespace": "default", "labels": {}, "annotations": {}}
    if queue:
        metadata["labels"][QUEUE] = queue
    if group:
        metadata["labels"][GROUP] = group
        metadata["annotations"][TOTAL] = str(total)
    spec = {"restartPolicy": "Never", "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


async def phases(platform: Platform) -> dict[str, str]:
    return {pod.metadata.name: pod.status.phase or "" for pod in await platform.pods()}


async def the_workload(platform: Platform) -> kueue.Workload:
    (found,) = (await platform.workloads()).values()
    return found.read(kueue.Workload)


@on_virtual_time
async def test_a_pod_in_a_queue_waits_and_one_in_none_does_not(clock: VirtualClock, tmp_path: Path) -> None:
    async with a_platform(clock, tmp_path) as platform:
        await platform.make(a_flavor(), *a_queue("team", 1))
        await platform.make(a_pod("free", "sleep", "5"))
        await platform.make(a_pod("first", "sleep", "10", queue="team"))
        await clock.sleep(1)
        await platform.make(a_pod("second", "sleep", "10", queue="team"))
        await clock.sleep(2)
        assert await phases(platform) == {"free": "Running", "first": "Running", "second": "Pending"}
        waiting = next(pod for pod in await platform.pods() if pod.metadata.name == "second")
        assert {gate.name for gate in waiting.spec.scheduling_gates} == {
            "kueue.x-k8s.io/admission",
            "kueue.x-k8s.io/topology",
        }
        assert len(await platform.workloads()) == 2, "none for the pod that names no queue"
        await clock.sleep(12)
        assert (await phases(platform))["second"] == "Running"
        assert (await platform.true("first"))["Finished"] == "Succeeded"
        await clock.sleep(10)
        assert not any(pod.metadata.finalizers for pod in await platform.pods())


@on_virtual_time
async def test_a_group_is_admitted_together_and_is_done_when_all_are(clock: VirtualClock, tmp_path: Path) -> None:
    async with a_platform(clock, tmp_path) as platform:
        await platform.make(a_flavor(), *a_queue("team", 3))
        for number in (1, 2):
            await platform.make(a_pod(f"m-{number}", "sleep", f"{number}0", queue="team", group="g", total=3))
        await clock.sleep(2)
        assert not await platform.workloads(), "one pod is missing"
        await platform.make(a_pod("m-3", "sleep", "30", queue="team", group="g", total=3))
        await clock.sleep(2)
        assert set((await phases(platform)).values()) == {"Running"}
        workload = await the_workload(platform)
        assert workload.metadata.name == "g"
        assert [(pods.count) for pods in workload.spec.pod_sets] == [3]
        assert len(workload.metadata.owner_references) == 3
        await clock.sleep(12)
        workload = await the_workload(platform)
        assert [found.count for found in workload.status.reclaimable_pods] == [1]
        await clock.sleep(22)
        assert (await platform.true("m-1"))["Finished"] == "Succeeded"
        assert not any(pod.metadata.finalizers for pod in await platform.pods())


@on_virtual_time
async def test_a_preempted_group_waits_for_new_pods(clock: VirtualClock, tmp_path: Path) -> None:
    async with a_platform(clock, tmp_path) as platform:
        await platform.make(a_flavor(), a_class("high", 100))
        await platform.make(*a_queue("team", 2, preemption={"withinClusterQueue": "LowerPriority"}))
        for number in (1, 2):
            await platform.make(a_pod(f"m-{number}", "sleep", "100", queue="team", group="g", total=2))
        await clock.sleep(2)
        assert set((await phases(platform)).values()) == {"Running"}
        urgent = {"labels": {"kueue.x-k8s.io/priority-class": "high"}}
        await platform.submit("urgent", "sleep", "5", queue="team", cpu=2, metadata=urgent)
        await clock.sleep(3)
        assert await platform.phases("urgent") == {"Running": 1}
        group = (await platform.workloads())["g"].read(kueue.Workload)
        state = {found.type: found.status for found in group.status.conditions}
        assert (state["Evicted"], state["WaitingForReplacementPods"], state["QuotaReserved"]) == (
            "True",
            "True",
            "False",
        )
        for number in (1, 2):
            await platform.make(a_pod(f"m-{number}b", "sleep", "5", queue="team", group="g", total=2))
        await clock.sleep(5)
        left = {name: phase for name, phase in (await phases(platform)).items() if name.startswith("m-")}
        assert left == {"m-1b": "Running", "m-2b": "Running"}
        await clock.sleep(6)
        assert (await platform.true("m-1b"))["Finished"] == "Succeeded"


@on_virtual_time
async def test_a_failed_member_is_replaced_and_one_too_many_goes(clock: VirtualClock, tmp_path: Path) -> None:
    async with a_platform(clock, tmp_path) as platform:
        await platform.make(a_flavor(), *a_queue("team", 2))
        await platform.make(a_pod("m-1", "sleep", "20", queue="team", group="g", total=2))
        await platform.make(a_pod("m-2", "exit", "1", queue="team", group="g", total=2))
        await clock.sleep(2)
        assert (await phases(platform)) == {"m-1": "Running", "m-2": "Failed"}
        await platform.make(a_pod("m-3", "sleep", "5", queue="team", group="g", total=2))
        await clock.sleep(2)
        assert (await phases(platform))["m-3"] == "Running"
        await platform.make(a_pod("m-4", "sleep", "5", queue="team", group="g", total=2))
        await clock.sleep(2)
        assert "m-4" not in await phases(platform)
        await clock.sleep(25)
        assert (await platform.true("m-1"))["Finished"] == "Succeeded"


@on_virtual_time
async def test_a_deleted_pod_gives_back_its_quota(clock: VirtualClock, tmp_path: Path) -> None:
    async with a_platform(clock, tmp_path) as platform:
        await platform.make(a_flavor(), *a_queue("team", 1))
        await platform.make(a_pod("first", "sleep", "100", queue="team"))
        await clock.sleep(2)
        await platform.make(a_pod("second", "sleep", "100", queue="team"))
        await clock.sleep(1)
        await platform.delete(core.POD, "first")
        await clock.sleep(5)
        assert await phases(platform) == {"second": "Running"}
        assert len(await platform.workloads()) == 1


@on_virtual_time
async def test_a_whole_group_can_be_deleted(clock: VirtualClock, tmp_path: Path) -> None:
    async with a_platform(clock, tmp_path) as platform:
        await platform.make(a_flavor(), *a_queue("team", 2))
        for number in (1, 2):
            await platform.make(a_pod(f"m-{number}", "sleep", "100", queue="team", group="g", total=2))
        await clock.sleep(2)
        for number in (1, 2):
            await platform.delete(core.POD, f"m-{number}")
        await clock.sleep(5)
        assert not await platform.pods()
        assert not await platform.workloads()
