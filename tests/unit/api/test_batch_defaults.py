import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.api import batch, coordination, kubeflow, policy, raw, scheduling

leaves = st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from(["", "1", "j", "pytorch", "x"])
words = st.sampled_from(
    ["spec", "metadata", "labels", "name", "template", "containers", "ports", "podFailurePolicy", "rules",
     "onPodConditions", "pytorchReplicaSpecs", "worker", "WORKER", "Worker", "master", "runPolicy", "elasticPolicy",
     "replicas", "completions", "parallelism", "manualSelector", "backoffLimitPerIndex", "nProcPerNode", "job-name"]
)  # fmt: skip
values = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=4), max_leaves=25
)
shapes = st.dictionaries(words, values, max_size=4)
wild = st.fixed_dictionaries({}, optional={"spec": shapes, "metadata": shapes | leaves, "template": values})
KINDS = (
    batch.JOB,
    kubeflow.PYTORCH_JOB,
    scheduling.PRIORITY_CLASS,
    coordination.LEASE,
    policy.POD_DISRUPTION_BUDGET,
)


def defaulted(kind, document):
    made = raw.copy(document)
    kind.default(made)
    return made


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
@given(document=wild)
def test_defaults_take_any_shape_and_once_is_enough(kind, document):
    once = defaulted(kind, document)
    assert defaulted(kind, once) == once


def job(template_labels=None, labels=None, **spec):
    template = {"spec": {"containers": [{"name": "c", "image": "i:1"}], "restartPolicy": "Never"}}
    if template_labels:
        template["metadata"] = {"labels": template_labels}
    return {"metadata": {"name": "j", **({"labels": labels} if labels else {})}, "spec": {"template": template, **spec}}


def test_a_bare_job():
    made = defaulted(batch.JOB, job())["spec"]
    template = made.pop("template")
    assert made == {
        "completions": 1,
        "parallelism": 1,
        "backoffLimit": 6,
        "completionMode": "NonIndexed",
        "suspend": False,
        "manualSelector": False,
        "podReplacementPolicy": "TerminatingOrFailed",
    }
    assert template["metadata"]["labels"] == {"batch.kubernetes.io/job-name": "j", "job-name": "j"}
    assert template["spec"]["schedulerName"] == "default-scheduler"


def test_a_work_queue_has_parallelism_but_no_completions():
    made = defaulted(batch.JOB, job(parallelism=3))["spec"]
    assert made["parallelism"] == 3
    assert "completions" not in made


def test_completions_alone_run_one_at_a_time():
    made = defaulted(batch.JOB, job(completions=3))["spec"]
    assert (made["completions"], made["parallelism"]) == (3, 1)


def test_a_limit_for_each_index_lifts_the_limit_for_all():
    assert defaulted(batch.JOB, job(backoffLimitPerIndex=1))["spec"]["backoffLimit"] == 2**31 - 1


def test_a_failure_policy_waits_for_pods_to_fail():
    policy = {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]}
    made = defaulted(batch.JOB, job(podFailurePolicy=policy))["spec"]
    assert made["podReplacementPolicy"] == "Failed"
    assert made["podFailurePolicy"]["rules"][0]["onPodConditions"] == [{"type": "DisruptionTarget", "status": "True"}]


def test_a_job_without_labels_takes_those_of_its_template():
    assert defaulted(batch.JOB, job({"app": "a"}))["metadata"]["labels"] == {"app": "a"}
    assert defaulted(batch.JOB, job({"app": "a"}, {"own": "b"}))["metadata"]["labels"] == {"own": "b"}


def test_generated_labels_are_not_taken_for_the_users_own():
    assert "labels" not in defaulted(batch.JOB, defaulted(batch.JOB, job()))["metadata"]


def test_a_stored_job_selects_its_pods_by_its_uid():
    document = job()
    document["metadata"]["uid"] = "u"
    made = defaulted(batch.JOB, document)["spec"]
    assert made["selector"] == {"matchLabels": {"batch.kubernetes.io/controller-uid": "u"}}
    labels = made["template"]["metadata"]["labels"]
    assert {key: value for key, value in labels.items() if "uid" in key} == {
        "batch.kubernetes.io/controller-uid": "u",
        "controller-uid": "u",
    }


def test_a_manual_selector_keeps_the_template_as_it_is():
    made = defaulted(batch.JOB, job({"app": "a"}, manualSelector=True))["spec"]
    assert made["template"]["metadata"]["labels"] == {"app": "a"}


def pytorch(**spec):
    role = {"template": {"spec": {"containers": [{"name": "sidecar"}, {"name": "pytorch", "image": "i"}]}}}
    return {
        "metadata": {"name": "train"},
        "spec": {"pytorchReplicaSpecs": {"Master": raw.copy(role), "worker": {**role, "replicas": 3}}, **spec},
    }


def test_a_pytorch_job():
    made = defaulted(kubeflow.PYTORCH_JOB, pytorch())["spec"]
    assert made["runPolicy"] == {"cleanPodPolicy": "None", "suspend": False}
    assert made["nprocPerNode"] == "auto"
    assert set(made["pytorchReplicaSpecs"]) == {"Master", "Worker"}
    master, worker = made["pytorchReplicaSpecs"]["Master"], made["pytorchReplicaSpecs"]["Worker"]
    assert (master["replicas"], master["restartPolicy"]) == (1, "OnFailure")
    assert worker["replicas"] == 3
    sidecar, trainer = worker["template"]["spec"]["containers"]
    assert "ports" not in sidecar
    assert trainer["ports"] == [{"name": "pytorchjob-port", "containerPort": 23456, "protocol": "TCP"}]


def test_the_port_goes_to_the_first_container_where_none_is_named_pytorch():
    document = pytorch()
    containers = document["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["containers"]
    containers[:] = [{"name": "a"}, {"name": "b"}]
    defaulted_containers = defaulted(kubeflow.PYTORCH_JOB, document)["spec"]["pytorchReplicaSpecs"]["Master"][
        "template"
    ]["spec"]["containers"]
    assert [len(container.get("ports", [])) for container in defaulted_containers] == [1, 0]


def test_a_port_of_that_name_is_enough():
    document = pytorch()
    port = {"name": "pytorchjob-port", "containerPort": 1}
    document["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["containers"][1]["ports"] = [port]
    made = defaulted(kubeflow.PYTORCH_JOB, document)["spec"]["pytorchReplicaSpecs"]["Master"]
    assert made["template"]["spec"]["containers"][1]["ports"] == [port]


def test_an_elastic_job_may_be_as_large_as_its_workers():
    made = defaulted(kubeflow.PYTORCH_JOB, pytorch(elasticPolicy={"maxRestarts": 5, "nProcPerNode": 2}))["spec"]
    assert (made["elasticPolicy"]["minReplicas"], made["elasticPolicy"]["maxReplicas"]) == (3, 3)
    assert "nprocPerNode" not in made


def test_a_priority_class_preempts():
    assert defaulted(scheduling.PRIORITY_CLASS, {"value": 1})["preemptionPolicy"] == "PreemptLowerPriority"
