"""The one decision that all kinds of jobs share, step by step."""

from typing import Final

import pytest
from tests.unit.quota.integration_worlds import (
    NOW,
    QUEUE,
    WORLD,
    a_flavor,
    a_job,
    a_workload,
    a_world,
    admitted,
    kinds,
    plan,
    subject,
)

from muster.api import conditions, kueue
from muster.api.objects import Object
from muster.api.raw import JSON, Document, copy, encode
from muster.quota.integrations import jobs, making
from muster.quota.integrations.batch_job import BatchJobs
from muster.quota.integrations.contract import Conflicting
from muster.quota.integrations.ranking import Classes
from muster.quota.integrations.steps import (
    ChangeStatus,
    ChangeWorkload,
    MakeWorkload,
    RemoveWorkload,
    Start,
    Stop,
    World,
)
from muster.quota.settings import PodsReady, Settings

QUEUED: Final = "muster.dev/queued"
RUNNING: Final[Document] = {"active": 3, "startTime": "2023-11-14T22:00:00Z"}
DONE: Final[Document] = {"conditions": [{"type": "Complete", "status": "True", "message": "well done"}]}


def step(found, kind):
    (only,) = found.steps
    assert isinstance(only, kind), found.steps
    return only


def status_of(found) -> Document:
    made: Document = step(found, ChangeStatus).made
    return made


def condition(document: Document, type: str) -> tuple[str, str]:
    entry = conditions.find_in(document, type)
    assert entry is not None
    return entry["status"], entry["reason"]


def changed(found: Object, **parts: Document) -> Object:
    document = found.document()
    for part, change in parts.items():
        document[part] = {**document.get(part, {}), **change}
    return Object(found.kind, encode(document))


# In a queue


