"""Jobs that queue, on virtual time: they wait, are admitted with what their flavor gives, run, and give back quota."""

from pathlib import Path

import pytest
from tests.simulation.quota_platform import a_class, a_flavor, a_platform, a_queue

from muster.api import batch, errors, kueue
from muster.quota.settings import PodsReady, Settings
from muster.runtime.clock import VirtualClock
from muster.testing.virtual import on_virtual_time

PRIORITY = "kueue.x-k8s.io/priority-class"


@on_virtual_time
async def test_a_job_waits_for_quota_and_runs_where_its_flavor_says(clock: VirtualClock, tmp_path: Path) -> None:
    nodes = {"fast-1": {"kind": "fast"}, "slow-1": {"kind": "slow"}}
    async with a_platform(clock, tmp_path, nodes) as platform:
        toleration = {"key": "dedicated", "operator": "Exists"}
        await platform.make(a_flavor("fast", nodeLabels={"kind": "fast"}, tolerations=[toleration]))
        await platform.make(*a_queue("team", 2, ["fast"]))
        await platform.submit("first", "sleep", "10", queue="team", cpu=2)
        await clock.sleep(1)
        await platform.submit("second", "sleep", "10", queue="team", cpu=2)
        await clock.sleep(3)

        first, second = await platform.job("first"), await platform.job("second")
        assert (first.spec.suspend, second.spec.suspend) == (False, True)
        (pod,) = await platform.pods()
        assert pod.spec.node_name == "fast-1"
        assert (pod.spec.node_selector or {})["kind"] == "fast"
        assert any(found.key == "dedicated" for found in pod.spec.tolerations)
        labels = pod.metadata.labels or {}
        assert labels["kueue.x-k8s.io/podset"] == "main"
        assert labels["kueue.x-k8s.io/local-queue-name"] == labels["kueue.x-k8s.io/cluster-queue-name"] == "team"
        assert await platform.true("first") == {"QuotaReserved": "QuotaReserved", "Admitted": "Admitted"}
        waiting = await platform.workload("second")
        (condition,) = [found for found in waiting.status.conditions if found.type == "QuotaReserved"]
        assert (condition.status, condition.reason) == ("False", "WaitingForQuota")

        await clock.sleep(10)
        assert (await platform.true("first"))["Finished"] == "Succeeded"
        assert not (await platform.workload("first")).metadata.finalizers
        assert (await platform.job("second")).spec.suspend is False
        await clock.sleep(12)
        assert (await platform.true("second"))["Finished"] == "Succeeded"
        assert {"CreatedWorkload", "Started", "FinishedWorkload"} <= (await platform.events("first")).keys()


@on_virtual_time
async def test_a_job_that_names_no_queue_runs_at_once(clock: VirtualClock, tmp_path: Path) -> None:
    async with a_platform(clock, tmp_path) as platform:
        await platform.submit("free", "sleep", "5", cpu=40)
        await clock.sleep(1)
        assert await platform.phases() == {"Running": 1}
        job = await platform.job("free")
        assert job.spec.suspend is False
        assert "muster.dev/queued" not in (job.metadata.annotations or {})
        assert (await platform.workload("free")).status.admission is not None
        await clock.sleep(8)
        assert (await platform.true("free"))["Finished"] == "Succeeded"


@on_virtual_time
async def test_a_more_urgent_job_takes_the_place_of_another_which_resumes_later(
    clock: VirtualClock, tmp_path: Path
) -> None:
    async with a_platform(clock, tmp_path) as platform:
        await platform.make(a_flavor(nodeLabels={"muster.dev/zone": "a"}), a_class("low", 1), a_class("high", 100))
        await platform.patch_node("n", {"muster.dev/zone": "a"})
        await platform.make(*a_queue("team", 2, preemption={"withinClusterQueue": "LowerPriority"}))
        await platform.submit("slow", "sleep", "20", queue="team", cpu=2, metadata={"labels": {PRIORITY: "low"}})
        await clock.sleep(2)
        assert await platform.phases("slow") == {"Running": 1}
        await platform.submit("urgent", "sleep", "5", queue="team", cpu=2, metadata={"labels": {PRIORITY: "high"}})
        await clock.sleep(3)
        assert await platform.phases("urgent") == {"Running": 1}
        slow = await platform.job("slow")
        assert slow.spec.suspend is True
        assert "muster.dev/zone" not in (slow.spec.template.spec.node_selector or {}), "what was given is taken back"
        assert (await platform.true("slow"))["Evicted"] == "Preempted"
        assert (await platform.workload("slow")).status.admission is None
        await clock.sleep(8)
        assert (await platform.true("urgent"))["Finished"] == "Succeeded"
        assert await platform.phases("slow") == {"Running": 1}
        await clock.sleep(25)
        assert (await platform.true("slow"))["Finished"] == "Succeeded"


