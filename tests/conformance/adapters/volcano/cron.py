"""Cron jobs: when runs are due, and what one pass of the controller does."""

from collections.abc import Callable
from typing import Any

from muster.api import core, timestamps, volcano
from muster.api.meta import Instant
from muster.api.objects import view_of
from muster.api.raw import Document
from muster.jobs import cron
from muster.jobs.cron import due, planning, timing
from tests.conformance.cases import Adapters, Case, Failed, Outcome, Passed, compare

_NANO = 1e9
_CREATED = "2025-03-11T10:00:00Z"
_UID = "uid-of-the-cron-job"


def _cron_job(document: Document) -> volcano.CronJob:
    view = view_of(volcano.CRON_JOB, document)
    assert isinstance(view, volcano.CronJob)
    return view


def _job(document: Document) -> volcano.Job:
    view = view_of(volcano.JOB, document)
    assert isinstance(view, volcano.Job)
    return view


def _timing(job: volcano.CronJob) -> timing.Timing:
    return timing.read(job.spec.schedule, job.spec.time_zone)


def _nanoseconds(seconds: float | None) -> int:
    return round((seconds or 0) * 1e6) * 1000


def _text(instant: Instant | None) -> str | None:
    return None if instant is None else timestamps.to_text(instant)


def _own_jobs(case: Case) -> Outcome:
    row = case["row"]
    owner = _cron_job(case["fixtures"]["cronJob"]).metadata
    own = [job for job in row["jobsToAdd"] if cron.is_child_of(_job(job).metadata, owner)]
    return compare("own jobs", len(own), row["expectedLen"]) or Passed()


def _changed(case: Case) -> Outcome:
    """A change is looked at at once; where it changes the schedule, that says when to look again."""
    row = case["row"]
    if not row["expectedDelay"]:
        return Passed()
    found = _cron_job(row["newCronJob"])
    delay = due.delay(found, _timing(found), timestamps.parse(row["now"]))
    return compare("delay", _nanoseconds(delay), row["expectedDelay"]) or Passed()


def _by_age(case: Case) -> Outcome:
    row = case["row"]
    found = sorted((_job(job) for job in row["input"]), key=planning.by_age)
    return compare("order", found, [_job(job) for job in row["expected"]]) or Passed()


def _most_recent(case: Case) -> Outcome:
    row = case["row"]
    job, now = _cron_job(row["cj"]), timestamps.parse(row["now"])
    try:
        found = due.due(job, _timing(job), now, is_bounded=row["includeSDS"])
    except due.NeverDue:
        return compare("never due", True, row["wantErr"]) or Passed()
    return (
        compare("never due", False, row["wantErr"])
        or compare("earliest", _text(found.earliest), row["expectedEarliestTime"])
        or compare("recent", _text(found.recent), row["expectedRecentTime"])
        or compare("missed", int(found.missed), row["expectedTooManyMissed"])
        or Passed()
    )


def _delay(case: Case) -> Outcome:
    row = case["row"]
    job = _cron_job(row["cj"])
    delay = due.delay(job, _timing(job), timestamps.parse(row["now"]))
    return compare("delay", _nanoseconds(delay), row["expectedDuration"]) or Passed()


# One pass


def _observed(row: Document) -> volcano.CronJob:
    said = row["cronjob"]
    spec = {
        "schedule": said.get("schedule", "*/5 * * * *"),
        "timeZone": said.get("timeZone"),
        "concurrencyPolicy": said.get("concurrency"),
        "suspend": said.get("suspend"),
        "startingDeadlineSeconds": said.get("startingDeadlineSeconds"),
        "successfulJobsHistoryLimit": said.get("successfulJobHistoryLimit", 3),
        "failedJobsHistoryLimit": said.get("failedJobHistoryLimit", 1),
    }
    active = [{"name": _name(job), "uid": _uid(job)} for job in row["jobs"] or () if job.get("active")]
    document: Document = {
        "metadata": {"name": "cj", "namespace": "default", "uid": _UID, "creationTimestamp": _CREATED},
        "spec": {name: value for name, value in spec.items() if value is not None},
        "status": {"active": active, "lastScheduleTime": row["lastScheduleTime"]},
    }
    return _cron_job(document)


