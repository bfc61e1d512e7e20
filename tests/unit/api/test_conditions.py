import pytest

from muster.api import conditions, errors
from muster.api.meta import Condition
from muster.api.raw import Document

EARLY, LATE = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"


def test_a_new_condition_is_added_with_its_time():
    document: Document = {"kind": "Pod"}
    assert conditions.set_condition(document, "Ready", "True", "Started", "it runs", EARLY)
    assert document["status"]["conditions"] == [
        {"type": "Ready", "status": "True", "reason": "Started", "message": "it runs", "lastTransitionTime": EARLY}
    ]


def test_the_time_moves_only_with_the_status():
    document: Document = {}
    conditions.set_condition(document, "Ready", "False", "Starting", "", EARLY)
    assert conditions.set_condition(document, "Ready", "False", "Pulling", "", LATE)
    assert document["status"]["conditions"][0]["lastTransitionTime"] == EARLY
    assert conditions.set_condition(document, "Ready", "True", "Started", "", LATE)
    assert document["status"]["conditions"][0]["lastTransitionTime"] == LATE
    assert len(document["status"]["conditions"]) == 1


def test_saying_the_same_again_changes_nothing():
    document: Document = {}
    conditions.set_condition(document, "Ready", "True", "Started", "m", EARLY)
    before = [dict(entry) for entry in document["status"]["conditions"]]
    assert not conditions.set_condition(document, "Ready", "True", "Started", "m", LATE)
    assert document["status"]["conditions"] == before


def test_other_conditions_and_unknown_fields_stay():
    document: Document = {"status": {"phase": "x", "conditions": [{"type": "A", "status": "True", "extra": 1}]}}
    conditions.set_condition(document, "B", "True", "r", "m", EARLY)
    conditions.set_condition(document, "A", "False", "r", "m", LATE)
    assert [entry["type"] for entry in document["status"]["conditions"]] == ["A", "B"]
    assert document["status"]["conditions"][0]["extra"] == 1
    assert document["status"]["phase"] == "x"


def test_a_condition_can_be_taken_out():
    document = {"status": {"conditions": [{"type": "A", "status": "True"}, {"type": "B", "status": "True"}]}}
    assert conditions.remove_condition(document, "A")
    assert not conditions.remove_condition(document, "A")
    assert document["status"]["conditions"] == [{"type": "B", "status": "True"}]


def test_absent_is_neither_true_nor_false():
    said = (
        Condition(type="A", status="True"),
        Condition(type="B", status="False"),
        Condition(type="C", status="Unknown"),
    )
    assert [conditions.is_true(said, type) for type in "ABCD"] == [True, False, False, False]
    assert [conditions.is_false(said, type) for type in "ABCD"] == [False, True, False, False]
    assert conditions.find(said, "D") is None
    assert not conditions.is_true_in({"status": {"conditions": "nonsense"}}, "A")
    assert conditions.is_true_in({"status": {"conditions": [{"type": "A", "status": "True"}]}}, "A")


def test_a_status_of_another_shape_is_refused():
    with pytest.raises(errors.BadRequest, match="status"):
        conditions.set_condition({"status": "fine"}, "Ready", "True", "r", "m", EARLY)
