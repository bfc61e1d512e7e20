"""muster.dev Allocation: what may be left out, and what is refused."""

import pytest

from muster.api import muster, raw
from muster.api.kueue.names import QUEUE_LABEL
from muster.api.managing import take_in
from muster.api.muster.validation import validate_allocation, validate_allocation_update
from muster.api.objects import view_of
from muster.api.raw import JSON, Document


def an_allocation(**spec: JSON) -> Document:
    made: Document = {
        "metadata": {"name": "t.1", "namespace": "default"},
        "spec": {
            "taskId": "t",
            "taskType": "COMMAND",
            "template": {"spec": {"containers": [{"name": "main", "image": "host"}]}},
            **spec,
        },
    }
    muster.ALLOCATION.default(made)
    return made


def read(document: Document) -> muster.Allocation:
    found = view_of(muster.ALLOCATION, document)
    assert isinstance(found, muster.Allocation)
    return found


def paths(document: Document) -> set[str]:
    return {error.path for error in validate_allocation(read(document))}


def test_what_is_left_out_is_filled_in() -> None:
    spec = an_allocation(queueName="team")["spec"]
    assert (spec["pods"], spec["slots"], spec["preemptionTimeoutSeconds"], spec["suspend"]) == (1, 0, 3600, False)
    assert spec["template"]["spec"]["restartPolicy"] == "Never"
    assert an_allocation(queueName="team")["metadata"]["labels"] == {QUEUE_LABEL: "team"}
    assert not paths(an_allocation())


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        ({"taskId": ""}, "spec.taskId"),
        ({"taskId": "a b"}, "spec.taskId"),
        ({"taskType": ""}, "spec.taskType"),
        ({"taskType": "DANCE"}, "spec.taskType"),
        ({"pods": 0}, "spec.pods"),
        ({"pods": 10**6}, "spec.pods"),
        ({"slots": -1}, "spec.slots"),
        ({"pods": 2, "slots": 3}, "spec.slots"),
        ({"preemptionTimeoutSeconds": -1}, "spec.preemptionTimeoutSeconds"),
        ({"pool": "A Pool"}, "spec.pool"),
        ({"queueName": "A"}, "spec.queueName"),
        ({"template": {"spec": {"restartPolicy": "Always", "containers": [{"name": "m", "image": "h"}]}}},
         "spec.template.spec.restartPolicy"),
        ({"template": {"spec": {"containers": []}}}, "spec.template.spec.containers"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(spec: Document, path: str) -> None:
    assert path in paths(an_allocation(**spec))


def test_a_long_name_cannot_label_its_pods() -> None:
    document = an_allocation()
    document["metadata"]["name"] = "x" * 64
    assert paths(document) == {"metadata.name"}


@pytest.mark.parametrize(
    ("before", "after", "path"),
    [
        ({}, {"taskId": "u"}, "spec.taskId"),
        ({}, {"pods": 2}, "spec.pods"),
        ({}, {"slots": 2}, "spec.slots"),
        ({"suspend": True}, {"isPreemptible": True}, "spec.isPreemptible"),
        ({}, {"template": {"spec": {"containers": [{"name": "m", "image": "other"}]}}}, "spec.template"),
    ],
)
def test_what_it_is_stays(before: Document, after: Document, path: str) -> None:
    old, new = an_allocation(**before), an_allocation(**{**before, **after})
    assert {error.path for error in validate_allocation_update(read(old), read(new))} == {path}


def test_its_template_may_change_only_until_it_has_begun() -> None:
    old = an_allocation(suspend=True)
    new = raw.copy(old)
    new["spec"]["template"]["spec"]["nodeSelector"] = {"zone": "a"}
    assert not validate_allocation_update(read(old), read(new))
    old["status"] = {"phase": "Assigned"}
    (error,) = validate_allocation_update(read(old), read(new))
    assert error.path == "spec.template"


def test_a_new_one_is_held_back_until_it_is_admitted() -> None:
    document = an_allocation()
    take_in(muster.ALLOCATION, document, lambda _kind, _key: None)
    assert document["spec"]["suspend"] is True