def test_a_suspended_job_gets_a_workload():
    job = a_job(labels={"kueue.x-k8s.io/max-exec-time-seconds": "60"})
    made = step(plan(job), MakeWorkload).document
    assert made["spec"]["queueName"] == "team"
    assert made["spec"]["maximumExecutionTimeSeconds"] == 60
    assert [(pods["name"], pods["count"]) for pods in made["spec"]["podSets"]] == [("main", 3)]
    metadata = made["metadata"]
    assert metadata["name"].startswith("job-j-")
    assert metadata["finalizers"] == ["kueue.x-k8s.io/resource-in-use"]
    assert metadata["labels"] == {"kueue.x-k8s.io/job-uid": "uid-j"}
    (owner,) = metadata["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["controller"]) == ("Job", "j", True)


def test_a_job_that_runs_without_a_workload_is_stopped_first():
    assert kinds(plan(a_job(suspend=False, status=RUNNING))) == ["Stop"]
    assert kinds(plan(a_job(status=RUNNING))) == [], "and gets one when nothing of it runs any more"


def test_an_admitted_job_is_started_with_what_its_flavor_gives():
    job = a_job()
    world = a_world(a_flavor("fast", nodeLabels={"kind": "fast"}, tolerations=[{"key": "k", "operator": "Exists"}]))
    start = step(plan(job, admitted(job, flavor="fast"), world=world), Start)
    made = jobs.started(BatchJobs(), job, start)
    assert made["spec"]["suspend"] is False
    spec, metadata = made["spec"]["template"]["spec"], made["spec"]["template"]["metadata"]
    assert spec["nodeSelector"] == {"kind": "fast"}
    assert spec["tolerations"] == [{"key": "k", "operator": "Exists"}]
    assert metadata["labels"]["kueue.x-k8s.io/podset"] == "main"
    assert metadata["labels"]["kueue.x-k8s.io/cluster-queue-name"] == "cq"
    assert metadata["annotations"]["kueue.x-k8s.io/workload"]


def test_a_flavor_that_is_missing_is_waited_for():
    job = a_job()
    found = plan(job, admitted(job, flavor="gone"))
    assert not found.steps
    assert found.again_after
    assert "gone" in found.told[0].message


def test_what_cannot_be_put_into_the_job_ends_its_workload():
    template = {"spec": {"nodeSelector": {"kind": "slow"}, "containers": [{"name": "main"}]}}
    job = a_job(template=template)
    world = a_world(a_flavor("fast", nodeLabels={"kind": "fast"}))
    workload = admitted(job, flavor="fast")
    start = step(plan(job, workload, world=world), Start)
    with pytest.raises(Conflicting, match="slow"):
        jobs.started(BatchJobs(), job, start)
    made = status_of(jobs.failed_to_start(workload, "no", world))
    assert condition(made, "Finished") == ("True", "FailedToStart")


def test_a_job_is_not_started_while_its_last_run_ends():
    job = a_job(status={"terminating": 1})
    assert kinds(plan(job, admitted(job))) == []


def test_a_job_that_runs_unadmitted_is_stopped():
    job = a_job(suspend=False, status=RUNNING)
    assert kinds(plan(job, a_workload(job))) == ["Stop"]


def test_an_evicted_job_stops_then_gives_back_its_quota():
    job = a_job(suspend=False, status=RUNNING)
    evicted = admitted(job, "Evicted=Preempted")
    assert kinds(plan(job, evicted)) == ["Stop"]
    assert kinds(plan(a_job(status=RUNNING), evicted)) == [], "its pods still run"
    made = status_of(plan(a_job(), evicted))
    assert condition(made, "QuotaReserved") == ("False", "PendingEvaluation")
    assert condition(made, "Requeued") == ("True", "Preempted")
    assert "admission" not in made["status"]


def test_what_was_given_is_taken_back_before_quota_is():
    job = a_job()
    world = a_world(a_flavor("fast", nodeLabels={"kind": "fast"}))
    start = step(plan(job, admitted(job, flavor="fast"), world=world), Start)
    suspended = copy(jobs.started(BatchJobs(), job, start))
    suspended["spec"]["suspend"] = True
    evicted = admitted(job, "Evicted=Preempted", flavor="fast")
    stop = step(plan(suspended, evicted, world=world), Stop)
    restored = jobs.stopped(BatchJobs(), suspended, stop)
    assert restored["spec"]["template"]["spec"] == job["spec"]["template"]["spec"]
    assert kinds(plan(restored, evicted, world=world)) == ["ChangeStatus"]


def test_a_timeout_does_not_queue_again_at_once():
    job = a_job()
    made = status_of(plan(job, admitted(job, "Evicted=PodsReadyTimeout")))
    assert condition(made, "Requeued") == ("False", "PodsReadyTimeout")


def test_a_finished_job_finishes_its_workload_which_is_then_let_go():
    job = a_job(suspend=False, status=DONE)
    made = status_of(plan(job, admitted(job)))
    assert condition(made, "Finished") == ("True", "Succeeded")
    finished = a_workload(job, "Finished=Succeeded")
    assert kinds(plan(job, finished)) == ["LetGo"]
    assert kinds(plan(job, changed(finished, metadata={"finalizers": []}))) == []
    assert kinds(plan(job)) == [], "none is made for a job that is over"


def test_the_workload_of_a_job_that_is_gone_is_finished_and_let_go():
    workload = a_workload(a_job())
    made = status_of(jobs.orphaned([workload], WORLD))
    assert condition(made, "Finished") == ("True", "OwnerNotFound")
    assert kinds(jobs.orphaned([a_workload(a_job(), "Finished=OwnerNotFound")], WORLD)) == ["LetGo"]


def test_a_job_stops_before_its_deleted_workload_goes():
    job = a_job(suspend=False, status=RUNNING)
    deleted = changed(admitted(job), metadata={"deletionTimestamp": "2023-11-14T22:00:00Z"})
    assert kinds(plan(job, deleted)) == ["Stop"]
    assert kinds(plan(a_job(), deleted)) == ["LetGo"]


# Matching


def test_a_waiting_workload_follows_its_job():
    workload = a_workload(a_job())
    found = plan(a_job(parallelism=2), workload)
    made = step(found, ChangeWorkload).made
    assert made["spec"]["podSets"][0]["count"] == 2
    assert made["spec"]["queueName"] == "team"
    assert found.told[0].reason == "UpdatedWorkload"


def test_a_running_job_that_changed_is_stopped_and_its_workload_replaced():
    job = a_job()
    changed_job = a_job(suspend=False, parallelism=2, status=RUNNING)
    assert kinds(plan(changed_job, admitted(job))) == ["Stop"]
    assert kinds(plan(a_job(parallelism=2), admitted(job))) == ["RemoveWorkload"]


def test_what_admission_added_is_no_change():
    job = a_job()
    world = a_world(a_flavor("fast", tolerations=[{"key": "k", "operator": "Exists"}]))
    workload = admitted(job, flavor="fast")
    running = jobs.started(BatchJobs(), job, step(plan(job, workload, world=world), Start))
    assert kinds(plan(running, workload, world=world)) == []


def test_a_job_that_runs_with_fewer_pods_as_admitted_is_no_change():
    least = {"kueue.x-k8s.io/job-min-parallelism": "2"}
    job = a_job(annotations=least)
    workload = admitted(job, count=2)
    start = step(plan(job, workload), Start)
    running = jobs.started(BatchJobs(), job, start)
    assert running["spec"]["parallelism"] == 2
    assert kinds(plan(running, workload)) == []


def test_only_one_workload_is_kept():
    job = a_job()
    extra = changed(a_workload(a_job(parallelism=1)), metadata={"name": "other", "uid": "uid-o"})
    found = plan(job, a_workload(job), extra)
    assert step(found, RemoveWorkload).found.key.name == "other"


def test_a_waiting_job_moves_to_another_queue_with_its_workload():
    workload = a_workload(a_job())
    made = step(plan(a_job(queue="other"), workload), ChangeWorkload).made
    assert made["spec"]["queueName"] == "other"


def test_another_priority_class_reaches_the_workload():
    high = kueue.WorkloadPriorityClass(value=100)
    world = World(NOW, classes=Classes({"high": high}))
    workload = a_workload(a_job())
    found = plan(a_job(labels={"kueue.x-k8s.io/priority-class": "high"}), workload, world=world)
    spec = step(found, ChangeWorkload).made["spec"]
    assert (spec["priority"], spec["priorityClassRef"]["name"]) == (100, "high")


def test_a_class_that_does_not_exist_is_told_and_waited_for():
    found = plan(a_job(labels={"kueue.x-k8s.io/priority-class": "none"}))
    assert not found.steps
    assert found.told[0].reason == "WorkloadPriorityClassNotFound"
    assert found.again_after


def test_admission_gates_are_mirrored():
    gated = a_job(annotations={"kueue.x-k8s.io/admission-gated-by": "example.com/gate"})
    workload = a_workload(gated)
    assert (workload.meta.annotations or {})["kueue.x-k8s.io/admission-gated-by"] == "example.com/gate"
    made = step(plan(a_job(), workload), ChangeWorkload).made
    assert not made["metadata"]["annotations"]


# Prebuilt


def prebuilt(job: Document, **metadata: object) -> Object:
    bare = changed(a_workload(job), metadata={"name": "ready-made", "ownerReferences": [], "labels": {}})
    return changed(bare, metadata=metadata)


def test_a_prebuilt_workload_is_adopted_and_must_fit():
    job = a_job(labels={"kueue.x-k8s.io/prebuilt-workload-name": "ready-made"})
    found = plan(job)
    assert found.again_after
    assert not found.steps
    made = step(plan(job, prebuilt(job)), ChangeWorkload).made
    assert made["metadata"]["ownerReferences"][0]["uid"] == "uid-j"
    assert made["metadata"]["labels"]["kueue.x-k8s.io/job-uid"] == "uid-j"
    adopted = Object(kueue.WORKLOAD, encode(made))
    assert kinds(plan(job, adopted)) == []
    other = a_job(labels={"kueue.x-k8s.io/prebuilt-workload-name": "ready-made"}, parallelism=1)
    assert condition(status_of(plan(other, adopted)), "Finished") == ("True", "OutOfSync")


def test_a_prebuilt_workload_of_another_job_is_left_alone():
    job = a_job(annotations={"kueue.x-k8s.io/prebuilt-workload-name": "ready-made"})
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "x", "uid": "uid-x", "controller": True}
    found = plan(job, prebuilt(job, ownerReferences=[owner]))
    assert not found.steps
    assert "belongs to" in found.told[0].message


