"""Volcano Jobs that queue, on virtual time: they wait, run, grow and shrink as quota comes and goes."""

from collections import Counter
from pathlib import Path

import pytest
from tests.simulation.quota_platform import a_flavor, a_queue
from tests.simulation.volcano_quota_platform import VolcanoPlatform, a_task, a_volcano_platform, holds

from muster.api import errors, volcano
from muster.api.everything import REGISTRY
from muster.api.objects import Key
from muster.api.raw import Document
from muster.quota.topology import from_view
from muster.runtime.clock import VirtualClock
from muster.store.protocol import Patch, Selection, write_one
from muster.testing.virtual import on_virtual_time


def a_priority_class(name: str, value: int) -> Document:
    return {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value}


@on_virtual_time
async def test_a_second_job_waits_for_the_first(clock: VirtualClock, tmp_path: Path) -> None:
    async with a_volcano_platform(clock, tmp_path, cpu=3) as up:
        await up.submit("a", a_task("w", 3, "sleep", "20"))
        await clock.sleep(1)
        await up.submit("b", a_task("w", 2, "sleep", "20"))
        await clock.sleep(5)
        assert await up.phases("a") == {"Running": 3}
        assert await up.phase("a") == ("Running", None)
        assert await up.phase("b") == ("Pending", "WaitingForQuota")
        assert await up.group("b") == "Pending"
        assert not await up.pods("b")
        await clock.sleep(20)
        assert await up.phase("a") == ("Completed", None)
        assert await up.phase("b") == ("Running", None)
        await clock.sleep(25)
        assert await up.phase("b") == ("Completed", None)
        assert await up.workloads("a") == await up.workloads("b") == ([], [])


@on_virtual_time
async def test_an_elastic_job_grows_and_shrinks_with_quota(clock: VirtualClock, tmp_path: Path) -> None:
    async with a_volcano_platform(clock, tmp_path, cpu=4, preemption={"withinClusterQueue": "LowerPriority"}) as up:
        await up.platform.make(a_priority_class("high", 100))
        await up.submit("first", a_task("w", 2, "sleep", "20"))
        await clock.sleep(2)
        await up.submit("elastic", a_task("w", 4, "sleep", "1000", minAvailable=1), minAvailable=1)
        await clock.sleep(3)
        assert await up.phases("elastic") == {"Running": 2}, "as many as there is quota for"
        (base,), parts = await up.workloads("elastic")
        assert holds(base, "Admitted")
        assert sorted(holds(part, "Admitted") for part in parts) == [False, False, True]

        await clock.sleep(20)
        assert await up.phases("elastic") == {"Running": 4}, "grown, since the first job is over"

        await up.submit("urgent", a_task("w", 2, "sleep", "30"), priorityClassName="high")
        await clock.sleep(10)
        assert await up.phases("urgent") == {"Running": 2}
        assert sorted(await up.pods("elastic")) == ["elastic-w-0", "elastic-w-1"], "the highest numbers have gone"
        assert await up.phase("elastic") == ("Running", None)
        await clock.sleep(40)
        assert await up.phases("elastic") == {"Running": 4}


@on_virtual_time
async def test_a_preempted_job_ends_its_pods_and_runs_again(clock: VirtualClock, tmp_path: Path) -> None:
    async with a_volcano_platform(clock, tmp_path, cpu=2, preemption={"withinClusterQueue": "LowerPriority"}) as up:
        await up.platform.make(a_priority_class("high", 100))
        await up.submit("low", a_task("w", 2, "sleep", "60"))
        await clock.sleep(5)
        await up.submit("high", a_task("w", 2, "sleep", "30"), priorityClassName="high")
        await clock.sleep(10)
        assert await up.phase("low") == ("Pending", "WaitingForQuota")
        assert await up.group("low") == "Pending"
        assert await up.phases("low") == {}
        assert await up.phases("high") == {"Running": 2}
        await clock.sleep(40)
        assert await up.phases("low") == {"Running": 2}
        assert not (await up.job("low")).status.retry_count
        await clock.sleep(70)
        assert await up.phase("low") == ("Completed", None)


