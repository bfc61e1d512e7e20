"""What quota asks of jobs and pods when they are created, and which of their labels may change."""

import pytest

from muster.api import batch, core, errors, kubeflow, kueue, volcano
from muster.api.kinds import Kind
from muster.api.kueue.labels import validate_label_update, validate_labels
from muster.api.managing import take_in
from muster.api.meta import ObjectMeta
from muster.api.objects import Key, Object
from muster.api.raw import JSON, Document, encode
from muster.api.selectors import LabelSelector, Operator, Requirement

K = "kueue.x-k8s.io/"
QUEUED = "muster.dev/queued"


def nothing(_kind: Kind, _key: Key) -> Object | None:
    return None


def a_store(*present: tuple[Kind, str, str]):
    """Finds these: kind, namespace, name."""

    def find(kind: Kind, key: Key) -> Object | None:
        if (kind, key.namespace, key.name) not in present:
            return None
        return Object(kind, b'{"metadata": {"name": "x"}}')

    return find


def taken(kind: Kind, find=nothing, *, spec: Document | None = None, **metadata: JSON) -> Document:
    document: Document = {"metadata": {"name": "x", "namespace": "default", **metadata}, "spec": spec or {}}
    take_in(kind, document, find)
    return document


def test_a_job_in_a_queue_is_suspended():
    made = taken(batch.JOB, labels={K + "queue-name": "q"})
    assert made["spec"]["suspend"] is True
    assert QUEUED not in made["metadata"].get("annotations", {})


def test_a_job_in_none_is_suspended_by_us():
    made = taken(batch.JOB, spec={"suspend": False})
    assert made["spec"]["suspend"] is True
    assert made["metadata"]["annotations"] == {QUEUED: "true"}


def test_a_job_that_its_user_suspended_is_his():
    made = taken(batch.JOB, spec={"suspend": True})
    assert "annotations" not in made["metadata"]


def test_parts_of_other_jobs_and_the_platform_itself_are_left_alone():
    owner = [{"kind": "JobSet", "controller": True}]
    assert taken(batch.JOB, ownerReferences=owner)["spec"] == {}
    assert taken(batch.JOB, namespace="kube-system")["spec"] == {}
    assert taken(core.POD, labels={K + "queue-name": "q"}, ownerReferences=owner)["spec"] == {}
    assert taken(core.CONFIG_MAP)["spec"] == {}


def a_part(top: Document, **metadata: JSON):
    """A job whose owner is a pod of `top`."""
    pod: Document = {"metadata": {"name": "p", "namespace": "default", "uid": "u-p"}}
    pod["metadata"] |= {"ownerReferences": [owned_by(batch.JOB, "top")]}
    known = {(core.POD, "p"): pod, (batch.JOB, "top"): {"metadata": {"name": "top", "uid": "u-top"}, **top}}

    def find(kind: Kind, key: Key) -> Object | None:
        found = known.get((kind, key.name))
        return None if found is None else Object(kind, encode(found))

    return taken(batch.JOB, find, ownerReferences=[owned_by(core.POD, "p")], **metadata)


def owned_by(kind: Kind, name: str) -> Document:
    return {"apiVersion": kind.api_version, "kind": kind.name, "name": name, "uid": f"u-{name}", "controller": True}


def test_a_part_of_a_job_that_is_held_back_is_held_back_with_it():
    held = a_part({"spec": {"suspend": True}})
    assert held["spec"] == {"suspend": True}
    assert held["metadata"]["annotations"] == {QUEUED: "true"}
    in_a_queue = a_part({"spec": {"suspend": True}}, labels={K + "queue-name": "q"})
    assert in_a_queue["spec"] == {"suspend": True}
    assert "annotations" not in in_a_queue["metadata"]
    assert a_part({"spec": {"suspend": False}})["spec"] == {}
    assert a_part({"metadata": {"name": "top", "uid": "another"}, "spec": {"suspend": True}})["spec"] == {}


def test_whose_jobs_queue_can_be_chosen():
    def find(kind: Kind, key: Key) -> Object | None:
        labels = {"team": "ml"} if key.name == "research" else {}
        return Object(kind, encode({"metadata": {"name": key.name, "labels": labels}}))

    for namespace, spec in (("research", {"suspend": True}), ("kitchen", {})):
        document: Document = {"metadata": {"name": "x", "namespace": namespace}, "spec": {}}
        chosen = LabelSelector((Requirement("team", Operator.IN, frozenset({"ml"})),))
        take_in(batch.JOB, document, lambda kind, key: find(kind, key) if kind is core.NAMESPACE else None, chosen)
        assert document["spec"] == spec


