"""Whose objects are whose."""

import pytest

from muster.api import batch, core, kubeflow, kueue, muster, volcano
from muster.api.kueue import names
from muster.api.ownership import CLASS_LABEL, EVERYTHING, Ownership, Unlabelled, problems
from muster.api.selectors import EVERYTHING as ALL
from muster.api.selectors import parse_labels

OPT_IN = Ownership(Unlabelled.THEIRS)


@pytest.mark.parametrize("kind", [volcano.JOB, volcano.QUEUE, kueue.WORKLOAD, kubeflow.PYTORCH_JOB])
def test_kinds_that_others_know_are_divided_by_the_label(kind):
    for labels, by_default, opted_in in [
        ({}, True, False),
        ({CLASS_LABEL: "muster"}, True, True),
        ({CLASS_LABEL: "volcano"}, False, False),
        ({CLASS_LABEL: "none"}, False, False),
    ]:
        assert EVERYTHING.owns(kind, labels) is by_default
        assert OPT_IN.owns(kind, labels) is opted_in
        assert EVERYTHING.narrow(kind, ALL.labels).matches(labels) is by_default
        assert OPT_IN.narrow(kind, ALL.labels).matches(labels) is opted_in


def test_jobs_of_the_cluster_itself_are_nobodys_business():
    in_queue = {names.QUEUE_LABEL: "research"}
    assert EVERYTHING.owns(batch.JOB, in_queue)
    assert not EVERYTHING.owns(batch.JOB, {})
    assert not OPT_IN.owns(batch.JOB, in_queue)
    assert OPT_IN.owns(batch.JOB, {**in_queue, CLASS_LABEL: "muster"})


def test_a_selector_keeps_what_it_asked_for():
    narrowed = OPT_IN.narrow(volcano.JOB, parse_labels("team=a"))
    assert str(narrowed) == "team=a,muster.dev/class=muster"
    assert str(EVERYTHING.narrow(volcano.JOB, ALL.labels)) == "muster.dev/class notin (kubeflow,kueue,none,volcano)"


@pytest.mark.parametrize("kind", [core.POD, core.NODE, muster.ALLOCATION])
def test_what_only_we_know_or_all_share_is_not_divided(kind):
    assert OPT_IN.narrow(kind, ALL.labels) is ALL.labels
    assert OPT_IN.owns(kind, {CLASS_LABEL: "kueue"})
    assert OPT_IN.label(kind, {"metadata": {"name": "a"}}) == {"metadata": {"name": "a"}}


def test_pods_that_queue_may_queue_with_somebody_else():
    narrowed = EVERYTHING.narrow(core.POD, parse_labels(f"{names.MANAGED}=true"))
    assert not narrowed.matches({names.MANAGED: "true", CLASS_LABEL: "kueue"})


def test_what_we_make_is_labelled_unless_it_says_otherwise():
    made = {"metadata": {"name": "a", "labels": {"team": "x"}}}
    assert OPT_IN.label(volcano.JOB, made)["metadata"]["labels"] == {"team": "x", CLASS_LABEL: "muster"}
    assert made["metadata"]["labels"] == {"team": "x"}
    theirs = {"metadata": {"labels": {CLASS_LABEL: "volcano"}}}
    assert OPT_IN.label(volcano.JOB, theirs) is theirs


def test_a_class_that_nobody_knows_is_named():
    (problem,) = problems({"metadata": {"labels": {CLASS_LABEL: "volcanoo"}}})
    assert problem.path == "metadata.labels[muster.dev/class]"
    assert "volcanoo" in problem.message
    assert not list(problems({"metadata": {"labels": {CLASS_LABEL: "kueue"}}}))
