"""Plain pods and pod groups as jobs that queue."""

from typing import Final

import pytest
from tests.unit.quota.integration_worlds import NOW, WORLD, an_object, kinds

from muster.api import kueue, timestamps
from muster.api.kueue.roles import role_hash
from muster.api.meta import Instant
from muster.api.objects import Object
from muster.api.raw import JSON, Document, encode
from muster.quota.gates import Gates
from muster.quota.integrations import jobs, pods
from muster.quota.integrations.contract import PodSetInfo
from muster.quota.integrations.pods import Member, Unfit
from muster.quota.integrations.steps import ChangeStatus, MakeWorkload

K: Final = "kueue.x-k8s.io/"
GATES: Final = Gates.default()
HELD: Final = [{"name": K + "admission"}, {"name": K + "topology"}]


def a_pod(name: str, *, total: int | None = None, cpu: str = "1", created: int = 0, **changes: JSON) -> Member:
    annotations: Document = {} if total is None else {K + "pod-group-total-count": str(total)}
    metadata = {
        "name": name,
        "namespace": "default",
        "uid": f"uid-{name}",
        "creationTimestamp": timestamps.to_text(Instant(NOW + created)),
        "labels": {
            K + "queue-name": "team",
            K + "managed": "true",
            **({} if total is None else {K + "pod-group-name": "g"}),
        },
        "annotations": {**annotations, **changes.pop("annotations", {})},
        "finalizers": [K + "managed"],
        **changes.pop("metadata", {}),
    }
    gates = changes.pop("gates", HELD)
    spec = {"containers": [{"name": "main", "resources": {"requests": {"cpu": cpu}}}], **changes.pop("spec", {})}
    if gates:
        spec["schedulingGates"] = gates
    status = {"phase": "Pending", **changes.pop("status", {})}
    document = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": status}
    return pods.member(an_object(document))


def running(name: str, **changes: JSON) -> Member:
    return a_pod(name, gates=[], spec={"nodeName": "n"}, status={"phase": "Running"}, **changes)


def ended(name: str, phase: str, **changes: JSON) -> Member:
    return a_pod(name, gates=[], spec={"nodeName": "n"}, status={"phase": phase}, **changes)


def deleted(name: str, *, seconds: float = -5, grace: int = 0, stopped: bool = False, **changes: JSON) -> Member:
    at = timestamps.to_text(Instant(NOW + seconds))
    metadata = {"deletionTimestamp": at, "deletionGracePeriodSeconds": grace}
    target = {"type": "TerminationTarget", "status": "True", "reason": pods.STOPPED}
    status = {"phase": "Running", "conditions": [target] if stopped else []}
    return a_pod(name, gates=[], spec={"nodeName": "n"}, status=status, metadata=metadata, **changes)


def group(*members: Member, workload: Object | None = None):
    return pods.of_group("g", members, workload, NOW, GATES)


def the_workload(*members: Member, conditions: tuple[str, ...] = ()) -> Object:
    subject = group(*members)
    assert subject is not None
    (step,) = jobs.plan(subject, [], WORLD).steps
    assert isinstance(step, MakeWorkload)
    listed = [{"type": name, "status": "True", "reason": name, "message": ""} for name in conditions]
    document = {**step.document, "status": {"conditions": listed}}
    document["metadata"] |= {"uid": "uid-w", "resourceVersion": "3"}
    return Object(kueue.WORKLOAD, encode(document))


def test_a_lone_pod_is_a_job_of_one():
    subject = pods.of_pod(a_pod("p"), NOW, GATES)
    assert subject.is_suspended
    (pod_set,) = subject.pod_sets
    assert (pod_set["name"], pod_set["count"]) == ("main", 1)
    assert "schedulingGates" not in pod_set["template"]["spec"]
    assert not pods.of_pod(running("p"), NOW, GATES).is_suspended
    outcome = pods.of_pod(ended("p", "Failed"), NOW, GATES).outcome
    assert outcome is not None
    assert not outcome.succeeded


def test_a_deleted_pod_holds_its_quota_until_its_time_is_over():
    going = pods.of_pod(deleted("p", seconds=10, grace=30), NOW, GATES)
    assert (going.is_active, going.is_deleting) == (True, False)
    gone = pods.of_pod(deleted("p", seconds=-1, grace=30), NOW, GATES)
    assert (gone.is_active, gone.is_deleting) == (False, True)
    fast = GATES.changed({"FastQuotaReleaseInPodIntegration": True})
    assert not pods.of_pod(deleted("p", seconds=10, grace=30), NOW, fast).is_active


def test_a_group_waits_for_all_its_pods():
    assert group(a_pod("a", total=3), a_pod("b", total=3)) is None
    workload = the_workload(a_pod("a", total=3), a_pod("b", total=3), a_pod("c", total=3, cpu="2"))
    view = workload.read(kueue.Workload)
    assert workload.key.name == "g"
    assert sorted(found.count or 0 for found in view.spec.pod_sets) == [1, 2]
    assert [found.name for found in view.spec.pod_sets] == sorted(found.name for found in view.spec.pod_sets)
    assert len(view.metadata.owner_references) == 3
    assert not any(owner.controller for owner in view.metadata.owner_references)


def test_a_group_in_a_hurry_does_not_wait():
    subject = group(a_pod("a", total=3, annotations={K + "pod-group-fast-admission": "true"}))
    assert subject is not None
    assert [found["count"] for found in subject.pod_sets] == [3]


