"""What follows once a run was started, or could not be."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from msgspec import structs

from muster.api import core, timestamps, volcano
from muster.api.meta import Instant
from muster.jobs.cron.due import delay
from muster.jobs.cron.planning import Plan, Start, Told


@dataclass(frozen=True, slots=True)
class Started:
    """`is_new`: False where an earlier attempt had made it and could not say so."""

    job: core.ObjectReference
    is_new: bool = True


@dataclass(frozen=True, slots=True)
class Taken:
    """Somebody else has a job of that name."""


@dataclass(frozen=True, slots=True)
class Refused:
    message: str


@dataclass(frozen=True, slots=True)
class NotReplaced:
    """A job that had to go first could not be deleted."""

    message: str


Outcome: TypeAlias = Started | Taken | Refused | NotReplaced


@dataclass(frozen=True, slots=True)
class Settled:
    """`status`: what to write, or None. `has_failed`: to be tried again soon."""

    status: volcano.CronJobStatus | None
    told: Sequence[Told] = ()
    again_after: float | None = None
    has_failed: bool = False


def settle(plan: Plan, now: Instant, outcome: Outcome | None = None) -> Settled:
    """`outcome` of `plan.start`, where there is one."""
    observed = plan.observed.status if plan.is_changed else None
    if plan.start is None:
        return Settled(observed, (), plan.again_after)
    match outcome:
        case Started(job, is_new):
            return _started(plan, plan.start, job, now, is_new=is_new)
        case Taken():
            message = f"Not starting job because {plan.start.name} exists and does not belong to this cron job"
            return Settled(observed, [Told("Warning", "JobNameTaken", message)], plan.again_after)
        case Refused(message):
            return Settled(observed, [Told("Warning", "FailedCreate", f"Error creating job: {message}")], None, True)
        case NotReplaced(message):
            told = [
                Told("Warning", "FailedDelete", f"Error deleting job: {message}"),
                Told("Warning", "FailedReplace", "Not starting job because the one before could not be replaced"),
            ]
            return Settled(observed, told, None, True)
        case None:
            raise AssertionError("a run was started, or it was not")


def _started(plan: Plan, start: Start, job: core.ObjectReference, now: Instant, *, is_new: bool) -> Settled:
    before = plan.observed.status
    left = {reference.uid for reference in start.replaced}
    kept = [reference for reference in before.active if reference.uid not in {*left, job.uid}]
    status = structs.replace(before, active=(*kept, job), last_schedule_time=timestamps.to_text(start.scheduled))
    told = [Told("Normal", "SuccessfulDelete", f"Deleted job {found.name}") for found in start.replaced]
    if is_new:
        told.append(Told("Normal", "SuccessfulCreate", f"Created job {start.name}"))
    after = structs.replace(plan.observed, status=status)
    return Settled(status, told, delay(after, start.timing, now))