def test_defaults_are_meant_where_nothing_is_said():
    find = a_store((kueue.LOCAL_QUEUE, "default", "default"), (kueue.WORKLOAD_PRIORITY_CLASS, "", "default"))
    labels = taken(batch.JOB, find)["metadata"]["labels"]
    assert labels == {K + "queue-name": "default", K + "priority-class": "default"}
    said = taken(batch.JOB, find, labels={K + "queue-name": "q", K + "priority-class": "c"})["metadata"]["labels"]
    assert said == {K + "queue-name": "q", K + "priority-class": "c"}
    assert "labels" not in taken(batch.JOB, find, namespace="other")["metadata"], "a queue of another namespace"


def test_a_pod_in_a_queue_is_held_back():
    made = taken(core.POD, labels={K + "queue-name": "q"}, spec={"schedulingGates": [{"name": "mine"}]})
    assert [gate["name"] for gate in made["spec"]["schedulingGates"]] == ["mine", K + "admission", K + "topology"]
    assert made["metadata"]["labels"][K + "managed"] == "true"
    assert made["metadata"]["finalizers"] == [K + "managed"]
    assert made["metadata"]["annotations"][K + "role-hash"]


def test_a_pod_in_none_is_not():
    assert taken(core.POD)["spec"] == {}
    assert taken(core.POD, spec={"nodeName": "n"}, labels={K + "queue-name": "q"})["spec"] == {"nodeName": "n"}


def test_a_pod_that_asks_for_nonsense_is_told():
    annotations = {K + "podset-required-topology": "a", K + "podset-preferred-topology": "b"}
    with pytest.raises(errors.Invalid, match="only one of them"):
        taken(core.POD, labels={K + "queue-name": "q"}, annotations=annotations)


# Labels


@pytest.mark.parametrize(
    ("old", "new", "was", "now", "is_allowed"),
    [
        ({K + "queue-name": "a"}, {K + "queue-name": "b"}, True, True, True),
        ({K + "queue-name": "a"}, {K + "queue-name": "b"}, False, False, False),
        ({K + "queue-name": "a"}, {K + "queue-name": "b"}, False, True, True),
        ({K + "priority-class": "a"}, {}, True, True, False),
        ({K + "priority-class": "a"}, {K + "priority-class": "b"}, False, False, True),
        ({}, {K + "priority-class": "b"}, False, False, False),
        ({}, {K + "max-exec-time-seconds": "5"}, True, True, True),
        ({}, {K + "max-exec-time-seconds": "5"}, False, True, False),
    ],
)
def test_labels_change_only_while_they_can_still_mean_something(old, new, was, now, is_allowed):
    found = list(
        validate_label_update(ObjectMeta(labels=old), ObjectMeta(labels=new), was_suspended=was, is_suspended=now)
    )
    assert (not found) is is_allowed


def test_a_job_is_elastic_from_the_start():
    elastic = ObjectMeta(annotations={K + "elastic-job": "true"})
    assert list(validate_label_update(ObjectMeta(), elastic, was_suspended=True, is_suspended=True))


@pytest.mark.parametrize(("label", "value"), [("queue-name", "No Queue"), ("max-exec-time-seconds", "0")])
def test_labels_that_cannot_be_read_are_named(label, value):
    (problem,) = validate_labels(ObjectMeta(labels={K + label: value}))
    assert label in problem.path


def gated(by: str) -> ObjectMeta:
    return ObjectMeta(annotations={K + "admission-gated-by": by})


@pytest.mark.parametrize(
    "by", ["budget", "example.com/a,example.com/a", f"example.com/{'x' * 60}", "example.com/no good"]
)
def test_gates_are_named_like_labels_with_a_domain_and_once(by):
    (problem,) = validate_labels(gated(by))
    assert problem.path.startswith(f"metadata.annotations[{K}admission-gated-by]")


def test_gates_are_only_ever_removed():
    two = gated("example.com/a,example.com/b")
    assert not list(validate_labels(two))
    assert not list(validate_label_update(two, gated("example.com/b"), was_suspended=True, is_suspended=True))
    (problem,) = validate_label_update(gated("example.com/b"), two, was_suspended=True, is_suspended=True)
    assert "example.com/a was added" in problem.message


def test_a_volcano_job_may_change_its_queue_while_it_is_held_back():
    def a_job(queue: str, *, is_held: bool) -> volcano.Job:
        annotations = {"muster.dev/held": "true"} if is_held else {}
        return volcano.Job(metadata=ObjectMeta(labels={K + "queue-name": queue}, annotations=annotations))

    check = volcano.JOB.validate_update
    assert not check(a_job("a", is_held=True), a_job("b", is_held=True))
    (problem,) = check(a_job("a", is_held=False), a_job("b", is_held=False))
    assert problem.path == f"metadata.labels[{K}queue-name]"


def test_a_pytorch_job_has_the_same_rules():
    old = kubeflow.PyTorchJob(metadata=ObjectMeta(labels={K + "queue-name": "a"}))
    new = kubeflow.PyTorchJob(metadata=ObjectMeta(labels={K + "queue-name": "b"}))
    (problem,) = kubeflow.PYTORCH_JOB.validate_update(old, new)
    assert problem.path == f"metadata.labels[{K}queue-name]"