@on_virtual_time
async def test_a_user_pauses_and_resumes_a_job_that_names_no_queue(clock: VirtualClock, tmp_path: Path) -> None:
    async with a_platform(clock, tmp_path) as platform:
        await platform.submit("mine", "sleep", "30")
        await clock.sleep(2)
        await platform.patch(batch.JOB, "mine", {"spec": {"suspend": True}})
        await clock.sleep(3)
        assert not await platform.pods()
        workload = await platform.workload("mine")
        (reserved,) = [found for found in workload.status.conditions if found.type == "QuotaReserved"]
        assert (reserved.status, reserved.reason) == ("False", "OnHold")
        await clock.sleep(60)
        assert (await platform.job("mine")).spec.suspend is True, "what its user paused stays paused"

        await platform.patch(batch.JOB, "mine", {"spec": {"suspend": False}})
        await clock.sleep(3)
        assert await platform.phases() == {"Running": 1}
        assert (await platform.true("mine")).keys() == {"QuotaReserved", "Admitted"}
        assert (await platform.job("mine")).spec.suspend is False
        await clock.sleep(40)
        assert (await platform.true("mine"))["Finished"] == "Succeeded"


@on_virtual_time
async def test_a_job_that_is_made_paused_has_no_workload_until_it_is_resumed(
    clock: VirtualClock, tmp_path: Path
) -> None:
    async with a_platform(clock, tmp_path) as platform:
        await platform.submit("mine", "sleep", "5", suspend=True)
        await clock.sleep(5)
        assert not await platform.workloads()
        await platform.patch(batch.JOB, "mine", {"spec": {"suspend": False}})
        await clock.sleep(2)
        assert await platform.phases() == {"Running": 1}
        assert "Admitted" in await platform.true("mine")


@on_virtual_time
async def test_a_resumed_job_stops_where_the_default_queue_has_no_room(clock: VirtualClock, tmp_path: Path) -> None:
    async with a_platform(clock, tmp_path) as platform:
        await platform.make(a_flavor())
        quota = {"name": "plain", "resources": [{"name": "cpu", "nominalQuota": "2"}]}
        groups = [{"coveredResources": ["cpu"], "flavors": [quota]}]
        await platform.patch(kueue.CLUSTER_QUEUE, "default", {"spec": {"resourceGroups": groups}})
        await platform.submit("big", "sleep", "20", cpu=2)
        await platform.submit("paused", "sleep", "5", cpu=2, suspend=True)
        await clock.sleep(2)
        await platform.patch(batch.JOB, "paused", {"spec": {"suspend": False}})
        await clock.sleep(5)
        job = await platform.job("paused")
        assert job.spec.suspend is True
        assert (job.metadata.annotations or {})["muster.dev/queued"] == "true", "quota will start it"
        await clock.sleep(30)
        assert (await platform.true("paused"))["Finished"] == "Succeeded"


@on_virtual_time
async def test_a_running_job_that_names_no_queue_may_be_scaled(clock: VirtualClock, tmp_path: Path) -> None:
    async with a_platform(clock, tmp_path) as platform:
        await platform.submit("mine", "sleep", "30", parallelism=1, completions=4)
        await clock.sleep(2)
        await platform.patch(batch.JOB, "mine", {"spec": {"parallelism": 3}})
        await clock.sleep(2)
        assert await platform.phases() == {"Running": 3}, "it was not stopped for that"
        (workload,) = [found.read(kueue.Workload) for found in (await platform.workloads()).values()]
        assert workload.spec.pod_sets[0].count == 3
        assert "Admitted" in await platform.true("mine")


@on_virtual_time
async def test_a_job_starts_with_fewer_pods_where_it_may(clock: VirtualClock, tmp_path: Path) -> None:
    async with a_platform(clock, tmp_path) as platform:
        await platform.make(a_flavor(), *a_queue("team", 3))
        metadata = {"annotations": {"kueue.x-k8s.io/job-min-parallelism": "2"}}
        await platform.submit("some", "sleep", "5", queue="team", parallelism=5, completions=5, metadata=metadata)
        await clock.sleep(2)
        assert await platform.phases("some") == {"Running": 3}
        assert (await platform.job("some")).spec.parallelism == 3
        await clock.sleep(15)
        assert (await platform.true("some"))["Finished"] == "Succeeded"


