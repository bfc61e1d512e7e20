"""What one pass decides: runs that are due, those before them, and which finished jobs are kept."""

from typing import Any

import pytest

from muster.api import core, raw, timestamps, volcano
from muster.api.meta import Instant
from muster.api.objects import view_of
from muster.api.raw import Document
from muster.jobs import cron
from muster.jobs.cron import timing

NOON = timestamps.parse("2025-03-11T12:00:00Z")


def document(status: Document | None = None, **spec: Any) -> Document:
    template: Document = {"metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}}, "spec": {"queue": "gold"}}
    return {
        "metadata": {"name": "c", "namespace": "ns", "uid": "u", "creationTimestamp": "2025-03-11T11:58:30Z"},
        "spec": {"schedule": "* * * * *", "jobTemplate": template, **spec},
        "status": status or {},
    }


def a_cron_job(status: Document | None = None, **spec: Any) -> volcano.CronJob:
    view = view_of(volcano.CRON_JOB, document(status, **spec))
    assert isinstance(view, volcano.CronJob)
    return view


def a_job(name: str, phase: str, at: str = "2025-03-11T11:00:00Z") -> volcano.Job:
    owner = {"kind": "CronJob", "name": "c", "uid": "u", "controller": True}
    metadata = {"name": name, "namespace": "ns", "uid": name, "creationTimestamp": at, "ownerReferences": [owner]}
    view = view_of(volcano.JOB, {"metadata": metadata, "status": {"state": {"phase": phase, "lastTransitionTime": at}}})
    assert isinstance(view, volcano.Job)
    return view


def active(*names: str) -> Document:
    return {"active": [{"name": name, "uid": name} for name in names]}


def reasons(told: Any) -> list[str]:
    return [saying.reason for saying in told]


def test_the_last_run_that_is_due_is_started() -> None:
    plan = cron.plan(a_cron_job(), [], NOON)
    assert plan.start is not None
    assert plan.start.scheduled == NOON
    assert plan.start.name == f"c-{int(NOON) // 60}"
    settled = cron.settle(plan, NOON, cron.Started(core.ObjectReference(name=plan.start.name, uid="n")))
    assert settled.status is not None
    assert settled.status.last_schedule_time == "2025-03-11T12:00:00Z"
    assert [reference.uid for reference in settled.status.active] == ["n"]
    assert settled.again_after == pytest.approx(60.1)
    assert reasons(settled.told) == ["SuccessfulCreate"]


@pytest.mark.parametrize(
    ("spec", "status", "told"),
    [
        ({"suspend": True}, {}, []),
        ({"concurrencyPolicy": "Forbid"}, active("old"), ["JobAlreadyActive"]),
        ({"startingDeadlineSeconds": 5, "schedule": "59 11 * * *"}, {}, []),
        ({}, {"lastScheduleTime": "2025-03-11T12:00:00Z"}, []),
        ({}, active(f"c-{int(NOON) // 60}"), []),
        ({"schedule": "x"}, {}, ["UnparseableSchedule"]),
        ({"timeZone": "Nowhere"}, {}, ["UnknownTimeZone"]),
        ({"schedule": "0 0 31 2 *"}, {}, ["InvalidSchedule"]),
    ],
)
def test_what_keeps_a_run_from_starting(spec: Document, status: Document, told: list[str]) -> None:
    jobs = [a_job(reference["name"], "Running") for reference in status.get("active", ())]
    plan = cron.plan(a_cron_job(status, **spec), jobs, NOON)
    assert plan.start is None
    assert reasons(plan.told) == told


def test_the_one_before_goes_where_it_is_to_be_replaced() -> None:
    plan = cron.plan(a_cron_job(active("old"), concurrencyPolicy="Replace"), [a_job("old", "Running")], NOON)
    assert plan.start is not None
    assert [reference.name for reference in plan.start.replaced] == ["old"]
    settled = cron.settle(plan, NOON, cron.Started(core.ObjectReference(name=plan.start.name, uid="n")))
    assert settled.status is not None
    assert [reference.uid for reference in settled.status.active] == ["n"]
    assert reasons(settled.told) == ["SuccessfulDelete", "SuccessfulCreate"]
    settled = cron.settle(plan, NOON, cron.NotReplaced("no"))
    assert settled.has_failed
    assert settled.status is None


def test_a_run_that_an_earlier_attempt_made_is_noted() -> None:
    plan = cron.plan(a_cron_job(), [], NOON)
    assert plan.start is not None
    found = core.ObjectReference(name=plan.start.name, uid="n")
    settled = cron.settle(plan, NOON, cron.Started(found, is_new=False))
    assert settled.status is not None
    assert settled.status.active == (found,)
    assert settled.told == []


def test_a_name_that_is_taken_is_not_waited_for() -> None:
    plan = cron.plan(a_cron_job(), [], NOON)
    settled = cron.settle(plan, NOON, cron.Taken())
    assert (settled.status, settled.has_failed, reasons(settled.told)) == (None, False, ["JobNameTaken"])
    assert cron.settle(plan, NOON, cron.Refused("no")).has_failed


def test_what_has_ended_is_no_longer_active() -> None:
    jobs = [a_job("won", "Completed", "2025-03-11T11:30:00Z"), a_job("lost", "Failed"), a_job("still", "Aborted")]
    found = a_cron_job(active("won", "lost", "still", "gone"), suspend=True)
    plan = cron.plan(found, jobs, NOON, gone={"gone"})
    assert plan.is_changed
    assert [reference.name for reference in plan.observed.status.active] == ["still"]
    assert plan.observed.status.last_successful_time == "2025-03-11T11:30:00Z"
    assert reasons(plan.told) == ["SawCompletedJob", "SawCompletedJob", "MissingJob"]
    assert not cron.plan(plan.observed, jobs, NOON).is_changed


def test_the_oldest_finished_jobs_go_first() -> None:
    phases = ["Completed", "Failed", "Completed", "Terminated", "Running", "Completed"]
    jobs = [a_job(f"j{index}", phase, f"2025-03-11T11:0{index}:00Z") for index, phase in enumerate(phases)]
    found = a_cron_job(suspend=True, successfulJobsHistoryLimit=1, failedJobsHistoryLimit=0)
    removed = cron.plan(found, jobs, NOON).removed
    assert [job.metadata.name for job in removed] == ["j0", "j2", "j1", "j3"]
    assert cron.plan(a_cron_job(suspend=True), jobs, NOON).removed == []


def test_a_cron_job_that_goes_starts_nothing() -> None:
    going = document()
    going["metadata"]["deletionTimestamp"] = "2025-03-11T12:00:00Z"
    view = view_of(volcano.CRON_JOB, going)
    assert isinstance(view, volcano.CronJob)
    assert cron.plan(view, [], NOON).start is None


def test_the_job_of_a_run() -> None:
    found = document(timeZone="Asia/Tokyo")
    before = raw.copy(found)
    made = cron.make_job(found, Instant(NOON), timing.read("* * * * *", "Asia/Tokyo"))
    assert made["metadata"]["labels"] == {"a": "b"}
    assert made["metadata"]["annotations"] == {
        "c": "d",
        "volcano.sh/cronjob-scheduled-timestamp": "2025-03-11T21:00:00+09:00",
    }
    assert made["metadata"]["ownerReferences"][0]["uid"] == "u"
    assert made["spec"] == {"queue": "gold"}
    assert found == before
