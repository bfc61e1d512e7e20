"""What waits in one ClusterQueue: active (to be looked at, in order), parked (looked at in vain, with nothing changed
since), or in flight (being looked at). A workload is in one of the three.

Workloads of one shape share a verdict: when one is parked because it cannot fit, all of its shape are, and those that
come later too, until something changes that could help (a flush).
"""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from muster.api import kueue
from muster.api.meta import Instant
from muster.quota.fair_admission import Ledger
from muster.quota.gates import Gate
from muster.quota.queueing.backoff import is_backoff_over
from muster.quota.queueing.lanes import Lanes, order
from muster.quota.queueing.reasons import HOLDS_FOR_SHAPE, WAITS_FOR_VICTIMS, RequeueReason, is_immediate
from muster.quota.queueing.shapes import ShapeIndex
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


class Position(NamedTuple):
    """Where a workload stands, counted from 0: so many are ahead of it."""

    info: WorkloadInfo
    in_queue: int
    in_local_queue: int


class _InFlight(NamedTuple):
    info: WorkloadInfo
    pop_cycle: int


class PendingQueue:
    def __init__(self, policy: Queue, settings: Settings, ledger: Ledger | None = None) -> None:
        """`ledger`: asked where past usage decides the order."""
        self.policy = policy
        self.preemptor: Preemptor | None = None
        self.shapes: dict[str, Verdict] = {}
        """Not worth looking at before the next flush."""
        self.parked: dict[str, WorkloadInfo] = {}
        self._settings = settings
        self._ledger = ledger
        self._active = self._lanes()
        self._in_flight: dict[str, _InFlight] = {}
        self._untold: dict[str, WorkloadInfo] = {}  # parked for their shape, and nobody has been told
        self._by_shape = ShapeIndex()  # of the active ones
        self._pop_cycle = 0
        self._flush_cycle = -1
        self._positions: dict[str, Position] | None = None
        self._positions_at = 0  # version of the ledger

    # Questions

    @property
    def name(self) -> str:
        return self.policy.name

    def has_active(self) -> bool:
        return len(self._active) > 0

    def awaits_flush(self) -> bool:
        """A flush would make a difference."""
        return bool(self.parked or self._in_flight or self.shapes)

    def has_moved(self) -> bool:
        """`take_moved` has something to tell."""
        return bool(self._untold)

    def __contains__(self, key: str) -> bool:
        return key in self._active or key in self.parked or key in self._in_flight

    def is_in_flight(self, key: str) -> bool:
        return key in self._in_flight

    def active(self) -> Iterator[WorkloadInfo]:
        """In no order; without what is in flight."""
        return iter(self._active)

    def counts(self) -> Counts:
        return Counts(len(self._active) + len(self._in_flight), len(self.parked))

    def positions(self) -> Mapping[str, Position]:
        """All that wait, as if all were active, in the order in which they would be looked at."""
        ledger = self._deciding_ledger()
        version = 0 if ledger is None else ledger.version
        if self._positions is None or self._positions_at != version:
            everyone = [*self._active, *self.parked.values(), *(entry.info for entry in self._in_flight.values())]
            first = self._sticky()
            ordered = sorted(everyone, key=lambda info: order(info, 0 if info.key == first else 1))
            if ledger is not None:
                ordered.sort(key=lambda info: ledger.usage(info.local_queue))
            self._positions, self._positions_at = _positions(ordered), version
        return self._positions

    def verdict(self, key: str) -> Verdict | None:
        """Of a parked workload whose shape cannot fit now."""
        info = self.parked.get(key)
        return self.shapes.get(info.shape) if info is not None and self.shapes else None

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
        if self.preemptor is not None:
            self.preemptor = self.preemptor._replace(is_sticky=policy.strategy is Strategy.BEST_EFFORT)
        waiting = list(self._active)
        self._active = self._lanes()
        self._active.put_all(waiting, self._sticky())
        self._positions = None

    def push(self, info: WorkloadInfo, now: Instant) -> None:
        """It is new, or has changed. What is parked stays so unless the change could make a difference."""
        key = info.key
        self._positions = None
        flying = self._in_flight.get(key)
        if flying is not None:
            self._in_flight[key] = flying._replace(info=info)
            return
        parked = self.parked.get(key)
        if parked is not None and not _differs(parked, info):
            self._keep_parked(parked, info)
            return
        if parked is not None:
            self._unpark(key)
        if key not in self._active and not is_backoff_over(info, now):
            self.parked[key] = info
        elif self.shapes and info.shape in self.shapes:
            self._deactivate(key)
            self._park_for_shape(info)
        else:
            self._activate(info)

    def pop(self) -> WorkloadInfo | None:
        info = self._active.pop()
        self._pop_cycle += 1
        if info is not None:
            self._by_shape.discard(info.key)
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
        self._positions = None
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
        if key in self.parked or key in self._active:
            return False
        self.parked[key] = info
        if reason in HOLDS_FOR_SHAPE and self._shares_verdicts():
            self.hold_shape(info.shape, Verdict(shown or _shown_reason(info), key))
        return True

    def hold_shape(self, shape: str, verdict: Verdict) -> int:
        """Parks whatever is active and of that shape, and whatever of it will come. How many were parked."""
        if not shape:
            return 0
        self.shapes[shape] = verdict
        alike = self._by_shape.keys_of(shape, self._active)
        for key in alike:
            info = self._deactivate(key)
            if info is not None:
                self._park_for_shape(info)
        return len(alike)

    def flush(self, namespaces: frozenset[str], now: Instant) -> int:
        """Something changed that could help: parked workloads of these namespaces are looked at again, unless they
        still rest. How many."""
        self._flush_cycle = self._pop_cycle
        self.shapes.clear()
        if not self.parked:
            return 0
        back = [
            info
            for info in self.parked.values()
            if info.view.metadata.namespace in namespaces and is_backoff_over(info, now)
        ]
        if len(back) == len(self.parked):
            self.parked.clear()
            self._untold.clear()
        else:
            for info in back:
                self._unpark(info.key)
        self._active.put_all(back, self._sticky())
        self._by_shape.add_new(info.key for info in back)
        self._positions = None
        return len(back)

    def delete(self, key: str) -> None:
        self._positions = None
        if self._deactivate(key) is None and self._in_flight.pop(key, None) is None and key in self.parked:
            self._unpark(key)
        if self.preemptor is not None and self.preemptor.key == key:
            self.preemptor = None

    def take_moved(self) -> list[tuple[WorkloadInfo, Verdict]]:
        """Parked for their shape without being looked at, and not told before."""
        told = [(info, self.shapes[info.shape]) for info in self._untold.values() if info.shape in self.shapes]
        self._untold.clear()
        return told

    # Within

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

    def _deactivate(self, key: str) -> WorkloadInfo | None:
        self._by_shape.discard(key)
        return self._active.discard(key)

    def _reactivate(self, info: WorkloadInfo) -> bool:
        if info.key in self._active:
            return False
        parked = self.parked.get(info.key)
        if parked is not None:
            self._unpark(info.key)
        self._activate(parked or info)
        return True

    def _keep_parked(self, old: WorkloadInfo, new: WorkloadInfo) -> None:
        new.scan = old.scan
        self.parked[new.key] = new
        if new.key in self._untold:
            self._untold[new.key] = new

    def _park_for_shape(self, info: WorkloadInfo) -> None:
        self.parked[info.key] = self._untold[info.key] = info

    def _unpark(self, key: str) -> None:
        del self.parked[key]
        self._untold.pop(key, None)

    def _set_preemptor(self, info: WorkloadInfo) -> None:
        old = self.preemptor
        self.preemptor = Preemptor(info.key, _generation(info), self.policy.strategy is Strategy.BEST_EFFORT)
        if old is not None and old.is_sticky and old.key != info.key:
            displaced = self._active.get(old.key)
            if displaced is not None:
                self._active.put(displaced, self._rank(old.key))


def _positions(ordered: list[WorkloadInfo]) -> dict[str, Position]:
    ahead: dict[str, int] = {}
    found: dict[str, Position] = {}
    for index, info in enumerate(ordered):
        beside = ahead.get(info.local_queue, 0)
        ahead[info.local_queue] = beside + 1
        found[info.key] = Position(info, index, beside)
    return found


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