@pytest.mark.parametrize(
    ("members", "words"),
    [
        ([a_pod("a", total=2), a_pod("b", total=3)], "the same"),
        ([a_pod("a", total=2), a_pod("b", total=2, metadata={"labels": {K + "queue-name": "other"}})], "same queue"),
        ([a_pod("a", total=0)], "positive number"),
    ],
)
def test_pods_that_contradict_each_other_make_no_group(members, words):
    with pytest.raises(Unfit, match=words):
        group(*members)


def test_a_group_is_done_when_all_have_succeeded():
    workload = the_workload(a_pod("a", total=2), a_pod("b", total=2))
    subject = group(ended("a", "Succeeded", total=2), running("b", total=2), workload=workload)
    assert subject is not None
    assert subject.outcome is None
    assert list(subject.reclaimable.values()) == [1]
    over = group(ended("a", "Succeeded", total=2), ended("b", "Succeeded", total=2), workload=workload)
    assert over is not None
    assert over.outcome is not None
    assert over.outcome.succeeded


def test_a_group_that_does_not_retry_is_over_with_its_pods():
    final = {K + "retriable-in-group": "false"}
    workload = the_workload(a_pod("a", total=2), a_pod("b", total=2))
    failed = ended("a", "Failed", total=2, annotations=final)
    still = group(failed, running("b", total=2), workload=workload)
    assert still is not None
    assert still.outcome is None
    over = group(failed, ended("b", "Succeeded", total=2), workload=workload)
    assert over is not None
    assert over.outcome is not None
    assert not over.outcome.succeeded


def test_a_serving_group_is_never_done():
    serving = {K + "pod-group-serving": "true"}
    workload = the_workload(a_pod("a", total=1))
    subject = group(ended("a", "Succeeded", total=1, annotations=serving), workload=workload)
    assert subject is not None
    assert subject.outcome is None
    assert not subject.reclaimable


def test_a_group_says_that_pods_are_missing():
    workload = the_workload(a_pod("a", total=2), a_pod("b", total=2))
    subject = group(running("a", total=2), ended("b", "Failed", total=2), workload=workload)
    assert subject is not None
    assert subject.waits_for_pods is True
    (step,) = jobs.plan(subject, [workload], WORLD).steps
    assert isinstance(step, ChangeStatus)
    (condition,) = step.made["status"]["conditions"]
    assert (condition["type"], condition["status"]) == ("WaitingForReplacementPods", "True")


def test_a_pod_starts_without_its_gates():
    made = pods.started(a_pod("p"), {"main": PodSetInfo("main", 1, node_selector={"kind": "fast"})})
    assert made is not None
    assert "schedulingGates" not in made["spec"]
    assert made["spec"]["nodeSelector"] == {"kind": "fast"}
    placed = pods.started(a_pod("p"), {"main": PodSetInfo("main", 1, scheduling_gates=[K + "topology"])})
    assert placed is not None
    assert placed["spec"]["schedulingGates"] == [{"name": K + "topology"}]
    assert pods.started(running("p"), {"main": PodSetInfo("main", 1)}) is None


def test_who_runs_is_stopped_and_who_waits_is_not():
    assert [pod.name for pod in pods.to_stop([running("a"), a_pod("b"), ended("c", "Succeeded")])] == ["a"]


def test_of_too_many_pods_the_newest_held_ones_go():
    members = [running("a", total=2), a_pod("b", total=2, created=5), a_pod("c", total=2, created=9)]
    pod_sets = [{"name": members[0].role, "count": 2}]
    assert [pod.name for pod in pods.excess(members, pod_sets)] == ["c"]


def test_who_is_remembered():
    workload = the_workload(a_pod("a", total=2), a_pod("b", total=2))
    finished = the_workload(a_pod("a", total=2), a_pod("b", total=2), conditions=("Finished",))
    succeeded = ended("a", "Succeeded", total=2)

    def released(*members: Member, found: Object | None = workload) -> list[str]:
        return [pod.name for pod in pods.to_release(members, found, is_group=True)]

    assert released(succeeded, running("b", total=2), found=finished) == ["a"]
    assert released(succeeded, running("b", total=2)) == []
    assert released(running("a", total=2), deleted("b", total=2)) == ["b"]
    assert released(running("a", total=2), deleted("b", total=2, stopped=True)) == [], "it keeps the place"
    assert released(running("a", total=2), deleted("b", total=2, stopped=True), running("c", total=2)) == ["b"]
    assert released(deleted("a", total=2), deleted("b", total=2)) == ["a", "b"]
    assert released(deleted("a", total=2, stopped=True), deleted("b", total=2, stopped=True)) == []
    assert released(deleted("a", total=2, stopped=True), deleted("b", total=2), found=None) == ["a", "b"]


def test_a_group_that_was_deleted_leaves_nothing():
    workload = the_workload(a_pod("a", total=1))
    subject = group(deleted("a", total=1), workload=workload)
    assert subject is not None
    assert kinds(jobs.plan(subject, [workload], WORLD)) == ["ChangeStatus"]


def test_roles_are_what_the_scheduler_sees():
    spec = a_pod("p").document["spec"]
    same = {**spec, "containers": [{"name": "other", "resources": {"requests": {"cpu": "1"}}, "command": ["x"]}]}
    assert role_hash(spec) == role_hash(same)
    assert role_hash(spec) != role_hash({**spec, "nodeSelector": {"a": "b"}})
    assert len(role_hash(spec)) == 8
