"""What waits in one ClusterQueue: active (to be looked at, in order), parked (looked at in vain, with nothing changed
since), or in flight (being looked at). A workload is in one of the three.

Workloads of one shape share a verdict: when one is parked because it cannot fit, all of its shape are, and those that
come later too, until something changes that could help (a flush).
"""

from collections.abc import Callable, Generator, Iterator, Set
from itertools import chain
from typing import Final, NamedTuple

from muster.api import kueue
from muster.api.meta import Instant
from muster.quota.fair_admission import Ledger
from muster.quota.gates import Gate
from muster.quota.queueing.backoff import is_backoff_over
from muster.quota.queueing.crowds import Crowds
from muster.quota.queueing.lanes import Lanes, order
from muster.quota.queueing.reasons import HOLDS_FOR_SHAPE, WAITS_FOR_VICTIMS, RequeueReason, is_immediate
from muster.quota.queueing.shapes import ShapeIndex
from muster.quota.queueing.standing import SortKey, Standing, at_once, line_up
from muster.quota.queues import Queue, Strategy
from muster.quota.settings import Settings
from muster.quota.workloads import EVICTED, QUOTA_RESERVED, REQUEUED, WorkloadInfo

PENDING_EVALUATION: Final = "PendingEvaluation"


class Counts(NamedTuple):
    active: int
    """Those in flight among them."""
    inadmissible: int


class Verdict(NamedTuple):
    """Why workloads of a shape are parked, and the one that was looked at."""

    reason: str
    key: str


class Preemptor(NamedTuple):
    """The workload for which the queue has others preempted. Sticky: it stays before all others until it is served."""

    key: str
    generation: int
    is_sticky: bool


class _InFlight(NamedTuple):
    info: WorkloadInfo
    pop_cycle: int


