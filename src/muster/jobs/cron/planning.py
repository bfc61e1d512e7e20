"""The decision of the cron job controller: from a cron job, its jobs and the time to what should be done."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

from msgspec import structs

from muster.api import core, timestamps, volcano
from muster.api.meta import Instant, ObjectMeta
from muster.jobs.cron import timing as timings
from muster.jobs.cron.due import Missed, NeverDue, delay, due
from muster.jobs.cron.making import job_name
from muster.jobs.cron.timing import BadSchedule, BadTimeZone, Timing

SUCCEEDED = "Completed"
_FAILED = frozenset({"Failed", "Terminated"})
_OVER = _FAILED | {SUCCEEDED}


@dataclass(frozen=True, slots=True)
class Told:
    """An event about the cron job."""

    type: Literal["Normal", "Warning"]
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Start:
    """A run that is due. `replaced`: jobs that must go first."""

    scheduled: Instant
    name: str
    timing: Timing
    replaced: Sequence[core.ObjectReference] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """`observed` is the cron job with its status as it follows from its jobs."""

    observed: volcano.CronJob
    is_changed: bool = False
    start: Start | None = None
    removed: Sequence[volcano.Job] = ()
    """Finished jobs beyond those that are kept."""
    told: Sequence[Told] = ()
    again_after: float | None = None


def is_child_of(job: ObjectMeta, cron_job: ObjectMeta) -> bool:
    return job.namespace == cron_job.namespace and any(
        owner.controller and owner.kind == volcano.CRON_JOB.name and owner.uid == cron_job.uid
        for owner in job.owner_references
    )


def plan(cron_job: volcano.CronJob, jobs: Sequence[volcano.Job], now: Instant, gone: Collection[str] = ()) -> Plan:
    """`jobs`: its own. `gone`: uids of active jobs that are not among them and do not exist."""
    observed, told = _observe(cron_job, jobs, gone)
    is_changed = observed.status != cron_job.status
    start, more, again_after = _next(observed, now)
    removed = [*_beyond(jobs, {SUCCEEDED}, cron_job.spec.successful_jobs_history_limit)]
    removed += _beyond(jobs, _FAILED, cron_job.spec.failed_jobs_history_limit)
    return Plan(observed, is_changed, start, removed, [*told, *more], again_after)


def _observe(
    cron_job: volcano.CronJob, jobs: Sequence[volcano.Job], gone: Collection[str]
) -> tuple[volcano.CronJob, list[Told]]:
    told: list[Told] = []
    active = {reference.uid: reference for reference in cron_job.status.active}
    successful = cron_job.status.last_successful_time
    for job in jobs:
        name, phase = job.metadata.name, job.status.state.phase
        if phase not in _OVER:
            if job.metadata.uid not in active:
                message = f"Saw a job that the controller did not create or forgot: {name}"
                told.append(Told("Warning", "UnexpectedJob", message))
            continue
        if active.pop(job.metadata.uid, None) is not None:
            told.append(Told("Normal", "SawCompletedJob", f"Saw completed job: {name}, condition: {phase}"))
        if phase == SUCCEEDED:
            successful = _later(successful, job.status.state.last_transition_time)
    for uid in [uid for uid in active if uid in gone]:
        told.append(Told("Normal", "MissingJob", f"Active job went missing: {active.pop(uid).name}"))
    status = structs.replace(cron_job.status, active=tuple(active.values()), last_successful_time=successful)
    return structs.replace(cron_job, status=status), told


def _later(left: str | None, right: str | None) -> str | None:
    if left is None or right is None:
        return left or right
    return right if timestamps.parse(right) > timestamps.parse(left) else left


def _next(cron_job: volcano.CronJob, now: Instant) -> tuple[Start | None, list[Told], float | None]:
    """The run to start, if one is due; what to tell; when to look again."""
    spec = cron_job.spec
    if cron_job.metadata.deletion_timestamp is not None or spec.suspend:
        return None, [], None
    told: list[Told] = []
    if timings.names_zone(spec.schedule):
        message = f'CRON_TZ or TZ used in schedule "{spec.schedule}" is not officially supported, use timeZone instead'
        told.append(Told("Warning", "UnsupportedSchedule", message))
    try:
        timing = timings.read(spec.schedule, spec.time_zone)
    except BadTimeZone as error:
        return None, [*told, Told("Warning", "UnknownTimeZone", f"invalid timeZone: {spec.time_zone}: {error}")], None
    except BadSchedule as error:
        message = f"unparseable schedule: {spec.schedule} : {error}"
        return None, [*told, Told("Warning", "UnparseableSchedule", message)], None
    try:
        found = due(cron_job, timing, now, is_bounded=True)
    except NeverDue as error:
        return None, [*told, Told("Warning", "InvalidSchedule", f"invalid schedule: {spec.schedule} : {error}")], None
    again_after = delay(cron_job, timing, now)
    if found.recent is None:
        return None, told, again_after
    if found.missed is Missed.MANY:
        message = "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew"
        told.append(Told("Warning", "TooManyMissedTimes", message))
    start, more = _start(cron_job, found.recent, timing, now)
    return start, [*told, *more], again_after


def _start(
    cron_job: volcano.CronJob, scheduled: Instant, timing: Timing, now: Instant
) -> tuple[Start | None, list[Told]]:
    spec, status = cron_job.spec, cron_job.status
    deadline = spec.starting_deadline_seconds
    if deadline is not None and scheduled + deadline < now:
        message = f"Missed scheduled time to start a job: {timestamps.to_text(scheduled)}"
        return None, [Told("Warning", "MissSchedule", message)]
    name = job_name(cron_job.metadata.name, scheduled)
    last = status.last_schedule_time
    if any(reference.name == name for reference in status.active) or (last and timestamps.parse(last) == scheduled):
        return None, []
    if spec.concurrency_policy == "Forbid" and status.active:
        message = "Not starting job because prior execution is running and concurrency policy is Forbid"
        return None, [Told("Normal", "JobAlreadyActive", message)]
    replaced = status.active if spec.concurrency_policy == "Replace" else ()
    return Start(scheduled, name, timing, replaced), []


def _beyond(jobs: Sequence[volcano.Job], phases: Collection[str], limit: int | None) -> Sequence[volcano.Job]:
    """The oldest of those in the phases, beyond the limit. No limit keeps all."""
    if limit is None:
        return ()
    over = sorted((job for job in jobs if job.status.state.phase in phases), key=by_age)
    return over[: max(0, len(over) - limit)]


def by_age(job: volcano.Job) -> tuple[bool, float, str]:
    """A sort key: the oldest first, those of no age last."""
    created = job.metadata.creation_timestamp
    return created is None, timestamps.parse(created) if created else 0.0, job.metadata.name