@on_virtual_time
async def test_an_aborted_job_gives_its_quota_back_and_queues_when_it_is_resumed(
    clock: VirtualClock, tmp_path: Path
) -> None:
    async with a_volcano_platform(clock, tmp_path, cpu=2) as up:
        await up.submit("a", a_task("w", 2, "sleep", "100"))
        await clock.sleep(3)
        await up.submit("b", a_task("w", 2, "sleep", "20"))
        await clock.sleep(3)
        await up.command("a", "AbortJob")
        await clock.sleep(8)
        assert (await up.phase("a"))[0] == "Aborted"
        assert await up.phases("b") == {"Running": 2}
        await up.command("a", "ResumeJob")
        await clock.sleep(5)
        assert await up.phase("a") == ("Pending", "WaitingForQuota")
        await clock.sleep(30)
        assert await up.phases("a") == {"Running": 2}
        assert (await up.job("a")).status.retry_count == 1

        await up.submit("c", a_task("w", 2, "sleep", "20"))
        await clock.sleep(3)
        await up.command("c", "AbortJob")
        await clock.sleep(3)
        assert (await up.phase("c"))[0] == "Aborted", "also while it waits"
        await up.command("c", "ResumeJob")
        await up.command("a", "TerminateJob")
        await clock.sleep(10)
        assert (await up.phase("a"))[0] == "Terminated"
        assert await up.phases("c") == {"Running": 2}


@on_virtual_time
async def test_a_running_job_is_resized_without_being_stopped(clock: VirtualClock, tmp_path: Path) -> None:
    async with a_volcano_platform(clock, tmp_path, cpu=6) as up:
        await up.submit("j", a_task("w", 2, "sleep", "1000"))
        await clock.sleep(3)
        before = {name: pod.metadata.uid for name, pod in (await up.pods("j")).items()}
        await up.resize("j", {"w": 4})
        await clock.sleep(5)
        assert await up.phases("j") == {"Running": 4}
        (base,), parts = await up.workloads("j")
        assert (base.spec.pod_sets[0].count, len(parts)) == (2, 2), "what it needs is what it was"

        await up.resize("j", {"w": 2})
        await clock.sleep(10)
        assert await up.phases("j") == {"Running": 2}
        (base,), parts = await up.workloads("j")
        assert (base.spec.pod_sets[0].count, len(parts)) == (2, 0)

        await up.resize("j", {"w": 5}, minimum=5)
        await clock.sleep(5)
        assert await up.phases("j") == {"Running": 5}
        (base,), parts = await up.workloads("j")
        assert (base.spec.pod_sets[0].count, len(parts)) == (5, 0), "a slice that has taken the place of the first"

        await up.resize("j", {"w": 7}, minimum=7)
        await clock.sleep(5)
        assert await up.phases("j") == {"Running": 5}, "there is no quota for seven"
        await up.resize("j", {"w": 1}, minimum=1)
        await clock.sleep(10)
        assert await up.phases("j") == {"Running": 1}
        (base,), parts = await up.workloads("j")
        assert (base.spec.pod_sets[0].count, len(parts)) == (1, 0)
        after = {name: pod.metadata.uid for name, pod in (await up.pods("j")).items()}
        assert after["j-w-0"] == before["j-w-0"], "never stopped"


# Whatever becomes of it


@on_virtual_time
async def test_a_job_that_ends_early_gives_back_its_quota_pod_by_pod(clock: VirtualClock, tmp_path: Path) -> None:
    async with a_volcano_platform(clock, tmp_path, cpu=3) as up:
        await up.submit("a", a_task("short", 1, "sleep", "10"), a_task("long", 2, "sleep", "60"))
        await clock.sleep(2)
        await up.submit("b", a_task("w", 1, "sleep", "10"))
        await clock.sleep(3)
        assert not await up.pods("b")
        await clock.sleep(10)
        assert await up.phases("b") == {"Running": 1}
        assert await up.phases("a") == {"Running": 2, "Succeeded": 1}