class PendingQueue:
    def __init__(self, policy: Queue, settings: Settings, ledger: Ledger | None = None) -> None:
        """`ledger`: asked where past usage decides the order."""
        self.policy = policy
        self.preemptor: Preemptor | None = None
        self.shapes: dict[str, Verdict] = {}
        """Not worth looking at before a flush."""
        self._settings = settings
        self._ledger = ledger
        self._active = self._lanes()
        self._parked: dict[str, WorkloadInfo] = {}  # each for itself
        self._crowds = Crowds()
        self._held: dict[str, WorkloadInfo] = {}  # by shape that has a verdict: one that has it
        self._lapsed: dict[str, tuple[WorkloadInfo, Verdict]] = {}  # by shape that was woken: who had which verdict
        self._alone: dict[tuple[str, str], str] = {}  # who was parked for a shape first, since the last flush
        self._in_flight: dict[str, _InFlight] = {}
        self._untold: dict[str, WorkloadInfo] = {}  # parked for their shape, and nobody has been told
        self._by_shape = ShapeIndex()  # of the active ones
        self._pop_cycle = 0
        self._flush_cycle = -1
        self._positions: Standing | None = None
        self._changes = 0  # since the beginning, of whatever positions depend on
        self._positions_at = 0  # version of the ledger

    # Questions

    @property
    def name(self) -> str:
        return self.policy.name

    def has_active(self) -> bool:
        return len(self._active) > 0

    def awaits_flush(self) -> bool:
        """A flush would make a difference."""
        return bool(self._parked or self._in_flight or self.shapes or self._crowds.closed_size)

    def has_moved(self) -> bool:
        """`take_moved` has something to tell."""
        return bool(self._untold)

    def __contains__(self, key: str) -> bool:
        return any(key in place for place in (self._active, self._parked, self._crowds, self._in_flight))

    def is_in_flight(self, key: str) -> bool:
        return key in self._in_flight

    def active(self) -> Iterator[WorkloadInfo]:
        """In no order; without what is in flight."""
        return chain(self._active, self._crowds.open_members())

    def parked(self) -> Iterator[WorkloadInfo]:
        """In no order."""
        return chain(self._parked.values(), self._crowds.closed_members())

    def get_parked(self, key: str) -> WorkloadInfo | None:
        return self._parked.get(key) or self._crowds.get_closed(key)

    def counts(self) -> Counts:
        active = len(self._active) + self._crowds.open_size + len(self._in_flight)
        return Counts(active, len(self._parked) + self._crowds.closed_size)

    def parked_by_local_queue(self) -> dict[str, int]:
        """How many, of those that have any."""
        found = self._crowds.closed_sizes()
        for info in self._parked.values():
            found[info.local_queue] = found.get(info.local_queue, 0) + 1
        return found

    def count_shapes(self) -> Counts:
        """How many different ones wait. Costs much where workloads have not been told apart before."""
        flying = {entry.info.shape for entry in self._in_flight.values()}
        active = self._by_shape.shapes(self._active) | self._crowds.open_shapes() | flying
        parked = self._crowds.closed_shapes() | {info.shape for info in self._parked.values()}
        return Counts(len(active), len(parked))

    def positions(self) -> Standing:
        """All that wait, as if all were active, in the order in which they would be looked at."""
        return at_once(self.line_up())

    def line_up(self) -> Generator[None, None, Standing]:
        """The same in steps. What changes in between is not in it."""
        ledger = self._deciding_ledger()
        version = 0 if ledger is None else ledger.version
        if self._positions is not None and self._positions_at == version:
            return self._positions
        changes = self._changes
        everyone = [*self.active(), *self.parked(), *(entry.info for entry in self._in_flight.values())]
        standing = yield from line_up(everyone, self._sort_key(everyone, ledger))
        if changes == self._changes:
            self._positions, self._positions_at = standing, version
        return standing

    def _sort_key(self, everyone: list[WorkloadInfo], ledger: Ledger | None) -> SortKey:
        first = self._sticky()
        if ledger is None:
            return lambda info: order(info, 0 if info.key == first else 1)
        usage = {name: ledger.usage(name) for name in {info.local_queue for info in everyone}}
        return lambda info: (usage[info.local_queue], order(info, 0 if info.key == first else 1))

    def verdict(self, key: str) -> Verdict | None:
        """Of a parked workload whose shape cannot fit now."""
        info = self.get_parked(key) if self.shapes else None
        return None if info is None else self.shapes.get(info.shape)

    def is_preemptor(self, info: WorkloadInfo) -> bool:
        """And has not been changed since it was."""
        return (
            self.preemptor is not None
            and self.preemptor.key == info.key
            and self.preemptor.generation == _generation(info)
        )

    # Changes

    def set_policy(self, policy: Queue) -> None:
        old, self.policy = self.policy, policy
        if old.strategy is policy.strategy and old.is_usage_based == policy.is_usage_based:
            return
        if policy.strategy is Strategy.STRICT:
            self.shapes.clear()
            self._held.clear()
            self._lapsed.clear()
        if self.preemptor is not None:
            self.preemptor = self.preemptor._replace(is_sticky=policy.strategy is Strategy.BEST_EFFORT)
        waiting, parked = list(self.active()), list(self.parked())
        self._active, self._crowds, self._by_shape = self._lanes(), Crowds(), ShapeIndex()
        self._parked = {info.key: info for info in parked}
        self._alone.clear()
        self._active.put_all(waiting, self._sticky())
        self._by_shape.add_new(info.key for info in waiting)
        self._note_change()

    def push(self, info: WorkloadInfo, now: Instant) -> None:
        """It is new, or has changed. What is parked stays so unless the change could make a difference."""
        key = info.key
        self._note_change()
        flying = self._in_flight.get(key)
        if flying is not None:
            self._in_flight[key] = flying._replace(info=info)
            return
        parked = self.get_parked(key)
        if parked is not None and not _differs(parked, info):
            self._keep_parked(parked, info, now)
            return
        was_active = self._take_out(key)
        if not was_active and not is_backoff_over(info, now):
            self._parked[key] = info
        elif self.shapes and info.shape in self.shapes:
            self._park_for_shape(info, self.shapes[info.shape].reason)
        else:
            self._activate(info)

    def pop(self) -> WorkloadInfo | None:
        info = self._active.pop()
        self._pop_cycle += 1
        if info is not None:
            self._has_left(info.key)
            self._in_flight[info.key] = _InFlight(info, self._pop_cycle)
            ledger = self._deciding_ledger()
            if ledger is not None:
                info.local_queue_usage = ledger.usage(info.local_queue)
        return info

    def peek(self) -> WorkloadInfo | None:
        return self._active.peek()

    def requeue(self, info: WorkloadInfo, reason: RequeueReason, now: Instant, shown: str = "") -> bool:
        """After it was looked at in vain. False where it waits already. `shown`: the reason that its condition gives,
        which others of its shape will give too."""
        key = info.key
        self._note_change()
        flying = self._in_flight.pop(key, None)
        if reason in WAITS_FOR_VICTIMS:
            self._set_preemptor(info)
        if flying is not None and flying.info is not info:
            looked_at, info = info, flying.info
            info.scan = looked_at.scan
            if _differs(looked_at, info):  # it changed meanwhile: the verdict is about something else
                self.push(info, now)
                return True
        pop_cycle = self._pop_cycle if flying is None else flying.pop_cycle
        again = (
            is_immediate(reason, self.policy.strategy)
            or self._flush_cycle >= pop_cycle
            or (info.scan is not None and info.scan.has_untried)
        )
        if again and is_backoff_over(info, now):
            return self._reactivate(info)
        if key in self:
            return False
        if reason in HOLDS_FOR_SHAPE and self._shares_verdicts():
            verdict = Verdict(shown or _shown_reason(info), key)
            self._held[info.shape] = info
            self.hold_shape(info.shape, verdict)
            self._join(info, verdict.reason)
        else:
            self._parked[key] = info
        return True

    def hold_shape(self, shape: str, verdict: Verdict) -> int:
        """Parks whatever is active and of that shape, and whatever of it will come. How many were parked."""
        if not shape:
            return 0
        self.shapes[shape] = verdict
        self._lapsed.pop(shape, None)
        moved, single = 0, list[WorkloadInfo]()
        for key in self._by_shape.keys_of(shape, self._active):
            self._by_shape.discard(key)
            info = self._active.discard(key)
            if info is not None and self._crowds.leads(key):
                moved += self._close_crowd(info, verdict.reason)
            elif info is not None:
                single.append(info)
        for info in single:
            self._park_for_shape(info, verdict.reason)
        return moved + len(single)

    def flush(
        self, namespaces: frozenset[str], now: Instant, may_fit: Callable[[WorkloadInfo], bool] | None = None
    ) -> int:
        """Something changed that could help: parked workloads of these namespaces are looked at again, unless they
        still rest. `may_fit`: says of a shape that has a verdict whether it could change; None: it always could. How
        many are looked at."""
        self._flush_cycle = self._pop_cycle
        hopeless = self._forget_verdicts(may_fit)
        back = [
            info
            for info in self._parked.values()
            if info.view.metadata.namespace in namespaces
            and is_backoff_over(info, now)
            and not (hopeless and info.shape in hopeless)
        ]
        if len(back) == len(self._parked):
            self._parked.clear()
        else:
            for info in back:
                del self._parked[info.key]
        if self._untold:
            for info in back:
                self._untold.pop(info.key, None)
        size, fronts = self._crowds.open(namespaces, hopeless)
        size += len(back)
        back.extend(fronts)
        self._active.put_all(back, self._sticky())
        self._by_shape.add_new(info.key for info in back)
        self._note_change()
        return size

    def recall(self, may_fit: Callable[[WorkloadInfo], bool]) -> None:
        """Others have taken the room that was made. Whoever was woken for it, stands first, and cannot fit now, rests
        again with the verdict that it had, as long as the one waits who was looked at then."""
        while self._lapsed and (head := self._active.peek()) is not None:
            found = self._lapsed.get(head.shape)
            if found is None or found[0].key not in self or may_fit(head):
                return
            self._held[head.shape], verdict = found
            self.hold_shape(head.shape, verdict)
            self._note_change()

    def _forget_verdicts(self, may_fit: Callable[[WorkloadInfo], bool] | None) -> Set[str]:
        """But for those that stay true: which shapes have one."""
        hopeless: Set[str] = frozenset()
        if may_fit is None:
            self._lapsed.clear()
        else:
            hopeless = {shape for shape in self.shapes if shape in self._held and not may_fit(self._held[shape])}
            for shape in self._held.keys() & self.shapes.keys() - hopeless:
                self._lapsed[shape] = self._held[shape], self.shapes[shape]
        if hopeless:
            self.shapes = {shape: verdict for shape, verdict in self.shapes.items() if shape in hopeless}
            self._held = {shape: self._held[shape] for shape in hopeless}
            self._alone = {where: key for where, key in self._alone.items() if where[1] in hopeless}
        else:
            self.shapes.clear()
            self._held.clear()
            self._alone.clear()
        return hopeless

    def delete(self, key: str) -> None:
        self._note_change()
        self._in_flight.pop(key, None)
        self._take_out(key)
        if self.preemptor is not None and self.preemptor.key == key:
            self.preemptor = None

    def take_moved(self) -> list[tuple[WorkloadInfo, Verdict]]:
        """Parked for their shape without being looked at, and not told so before."""
        told, later = list[tuple[WorkloadInfo, Verdict]](), dict[str, WorkloadInfo]()
        for key, info in self._untold.items():
            verdict = self.shapes.get(info.shape)
            if verdict is not None and self.get_parked(key) is not None:
                told.append((info, verdict))
            elif key in self._crowds or self._crowds.leads(key):
                later[key] = info  # active again before anybody was told: the next verdict may be the same
        self._untold = later
        return told

    # Within

    def _note_change(self) -> None:
        self._positions = None
        self._changes += 1

    def _lanes(self) -> Lanes:
        ledger = self._deciding_ledger()
        return Lanes(None if ledger is None else ledger.usage)

    def _deciding_ledger(self) -> Ledger | None:
        return self._ledger if self.policy.is_usage_based else None

    def _shares_verdicts(self) -> bool:
        return (
            self.policy.strategy is Strategy.BEST_EFFORT and Gate.SCHEDULING_EQUIVALENCE_HASHING in self._settings.gates
        )

    def _sticky(self) -> str | None:
        return self.preemptor.key if self.preemptor is not None and self.preemptor.is_sticky else None

    def _rank(self, key: str) -> int:
        return 0 if self.preemptor is not None and key == self._sticky() else 1

    def _activate(self, info: WorkloadInfo) -> None:
        self._active.put(info, self._rank(info.key))
        self._by_shape.add(info.key)

    def _reactivate(self, info: WorkloadInfo) -> bool:
        parked = self.get_parked(info.key)
        if parked is None and info.key in self:
            return False
        self._take_out(info.key)
        self._activate(parked or info)
        return True

    def _has_left(self, key: str) -> None:
        """It stands no longer among the active ones."""
        self._untold.pop(key, None)
        self._by_shape.discard(key)
        front = self._crowds.next_after(key)
        if front is not None:
            self._activate(front)

    def _take_out(self, key: str) -> bool:
        """From wherever it waits. Whether it was active."""
        if self._active.discard(key) is not None:
            self._has_left(key)
            return True
        self._untold.pop(key, None)
        if key in self._crowds:
            return self._crowds.discard(key)
        self._parked.pop(key, None)
        return False

    def _keep_parked(self, old: WorkloadInfo, new: WorkloadInfo, now: Instant) -> None:
        new.scan = old.scan
        if old.key in self._parked:
            self._parked[new.key] = new
        elif is_backoff_over(new, now):
            self._crowds.replace(new)
        else:
            self._crowds.discard(new.key)  # a crowd is flushed as one, and this one is to rest
            self._parked[new.key] = new
        if new.key in self._untold:
            self._untold[new.key] = new

    def _park_for_shape(self, info: WorkloadInfo, reason: str) -> None:
        self._untold[info.key] = info
        self._join(info, reason)

    def _join(self, info: WorkloadInfo, reason: str) -> None:
        """A shape that only one workload has makes no crowd."""
        where = info.local_queue, info.shape
        sticky = self._sticky()
        if info.key == sticky:
            self._parked[info.key] = info  # it does not stand in line with its like
            return
        if not self._crowds.has_closed(where):
            alike = self._parked.get(self._alone.get(where, ""))
            if alike is None or alike.key == sticky or (alike.local_queue, alike.shape) != where:
                self._alone[where] = info.key
                self._parked[info.key] = info
                return
            del self._parked[alike.key], self._alone[where]
            self._crowds.join(alike, reason)
        self._crowds.join(info, reason)

    def _close_crowd(self, front: WorkloadInfo, reason: str) -> int:
        crowd = self._crowds.close(front)
        if crowd.reason != reason:
            crowd.reason = reason
            self._untold.update((info.key, info) for info in crowd.members)
        return len(crowd.members)

    def _set_preemptor(self, info: WorkloadInfo) -> None:
        old = self.preemptor
        self.preemptor = Preemptor(info.key, _generation(info), self.policy.strategy is Strategy.BEST_EFFORT)
        if old is not None and old.is_sticky and old.key != info.key:
            displaced = self._active.get(old.key)
            if displaced is not None:
                self._active.put(displaced, self._rank(old.key))


