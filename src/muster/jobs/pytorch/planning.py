"""The decision of the training operator, complete: from a job and what belongs to it to everything that should be done.

Whatever was done of an earlier plan, the next starts from what is there. The one thing it asks for is order: `restarts`
is written before the pods that it counts are deleted, so that none of them goes uncounted.
"""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Literal

from msgspec.structs import replace

from muster.api import conditions, core, kubeflow, timestamps, volcano
from muster.api.kubeflow.defaults import MASTER, WORKER
from muster.api.meta import Instant
from muster.api.raw import Document
from muster.jobs.pytorch import making, members, names
from muster.jobs.pytorch import status as statuses
from muster.jobs.pytorch.members import FINISHED, Member, Slot

LEAST_SECONDS_BETWEEN_STARTS = 10.0
"""What fails at once is not started again and again at full speed; what has run for a while is replaced at once."""


@dataclass(frozen=True, slots=True)
class Seen:
    job: kubeflow.PyTorchJob
    pods: Sequence[core.Pod]
    """All that the job controls."""
    services: AbstractSet[str] = frozenset()
    """Names of those that the job controls."""
    group: volcano.PodGroup | None = None


@dataclass(frozen=True, slots=True)
class Told:
    """An event about the job."""

    type: Literal["Normal", "Warning"]
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Plan:
    created: Sequence[Slot] = ()
    ended: Sequence[core.Pod] = ()
    """To delete."""
    services_created: Sequence[Document] = ()
    services_deleted: Sequence[str] = ()
    group_created: Document | None = None
    group_changed: Document | None = None
    is_group_deleted: bool = False
    restarts: int | None = None
    """What the job's annotation should say from now on, before anything is deleted."""
    status: Document | None = None
    """What to merge into the job's status; None: it is as it should be."""
    is_expired: bool = False
    """The job is over, and its time to live as well: to be deleted with all that belongs to it."""
    told: Sequence[Told] = ()
    again_after: float | None = None
    """Seconds after which time alone may call for more."""


@dataclass(frozen=True, slots=True)
class _Verdict:
    is_success: bool
    message: str
    is_cut_short: bool = False
    """A limit was reached: all that runs is ended, whatever the clean-up policy."""


def plan(seen: Seen, now: Instant) -> Plan:
    job = seen.job
    if names.policy(job).managed_by not in (None, names.OUR_MANAGER):
        return Plan()
    if statuses.finish_condition(job) is not None:
        return _after_the_end(seen, now)
    if job.metadata.deletion_timestamp is not None:
        return Plan()
    at = timestamps.to_text(now)
    listed = job.status.conditions
    if conditions.find(listed, statuses.CREATED) is None:
        listed = statuses.with_condition(listed, statuses.CREATED, f"PyTorchJob {job.metadata.name} is created.", at)
    status = replace(job.status, conditions=listed)
    crew = members.read(seen.pods)
    return _suspended(seen, crew, status, at) if names.policy(job).suspend else _working(seen, crew, status, now)


# A job that is over


def _after_the_end(seen: Seen, now: Instant) -> Plan:
    job, policy = seen.job, names.policy(seen.job)
    if job.metadata.deletion_timestamp is not None:
        return Plan()
    status = job.status
    if conditions.is_true(status.conditions, statuses.SUCCEEDED):
        status = replace(status, replica_statuses=statuses.settled_statuses(job))
    ended = [
        member.pod
        for member in members.read(seen.pods)
        if not member.is_terminating and _is_cleaned(member, policy.clean_pod_policy)
    ]
    gone = {pod.metadata.name for pod in ended}
    left = {pod.metadata.name for pod in seen.pods} - gone
    left_seconds = _seconds_left(job, now)
    return Plan(
        ended=ended,
        services_deleted=[] if policy.clean_pod_policy == "None" else sorted(seen.services - left),
        is_group_deleted=seen.group is not None,
        status=statuses.difference(job.status, status),
        is_expired=left_seconds is not None and left_seconds <= 0,
        again_after=left_seconds if left_seconds is not None and left_seconds > 0 else None,
    )


def _is_cleaned(member: Member, clean_pod_policy: str | None) -> bool:
    if clean_pod_policy == "All":
        return True
    if clean_pod_policy == "Running":
        return member.phase not in FINISHED
    # There is nothing to keep of one that has not begun; without its group it would wait for ever.
    return member.phase == "Pending" and not member.pod.spec.node_name


