"""The smaller parts: sets of indexes, the documents of pods, whose a pod is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.jobs.job_worlds import a_job, as_job, job_document

from muster.api import core, raw
from muster.api.objects import Object
from muster.jobs.batch import NewPod, claims, indexes, make_pods


@given(st.sets(st.integers(0, 60)), st.integers(0, 70))
def test_indexes_survive_their_text(found, limit):
    assert indexes.parse(indexes.to_text(found), limit) == {index for index in found if index < limit}


@pytest.mark.parametrize(
    ("found", "text"), [((), ""), ((3,), "3"), ((0, 1), "0,1"), ((0, 1, 2), "0-2"), ((5, 1, 2, 3, 7, 8), "1-3,5,7,8")]
)
def test_indexes_are_written_as_kubernetes_writes_them(found, text):
    assert indexes.to_text(found) == text


@pytest.mark.parametrize("text", [None, "", ",", "x", "3-1", "1-", "-", "9-x"])
def test_nonsense_is_no_index(text):
    assert indexes.parse(text, 100) == set()


def test_a_pod_is_made_of_the_template():
    document = job_document(completions=2)
    template = document["spec"]["template"]
    template["metadata"]["annotations"] = {"note": "x"}
    template["metadata"]["finalizers"] = ["acme.io/watch"]
    template["spec"]["futureField"] = {"kept": True}
    (pod,) = make_pods(document, [NewPod("j-abcde", "j-")])
    assert pod["metadata"] == {
        "namespace": "default",
        "name": "j-abcde",
        "generateName": "j-",
        "labels": {
            "batch.kubernetes.io/job-name": "j",
            "job-name": "j",
            "batch.kubernetes.io/controller-uid": "job-uid",
            "controller-uid": "job-uid",
        },
        "annotations": {"note": "x"},
        "finalizers": ["acme.io/watch", "batch.kubernetes.io/job-tracking"],
        "ownerReferences": [
            {
                "apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "job-uid",
                "controller": True, "blockOwnerDeletion": True,
            }
        ],
    }  # fmt: skip
    assert pod["spec"] == template["spec"]


def test_pods_of_indexes_know_theirs():
    document = job_document(
        completionMode="Indexed", completions=2,
        pod={
            "initContainers": [{"name": "first", "image": "host"}],
            "containers": [
                {"name": "a", "image": "host", "env": [{"name": "X", "value": "1"}]},
                {"name": "b", "image": "host", "env": [{"name": "JOB_COMPLETION_INDEX", "value": "mine"}]},
            ],
        },
    )  # fmt: skip
    before = raw.copy(document)
    zero, one = make_pods(document, [NewPod("j-0-a", "j-0-", 0), NewPod("j-1-b", "j-1-", 1, 2, 3)])
    assert document == before
    assert (zero["spec"]["hostname"], one["spec"]["hostname"]) == ("j-0", "j-1")
    key = "batch.kubernetes.io/job-completion-index"
    assert one["metadata"]["labels"][key] == one["metadata"]["annotations"][key] == "1"
    assert one["metadata"]["annotations"]["batch.kubernetes.io/job-index-failure-count"] == "2"
    assert one["metadata"]["annotations"]["batch.kubernetes.io/job-index-ignored-failure-count"] == "3"
    assert set(zero["metadata"]["annotations"]) == {key}
    first, (a, b) = one["spec"]["initContainers"][0], one["spec"]["containers"]
    variable = {
        "name": "JOB_COMPLETION_INDEX",
        "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": f"metadata.annotations['{key}']"}},
    }
    assert first["env"] == [variable]
    assert a["env"] == [{"name": "X", "value": "1"}, variable]
    assert b["env"] == [{"name": "JOB_COMPLETION_INDEX", "value": "mine"}]


def test_a_host_name_of_the_users_own_stays():
    document = job_document(completionMode="Indexed", completions=1, pod={"hostname": "mine"})
    (pod,) = make_pods(document, [NewPod("j-0-a", "j-0-", 0)])
    assert pod["spec"]["hostname"] == "mine"


def stored(name, labels, **metadata):
    document = {"metadata": {"name": name, "namespace": "default", "labels": labels, **metadata}, "spec": {}}
    return Object(core.POD, raw.encode(document))


def test_a_job_takes_in_pods_that_it_selects_and_lets_go_of_others():
    job = a_job(manualSelector=True, selector={"matchLabels": {"a": "b"}})
    mine, lost = stored("mine", {"a": "b"}), stored("lost", {"a": "c"})
    free, going = stored("free", {"a": "b"}), stored("going", {"a": "b"}, deletionTimestamp="2026-01-01T00:00:00Z")
    found = claims(job, [mine, lost], [free, going, stored("other", {})])
    assert [[pod.key.name for pod in pods] for pods in (found.kept, found.adopted, found.disowned)] == [
        ["mine"], ["free"], ["lost"],
    ]  # fmt: skip


def test_a_job_that_is_being_deleted_takes_in_nothing():
    document = job_document(manualSelector=True, selector={"matchLabels": {"a": "b"}})
    document["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert not claims(as_job(document), [], [stored("free", {"a": "b"})]).adopted