@on_virtual_time
async def test_pods_that_are_done_give_back_their_quota(clock: VirtualClock, tmp_path: Path) -> None:
    async with a_platform(clock, tmp_path) as platform:
        await platform.make(a_flavor(), *a_queue("team", 3))
        await platform.submit(
            "wide", "sleep", "$(JOB_COMPLETION_INDEX)0", queue="team",
            parallelism=3, completions=3, completionMode="Indexed",
        )  # fmt: skip
        await clock.sleep(2)
        await platform.submit("next", "sleep", "5", queue="team")
        await clock.sleep(3)
        assert await platform.phases("next") == {"Running": 1}, "the first pod of the other has ended"
        (done,) = (await platform.workload("wide")).status.reclaimable_pods
        assert (done.name, done.count) == ("main", 1)


@on_virtual_time
async def test_an_elastic_job_grows_when_there_is_quota_and_gives_back_what_it_drops(
    clock: VirtualClock, tmp_path: Path
) -> None:
    async with a_platform(clock, tmp_path) as platform:
        await platform.make(a_flavor(), *a_queue("team", 4))
        metadata = {"annotations": {"kueue.x-k8s.io/elastic-job": "true"}}
        await platform.submit("other", "sleep", "20", queue="team", cpu=1)
        await platform.submit("grows", "sleep", "200", queue="team", parallelism=2, completions=10, metadata=metadata)
        await clock.sleep(2)
        assert await platform.phases("grows") == {"Running": 2}
        await platform.patch(batch.JOB, "grows", {"spec": {"parallelism": 4}})
        await clock.sleep(3)
        assert await platform.phases("grows") == {"Running": 2, "Pending": 2}, "no quota for four yet"
        await clock.sleep(20)
        assert await platform.phases("grows") == {"Running": 4}
        slices = [found.read(kueue.Workload) for found in (await platform.workloads()).values()]
        ended = [
            condition.reason
            for found in slices
            for condition in found.status.conditions
            if condition.type == "Finished" and found.metadata.name.startswith("job-grows")
        ]
        assert ended == ["WorkloadSliceReplaced"]

        await platform.patch(batch.JOB, "grows", {"spec": {"parallelism": 1}})
        await clock.sleep(1)
        await platform.submit("late", "sleep", "5", queue="team", cpu=3)
        await clock.sleep(3)
        assert await platform.phases("late") == {"Running": 1}
        assert await platform.phases("grows") == {"Running": 1}


@on_virtual_time
async def test_a_job_whose_workload_is_deleted_stops_and_queues_again(clock: VirtualClock, tmp_path: Path) -> None:
    async with a_platform(clock, tmp_path) as platform:
        await platform.make(a_flavor(), *a_queue("team", 2))
        await platform.submit("again", "sleep", "10", queue="team")
        await clock.sleep(2)
        first = await platform.workload("again")
        await platform.delete(kueue.WORKLOAD, first.metadata.name)
        await clock.sleep(3)
        second = await platform.workload("again")
        assert second.metadata.uid != first.metadata.uid
        assert await platform.phases("again") == {"Running": 1}


@on_virtual_time
async def test_nothing_is_left_of_a_deleted_job(clock: VirtualClock, tmp_path: Path) -> None:
    async with a_platform(clock, tmp_path) as platform:
        await platform.make(a_flavor(), *a_queue("team", 1))
        await platform.submit("first", "sleep", "100", queue="team")
        await platform.submit("second", "sleep", "5", queue="team")
        await clock.sleep(2)
        await platform.delete(batch.JOB, "first")
        await clock.sleep(3)
        assert [name.rsplit("-", 1)[0] for name in await platform.workloads()] == ["job-second"]
        assert await platform.phases("second") == {"Running": 1}
        with pytest.raises(errors.NotFound):
            await platform.job("first")


@on_virtual_time
async def test_a_job_waits_for_its_priority_class_and_says_so(clock: VirtualClock, tmp_path: Path) -> None:
    async with a_platform(clock, tmp_path) as platform:
        await platform.make(a_flavor(), *a_queue("team", 1))
        await platform.submit("job", "sleep", "5", queue="team", metadata={"labels": {PRIORITY: "later"}})
        await clock.sleep(2)
        assert not await platform.workloads()
        assert "WorkloadPriorityClassNotFound" in await platform.events("job")
        await platform.make(a_class("later", 7))
        await clock.sleep(3)
        assert (await platform.workload("job")).spec.priority == 7
        assert await platform.phases("job") == {"Running": 1}


