"""All pending workloads: from their local queue to its cluster queue, and in which order they are looked at there.

What waits is remembered by local queue, whether or not there is one and whether or not it leads anywhere yet: the queue
may come after the workload. A local queue that is stopped is a door that is shut.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias

from muster.api import kueue
from muster.api.meta import Instant
from muster.cluster.namespaces import Namespaces
from muster.quota.amounts import total
from muster.quota.fair_admission import Ledger, has_ledger
from muster.quota.queueing.pending import Counts, PendingQueue, Preemptor, Verdict
from muster.quota.queueing.reasons import RequeueReason
from muster.quota.queueing.standing import Position
from muster.quota.queues import Queue, Stop, read_weight
from muster.quota.settings import Settings
from muster.quota.tree import QuotaTree
from muster.quota.workloads import WorkloadInfo

MayFit: TypeAlias = Callable[[str, WorkloadInfo], bool]
"""Whether a workload of the queue with that name could fit now."""


@dataclass(slots=True, eq=False)
class _Door:
    """A local queue, as far as it is known. `queue`: where it leads; empty where it leads nowhere."""

    queue: str = ""
    workloads: dict[str, WorkloadInfo] = field(default_factory=dict)
    asked: dict[str, int] = field(default_factory=dict)
    """By resource, what all of them ask for."""

    def put(self, info: WorkloadInfo) -> None:
        known = self.workloads.get(info.key)
        self.workloads[info.key] = info
        if known is None or known.pod_sets is not info.pod_sets:
            if known is not None:
                self._count(known, -1)
            self._count(info, 1)

    def drop(self, key: str) -> None:
        self._count(self.workloads.pop(key), -1)

    def _count(self, info: WorkloadInfo, sign: int) -> None:
        for pods in info.pod_sets:
            for resource, value in pods.requests.items():
                self.asked[resource] = self.asked.get(resource, 0) + sign * value


class PendingQueues:
    def __init__(self, settings: Settings, tree: QuotaTree, namespaces: Namespaces) -> None:
        self.queues: dict[str, PendingQueue] = {}
        self.ledger: Ledger | None = None
        """Past usage of the local queues, where that is to count."""
        if has_ledger(settings):
            self.ledger = Ledger(settings)
        self._settings = settings
        self._tree = tree
        self._namespaces = namespaces
        self._doors: dict[str, _Door] = {}
        self._door_of: dict[str, str] = {}
        self._doors_to: dict[str, set[str]] = {}
        self._ready: set[str] = set()  # queues with something active
        self._stirred: set[str] = set()  # queues that a flush could change
        self._untold: set[str] = set()  # queues with something to be told by `take_moved`

    # Queues

    def set_queue(self, policy: Queue, now: Instant) -> None:
        """New, or changed. Whoever waits for it enters; a flush is the caller's to ask for."""
        known = self.queues.get(policy.name)
        if known is not None:
            known.set_policy(policy)
            return
        self.queues[policy.name] = PendingQueue(policy, self._settings, self.ledger)
        for door in sorted(self._doors_to.get(policy.name, ())):
            self._enter(self._doors[door], now)

    def remove_queue(self, name: str) -> None:
        """Its workloads wait at their local queues."""
        self.queues.pop(name, None)
        for noted in (self._ready, self._stirred, self._untold):
            noted.discard(name)

    def set_local_queue(self, view: kueue.LocalQueue, now: Instant) -> None:
        key = f"{view.metadata.namespace}/{view.metadata.name}"
        is_open = (view.spec.stop_policy or Stop.NONE) == Stop.NONE
        leads_to = view.spec.cluster_queue if is_open else ""
        if self.ledger is not None:
            self.ledger.set_weight(key, read_weight(view.spec.fair_sharing))
        door = self._doors.get(key, _Door())
        if door.queue == leads_to:
            return
        self._shut(key, door)
        if leads_to:
            self._doors[key] = door
            door.queue = leads_to
            self._doors_to.setdefault(leads_to, set()).add(key)
            self._enter(door, now)

    def remove_local_queue(self, key: str) -> None:
        """By `namespace/name`."""
        if self.ledger is not None:
            self.ledger.remove(key)
        door = self._doors.get(key)
        if door is not None:
            self._shut(key, door)
            if not door.workloads:
                del self._doors[key]

    def _enter(self, door: _Door, now: Instant) -> None:
        pending = self.queues.get(door.queue)
        if pending is not None:
            for info in door.workloads.values():
                info.queue = door.queue
                pending.push(info, now)
            self._note(pending)

    def _shut(self, key: str, door: _Door) -> None:
        pending = self.queues.get(door.queue)
        if pending is not None:
            for workload in door.workloads:
                pending.delete(workload)
            self._note(pending)
        if door.queue:
            beside = self._doors_to[door.queue]
            beside.remove(key)
            if not beside:
                del self._doors_to[door.queue]
            door.queue = ""

    def _note(self, pending: PendingQueue) -> None:
        if pending.has_active():
            self._ready.add(pending.name)
        else:
            self._ready.discard(pending.name)
        if pending.awaits_flush():
            self._stirred.add(pending.name)
        else:
            self._stirred.discard(pending.name)
        if pending.has_moved():
            self._untold.add(pending.name)

    # Workloads

    def __contains__(self, key: str) -> bool:
        return key in self._door_of

    def __len__(self) -> int:
        return len(self._door_of)

    def __iter__(self) -> Iterator[WorkloadInfo]:
        for door in self._doors.values():
            yield from door.workloads.values()

    def get(self, key: str) -> WorkloadInfo | None:
        door = self._door_of.get(key)
        return None if door is None else self._doors[door].workloads[key]

    def push(self, info: WorkloadInfo, now: Instant) -> bool:
        """It is new, or has changed. False where it does not wait for quota: then it is forgotten here."""
        key = info.key
        if not info.is_queueable(self._settings):
            self.delete(key)
            return False
        if self._door_of.get(key, info.local_queue) != info.local_queue:
            self.delete(key)
        door = self._remember(info)
        pending = self.queues.get(door.queue)
        if pending is not None:
            info.queue = door.queue
            pending.push(info, now)
            self._note(pending)
        return True

    def delete(self, key: str) -> None:
        """It is gone, or admitted, or waits for something else than quota."""
        local_queue = self._door_of.pop(key, None)
        if local_queue is None:
            return
        door = self._doors[local_queue]
        door.drop(key)
        pending = self.queues.get(door.queue)
        if pending is not None:
            pending.delete(key)
            self._note(pending)
        if not door.workloads and not door.queue:
            del self._doors[local_queue]

    def requeue(self, info: WorkloadInfo, reason: RequeueReason, now: Instant, shown: str = "") -> bool:
        """After it was looked at in vain. False where it does not go back: it was deleted meanwhile, or its queue was,
        or it waits already. `shown`: the reason that its condition gives."""
        pending = self._pending_of(info.key)
        if pending is None or not pending.is_in_flight(info.key):
            return False
        went_back = pending.requeue(info, reason, now, shown)
        self._note(pending)
        return went_back

    def heads(self, is_active: Callable[[str], bool]) -> list[WorkloadInfo]:
        """The first of every queue that is active and has one, by name of the queue. They are in flight until they are
        requeued or deleted."""
        found: list[WorkloadInfo] = []
        for name in sorted(self._ready):
            if is_active(name):
                info = self.pop(name)
                if info is not None:
                    found.append(info)
        return found

    def pop(self, queue: str) -> WorkloadInfo | None:
        pending = self.queues.get(queue)
        if pending is None:
            return None
        info = pending.pop()
        self._note(pending)
        return info

    def peek(self, queue: str) -> WorkloadInfo | None:
        pending = self.queues.get(queue)
        return None if pending is None else pending.peek()

    def flush(self, queues: Iterable[str], now: Instant, may_fit: MayFit | None = None) -> int:
        """Something changed in these queues that could help whoever shares quota with them. `may_fit`: whom of a queue
        it could help, where only room was made. How many become active."""
        self._tree.settle()
        known = self._tree.queues
        roots = {id(known[name].root()) for name in queues if name in known and not self._tree.is_in_cycle(name)}
        moved = 0
        for name in tuple(self._stirred):
            if name in known and id(known[name].root()) in roots:
                pending = self.queues[name]
                judge = None if may_fit is None else partial(may_fit, name)
                moved += pending.flush(self._namespaces.selected(pending.policy.selector), now, judge)
                self._note(pending)
        return moved

    def recall(self, queue: str, may_fit: MayFit) -> None:
        """Of those that were woken, whoever cannot fit any more rests again."""
        pending = self.queues.get(queue)
        if pending is not None:
            pending.recall(partial(may_fit, queue))
            self._note(pending)

    def _remember(self, info: WorkloadInfo) -> _Door:
        door = self._doors.get(info.local_queue)
        if door is None:
            door = self._doors[info.local_queue] = _Door()
        door.put(info)
        self._door_of[info.key] = info.local_queue
        return door

    def _pending_of(self, key: str) -> PendingQueue | None:
        local_queue = self._door_of.get(key)
        return None if local_queue is None else self.queues.get(self._doors[local_queue].queue)

    # Questions

    def has_waiting(self, queue: str) -> bool:
        """Or knows already what it would say to who comes next."""
        pending = self.queues.get(queue)
        return pending is not None and (pending.has_active() or pending.awaits_flush())

    def active(self, queue: str) -> list[WorkloadInfo]:
        """In no order; without what is in flight."""
        pending = self.queues.get(queue)
        return [] if pending is None else list(pending.active())

    def inadmissible(self, queue: str) -> list[WorkloadInfo]:
        pending = self.queues.get(queue)
        return [] if pending is None else list(pending.parked())

    def leads_to(self, local_queue: str) -> str:
        """The cluster queue behind a local queue; empty where there is none, or the door is shut."""
        door = self._doors.get(local_queue)
        return "" if door is None else door.queue

    def is_ready(self, queue: str) -> bool:
        """Something there is active."""
        return queue in self._ready

    def ready(self) -> list[str]:
        """Queues with something active, by name."""
        return sorted(self._ready)

    def counts(self, queue: str) -> Counts:
        pending = self.queues.get(queue)
        return Counts(0, 0) if pending is None else pending.counts()

    def asked(self, queue: str) -> dict[str, int]:
        """By resource, what all that wait there ask for."""
        return total(self._doors[door].asked for door in self._doors_to.get(queue, ()))

    def local_counts(self, queue: str) -> dict[str, Counts]:
        """By local queue that leads there."""
        pending = self.queues.get(queue)
        doors = {door: len(self._doors[door].workloads) for door in sorted(self._doors_to.get(queue, ()))}
        parked = pending.parked_by_local_queue() if pending is not None else {}
        return {door: Counts(size - parked.get(door, 0), parked.get(door, 0)) for door, size in doors.items()}

    def shapes(self, queue: str) -> Counts:
        """How many different ones wait there."""
        pending = self.queues.get(queue)
        return Counts(0, 0) if pending is None else pending.count_shapes()

    def local_count(self, local_queue: str) -> int:
        """How many wait in a local queue, by `namespace/name`; none where it is shut or there is no such queue."""
        door = self._doors.get(local_queue)
        return len(door.workloads) if door is not None and door.queue else 0

    def preemptor(self, queue: str) -> Preemptor | None:
        pending = self.queues.get(queue)
        return None if pending is None else pending.preemptor

    def is_preemptor(self, info: WorkloadInfo) -> bool:
        pending = self.queues.get(info.queue)
        return pending is not None and pending.is_preemptor(info)

    def verdict(self, key: str) -> Verdict | None:
        """Of a parked workload whose shape cannot fit now."""
        pending = self._pending_of(key)
        return None if pending is None else pending.verdict(key)

    def take_moved(self) -> list[tuple[WorkloadInfo, Verdict]]:
        """Parked without being looked at, because another of their shape did not fit; each is told once."""
        found = [moved for name in sorted(self._untold) for moved in self.queues[name].take_moved()]
        self._untold.clear()
        return found

    # Visibility

    def listed(self, queue: str) -> list[WorkloadInfo]:
        """All that wait there, in the order in which they would be looked at."""
        return [position.info for position in self.positions(queue)]

    def positions(self, queue: str, offset: int = 0, limit: int | None = None) -> list[Position]:
        pending = self.queues.get(queue)
        return [] if pending is None else pending.positions().page(offset, limit)

    def position(self, key: str) -> Position | None:
        """None where it does not wait, or its local queue leads nowhere."""
        pending = self._pending_of(key)
        return None if pending is None else pending.positions().get(key)