def _name(job: Document) -> str:
    return cron.job_name("cj", timestamps.parse(job["time"]))


def _uid(job: Document) -> str:
    return f"uid-of-{_name(job)}"


def _listed(job: Document) -> volcano.Job:
    ended = timestamps.parse(job["time"]) + job.get("processTime", 0) / _NANO
    state = {"phase": job.get("status", ""), "lastTransitionTime": timestamps.to_text(Instant(ended))}
    metadata = {"name": _name(job), "namespace": "default", "uid": _uid(job), "creationTimestamp": job["time"]}
    return _job({"metadata": metadata, "status": {"state": state}})


def _outcome(row: Document, start: planning.Start) -> cron.Outcome:
    """What the API would answer."""
    if start.replaced and row["getJobErr"]:
        return cron.NotReplaced(str(row["getJobErr"]))
    error = row["createJobErr"]
    reference = core.ObjectReference(name=start.name, uid="uid-of-the-new-one")
    if not error:
        return cron.Started(reference)
    if error.get("$error") != "AlreadyExists":
        return cron.Refused(str(error))
    holder = next((job for job in row["jobs"] or () if _name(job) == start.name), None)
    if holder is None or holder.get("notOwnedByCj"):
        return cron.Taken()
    return cron.Started(core.ObjectReference(name=start.name, uid=_uid(holder)), is_new=False)


def _pass(case: Case) -> Outcome:
    row = case["row"]
    now = timestamps.parse(row["now"]) if row["now"] else Instant(0.0)
    jobs = row["jobs"] or []
    listed = [_listed(job) for job in jobs if job.get("inLister") and not job.get("notOwnedByCj")]
    gone = {_uid(job) for job in jobs if not job.get("inLister") and not job.get("inClient")}
    plan = cron.plan(_observed(row), listed, now, gone)
    outcome = None if plan.start is None else _outcome(row, plan.start)
    settled = cron.settle(plan, now, outcome)
    status = settled.status or plan.observed.status
    is_made = isinstance(outcome, cron.Started) and outcome.is_new
    is_replaced = plan.start is not None and isinstance(outcome, cron.Started)
    replaced = len(plan.start.replaced) if plan.start is not None and is_replaced else 0
    found: dict[str, Any] = {
        "expectError": settled.has_failed,
        "expectRequeueAfter": _nanoseconds(settled.again_after),
        "expectUpdateStatus": settled.status is not None,
        "expectLastScheduleTime": status.last_schedule_time,
        "expectLastSuccessTime": status.last_successful_time,
        "expectInActiveNum": len(status.active),
        "expectEventsNum": len(plan.told) + len(settled.told) + len(plan.removed),
        "expectCreateJobNum": int(is_made),
        "expectDeleteJobNum": len(plan.removed) + replaced,
    }
    unknown = set(row["expect"]) - set(found)
    if unknown:
        return Failed(f"expectations that nobody compares: {unknown}")
    wanted = {
        name: row["expect"].get(name, type(value)() if value is not None else None) for name, value in found.items()
    }
    return compare(f"{[told.reason for told in (*plan.told, *settled.told)]}", found, wanted) or Passed()


_TESTS: dict[str, Callable[[Case], Outcome]] = {
    "TestGetJobsByCronJob": _own_jobs,
    "TestUpdateCronJob": _changed,
    "TestSyncCronJob": _pass,
    "TestByJobCreationTimestamp": _by_age,
    "TestMostRecentScheduleTime": _most_recent,
    "TestNextScheduleTimeDuration": _delay,
}


def _run(case: Case) -> Outcome:
    return _TESTS[case["test"]](case)


ADAPTERS: Adapters = {"cronjob": _run}