def _seconds_left(job: kubeflow.PyTorchJob, now: Instant) -> float | None:
    """To live; None: for ever."""
    over = statuses.finish_condition(job)
    seconds = names.policy(job).ttl_seconds_after_finished
    since = job.status.completion_time or (over.last_transition_time if over is not None else None)
    return None if seconds is None or not since else timestamps.parse(since) + seconds - now


# A job that waits


def _suspended(seen: Seen, crew: Sequence[Member], status: kubeflow.PyTorchJobStatus, at: str) -> Plan:
    job = seen.job
    message = f"PyTorchJob {job.metadata.name} is suspended."
    listed, told = status.conditions, []
    if conditions.is_true(listed, statuses.RUNNING):
        listed = statuses.with_condition(listed, statuses.RUNNING, message, at, holds=False, word=statuses.SUSPENDED)
    if not conditions.is_true(listed, statuses.SUSPENDED):
        listed = statuses.with_condition(listed, statuses.SUSPENDED, message, at)
        told.append(Told("Normal", statuses.reason(statuses.SUSPENDED), message))
    status = replace(status, conditions=listed, replica_statuses=statuses.ending_statuses(job, crew))
    return Plan(
        ended=[member.pod for member in crew if not member.is_terminating],
        services_deleted=sorted(seen.services),
        is_group_deleted=seen.group is not None,
        status=statuses.difference(job.status, status),
        told=told,
    )


# A job that runs


def _working(seen: Seen, crew: Sequence[Member], status: kubeflow.PyTorchJobStatus, now: Instant) -> Plan:
    job, at, told = seen.job, timestamps.to_text(now), []
    if conditions.is_true(status.conditions, statuses.SUSPENDED):
        message = f"PyTorchJob {job.metadata.name} is resumed."
        listed = statuses.with_condition(
            status.conditions, statuses.SUSPENDED, message, at, holds=False, word="Resumed"
        )
        status = replace(status, conditions=listed, start_time=at)
        told.append(Told("Normal", statuses.reason("Resumed"), message))
    status = replace(status, start_time=status.start_time or at, replica_statuses=statuses.replica_statuses(job, crew))
    failed = _failed(job, crew)
    deadline = _deadline_left(job, status, now)
    verdict = _judge(job, status, crew, failed, deadline)
    if verdict is not None:
        return _decided(seen, crew, status, verdict, at)
    status = _running(job, status, failed, at, told)
    due = [member for member in failed if _wait(member, now) <= 0]
    waits = [wait for member in failed if (wait := _wait(member, now)) > 0]
    wanted = [Slot(role, index) for role, spec in names.roles(job) for index in range(names.replicas(spec))]
    places = set(wanted)
    filled = {member.slot for member in crew}
    surplus = [member for member in crew if member.slot not in places and not member.is_terminating]
    meeting = [Slot(role, index) for role, index in names.meeting_points(job)]
    return Plan(
        created=[slot for slot in wanted if slot not in filled],
        ended=[member.pod for member in (*due, *surplus)],
        services_created=[
            making.make_service(job, slot)
            for slot in meeting
            if names.pod_name(job.metadata.name, slot.role, slot.number) not in seen.services
        ],
        group_created=making.make_group(job) if seen.group is None else None,
        group_changed=making.group_changes(job, seen.group) if seen.group is not None else None,
        restarts=_restarts(job) + len(due) if due else None,
        status=statuses.difference(job.status, status),
        told=told,
        again_after=min([*waits, *([deadline] if deadline is not None else [])], default=None),
    )


def _failed(job: kubeflow.PyTorchJob, crew: Sequence[Member]) -> list[Member]:
    """Pods that are wanted and have failed."""
    counts = {role: names.replicas(spec) for role, spec in names.roles(job)}
    return [
        member
        for member in crew
        if member.has_failed and member.slot is not None and member.slot.number < counts.get(member.slot.role, 0)
    ]


