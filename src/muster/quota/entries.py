"""A workload in one cycle: what it could be given, whom that would cost their place, and what became of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, TypeAlias

from muster.api.meta import Instant
from muster.quota.amounts import FlavorResource
from muster.quota.assignments import Assignment, Mode
from muster.quota.gates import Gate, Gates
from muster.quota.preempting import Target
from muster.quota.queueing import RequeueReason
from muster.quota.shares import served
from muster.quota.state import QueueState
from muster.quota.status import Pending
from muster.quota.workloads import NO_USAGE, Usage, WorkloadInfo

GATED: Final = "Workload requires preemption, but it's gated"
OVERLAPS: Final = "Workload has overlapping preemption targets with another workload"
DEFERRED: Final = f"{OVERLAPS}, but will fit after these preemptions complete"
NO_LONGER_FITS: Final = "Workload no longer fits after processing another workload"

Order: TypeAlias = tuple[bool, bool, tuple[int, ...], tuple[float, ...], int, int, Instant]


class Standing(StrEnum):
    NOT_NOMINATED = ""
    NOMINATED = "nominated"
    SKIPPED = "skipped"
    ASSUMED = "assumed"
    EVICTED = "evicted"
    GATED = "preemptionGated"


WRITTEN: Final = frozenset({Standing.NOT_NOMINATED, Standing.SKIPPED, Standing.GATED})
"""Where an entry ends so, its workload is told why it waits."""


@dataclass(slots=True, eq=False)
class Entry:
    info: WorkloadInfo
    queue: QueueState | None = None
    assignment: Assignment = field(default_factory=Assignment)
    mode: Mode = Mode.NO_FIT
    """Of its assignment, or that it fits once others are gone."""
    targets: Sequence[Target] = ()
    usage: Usage = NO_USAGE
    """What it takes beyond what it holds."""
    replaced: WorkloadInfo | None = None
    """The slice of the same job whose place it takes."""
    is_preemptor: bool = False
    is_estimate: bool = False
    """What it would be given is known, but not yet where, and whether it is really right for it."""
    standing: Standing = Standing.NOT_NOMINATED
    requeue_reason: RequeueReason = RequeueReason.GENERIC
    pending_reason: str = ""
    _message: str | None = None

    @property
    def message(self) -> str:
        """Why it waits. Made when asked: most entries are never asked."""
        return self.assignment.message() if self._message is None else self._message

    def refuse(self, reason: str, message: str, requeue_reason: RequeueReason = RequeueReason.GENERIC) -> None:
        """It is not even considered."""
        self.pending_reason, self._message, self.requeue_reason = reason, message, requeue_reason

    def wait(self, reason: str, requeue_reason: RequeueReason) -> None:
        """It was considered, and what its assignment says is why it waits."""
        self.pending_reason, self.requeue_reason = reason, requeue_reason

    def skip(self, message: str, gates: Gates, reason: str = Pending.WAITING_FOR_QUOTA) -> None:
        """It would fit, were it not for another one."""
        self.standing = Standing.SKIPPED
        self.pending_reason, self._message = reason, message
        if Gate.FLAVOR_FUNGIBILITY_PRESERVE_SCAN_PROGRESS not in gates:
            self.forget_scan()

    def overtake(self) -> None:
        """Others have taken what it would have got; it was not even looked at closely."""
        self.standing = Standing.SKIPPED
        self.pending_reason, self._message = Pending.WAITING_FOR_QUOTA, NO_LONGER_FITS

    def gate(self) -> None:
        """It may not preempt before somebody opens its gates."""
        self.standing = Standing.GATED
        self.requeue_reason = RequeueReason.PREEMPTION_GATED
        self.pending_reason, self._message = Pending.ADMISSION_GATED, GATED
        self.forget_scan()

    def defer(self) -> None:
        """Others already make the room that it needs."""
        self.requeue_reason = RequeueReason.PENDING_PREEMPTION
        self.pending_reason, self._message = Pending.WAITING_FOR_PREEMPTED, DEFERRED
        self.forget_scan()

    def migrate(self, message: str) -> None:
        """A sibling on a worse flavor makes room for it."""
        self.requeue_reason = RequeueReason.PENDING_MIGRATION
        self.pending_reason, self._message = Pending.WAITING_FOR_PREEMPTED, message
        self.forget_scan()

    def preempt(self, preempted: int, errors: int = 0) -> None:
        """So many workloads were told to stop for it, and so many could not be told."""
        if preempted:
            self.requeue_reason = RequeueReason.PENDING_PREEMPTION
            self.pending_reason = Pending.WAITING_FOR_PREEMPTED
            self._message = f"{self.message}. Pending the preemption of {preempted} workload(s)"
        elif errors:
            self.requeue_reason = RequeueReason.PREEMPTION_FAILED
            self.pending_reason = Pending.WAITING_FOR_QUOTA
            self._message = f"{self.message}. Preempting {errors} workload(s) failed, will retry."
        self.forget_scan()

    def forget_scan(self) -> None:
        """Its flavors are tried from the first again."""
        self.info.scan = None

    @property
    def final_reason(self) -> RequeueReason:
        """What is told to its queue: one that came far without a reason of its own is tried again at once."""
        if self.requeue_reason is RequeueReason.GENERIC and self.standing is not Standing.NOT_NOMINATED:
            return RequeueReason.FAILED_AFTER_NOMINATION
        return self.requeue_reason


def order(entry: Entry, gates: Gates) -> Order:
    """Without fair sharing: those that hold quota already, then whose queue is more important or, by Volcano's rules,
    has less of what it owns; who borrows less, is more important itself, waits longer."""
    info = entry.info
    preempts_first = Gate.PRIORITIZE_PREEMPTOR_WORKLOADS in gates and entry.is_preemptor
    priority = info.priority if Gate.PRIORITY_SORTING_WITHIN_COHORT in gates else 0
    borrowing = entry.assignment.borrowing
    queues: tuple[int, ...] = ()
    parts: tuple[float, ...] = ()
    if entry.queue is not None:
        queues = tuple(-each for each in entry.queue.node.priorities)
        parts = served(entry.queue.node) if entry.queue.policy.has_volcano_rules else ()
    return not info.has_reservation, not preempts_first, queues, parts, borrowing, -priority, info.queued_since


def to_reserve(entry: Entry, queue: QueueState) -> Mapping[FlavorResource, int]:
    """What is kept for one that waits for room and cannot make any, so that nobody behind it takes it."""
    wanted = entry.usage.quota
    if entry.mode is not Mode.PREEMPT:
        return wanted
    node = queue.node
    kept: dict[FlavorResource, int] = {}
    for what, value in wanted.items():
        left = node.nominal(what) - node.used(what)
        limit = node.borrowing_limit(what)
        if not entry.assignment.borrowing:
            kept[what] = max(0, min(value, left))
        elif limit is None:
            kept[what] = value
        else:
            kept[what] = min(value, left + limit)
    return kept
