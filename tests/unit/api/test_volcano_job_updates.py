"""What may change in a Volcano Job: for its user, and for quota."""

import pytest

from muster.api import raw, volcano
from muster.api.objects import view_of
from muster.api.raw import JSON, Document

HELD = {"muster.dev/held": "true"}
WORKLOAD = {"kueue.x-k8s.io/workload": "job-j-12345"}


def a_job(*, held: bool = False, given: bool = False) -> Document:
    pod: Document = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "host"}]}
    template: Document = {"metadata": {"labels": {"app": "x"}}, "spec": pod}
    if given:
        template["metadata"] |= {"annotations": WORKLOAD, "labels": {"app": "x", "kueue.x-k8s.io/podset": "w"}}
        pod |= {"nodeSelector": {"gpu": "h200"}, "tolerations": [{"key": "gpu", "operator": "Exists"}]}
    document: Document = {
        "metadata": {"name": "j", "namespace": "default", "annotations": HELD if held else {}},
        "spec": {"tasks": [{"name": "w", "replicas": 3, "template": template}]},
    }
    volcano.JOB.default(document)
    return copied(document)


def copied(document: Document) -> Document:
    made: Document = raw.copy(document)
    return made


def with_change(job: Document, value: JSON, *path: str | int) -> Document:
    made = copied(job)
    place: JSON = made
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    return made


def problems(old: Document, new: Document) -> list[str]:
    return [str(found) for found in volcano.JOB.validate_update(view_of(volcano.JOB, old), view_of(volcano.JOB, new))]


TASK = ("spec", "tasks", 0)
POD = (*TASK, "template", "spec")


def test_quota_puts_into_a_template_what_admission_gives_and_takes_it_out_again():
    assert not problems(a_job(held=True), a_job(given=True))
    assert not problems(a_job(given=True), a_job(held=True))
    assert not problems(a_job(held=True, given=True), a_job(held=True)), "where it was only held back at first"


@pytest.mark.parametrize("given", [False, True])
def test_a_user_changes_the_size_of_a_job_that_runs(given):
    old = a_job(given=given)
    assert not problems(old, with_change(old, 7, *TASK, "replicas"))
    assert not problems(old, with_change(old, 1, *TASK, "minAvailable"))
    assert not problems(old, with_change(old, 1, "spec", "minAvailable"))
    assert not problems(old, with_change(old, "high", "spec", "priorityClassName"))


@pytest.mark.parametrize(
    ("old", "value", "path"),
    [
        (a_job(given=True), {"gpu": "a100"}, (*POD, "nodeSelector")),
        (a_job(held=True), {"gpu": "a100"}, (*POD, "nodeSelector")),
        (a_job(given=True), [], (*POD, "tolerations")),
        (a_job(held=True, given=True), [{"name": "main", "image": "other"}], (*POD, "containers")),
        (a_job(), WORKLOAD, (*TASK, "template", "metadata", "annotations")),
    ],
    ids=["of one that runs", "of one that waits", "what it was given", "what it runs", "a mark of one that runs"],
)
def test_a_user_does_not_change_its_templates(old, value, path):
    (problem,) = problems(old, with_change(old, value, *path))
    assert problem.startswith("spec.tasks[0]: ")


def test_more_than_what_is_given_does_not_slip_in_with_it():
    started = with_change(a_job(given=True), [{"name": "main", "image": "other"}], *POD, "containers")
    assert problems(a_job(held=True), started)
    renamed = with_change(a_job(given=True), 5, *TASK, "maxRetry")
    assert problems(a_job(held=True), renamed)
