"""PyTorchJobs in queues: as a Workload's pod sets, started with what admission gives, stopped, and told apart."""

import pytest

from muster.api import kubeflow
from muster.api.kueue import names
from muster.api.managing import take_in
from muster.api.raw import JSON, Document
from muster.quota.integrations.contract import Outcome, PodSetInfo
from muster.quota.integrations.pytorch_job import PyTorchJobs

JOBS = PyTorchJobs()


def a_job(status: Document | None = None, **policy: JSON) -> Document:
    container = {"name": "pytorch", "image": "i"}
    places = {"annotations": {"kueue.x-k8s.io/podset-required-topology": "rack"}}
    return {
        "metadata": {"name": "j", "namespace": "ns"},
        "spec": {
            "runPolicy": policy,
            "pytorchReplicaSpecs": {
                "Worker": {"replicas": 3, "template": {"metadata": places, "spec": {"containers": [container]}}},
                "Master": {"replicas": 1, "template": {"spec": {"containers": [container]}}},
            },
        },
        "status": status or {},
    }


def test_each_role_is_a_pod_set_the_master_first() -> None:
    master, worker = JOBS.pod_sets(a_job())
    assert (master["name"], master["count"], worker["name"], worker["count"]) == ("master", 1, "worker", 3)
    assert "topologyRequest" not in master
    assert worker["topologyRequest"]["podIndexLabel"] == "training.kubeflow.org/replica-index"


def test_starting_and_stopping_are_inverse() -> None:
    job = a_job(suspend=True)
    infos = [
        PodSetInfo("master", 1, node_selector={"zone": "a"}),
        PodSetInfo("worker", 3, labels={"x": "y"}, node_selector={"zone": "b"}, scheduling_gates=["g"]),
    ]
    started = JOBS.start(job, infos)
    assert not JOBS.is_suspended(started)
    roles = started["spec"]["pytorchReplicaSpecs"]
    assert roles["Master"]["template"]["spec"]["nodeSelector"] == {"zone": "a"}
    assert roles["Worker"]["template"]["spec"]["nodeSelector"] == {"zone": "b"}
    assert roles["Worker"]["template"]["spec"]["schedulingGates"] == [{"name": "g"}]
    stopped = JOBS.stop(started, JOBS.pod_sets(job))
    assert JOBS.is_suspended(stopped)
    assert JOBS.pod_sets(stopped) == JOBS.pod_sets(job)


def test_its_end_is_told() -> None:
    assert JOBS.outcome(a_job()) is None
    over = {"conditions": [{"type": "Failed", "status": "True", "message": "no"}]}
    assert JOBS.outcome(a_job(over)) == Outcome(False, "no")
    over = {"conditions": [{"type": "Succeeded", "status": "True", "message": "yes"}]}
    assert JOBS.outcome(a_job(over)) == Outcome(True, "yes")


@pytest.mark.parametrize(
    ("status", "is_suspended", "is_active"),
    [
        ({}, True, False),
        ({"replicaStatuses": {"Worker": {"active": 1}}}, True, True),
        ({"startTime": "t"}, True, True),
        ({"startTime": "t", "conditions": [{"type": "Suspended", "status": "True"}]}, True, False),
        ({"startTime": "t", "conditions": [{"type": "Failed", "status": "True"}]}, True, False),
    ],
)
def test_it_is_active_until_its_controller_has_let_go(status: Document, is_suspended: bool, is_active: bool) -> None:
    assert JOBS.is_active(a_job(status, suspend=is_suspended)) is is_active


def test_it_is_ready_when_all_of_it_runs_or_is_done() -> None:
    counts: Document = {"Master": {"active": 1}, "Worker": {"active": 2}}
    assert not JOBS.pods_ready(a_job({"replicaStatuses": counts}))
    counts["Worker"]["succeeded"] = 1
    assert JOBS.pods_ready(a_job({"replicaStatuses": counts}))


def test_its_scheduling_policy_names_its_priority_class() -> None:
    assert JOBS.priority_class(a_job()) == ""
    assert JOBS.priority_class(a_job(schedulingPolicy={"priorityClass": "high"})) == "high"


def test_a_new_one_is_held_back_until_it_is_admitted() -> None:
    job = a_job(suspend=False)
    take_in(kubeflow.PYTORCH_JOB, job, lambda _kind, _key: None)
    assert JOBS.is_suspended(job)
    assert job["metadata"]["annotations"] == {names.QUEUED_ANNOTATION: "true"}


def an_elastic_job(**fields: JSON) -> Document:
    job = a_job(**fields)
    del job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["metadata"]
    job["spec"]["elasticPolicy"] = {"minReplicas": 1, "maxReplicas": 5}
    return job


def test_an_elastic_job_needs_its_least_and_its_other_workers_are_parts() -> None:
    job = an_elastic_job()
    assert [(pods["name"], pods["count"]) for pods in JOBS.pod_sets(job)] == [("master", 1), ("worker", 1)]
    assert JOBS.parts(job) == {"master": 0, "worker": 2}
    told = JOBS.resize(job, {"master": 1, "worker": 2})
    assert JOBS.sizes(told) == {"master": 1, "worker": 2}
    assert JOBS.live({**told, "status": {"replicaStatuses": {"Worker": {"active": 2}}}}) == {"master": 0, "worker": 2}
    assert names.ADMITTED_REPLICAS_ANNOTATION not in JOBS.stop(told, ())["metadata"]["annotations"]


def test_a_job_that_asks_for_a_place_or_says_no_policy_is_not_elastic() -> None:
    job = a_job()
    assert (JOBS.parts(job), JOBS.pod_sets(job)[1]["count"]) == ({}, 3)
    job["spec"]["elasticPolicy"] = {"minReplicas": 1}
    assert (JOBS.parts(job), JOBS.pod_sets(job)[1]["count"]) == ({}, 3), "a place is found for all of them at once"