@on_virtual_time
async def test_more_pods_than_quota_run_one_after_the_other(clock: VirtualClock, tmp_path: Path) -> None:
    async with a_volcano_platform(clock, tmp_path, cpu=2) as up:
        await up.submit("j", a_task("w", 5, "sleep", "10", minAvailable=1), minAvailable=1)
        await clock.sleep(5)
        assert await up.phases("j") == {"Running": 2}
        await clock.sleep(60)
        assert await up.phase("j") == ("Completed", None)
        assert await up.phases("j") == {"Succeeded": 5}
        assert await up.workloads("j") == ([], [])


@on_virtual_time
async def test_a_job_that_restarts_by_its_policy_keeps_its_quota(clock: VirtualClock, tmp_path: Path) -> None:
    async with a_volcano_platform(clock, tmp_path, cpu=2) as up:
        again = [{"event": "PodFailed", "action": "RestartJob"}]
        await up.submit("j", a_task("bad", 1, "sleep", "5", "3"), a_task("w", 1, "sleep", "60"), policies=again)
        await up.submit("other", a_task("w", 2, "sleep", "5"))
        await clock.sleep(9)
        assert (await up.job("j")).status.retry_count == 1
        assert not await up.pods("other")
        await clock.sleep(60)
        assert (await up.phase("j"))[0] == "Failed"
        assert await up.phase("other") == ("Completed", None)


@on_virtual_time
async def test_a_started_job_may_still_be_scaled_but_not_changed(clock: VirtualClock, tmp_path: Path) -> None:
    async with a_volcano_platform(clock, tmp_path, cpu=4) as up:
        await up.submit("j", a_task("w", 1, "sleep", "60"))
        await clock.sleep(3)
        (task,) = (await up.job("j")).spec.tasks
        assert "kueue.x-k8s.io/workload" in (task.template.metadata.annotations or {})
        await up.resize("j", {"w": 3})
        await clock.sleep(3)
        assert await up.phases("j") == {"Running": 3}
        body = {"spec": {"tasks": [{"name": "w", "replicas": 3, "template": {"spec": {"containers": []}}}]}}
        with pytest.raises(errors.Invalid):
            await up.platform.patch(volcano.JOB, "j", body)


@on_virtual_time
async def test_a_job_that_names_a_local_queue_goes_there(clock: VirtualClock, tmp_path: Path) -> None:
    async with a_volcano_platform(clock, tmp_path, cpu=1) as up:
        await up.platform.make(*a_queue("other", 4))
        label = {"labels": {"kueue.x-k8s.io/queue-name": "other"}}
        await up.submit("j", a_task("w", 3, "sleep", "5"), metadata=label)
        await clock.sleep(3)
        assert await up.phases("j") == {"Running": 3}


# Jobs that nobody has looked at before


@pytest.mark.parametrize("what", ["missing", "closed", "parent", "class"])
def test_a_job_made_by_another_says_what_stands_in_its_way(what: str, tmp_path: Path) -> None:
    """It did not pass the server, which would have refused it."""

    @on_virtual_time
    async def life(clock: VirtualClock) -> None:
        async with a_volcano_platform(clock, tmp_path, cpu=4) as up:
            await up.platform.make(
                a_volcano_queue("gone"), a_volcano_queue("parent"), a_volcano_queue("child", "parent")
            )
            state = {"status": {"state": "Closed"}}
            await write_one(up.store, Patch(volcano.QUEUE, Key("", "gone"), state, subresource="status"))
            owner = await an_owner(up, a_cron_job())
            spec, reason = {
                "missing": ({"queue": "nowhere"}, "QueueNotFound"),
                "closed": ({"queue": "gone"}, "QueueNotOpen"),
                "parent": ({"queue": "parent"}, "QueueNotOpen"),
                "class": ({"priorityClassName": "urgent"}, "PriorityClassNotFound"),
            }[what]
            await up.submit("j", a_task("w", 1, "sleep", "5"), metadata={"ownerReferences": [owner]}, **spec)
            await clock.sleep(3)
            assert await up.phase("j") == ("Pending", reason)
            assert (await up.platform.events("j"))[reason] == 1
            if what == "class":
                await up.platform.make(a_priority_class("urgent", 1))
            elif what == "closed":
                opened = {"status": {"state": "Open"}}
                await write_one(up.store, Patch(volcano.QUEUE, Key("", "gone"), opened, subresource="status"))
            elif what == "missing":
                await up.platform.make(a_volcano_queue("nowhere"))
            else:
                await up.platform.delete(volcano.QUEUE, "child")
            await clock.sleep(3)
            assert (await up.phase("j"))[1] in ("WaitingForQuota", None)

    life()


