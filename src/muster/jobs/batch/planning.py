"""The decision of the Job controller, complete: from a job, its pods and the time to everything that should be done.

Whatever was done of an earlier plan, and whatever was not, the next plan starts from what is there. The one thing it
asks for is order: `released` may be let go only once `status` is written.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

from msgspec.structs import replace

from muster.api import batch, core, timestamps
from muster.api.batch.names import OUR_MANAGER
from muster.api.meta import Condition, Instant
from muster.api.raw import Document
from muster.jobs.batch import counting, judging, managing, members, standing
from muster.jobs.batch import status as statuses
from muster.jobs.batch.counting import Count
from muster.jobs.batch.judging import Verdict
from muster.jobs.batch.managing import NewPod, Work
from muster.jobs.batch.standing import Standing


@dataclass(frozen=True, slots=True)
class Told:
    """An event about the job."""

    type: Literal["Normal", "Warning"]
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Plan:
    created: Sequence[NewPod] = ()
    removed: Sequence[core.Pod] = ()
    """To let go and delete: they do not count."""
    ended: Sequence[core.Pod] = ()
    """To delete; they are counted, and then among the released."""
    status: Document | None = None
    """What to merge into the job's status; None: it is as it should be."""
    released: Sequence[core.Pod] = ()
    """To be freed of the finalizer, after the status was written."""
    is_expired: bool = False
    """The job is over, and its time to live as well: to be deleted with all that belongs to it."""
    told: Sequence[Told] = ()
    again_after: float | None = None
    """Seconds after which time alone may call for more."""


def is_ours(job: batch.Job) -> bool:
    """Whether no other controller was named to manage it."""
    return job.spec.managed_by in (None, OUR_MANAGER)


def plan(job: batch.Job, pods: Sequence[core.Pod], now: Instant, taken: Collection[str] = ()) -> Plan:
    """`taken`: names of pods that cannot be had."""
    if statuses.finish_condition(job) is not None:
        return _after_the_end(job, pods, now)
    if not is_ours(job):
        return Plan()
    found = standing.of(job, pods)
    verdict = judging.judge(found, now)
    is_managed = verdict is None and job.metadata.deletion_timestamp is None
    work = managing.manage(found, now, taken) if is_managed else Work()
    ended = found.active if verdict is not None else ()
    gone = {member.uid for member in (*work.removed, *ended)}
    if verdict is None and judging.is_complete(found, len(found.active) - len(gone)):
        verdict = judging.COMPLETED
    count = counting.count(found, verdict, {member.uid for member in work.removed})
    after = _status(found, count, gone, now)
    told: list[Told] = []
    if verdict is not None:
        after = _decided(after, verdict, count, now, told)
    elif is_managed:
        after = _suspended(job, after, now, told)
    deadline = judging.deadline_left(job, now) if verdict is None else None
    waits = [wait for wait in (work.again_after, deadline, 0.0 if count.is_partial else None) if wait is not None]
    return Plan(
        work.created,
        [member.pod for member in work.removed],
        [member.pod for member in ended],
        statuses.difference(job.status, after),
        [member.pod for member in count.released],
        told=told,
        again_after=min(waits, default=None),
    )


def _after_the_end(job: batch.Job, pods: Sequence[core.Pod], now: Instant) -> Plan:
    over = statuses.finish_condition(job)
    assert over is not None
    released = [pod for pod in pods if members.is_tracked(pod.metadata)] if is_ours(job) else []
    seconds = job.spec.ttl_seconds_after_finished
    if seconds is None or over.last_transition_time is None or job.metadata.deletion_timestamp is not None:
        return Plan(released=released)
    left = timestamps.parse(over.last_transition_time) + seconds - now
    return Plan(released=released, is_expired=left <= 0, again_after=left if left > 0 else None)


def _status(found: Standing, count: Count, gone: Collection[str], now: Instant) -> batch.JobStatus:
    """The counters. Pods that are only about to be made do not count as active: making one may fail."""
    job = found.job
    active = [member for member in found.active if member.uid not in gone]
    leaving = sum(member.uid in gone and member.is_bound for member in found.active)
    started = job.status.start_time
    if job.spec.suspend:
        started = None  # its deadline stands still, and where its pods go may be decided anew
    elif started is None:
        started = timestamps.to_text(now)
    return replace(
        job.status,
        active=len(active) or None,
        ready=sum(member.is_ready for member in active),
        terminating=found.ending + leaving,
        succeeded=count.succeeded or None,
        failed=count.failed or None,
        uncounted_terminated_pods=count.uncounted,
        completed_indexes=count.completed_indexes,
        failed_indexes=count.failed_indexes,
        start_time=started,
    )


def _decided(
    status: batch.JobStatus, verdict: Verdict, count: Count, now: Instant, told: list[Told]
) -> batch.JobStatus:
    """First it is written down that the job is decided; that it is over, when none of its pods is left to wait for."""
    at = timestamps.to_text(now)
    conditions = statuses.with_condition(status.conditions, _condition(verdict.target, verdict, at))
    if not count.is_settled or status.terminating:
        return replace(status, conditions=conditions)
    if verdict.is_success:
        told.append(Told("Normal", "Completed", "Job completed"))
        conditions = statuses.with_condition(conditions, _condition("Complete", verdict, at))
        return replace(status, conditions=conditions, completion_time=at)
    told.append(Told("Warning", verdict.reason, verdict.message))
    return replace(status, conditions=statuses.with_condition(conditions, _condition("Failed", verdict, at)))


def _condition(type: str, verdict: Verdict, at: str) -> Condition:
    return Condition(
        type=type,
        status="True",
        last_probe_time=at,
        last_transition_time=at,
        reason=verdict.reason,
        message=verdict.message,
    )


def _suspended(job: batch.Job, status: batch.JobStatus, now: Instant, told: list[Told]) -> batch.JobStatus:
    at = timestamps.to_text(now)
    is_suspended = bool(job.spec.suspend)
    word = "suspended" if is_suspended else "resumed"
    condition = Condition(
        type="Suspended",
        status="True" if is_suspended else "False",
        last_probe_time=at,
        last_transition_time=at,
        reason=f"Job{word.capitalize()}",
        message=f"Job {word}",
    )
    conditions = statuses.with_condition(status.conditions, condition)
    if conditions == status.conditions:
        return status
    told.append(Told("Normal", word.capitalize(), f"Job {word}"))
    return replace(status, conditions=conditions, start_time=None if is_suspended else at)
