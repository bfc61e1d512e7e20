"""One workload, where it stands, and what may be planned for it."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeAlias

from muster.api import conditions, kueue, timestamps
from muster.api.meta import Instant
from muster.api.raw import Document
from muster.quota import status
from muster.quota.decisions import NORMAL, Event, EventType
from muster.quota.gates import Gates
from muster.quota.queues import Queue, Stop, read_queue
from muster.quota.settings import Settings
from muster.quota.status import Evicted, Pending
from muster.quota.workloads import ON_HOLD, QUOTA_RESERVED, Told

REQUEUING_LIMIT: Final = "RequeuingLimitExceeded"
MAXIMUM_TIME: Final = "MaximumExecutionTimeExceeded"

Change: TypeAlias = Callable[[Document], Document]


@dataclass(frozen=True, slots=True, eq=False)
class QueueStanding:
    """A ClusterQueue, as far as it decides about workloads that it knows already."""

    policy: Queue
    is_active: bool
    is_terminating: bool

    @property
    def stop(self) -> Stop:
        return self.policy.stop

    @property
    def is_closed(self) -> bool:
        """Nothing new is let in."""
        return self.is_terminating or self.stop is not Stop.NONE


def standing(view: kueue.ClusterQueue, policy: Queue | None = None) -> QueueStanding:
    """One of which nobody has said yet whether it is active is taken to be. `policy`: where it has been read before."""
    return QueueStanding(
        policy or read_queue(view),
        not conditions.is_false(view.status.conditions, "Active"),
        view.metadata.deletion_timestamp is not None,
    )


@dataclass(frozen=True, slots=True, eq=False)
class Place:
    """Where a workload waits, or holds quota. `queue_name`: empty where nothing leads to a ClusterQueue."""

    local_queue: kueue.LocalQueue | None
    queue_name: str
    queue: QueueStanding | None


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """`look_again`: when time alone may change the answer."""

    deactivates: bool = False
    """`spec.active` becomes false; nothing else is written then."""
    changes: tuple[Change, ...] = ()
    """Of the status."""
    events: tuple[Event, ...] = ()
    look_again: Instant | None = None

    def apply(self, document: Document) -> Document:
        if self.deactivates:
            return {**document, "spec": {**(document.get("spec") or {}), "active": False}}
        for change in self.changes:
            document = change(document)
        return document


NOTHING: Final = Plan()


class Case(Told):
    """A workload that is looked at."""

    __slots__ = ("look_again", "now", "place", "settings")

    def __init__(self, view: kueue.Workload, place: Place, settings: Settings, now: Instant) -> None:
        self.view = view
        self.place = place
        self.settings = settings
        self.now = now
        self.conditions = {found.type: found for found in view.status.conditions}
        self.look_again: Instant | None = None

    # Questions

    @property
    def key(self) -> str:
        return f"{self.view.metadata.namespace}/{self.view.metadata.name}"

    @property
    def gates(self) -> Gates:
        return self.settings.gates

    @property
    def is_on_hold(self) -> bool:
        return self.why_not(QUOTA_RESERVED) == ON_HOLD

    def why_not(self, type: str) -> str:
        """The reason of a condition that is false; empty where it is not."""
        found = self.conditions.get(type)
        return found.reason or "" if found is not None and found.status == conditions.FALSE else ""

    def since(self, type: str) -> Instant:
        found = self.conditions.get(type)
        at = found.last_transition_time if found is not None else None
        return timestamps.parse(at) if at else self.now

    def is_time(self, at: Instant) -> bool:
        """Whether the time has come; if not, it is looked at again then."""
        if at <= self.now:
            return True
        if self.look_again is None or at < self.look_again:
            self.look_again = at
        return False

    def says(self, reason: Pending, message: str) -> bool:
        """Its condition says already that it has no quota, and why."""
        found = self.conditions.get(QUOTA_RESERVED)
        return (
            found is not None
            and found.status == conditions.FALSE
            and found.reason == status.shown_reason(reason, self.gates)
            and found.message == message
        )

    # What may be planned

    def event(self, type: EventType, reason: str, message: str) -> Event:
        return Event(self.key, type, reason, status.shortened(message, status.MOST_EVENT_TEXT))

    def pending(self, reason: Pending, message: str) -> Change:
        return partial(status.pending, reason=reason, message=message, now=self.now, gates=self.gates)

    def evict(self, reason: Evicted, message: str, *, after: Change | None = None, cause: str = "") -> Plan:
        """`after`: another change, to be made before."""
        shown = f"{reason}DueTo{cause}" if cause else reason
        change = partial(status.evict, reason=reason, message=message, now=self.now, cause=cause)
        return Plan(
            changes=(change,) if after is None else (after, change),
            events=(self.event(NORMAL, f"EvictedDueTo{shown}", message),),
        )

    def target(self, cause: str, message: str) -> Change:
        return partial(status.target_deactivation, cause=cause, message=message, now=self.now)