@on_virtual_time
async def test_the_group_of_a_job_of_another_kind_is_not_taken_for_its_own(clock: VirtualClock, tmp_path: Path) -> None:
    async with a_volcano_platform(clock, tmp_path, cpu=4) as up:
        owner = await an_owner(up, a_pytorch_job())
        group = {"name": "j", "namespace": "default", "ownerReferences": [owner]}
        await up.platform.make(
            {
                "apiVersion": "scheduling.volcano.sh/v1beta1",
                "kind": "PodGroup",
                "metadata": group,
                "spec": {"minMember": 9},
            }
        )
        await up.submit("j", a_task("w", 1, "sleep", "60"))
        await clock.sleep(3)
        found = [group.key.name for group in (await up.store.list(Selection(volcano.POD_GROUP))).items]
        assert sorted(found) == ["j", f"j-{(await up.job('j')).metadata.uid}"]
        assert await up.phases("j") == {"Running": 1}


async def an_owner(up: VolcanoPlatform, document: Document) -> Document:
    await up.platform.make(document)
    kind = REGISTRY.by_document(document["apiVersion"], document["kind"])
    found = await up.store.get(kind, Key("default", document["metadata"]["name"]))
    return {
        "apiVersion": document["apiVersion"], "kind": document["kind"], "name": found.key.name, "uid": found.uid,
        "controller": True,
    }  # fmt: skip


def a_cron_job() -> Document:
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "CronJob",
        "metadata": {"name": "c", "namespace": "default"},
        "spec": {"schedule": "0 0 * * *", "jobTemplate": {"spec": {"tasks": [a_task("w", 1, "true")]}}},
    }


def a_pytorch_job() -> Document:
    role = {"template": {"spec": {"containers": [{"name": "pytorch", "image": "host"}]}}}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "j", "namespace": "default"},
        "spec": {"pytorchReplicaSpecs": {"Master": role}},
    }


def a_volcano_queue(name: str, parent: str = "") -> Document:
    spec = {"parent": parent} if parent else {}
    return {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": name}, "spec": spec}


@on_virtual_time
async def test_the_parts_of_a_job_have_places_of_their_own(clock: VirtualClock, tmp_path: Path) -> None:
    """In a queue that gives a place to what asks for none."""
    nodes = {f"n{number}": {"kind": "gpu"} for number in range(3)}
    async with a_volcano_platform(clock, tmp_path, cpu=1, nodes=nodes, cpus=2) as up:
        host = {"nodeLabel": "kubernetes.io/hostname"}
        await up.platform.make(
            {
                "apiVersion": "kueue.x-k8s.io/v1beta2",
                "kind": "Topology",
                "metadata": {"name": "t"},
                "spec": {"levels": [host]},
            },
            a_flavor("placed", topologyName="t", nodeLabels={"kind": "gpu"}),
            *a_queue("placed", 100, ("placed",)),
        )
        label = {"labels": {"kueue.x-k8s.io/queue-name": "placed"}}
        await up.submit("j", a_task("w", 5, "sleep", "60", minAvailable=1), minAvailable=1, metadata=label)
        await clock.sleep(10)
        pods = await up.pods("j")
        assert await up.phases("j") == {"Running": 5}
        (base,), parts = await up.workloads("j")
        assert len(parts) == 4
        places: Counter[str] = Counter()
        for workload in (base, *parts):
            assert workload.status.admission is not None
            (given,) = workload.status.admission.pod_set_assignments
            assert given.topology_assignment is not None
            places.update({d.values[-1]: d.pods for d in from_view(given.topology_assignment).domains})
        assert Counter(pod.spec.node_name for pod in pods.values()) == places
