"""PyTorchJobs: what is made and ended, and what the status says, case by case and as laws."""

from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.api import core, kubeflow, patching, timestamps
from muster.api.kubeflow.defaults import default_pytorch_job
from muster.api.meta import Instant
from muster.api.raw import JSON, Document
from muster.jobs.pytorch import Plan, Seen, Slot, make_members, make_pods, names, plan
from muster.jobs.pytorch.environment import variables

NOW = Instant(1_800_000_000.0)
LONG_AGO = timestamps.to_text(Instant(NOW - 3600))


def a_role(replicas: int, restarts: str = "OnFailure", **spec: JSON) -> Document:
    container = {"name": "pytorch", "image": "i", "resources": {"requests": {"cpu": "2"}}}
    template = {"spec": {"containers": [container], **spec}}
    return {"replicas": replicas, "restartPolicy": restarts, "template": template}


def a_job(
    workers: int = 2, restarts: str = "OnFailure", *, master: bool = True, status: Document | None = None, **spec: JSON
) -> Document:
    roles = {"Master": a_role(1, restarts)} if master else {}
    document: Document = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "j", "namespace": "ns", "uid": "u"},
        "spec": {"pytorchReplicaSpecs": {**roles, "Worker": a_role(workers, restarts)}, **spec},
        "status": status or {},
    }
    default_pytorch_job(document)
    return document


def view(document: Document) -> kubeflow.PyTorchJob:
    return msgspec.convert(document, kubeflow.PyTorchJob)


def a_pod(role: str, index: int, phase: str = "Running", code: int | None = None, **metadata: JSON) -> core.Pod:
    statuses: list[JSON] = []
    if code is not None:
        statuses = [{"name": "pytorch", "restartCount": 0, "state": {"terminated": {"exitCode": code}}}]
    head = {
        "name": f"j-{role}-{index}",
        "uid": f"{role}{index}",
        "creationTimestamp": LONG_AGO,
        "labels": names.labels("j", role.capitalize(), index),
        **metadata,
    }
    document = {"metadata": head, "status": {"phase": phase, "containerStatuses": statuses}}
    return msgspec.convert(document, core.Pod)


def decide(document: Document, pods: Sequence[core.Pod] = (), now: float = NOW, **seen: object) -> Plan:
    return plan(Seen(view(document), pods, **seen), Instant(now))  # type: ignore[arg-type]


def told(decided: Plan) -> dict[str, tuple[str, str, str]]:
    listed = (decided.status or {}).get("conditions", [])
    return {found["type"]: (found["status"], found["reason"], found["message"]) for found in listed}


def ended(decided: Plan) -> list[str]:
    return [pod.metadata.name for pod in decided.ended]


def test_a_new_job_gets_its_gang_its_service_and_all_its_pods() -> None:
    decided = decide(a_job(workers=3))
    assert decided.created == [Slot("Master", 0), Slot("Worker", 0), Slot("Worker", 1), Slot("Worker", 2)]
    assert decided.group_created is not None
    assert decided.group_created["spec"]["minMember"] == 4
    assert decided.group_created["spec"]["minResources"]["cpu"] == "8"
    (service,) = decided.services_created
    assert service["metadata"]["name"] == "j-master-0"
    assert service["spec"]["clusterIP"] == "None"
    assert told(decided) == {"Created": ("True", "PyTorchJobCreated", "PyTorchJob j is created.")}
    assert decided.status is not None
    assert decided.status["startTime"] == timestamps.to_text(NOW)
    assert decided.status["replicaStatuses"]["Worker"] == {
        "selector": "training.kubeflow.org/job-name=j,training.kubeflow.org/operator-name=pytorchjob-controller,"
        "training.kubeflow.org/replica-type=worker"
    }


def test_what_the_scheduling_policy_says_goes_into_the_gang() -> None:
    policy = {"minAvailable": 2, "queue": "q", "priorityClass": "high", "minResources": {"cpu": "1"}}
    decided = decide(a_job(runPolicy={"schedulingPolicy": policy}))
    assert decided.group_created is not None
    assert decided.group_created["spec"] == {
        "minMember": 2, "queue": "q", "priorityClassName": "high", "minResources": {"cpu": "1"},
    }  # fmt: skip