# Pods


def test_pods_that_are_done_are_published_and_never_taken_back_while_quota_is_held():
    job = a_job(suspend=False, status={"active": 2, "succeeded": 1, "startTime": "2023-11-14T22:00:00Z"})
    made = status_of(plan(job, admitted(a_job())))
    assert made["status"]["reclaimablePods"] == [{"name": "main", "count": 1}]
    fewer = changed(admitted(a_job()), status={"reclaimablePods": [{"name": "main", "count": 2}]})
    assert kinds(plan(job, fewer)) == []


@pytest.mark.parametrize(
    ("before", "is_ready", "after"),
    [
        (None, False, ("False", "WaitForStart")),
        (None, True, ("True", "Started")),
        ("PodsReady=Started", False, ("False", "WaitForRecovery")),
        ("!PodsReady=WaitForRecovery", True, ("True", "Recovered")),
    ],
)
def test_readiness_of_its_pods_is_told(before, is_ready, after):
    world = World(NOW, Settings(pods_ready=PodsReady()))
    job = a_job(suspend=False, status={**RUNNING, "ready": 3 if is_ready else 0})
    workload = admitted(a_job(), *([before] if before else []))
    assert condition(status_of(plan(job, workload, world=world)), "PodsReady") == after


# Without a queue


def test_a_job_without_a_queue_is_queued_like_any_other():
    job = a_job(queue="", annotations={QUEUED: "true"})
    made = step(plan(job), MakeWorkload).document
    assert "queueName" not in made["spec"]
    start = step(plan(job, admitted(job)), Start)
    started = jobs.started(BatchJobs(), job, start)
    assert started["spec"]["suspend"] is False
    assert QUEUED not in started["metadata"]["annotations"]