@on_virtual_time
async def test_a_namespace_with_a_default_queue_needs_no_labels(clock: VirtualClock, tmp_path: Path) -> None:
    async with a_platform(clock, tmp_path) as platform:
        cluster_queue, local_queue = a_queue("team", 1)
        local_queue["metadata"]["name"] = "default"
        await platform.make(a_flavor(), cluster_queue, local_queue)
        await platform.submit("job", "sleep", "5")
        await clock.sleep(2)
        workload = await platform.workload("job")
        assert workload.spec.queue_name == "default"
        assert workload.status.admission is not None
        assert workload.status.admission.cluster_queue == "team"


@on_virtual_time
async def test_nothing_that_runs_is_stopped_when_quota_restarts(clock: VirtualClock, tmp_path: Path) -> None:
    async with a_platform(clock, tmp_path) as platform:
        await platform.make(a_flavor(), *a_queue("team", 1))
        await platform.submit("queued", "sleep", "30", queue="team")
        await platform.submit("free", "sleep", "30")
        await platform.submit("waits", "sleep", "5", queue="team")
        await clock.sleep(3)
        before = {pod.metadata.uid for pod in await platform.pods()}
        platform.stop_quota()
        await clock.sleep(3)
        platform.start_quota()
        await clock.sleep(10)
        assert {pod.metadata.uid for pod in await platform.pods()} == before
        await clock.sleep(30)
        assert all(["Finished" in await platform.true(job) for job in ("queued", "free", "waits")])


@on_virtual_time
async def test_a_job_whose_pods_do_not_get_ready_in_time_makes_room(clock: VirtualClock, tmp_path: Path) -> None:
    settings = Settings(pods_ready=PodsReady(timeout=20, backoff_base=30))
    async with a_platform(clock, tmp_path, settings=settings, cpus=8) as platform:
        await platform.make(a_flavor(), *a_queue("team", 100))
        await platform.submit("big", "sleep", "5", queue="team", cpu=100)  # quota has that much, no node has
        await clock.sleep(10)
        assert (await platform.job("big")).spec.suspend is False
        await clock.sleep(15)
        assert (await platform.true("big"))["Evicted"] == "PodsReadyTimeout"
        assert (await platform.job("big")).spec.suspend is True
        assert (await platform.workload("big")).status.admission is None
        await clock.sleep(30)
        assert (await platform.job("big")).spec.suspend is False, "after a rest it is tried again"
        await platform.submit("small", "sleep", "5", queue="team", cpu=0)
        await clock.sleep(2)
        assert (await platform.true("small"))["PodsReady"] == "Started"


@on_virtual_time
async def test_a_job_may_run_only_so_long_and_no_longer(clock: VirtualClock, tmp_path: Path) -> None:
    async with a_platform(clock, tmp_path) as platform:
        await platform.make(a_flavor(), *a_queue("team", 1))
        limit = {"labels": {"kueue.x-k8s.io/max-exec-time-seconds": "5"}}
        await platform.submit("long", "sleep", "30", queue="team", metadata=limit)
        await clock.sleep(10)
        assert (await platform.true("long"))["Evicted"] == "DeactivatedDueToMaximumExecutionTimeExceeded"
        assert (await platform.job("long")).spec.suspend is True
        workload = await platform.workload("long")
        await platform.patch(kueue.WORKLOAD, workload.metadata.name, {"spec": {"active": True}})
        await clock.sleep(2)
        assert await platform.phases("long") == {"Running": 1}, "reactivated, it has all its time again"


@on_virtual_time
async def test_a_drained_queue_stops_its_jobs_and_an_open_one_starts_them(clock: VirtualClock, tmp_path: Path) -> None:
    async with a_platform(clock, tmp_path) as platform:
        await platform.make(a_flavor(), *a_queue("team", 1))
        await platform.submit("job", "sleep", "20", queue="team")
        await clock.sleep(2)
        await platform.patch(kueue.CLUSTER_QUEUE, "team", {"spec": {"stopPolicy": "HoldAndDrain"}})
        await clock.sleep(3)
        assert (await platform.true("job"))["Evicted"] == "ClusterQueueStopped"
        assert not await platform.pods("job")
        await platform.patch(kueue.CLUSTER_QUEUE, "team", {"spec": {"stopPolicy": "None"}})
        await clock.sleep(3)
        assert await platform.phases("job") == {"Running": 1}