def test_a_pod_is_the_template_with_labels_a_gang_and_an_environment() -> None:
    document = a_job(workers=1, restarts="ExitCode", nprocPerNode="4")
    master, worker = make_pods(view(document), document, [Slot("Master", 0), Slot("Worker", 0)])
    assert worker["metadata"]["name"] == "j-worker-0"
    assert worker["metadata"]["labels"] == {
        "training.kubeflow.org/job-name": "j",
        "training.kubeflow.org/operator-name": "pytorchjob-controller",
        "training.kubeflow.org/replica-type": "worker",
        "training.kubeflow.org/replica-index": "0",
    }
    assert master["metadata"]["labels"]["training.kubeflow.org/job-role"] == "master"
    assert worker["metadata"]["annotations"]["scheduling.k8s.io/group-name"] == "j"
    assert worker["metadata"]["ownerReferences"][0]["kind"] == "PyTorchJob"
    assert worker["spec"]["restartPolicy"] == "Never", "who restarts by exit code is the job"
    environment = {found["name"]: found["value"] for found in worker["spec"]["containers"][0]["env"]}
    assert environment == {
        "PYTHONUNBUFFERED": "1",
        "MASTER_ADDR": "j-master-0", "PET_MASTER_ADDR": "j-master-0",
        "MASTER_PORT": "23456", "PET_MASTER_PORT": "23456",
        "WORLD_SIZE": "8", "RANK": "1", "PET_NODE_RANK": "1",
        "PET_NNODES": "2", "PET_NPROC_PER_NODE": "4",
    }  # fmt: skip
    assert "env" not in document["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]


def test_an_elastic_job_meets_at_its_first_worker() -> None:
    elastic: Document = {
        "minReplicas": 1, "maxReplicas": 4, "maxRestarts": 3, "rdzvId": "7", "nProcPerNode": 2, "standalone": True,
        "rdzvConf": [{"key": "a", "value": "1"}, {"key": "b", "value": "2"}],
    }  # fmt: skip
    document = a_job(workers=3, master=False, elasticPolicy=elastic)
    assert variables(view(document), "Worker", 1) == {
        "PYTHONUNBUFFERED": "1",
        "PET_RDZV_ENDPOINT": "j-worker-0:23456",
        "PET_RDZV_BACKEND": "c10d",
        "PET_NNODES": "1:4",
        "PET_MAX_RESTARTS": "3",
        "PET_NPROC_PER_NODE": "2",
        "PET_RDZV_ID": "7",
        "PET_RDZV_CONF": "a=1,b=2,is_host=0",
        "PET_STANDALONE": "1",
        "MUSTER_MIN_REPLICAS": "1",
        "MUSTER_MAX_REPLICAS": "4",
    }
    assert [made["metadata"]["name"] for made in decide(document).services_created] == ["j-worker-0"]
    elastic |= {"rdzvHost": "elsewhere", "rdzvPort": 5, "rdzvBackend": "etcd"}
    found = variables(view(a_job(workers=3, elasticPolicy=elastic)), "Worker", 1)
    assert (found["PET_RDZV_ENDPOINT"], found["PET_RDZV_BACKEND"]) == ("elsewhere:5", "etcd")


def test_only_the_worker_that_others_meet_at_hosts_the_rendezvous() -> None:
    elastic: Document = {"minReplicas": 1, "maxReplicas": 4}
    job = view(a_job(workers=3, elasticPolicy=elastic))
    told = {slot: variables(job, *slot)["PET_RDZV_CONF"] for slot in (Slot("Worker", 0), Slot("Master", 0))}
    assert told == {("Worker", 0): "is_host=1", ("Master", 0): "is_host=0"}
    elsewhere = view(a_job(elasticPolicy={**elastic, "rdzvHost": "etcd", "rdzvBackend": "etcd"}))
    assert "PET_RDZV_CONF" not in variables(elsewhere, "Worker", 0)
    decided: Document = {**elastic, "rdzvConf": [{"key": "is_host", "value": "0"}]}
    assert variables(view(a_job(elasticPolicy=decided)), "Worker", 0)["PET_RDZV_CONF"] == "is_host=0"


def test_an_elastic_job_starts_with_as_few_as_it_can_do_with_and_lists_its_members() -> None:
    document = a_job(workers=3, elasticPolicy={"minReplicas": 2, "maxReplicas": 4})
    made = plan(Seen(view(document), ()), NOW)
    assert made.group_created is not None
    assert made.group_created["spec"]["minMember"] == 3, "the master and two workers"
    listed = make_members(view(document))
    assert listed is not None
    assert listed["data"] == {"master.host": "j-master-0\n", "worker.host": "j-worker-0\nj-worker-1\nj-worker-2\n"}
    (pod,) = make_pods(view(document), document, [Slot("Worker", 1)])
    assert pod["spec"]["volumes"][-1]["configMap"]["name"] == listed["metadata"]["name"] == "j-members"
    assert pod["spec"]["containers"][0]["volumeMounts"][-1]["mountPath"] == "/etc/muster"
    assert make_members(view(a_job())) is None


SIZES = {
    "nobody said so": (None, 3),
    "fewer": ('{"worker":2}', 2),
    "never more than it wants": ('{"worker":9}', 3),
    "another role": ('{"master":1}', 3),
    "what nobody can read": ("{", 3),
}


@pytest.mark.parametrize(("told", "wanted"), SIZES.values(), ids=SIZES.keys())
def test_an_elastic_job_has_as_many_workers_as_quota_lets_it(told: str | None, wanted: int) -> None:
    document = a_job(workers=3, elasticPolicy={"minReplicas": 1, "maxReplicas": 4})
    document["metadata"]["annotations"] = {"muster.dev/admitted-replicas": told} if told else {}
    job = names.sized(view(document))
    assert names.replicas(dict(names.roles(job))["Worker"]) == wanted
    crew = [a_pod("worker", index) for index in range(3)]
    ended = [pod.metadata.name for pod in plan(Seen(job, crew), NOW).ended]
    assert ended == [f"j-worker-{index}" for index in range(wanted, 3)]


def test_a_job_that_is_not_elastic_keeps_its_size() -> None:
    document = a_job(workers=3)
    document["metadata"]["annotations"] = {"muster.dev/admitted-replicas": '{"worker":1}'}
    assert names.sized(view(document)) == view(document)


RUNNING = {"Running": ("True", "PyTorchJobRunning", "PyTorchJob j is running.")}


@pytest.mark.parametrize(
    ("restarts", "pods", "wanted"),
    [
        ("OnFailure", [("worker", 0, "Running")], {}),
        ("OnFailure", [("master", 0, "Running")], RUNNING),
        (
            "OnFailure",
            [("master", 0, "Succeeded"), ("worker", 0, "Running")],
            {"Succeeded": ("True", "PyTorchJobSucceeded", "PyTorchJob j is successfully completed.")},
        ),
        (
            "Never",
            [("master", 0, "Running"), ("worker", 0, "Failed", 137), ("worker", 1, "Failed", 1)],
            {"Failed": ("True", "PyTorchJobFailed", "PyTorchJob j is failed because 2 Worker replica(s) failed.")},
        ),
        (
            "ExitCode",
            [("master", 0, "Running"), ("worker", 0, "Failed", 127)],
            {"Failed": ("True", "PyTorchJobFailed", "PyTorchJob j is failed because 1 Worker replica(s) failed.")},
        ),
        (
            "ExitCode",
            [("master", 0, "Running"), ("worker", 0, "Failed", 128)],
            {
                "Restarting": (
                    "True",
                    "PyTorchJobRestarting",
                    "PyTorchJob j is restarting because 1 Worker replica(s) failed.",
                )
            },
        ),
    ],
)  # fmt: skip
def test_what_the_conditions_say(
    restarts: str, pods: Sequence[tuple[str, int, str]], wanted: dict[str, tuple[str, str, str]]
) -> None:
    decided = decide(a_job(restarts=restarts), [a_pod(*pod) for pod in pods])
    found = told(decided)
    found.pop("Created")
    assert found == wanted


def test_without_a_master_all_workers_must_succeed() -> None:
    document = a_job(workers=2, master=False)
    decided = decide(document, [a_pod("worker", 0, "Succeeded"), a_pod("worker", 1)])
    assert told(decided)["Running"][2] == "PyTorchJob ns/j is running."
    decided = decide(document, [a_pod("worker", 0, "Succeeded"), a_pod("worker", 1, "Succeeded")])
    assert told(decided)["Succeeded"][2] == "PyTorchJob ns/j successfully completed."


def test_a_failed_pod_is_replaced_and_counted() -> None:
    document = a_job(restarts="ExitCode")
    crew = [a_pod("master", 0), a_pod("worker", 0, "Failed", 137), a_pod("worker", 1, "Failed")]
    decided = decide(document, crew)
    assert ended(decided) == ["j-worker-0", "j-worker-1"], "also where the node failed, and not the program"
    assert decided.restarts == 2
    assert not decided.created, "the name is taken until the old one has gone"
    assert decide(document, crew[:2]).created == [Slot("Worker", 1)]


def test_what_fails_at_once_waits_before_it_is_replaced() -> None:
    fresh = timestamps.to_text(Instant(NOW - 2))
    crew = [a_pod("master", 0), a_pod("worker", 0, "Failed", 137, creationTimestamp=fresh)]
    decided = decide(a_job(restarts="ExitCode"), crew)
    assert (ended(decided), decided.restarts, decided.again_after) == ([], None, 8.0)
    assert "Restarting" in told(decided)


def test_what_was_made_before_the_clock_was_set_back_is_replaced() -> None:
    crew = [a_pod("master", 0), a_pod("worker", 0, "Failed", 137, creationTimestamp=timestamps.to_text(NOW))]
    assert ended(decide(a_job(restarts="ExitCode"), crew, Instant(NOW - 3600))) == ["j-worker-0"]


def test_pods_beyond_the_replicas_go() -> None:
    decided = decide(a_job(workers=1), [a_pod("master", 0), a_pod("worker", 0), a_pod("worker", 1, "Failed", 1)])
    assert ended(decided) == ["j-worker-1"]
    assert "Running" in told(decided)


@pytest.mark.parametrize(
    ("limit", "restarts", "is_over"), [(1, "0", False), (1, "1", True), (0, "0", True), (3, "2", False)]
)
def test_the_backoff_limit_counts_replaced_pods(limit: int, restarts: str, is_over: bool) -> None:
    document = a_job(restarts="ExitCode", runPolicy={"backoffLimit": limit})
    document["metadata"]["annotations"] = {names.RESTARTS: restarts}
    decided = decide(document, [a_pod("master", 0), a_pod("worker", 0, "Failed", 137)])
    assert ("Failed" in told(decided)) is is_over
    if is_over:
        assert told(decided)["Failed"][2] == "Job j has failed because it has reached the specified backoff limit"
        assert ended(decided) == ["j-master-0", "j-worker-0"], "whatever the clean-up policy"


def test_the_deadline_ends_a_job() -> None:
    document = a_job(runPolicy={"activeDeadlineSeconds": 60}, status={"startTime": timestamps.to_text(NOW)})
    assert decide(document, [a_pod("master", 0)], NOW + 20).again_after == 40
    decided = decide(document, [a_pod("master", 0)], NOW + 60)
    assert told(decided)["Failed"][2] == "Job j has failed because it was active longer than specified deadline"
    assert ended(decided) == ["j-master-0"]


def a_finished_job(type: str = "Succeeded", **policy: JSON) -> Document:
    at = timestamps.to_text(NOW)
    condition = {"type": type, "status": "True", "lastTransitionTime": at}
    counts = {"Master": {"succeeded": 1}, "Worker": {"active": 1, "succeeded": 1}}
    status: Document = {"conditions": [condition], "completionTime": at, "replicaStatuses": counts}
    return a_job(runPolicy=policy, status=status)


@pytest.mark.parametrize(
    ("policy", "wanted"), [("None", []), ("Running", ["j-worker-0"]), ("All", ["j-master-0", "j-worker-0"])]
)
def test_what_is_cleaned_up_at_the_end(policy: str, wanted: list[str]) -> None:
    crew = [a_pod("master", 0, "Succeeded"), a_pod("worker", 0)]
    decided = decide(a_finished_job(cleanPodPolicy=policy), crew, services=frozenset({"j-master-0"}))
    assert ended(decided) == wanted
    assert decided.services_deleted == (["j-master-0"] if policy == "All" else [])
    assert decided.status == {"replicaStatuses": {"Worker": {"active": None, "succeeded": 2}}}
    assert not decided.created


def test_who_has_not_begun_when_the_job_is_over_does_not_wait_on() -> None:
    crew = [a_pod("master", 0, "Succeeded"), a_pod("worker", 0, "Pending"), a_pod("worker", 1)]
    assert ended(decide(a_finished_job(cleanPodPolicy="None"), crew)) == ["j-worker-0"]


def test_a_finished_job_goes_when_its_time_is_over() -> None:
    document = a_finished_job(ttlSecondsAfterFinished=30)
    assert decide(document, now=NOW + 10).again_after == 20
    assert decide(document, now=NOW + 30).is_expired
    assert not decide(a_finished_job(), now=NOW + 1e9).is_expired


def test_a_job_that_is_suspended_gives_up_everything_and_starts_anew() -> None:
    document = a_job()
    crew = [a_pod("master", 0), a_pod("worker", 0, "Succeeded")]
    document["status"] = patching.merge({}, decide(document, crew).status)
    document["spec"]["runPolicy"]["suspend"] = True
    decided = decide(document, crew, NOW + 5, services=frozenset({"j-master-0"}))
    assert ended(decided) == ["j-master-0", "j-worker-0"]
    assert decided.services_deleted == ["j-master-0"]
    assert told(decided)["Running"] == ("False", "PyTorchJobSuspended", "PyTorchJob j is suspended.")
    assert told(decided)["Suspended"] == ("True", "PyTorchJobSuspended", "PyTorchJob j is suspended.")

    document["status"] = patching.merge(document["status"], decided.status)
    assert document["status"]["replicaStatuses"]["Master"]["active"] == 1, "until it has gone"
    document["status"] = patching.merge(document["status"], decide(document).status)
    assert "active" not in document["status"]["replicaStatuses"]["Master"]
    assert decide(document).status is None

    document["spec"]["runPolicy"]["suspend"] = False
    decided = decide(document, now=NOW + 100)
    assert told(decided)["Suspended"] == ("False", "PyTorchJobResumed", "PyTorchJob j is resumed.")
    assert decided.status is not None
    assert decided.status["startTime"] == timestamps.to_text(Instant(NOW + 100))
    assert len(decided.created) == 3


def test_a_job_of_another_manager_is_left_alone() -> None:
    assert decide(a_job(runPolicy={"managedBy": "kueue.x-k8s.io/multikueue"})) == Plan()


_PODS = st.lists(
    st.builds(
        a_pod,
        st.sampled_from(["master", "worker"]),
        st.integers(0, 4),
        st.sampled_from(["Pending", "Running", "Succeeded", "Failed"]),
        st.sampled_from([None, 0, 1, 127, 128, 137, 255]),
    ),
    max_size=8,
    unique_by=lambda pod: pod.metadata.name,
)
_RESTARTS = st.sampled_from(["Always", "OnFailure", "Never", "ExitCode"])


@given(_PODS, _RESTARTS, st.integers(0, 4), st.booleans(), st.booleans(), st.none() | st.integers(0, 3))
def test_laws(
    crew: list[core.Pod], restarts: str, workers: int, master: bool, is_suspended: bool, limit: int | None
) -> None:
    policy: Document = {"suspend": is_suspended}
    if limit is not None:
        policy["backoffLimit"] = limit
    document = a_job(workers, restarts, master=master, runPolicy=policy)
    decided = decide(document, crew)
    present = {pod.metadata.name for pod in crew}
    made = {names.pod_name("j", slot.role, slot.number) for slot in decided.created}
    assert not made & present, "no name is given twice"
    assert {pod.metadata.name for pod in decided.ended} <= present
    document["status"] = patching.merge(document["status"], decided.status)
    types = [found["type"] for found in document["status"]["conditions"]]
    assert len(types) == len(set(types))
    assert not {"Running", "Restarting"} <= set(types), "they take each other's place"
    over = {"Succeeded", "Failed"} & set(types)
    assert len(over) <= 1
    if is_suspended or over:
        assert not decided.created
    if not over:
        again = decide(document, crew)
        assert again.status is None, "a status that is written needs no second time"
        left = present - {pod.metadata.name for pod in decided.ended}
        if not is_suspended:
            assert made | {pod.metadata.name for pod in crew} >= {
                names.pod_name("j", role, index)
                for role, spec in names.roles(view(document))
                for index in range(names.replicas(spec))
            }
            assert len(left | made) <= names.total_replicas(view(document))
    else:
        assert not decide(document, crew).created, "what is over stays over"
