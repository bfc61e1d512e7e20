"""What counts of a job's pods: each pod reduced to what the decisions read, read once."""

from typing import NamedTuple

from muster.api import conditions, core, timestamps
from muster.api.batch import names
from muster.api.meta import Instant, ObjectMeta
from muster.api.timestamps import BadTimestamp

FINISHED = ("Succeeded", "Failed")


class Member(NamedTuple):
    """One pod of the job. A tuple, because a job may have thousands and each is read anew for every decision."""

    pod: core.Pod
    uid: str
    phase: str
    completion_index: int | None
    """Of an indexed job. None where the pod does not say, or says nonsense."""
    is_tracked: bool
    """The job's finalizer still holds it: it is not in the counters yet."""
    is_terminating: bool

    @property
    def name(self) -> str:
        return self.pod.metadata.name

    @property
    def is_active(self) -> bool:
        return not self.is_terminating and self.phase not in FINISHED

    @property
    def is_ready(self) -> bool:
        return conditions.is_true(self.pod.status.conditions, "Ready")

    @property
    def is_bound(self) -> bool:
        return bool(self.pod.spec.node_name)

    @property
    def is_ending(self) -> bool:
        """Asked to go, and not at its end yet as far as anybody knows."""
        return self.is_terminating and self.phase not in FINISHED

    @property
    def failures(self) -> int:
        """Of its index, before this pod."""
        return _count(self.pod.metadata, names.INDEX_FAILURES_ANNOTATION)

    @property
    def ignored_failures(self) -> int:
        return _count(self.pod.metadata, names.INDEX_IGNORED_FAILURES_ANNOTATION)


def read(pod: core.Pod) -> Member:
    meta = pod.metadata
    return Member(
        pod,
        meta.uid,
        pod.status.phase or "Pending",
        _index(meta),
        is_tracked(meta),
        meta.deletion_timestamp is not None,
    )


def is_tracked(meta: ObjectMeta) -> bool:
    return names.TRACKING_FINALIZER in meta.finalizers


def has_failed(member: Member, *, only_at_the_end: bool) -> bool:
    """Whether the pod counts as failed. One that was told to go counts as such at once, unless the job wants to know
    how it ended (`only_at_the_end`). With no time left to end it is held by finalizers alone: nobody will say more."""
    if member.phase == "Failed":
        return True
    if not member.is_terminating or member.phase == "Succeeded":
        return False
    return not only_at_the_end or member.pod.metadata.deletion_grace_period_seconds == 0


def finish_time(member: Member) -> Instant:
    """When the pod ended; as near as can be told where its containers do not say."""
    meta, status = member.pod.metadata, member.pod.status
    ends = [container.state.terminated if container.state else None for container in status.container_statuses]
    times = [_instant(end.finished_at) if end is not None else None for end in ends]
    known = [time for time in times if time is not None]
    if known and len(known) == len(times):
        return max(known)
    ready = conditions.find(status.conditions, "Ready")
    unready = _instant(ready.last_transition_time) if ready is not None and ready.status == conditions.FALSE else None
    if unready is not None:
        return unready
    deleted = _instant(meta.deletion_timestamp)
    if deleted is not None:
        return Instant(deleted - (meta.deletion_grace_period_seconds or 0))
    return _instant(meta.creation_timestamp) or Instant(0)


def restarts(member: Member) -> int:
    status = member.pod.status
    return sum(container.restart_count for container in (*status.init_container_statuses, *status.container_statuses))


def removal_order(member: Member) -> tuple[bool, int, bool, float, int, float, str]:
    """Sorts those first whose loss costs least: not placed, not running, not ready, ready or made only lately."""
    ready = conditions.find(member.pod.status.conditions, "Ready")
    since = _instant(ready.last_transition_time) if ready is not None and ready.status == conditions.TRUE else None
    made = _instant(member.pod.metadata.creation_timestamp)
    return (
        member.is_bound,
        ("Pending", "Unknown", "Running").index(member.phase) if member.phase in ("Unknown", "Running") else 0,
        member.is_ready,
        -(since or 0.0),
        -restarts(member),
        -(made or 0.0),
        member.name,
    )


def _index(meta: ObjectMeta) -> int | None:
    if not meta.annotations or names.COMPLETION_INDEX not in meta.annotations:
        return None
    return _number(meta.annotations[names.COMPLETION_INDEX])


def _count(meta: ObjectMeta, annotation: str) -> int:
    return _number((meta.annotations or {}).get(annotation, "")) or 0


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= 10 else None


def _instant(text: str | None) -> Instant | None:
    try:
        return timestamps.parse(text) if text else None
    except BadTimestamp:
        return None
