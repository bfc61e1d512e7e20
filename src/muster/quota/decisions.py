"""What a cycle has decided: whom to admit, whom to stop, who waits on and why.

A decision keeps what it was made from. The new document and the events are made when somebody asks: a workload that is
looked at again a moment later costs neither. The new document is made from whatever the store has when it is written.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, Literal, TypeAlias

from muster.api import timestamps
from muster.api.meta import Instant
from muster.api.raw import Document
from muster.quota import status
from muster.quota.amounts import MOST, all_shown
from muster.quota.assignments import Attempt, Mode
from muster.quota.entries import WRITTEN, Entry, Standing
from muster.quota.gates import Gate
from muster.quota.preempting import Target, messages
from muster.quota.queueing import RequeueReason
from muster.quota.settings import Settings
from muster.quota.workloads import JOB_UID_LABEL, REQUEUED, WorkloadInfo

EventType: TypeAlias = Literal["Normal", "Warning"]
NORMAL: Final = "Normal"
WARNING: Final = "Warning"
REPLACED: Final = "WorkloadSliceReplaced"
_LONGEST_WAIT: Final = MOST / 1e9
"""Seconds: what is older than anything has waited as long as a time span can be."""


@dataclass(frozen=True, slots=True)
class Event:
    """`about`: the workload, by key."""

    about: str
    type: EventType
    reason: str
    message: str


@dataclass(frozen=True)
class Moment:
    """When, and under which settings, a cycle decides."""

    now: Instant
    settings: Settings

    @cached_property
    def text(self) -> str:
        """As conditions say it."""
        return timestamps.to_text(self.now)


@dataclass(frozen=True, slots=True, eq=False)
class Admission:
    """Quota is reserved, or a reservation got its topology. The state counts `assumed` already."""

    info: WorkloadInfo
    assumed: WorkloadInfo
    entry: Entry
    moment: Moment
    has_all_checks: bool
    """Every check that is asked for here is listed; if not, whoever lists them says whether it is admitted."""

    @property
    def is_second_pass(self) -> bool:
        return self.info.has_reservation

    @property
    def is_admitted(self) -> bool:
        return self.assumed.is_admitted

    def apply(self, document: Document) -> Document:
        now, gates = self.moment.now, self.moment.settings.gates
        admission = self.entry.assignment.to_admission(self.assumed.queue)
        if self.is_second_pass:
            return status.replace_nodes(document, admission, now, gates)
        made = status.reserve(document, admission, now)
        return status.admit(made, now, gates) if self.has_all_checks else made

    def events(self) -> list[Event]:
        key, queue, now = self.info.key, self.assumed.queue, self.moment.now
        found = []
        if not self.is_second_pass:
            message = f"Quota reserved in ClusterQueue {queue}, wait time since queued was {_waited(self.info, now)}"
            considered = _considered(self.entry)
            text = f"{message}; Flavors considered: {considered}" if considered else message
            found.append(_event(key, NORMAL, "QuotaReserved", text))
        if self.is_admitted and not self.info.is_admitted:
            since = self.assumed.reserved_at
            wait = _seconds(now - since if since is not None else 0.0)
            message = f"Admitted by ClusterQueue {queue}, wait time since reservation was {wait}"
            found.append(_event(key, NORMAL, "Admitted", message))
        return found

    def refused(self) -> "Requeue":
        """The store did not take it: what is left to do once the state has been rolled back."""
        self.entry.standing = Standing.NOMINATED
        return Requeue(self.entry, self.moment)


@dataclass(frozen=True, slots=True, eq=False)
class Eviction:
    """A workload that holds quota is told to stop. The state counts it as evicted already.

    `entry`: for which it stops; its own where it stops for itself. `target`: on what grounds it is preempted, which
    also makes the message.
    """

    info: WorkloadInfo
    reason: str
    moment: Moment
    entry: Entry
    target: Target | None = None
    said: str = ""

    @property
    def message(self) -> str:
        if self.target is None or self.entry.queue is None:
            return self.said
        return messages.message_for(self.entry.info, self.entry.queue, self.target)

    def apply(self, document: Document) -> Document:
        now = self.moment.now
        if self.target is not None:
            return status.preempt(document, self.target.reason, self.message, now)
        return status.evict(document, self.reason, self.message, now)

    def events(self) -> list[Event]:
        found = [_event(self.info.key, NORMAL, f"EvictedDueTo{self.reason}", self.message)]
        if self.target is not None and self.entry.queue is not None:
            by, queue = self.entry.info, self.entry.queue
            found.append(_event(self.info.key, NORMAL, "Preempted", messages.victim_event(by, queue, self.target)))
            found.append(_event(by.key, NORMAL, "PreemptedWorkload", messages.preemptor_event(by, self.target)))
        return found

    def refused(self) -> "Requeue | None":
        """The store did not take it. One that would have stopped for itself is tried again."""
        if self.entry.info.key != self.info.key:
            return None
        self.entry.standing = Standing.NOT_NOMINATED
        return Requeue(self.entry, self.moment)


@dataclass(frozen=True, slots=True, eq=False)
class Replacement:
    """A slice has made way for a larger one of the same job: it is finished. The state no longer counts it."""

    info: WorkloadInfo
    by: WorkloadInfo
    moment: Moment

    @property
    def message(self) -> str:
        job = (self.by.view.metadata.labels or {}).get(JOB_UID_LABEL, "")
        return (
            f"Replaced to accommodate a workload (UID: {self.by.uid}, JobUID: {job}) due to workload slice aggregation"
        )

    def apply(self, document: Document) -> Document:
        return status.finish(document, REPLACED, self.message, self.moment.now)

    def events(self) -> list[Event]:
        return [_event(self.info.key, NORMAL, REPLACED, self.message)]


@dataclass(frozen=True, slots=True, eq=False)
class Requeue:
    """It was looked at and waits on. A second pass that failed leaves its document alone and is tried again later."""

    entry: Entry
    moment: Moment

    @property
    def info(self) -> WorkloadInfo:
        return self.entry.info

    @property
    def reason(self) -> RequeueReason:
        return self.entry.final_reason

    @property
    def is_second_pass(self) -> bool:
        return self.entry.info.has_reservation

    @property
    def is_written(self) -> bool:
        return self.entry.standing in WRITTEN and not self.is_second_pass

    def apply(self, document: Document) -> Document:
        if not self.is_written:
            return document
        entry, now, gates = self.entry, self.moment.now, self.moment.settings.gates
        reason = entry.pending_reason
        if entry.standing is Standing.GATED and Gate.UNADMITTED_WORKLOADS_OBSERVABILITY not in gates:
            reason = status.Pending.PENDING_EVALUATION  # the name is for gates that keep it out of the queue
        made = status.pending(document, reason, entry.message, now, gates, requested(entry.info))
        if entry.standing is Standing.GATED:
            made = status.block_on_gates(made, entry.message, now)
        return document if made == document else made

    def events(self) -> list[Event]:
        if self.is_second_pass:
            return [_event(self.info.key, WARNING, "SecondPassFailed", self.entry.message)]
        if not self.is_written:
            return []
        reason = status.shown_reason(self.entry.pending_reason, self.moment.settings.gates)
        return [_event(self.info.key, WARNING, reason, self.entry.message)]


Decided: TypeAlias = Admission | Eviction | Replacement | Requeue
"""Each has the workload as it was (`info`), makes its new document (`apply`: the same one where nothing is to be
written) and the events to record once that is written."""


@dataclass(slots=True, eq=False)
class CycleResult:
    """In the order in which it was decided, what was put back last."""

    decisions: list[Decided] = field(default_factory=list)
    skipped_preemptions: dict[str, int] = field(default_factory=dict)
    """By queue: workloads that would have preempted, had not another one been first."""
    recomputations: dict[str, dict[str, int]] = field(default_factory=dict)
    """By queue and outcome: how often targets were chosen anew because others had claimed them."""

    def admissions(self) -> Iterator[Admission]:
        return (found for found in self.decisions if isinstance(found, Admission))

    def evictions(self) -> Iterator[Eviction]:
        return (found for found in self.decisions if isinstance(found, Eviction))

    def requeues(self) -> Iterator[Requeue]:
        return (found for found in self.decisions if isinstance(found, Requeue))

    @property
    def has_progress(self) -> bool:
        """Something was given or taken: what did not fit may be seen differently now."""
        return any(not isinstance(found, Requeue) for found in self.decisions)


def requested(info: WorkloadInfo) -> list[Document]:
    """What it asks for, as its status shows it."""
    listed: list[Document] = []
    for pods in info.pod_sets:
        document: Document = {"name": pods.name}
        if pods.requests:
            document["resources"] = all_shown(pods.requests)
        listed.append(document)
    return listed


def _event(about: str, type: EventType, reason: str, message: str) -> Event:
    return Event(about, type, reason, status.shortened(message, status.MOST_EVENT_TEXT))


def _waited(info: WorkloadInfo, now: Instant) -> str:
    requeued = info.conditions.get(REQUEUED)
    since = info.created
    if requeued is not None and requeued.last_transition_time:
        since = timestamps.parse(requeued.last_transition_time)
    return _seconds(now - since)


def _seconds(wait: float) -> str:
    return f"{min(wait, _LONGEST_WAIT):.0f}s"


def _considered(entry: Entry) -> str:
    """The flavors that were looked at, but for those that simply fit."""
    parts = []
    for pods in entry.assignment.pod_sets:
        shown = [_attempt(attempt) for attempt in pods.attempts if attempt.mode is not Mode.FIT or attempt.borrow]
        if shown:
            parts.append(f"{pods.name}: {', '.join(shown)}")
    return "; ".join(parts)


def _attempt(attempt: Attempt) -> str:
    if attempt.mode is Mode.PREEMPT and attempt.possibility:
        parts = [f"preemptionMode={attempt.possibility}"]
    else:
        parts = [attempt.mode.shown]
    if attempt.borrow:
        parts.append(f"borrow={attempt.borrow}")
    if attempt.reasons:
        parts.append(_joined(attempt.reasons))
    return f"{attempt.flavor}({';'.join(parts)})"


def _joined(reasons: Iterable[str]) -> str:
    return ", ".join(reasons)