def test_one_that_its_user_suspended_holds_nothing_and_is_left_alone():
    job = a_job(queue="")
    assert kinds(plan(job)) == []
    assert kinds(plan(a_job(queue="", status=RUNNING), admitted(job))) == [], "its pods still run"
    made = status_of(plan(job, admitted(job)))
    assert condition(made, "QuotaReserved") == ("False", "OnHold")
    assert kinds(plan(job, a_workload(job, "!QuotaReserved=OnHold"))) == []


def test_what_was_given_is_taken_back_from_a_paused_job_without_marking_it():
    job = a_job(queue="", annotations={QUEUED: "true"})
    world = a_world(a_flavor("fast", nodeLabels={"kind": "fast"}))
    started = copy(jobs.started(BatchJobs(), job, step(plan(job, admitted(job, flavor="fast"), world=world), Start)))
    started["spec"]["suspend"] = True
    stop = step(plan(started, admitted(job, flavor="fast"), world=world), Stop)
    made = jobs.stopped(BatchJobs(), started, stop)
    assert QUEUED not in made["metadata"]["annotations"]
    assert "nodeSelector" not in made["spec"]["template"]["spec"]


def test_a_resumed_one_runs_and_queues_meanwhile():
    job = a_job(queue="", suspend=False, status=RUNNING)
    assert kinds(plan(job)) == ["MakeWorkload"]
    made = status_of(plan(job, a_workload(job, "!QuotaReserved=OnHold")))
    assert condition(made, "QuotaReserved") == ("False", "PendingEvaluation")
    assert kinds(plan(job, a_workload(job))) == []
    assert kinds(plan(job, admitted(job))) == []


def test_a_resumed_one_that_gets_no_quota_stops_and_waits():
    job = a_job(queue="", suspend=False, status=RUNNING)
    stop = step(plan(job, a_workload(job, "!QuotaReserved=WaitingForQuota")), Stop)
    assert jobs.stopped(BatchJobs(), job, stop)["metadata"]["annotations"][QUEUED] == "true"


def test_a_resumed_one_that_was_admitted_elsewhere_restarts_there():
    job = a_job(queue="", suspend=False, status=RUNNING)
    world = a_world(a_flavor("fast", nodeLabels={"kind": "fast"}), a_flavor("plain"))
    assert kinds(plan(job, admitted(job, flavor="plain"), world=world)) == []
    assert kinds(plan(job, admitted(job, flavor="fast"), world=world)) == ["Stop"]