def _differs(old: WorkloadInfo, new: WorkloadInfo) -> bool:
    """In a way that may let it fit, or changes its place in the order."""
    if old is new:
        return False
    before, after = old.view, new.view
    if before.metadata.generation != after.metadata.generation:
        return True
    # A store that counts generations has said already that the specs are equal; comparing them is slow.
    return (
        (not after.metadata.generation and before.spec != after.spec)
        or old.priority != new.priority
        or before.status.reclaimable_pods != after.status.reclaimable_pods
        or may_preempt(before) != may_preempt(after)
        or old.conditions.get(EVICTED) != new.conditions.get(EVICTED)
        or old.conditions.get(REQUEUED) != new.conditions.get(REQUEUED)
    )


def may_preempt(view: kueue.Workload) -> bool:
    """All its gates are open."""
    gates = view.spec.preemption_gates
    if not gates:
        return True
    opened = {gate.name for gate in view.status.preemption_gates if gate.position == "Open"}
    return all(gate.name in opened for gate in gates)


def _generation(info: WorkloadInfo) -> int:
    return info.view.metadata.generation or 0


def _shown_reason(info: WorkloadInfo) -> str:
    reserved = info.conditions.get(QUOTA_RESERVED)
    if reserved is None or reserved.status != "False" or not reserved.reason:
        return PENDING_EVALUATION
    return reserved.reason