def _judge(
    job: kubeflow.PyTorchJob,
    status: kubeflow.PyTorchJobStatus,
    crew: Sequence[Member],
    failed: Sequence[Member],
    deadline: float | None,
) -> _Verdict | None:
    """None while it goes on."""
    name, counts = job.metadata.name, status.replica_statuses or {}
    leading = MASTER if names.has_master(job) else WORKER
    specs = dict(names.roles(job))
    if leading in specs and (counts[leading].succeeded or 0) >= names.replicas(specs[leading]):
        return _Verdict(True, _said(job, "is successfully completed.", "successfully completed."))
    for role, spec in specs.items():
        given_up = [
            m for m in failed if m.slot is not None and m.slot.role == role if not members.is_restarted(spec, m)
        ]
        if given_up:
            count = counts[role].failed or 0
            return _Verdict(False, f"PyTorchJob {name} is failed because {count} {role} replica(s) failed.")
    if _is_past_limit(job, crew, failed):
        message = f"Job {name} has failed because it has reached the specified backoff limit"
        return _Verdict(False, message, is_cut_short=True)
    if deadline is not None and deadline <= 0:
        message = f"Job {name} has failed because it was active longer than specified deadline"
        return _Verdict(False, message, is_cut_short=True)
    return None


def _is_past_limit(job: kubeflow.PyTorchJob, crew: Sequence[Member], failed: Sequence[Member]) -> bool:
    """Replaced pods and those that restart in place have the same limit, each for itself."""
    limit = names.policy(job).backoff_limit
    if limit is None:
        return False
    if failed and _restarts(job) + len(failed) > limit:
        return True
    in_place = {role for role, spec in names.roles(job) if spec.restart_policy in ("OnFailure", "Always")}
    restarts = sum(member.restarts for member in crew if member.slot is not None and member.slot.role in in_place)
    return restarts >= max(1, limit)


def _decided(seen: Seen, crew: Sequence[Member], status: kubeflow.PyTorchJobStatus, verdict: _Verdict, at: str) -> Plan:
    """What is left of it is cleaned up when this is written down."""
    type = statuses.SUCCEEDED if verdict.is_success else statuses.FAILED
    listed = statuses.with_condition(status.conditions, type, verdict.message, at)
    status = replace(status, conditions=listed, completion_time=status.completion_time or at)
    told = Told("Normal" if verdict.is_success else "Warning", statuses.reason(type), verdict.message)
    return Plan(
        ended=[member.pod for member in crew if not member.is_terminating] if verdict.is_cut_short else [],
        services_deleted=sorted(seen.services) if verdict.is_cut_short else [],
        status=statuses.difference(seen.job.status, status),
        told=[told],
    )


def _running(
    job: kubeflow.PyTorchJob,
    status: kubeflow.PyTorchJobStatus,
    failed: Sequence[Member],
    at: str,
    told: list[Told],
) -> kubeflow.PyTorchJobStatus:
    name, listed, counts = job.metadata.name, status.conditions, status.replica_statuses or {}
    roles = [role for role in counts if counts[role].failed]
    if failed and roles:
        role = roles[-1]
        message = f"PyTorchJob {name} is restarting because {counts[role].failed} {role} replica(s) failed."
        changed = statuses.with_condition(listed, statuses.RESTARTING, message, at)
        if changed != listed:
            told.append(Told("Warning", statuses.reason(statuses.RESTARTING), message))
        return replace(status, conditions=changed)
    leading = MASTER if names.has_master(job) else WORKER
    if leading in counts and counts[leading].active:
        listed = statuses.with_condition(listed, statuses.RUNNING, _said(job, "is running.", "is running."), at)
    return replace(status, conditions=listed)


def _said(job: kubeflow.PyTorchJob, with_master: str, without: str) -> str:
    meta = job.metadata
    return (
        f"PyTorchJob {meta.name} {with_master}"
        if names.has_master(job)
        else f"PyTorchJob {meta.namespace}/{meta.name} {without}"
    )


def _restarts(job: kubeflow.PyTorchJob) -> int:
    text = (job.metadata.annotations or {}).get(names.RESTARTS, "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else 0


def _wait(failed: Member, now: Instant) -> float:
    return timestamps.left_of(LEAST_SECONDS_BETWEEN_STARTS, members.made_at(failed), now)


def _deadline_left(job: kubeflow.PyTorchJob, status: kubeflow.PyTorchJobStatus, now: Instant) -> float | None:
    seconds = names.policy(job).active_deadline_seconds
    if seconds is None or not status.start_time:
        return None
    return timestamps.parse(status.start_time) + seconds - now