def test_the_mark_goes_when_a_user_starts_a_queued_job():
    job = a_job(queue="", suspend=False, annotations={QUEUED: "true"}, status=RUNNING)
    start = step(plan(job, a_workload(job)), Start)
    made = jobs.started(BatchJobs(), job, start)
    assert QUEUED not in made["metadata"]["annotations"]
    assert made["spec"] == job["spec"]


def test_a_running_one_that_changed_gets_another_workload_and_runs_on():
    job = a_job(queue="")
    found = plan(a_job(queue="", suspend=False, parallelism=2, status=RUNNING), admitted(job))
    assert kinds(found) == ["RemoveWorkload", "MakeWorkload"]


def test_an_evicted_one_is_marked_when_it_stops():
    job = a_job(queue="", suspend=False, status=RUNNING)
    stop = step(plan(job, admitted(job, "Evicted=Preempted")), Stop)
    made = jobs.stopped(BatchJobs(), job, stop)
    assert made["spec"]["suspend"] is True
    assert made["metadata"]["annotations"][QUEUED] == "true"


# Elastic


ELASTIC: Final = {"kueue.x-k8s.io/elastic-job": "true"}


def elastic(count: int, generation: int = 1, **spec: JSON) -> Document:
    job = a_job(annotations=ELASTIC, parallelism=count, completions=10, **spec)
    job["metadata"]["generation"] = generation
    return job


def test_an_elastic_job_that_shrinks_gives_back_quota_at_once():
    workload = admitted(elastic(3))
    made = step(plan(elastic(2, 2, suspend=False, status=RUNNING), workload), ChangeWorkload).made
    assert made["spec"]["podSets"][0]["count"] == 2


def test_an_elastic_job_that_grows_gets_another_slice():
    workload = admitted(elastic(3))
    grown = elastic(5, 2, suspend=False, status=RUNNING)
    made = step(plan(grown, workload), MakeWorkload).document
    annotations = made["metadata"]["annotations"]
    assert annotations["kueue.x-k8s.io/workload-slice-replacement-for"] == f"default/{workload.key.name}"
    assert annotations["kueue.x-k8s.io/workload-slice-name"] == workload.key.name
    assert made["metadata"]["name"] != workload.key.name
    pending = Object(kueue.WORKLOAD, encode({**made, "metadata": {**made["metadata"], "uid": "uid-2"}}))
    assert kinds(plan(grown, workload, pending)) == []
    more = step(plan(elastic(6, 3, suspend=False, status=RUNNING), workload, pending), ChangeWorkload)
    assert more.found.key.name == pending.key.name
    back = status_of(plan(elastic(3, 4, suspend=False, status=RUNNING), workload, pending))
    assert condition(back, "Finished") == ("True", "OutOfSync")


def test_of_two_slices_that_hold_quota_the_older_is_finished():
    old = admitted(elastic(3))
    document = admitted(elastic(5, 2)).document()
    document["metadata"] |= {"uid": "uid-2", "creationTimestamp": "2023-11-14T22:10:00Z"}
    new = Object(kueue.WORKLOAD, encode(document))
    found = plan(elastic(5, 2, suspend=False, status=RUNNING), old, new)
    assert condition(status_of(found), "Finished") == ("True", "WorkloadSliceReplaced")
    assert step(found, ChangeStatus).found.key.name == old.key.name


def test_names_tell_workloads_apart():
    names = {making.name_of(subject(a_job(name)), WORLD) for name in ("a", "b")}
    assert len(names) == 2
    long = making.name_of(subject(a_job("x" * 300)), WORLD)
    assert len(long) == 253
    short = World(NOW, Settings(gates=Settings().gates.changed({"ShortWorkloadNames": True})))
    assert len(making.name_of(subject(a_job("x" * 300)), short)) == 63


def test_the_queue_label_decides_and_not_the_mark():
    job = a_job(annotations={QUEUED: "true"})
    assert job["metadata"]["labels"][QUEUE] == "team"
    assert not subject(job).is_free
