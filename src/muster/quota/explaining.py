"""Why a workload waits: what is missing where, who holds it, what was tried, and how many are ahead.

Worked out when asked, against the state as it is then; the same for the condition, the API and the command line.
"""

from dataclasses import dataclass
from typing import Final

from muster.api import conditions, timestamps
from muster.api.meta import Instant
from muster.api.raw import Document
from muster.quota.amounts import FlavorResource, shown
from muster.quota.assignments import Assignment, Attempt
from muster.quota.engine import Engine
from muster.quota.flavors import FlavorAssigner
from muster.quota.preempting import Preemptor
from muster.quota.queueing import Position
from muster.quota.state import QueueState, QuotaState
from muster.quota.tree import Node
from muster.quota.workloads import WAITING, WorkloadInfo

_MOST_HOLDERS: Final = 5
_MOST_WORKLOADS: Final = 5


@dataclass(frozen=True, slots=True)
class Holder:
    """A queue that uses some of what is missing. `borrowed`: of that, beyond what it owns; `workloads`: those that use
    it, where the queue borrows, the last to come first."""

    queue: str
    used: int
    borrowed: int
    workloads: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Lack:
    """`level`: the queue or cohort, by its path, that has no more to give."""

    flavor: str
    resource: str
    asked: int
    free: int
    level: str
    is_permanent: bool
    holders: tuple[Holder, ...] = ()

    @property
    def missing(self) -> int:
        return self.asked - self.free

    def __str__(self) -> str:
        missing = f"{shown(self.resource, self.missing)} {self.resource} of flavor {self.flavor}"
        if self.is_permanent:
            return f"{missing} more than {self.level} could ever give"
        held = ", ".join(_held(holder, self.resource) for holder in self.holders)
        return f"{missing} missing at {self.level}" + (f" (held by {held})" if held else "")


@dataclass(frozen=True, slots=True)
class Explanation:
    workload: str
    queue: str
    position: int | None
    """How many are ahead in its cluster queue; None where it does not wait there."""
    position_in_local_queue: int | None
    lacks: tuple[Lack, ...] = ()
    tried: tuple[Attempt, ...] = ()
    unplaced: tuple[str, ...] = ()
    """Of pod sets that quota would allow, but for which no nodes are found: why not."""
    problem: str = ""
    """What keeps it from being looked at, where something does."""

    def __str__(self) -> str:
        parts = []
        if self.problem:
            parts.append(self.problem)
        if self.position is not None:
            parts.append(_ahead(self.position, self.queue))
        parts += [str(lack) for lack in self.lacks]
        parts += self.unplaced
        if not self.lacks:
            parts += [
                f"flavor {attempt.flavor}: {'; '.join(attempt.reasons)}" for attempt in self.tried if attempt.reasons
            ]
        return "; ".join(parts)

    def to_document(self) -> Document:
        return {
            "workload": self.workload,
            "clusterQueue": self.queue,
            "position": self.position,
            "positionInLocalQueue": self.position_in_local_queue,
            "problem": self.problem,
            "summary": str(self),
            "missing": [_lack_document(lack) for lack in self.lacks],
            "tried": [
                {"flavor": attempt.flavor, "mode": attempt.mode.shown, "reasons": list(attempt.reasons)}
                for attempt in self.tried
            ],
            "unplaced": list(self.unplaced),
        }


class Explainer:
    """For one moment: what it has worked out for one workload serves the next."""

    def __init__(self, engine: Engine, now: Instant) -> None:
        self._engine = engine
        self._state = engine.state
        self._now = now
        self._assigner = FlavorAssigner(engine.state, Preemptor(engine.state, now))
        self._holders: dict[tuple[FlavorResource, str], tuple[Holder, ...]] = {}
        self._nodes = {
            node.path(): node for node in (*self._state.tree.cohorts.values(), *self._state.tree.queues.values())
        }

    def explain(self, info: WorkloadInfo, position: Position | None) -> Explanation:
        queue = self._state.queues.get(info.queue)
        at = None if position is None else position.in_queue
        locally = None if position is None else position.in_local_queue
        if queue is None:
            missing = f"LocalQueue {info.local_queue} leads to no ClusterQueue"
            problem = f"ClusterQueue {info.queue} does not exist" if info.queue else missing
        else:
            problem = _problem(self._state, queue, info)
        if queue is None or problem:
            return Explanation(info.key, info.queue, at, locally, problem=problem)
        scan, info.scan = info.scan, None  # all flavors, and as if nobody had asked
        assignment = self._assigner.assign(info, queue)
        info.scan = scan
        lacks, tried = self._lacks(assignment), _tried(assignment)
        return Explanation(info.key, info.queue, at, locally, lacks, tried, _unplaced(assignment))

    def _lacks(self, assignment: Assignment) -> tuple[Lack, ...]:
        found: dict[Lack, None] = {}
        for attempt in _tried(assignment):
            for short in attempt.shortfalls:
                what = FlavorResource(attempt.flavor, short.resource)
                holders = () if short.is_permanent else self._who_holds(what, short.level)
                lack = Lack(
                    attempt.flavor, short.resource, short.asked, short.limit, short.level, short.is_permanent, holders
                )
                found[lack] = None
        return tuple(found)

    def _who_holds(self, what: FlavorResource, level: str) -> tuple[Holder, ...]:
        if (what, level) not in self._holders:
            node = self._nodes.get(level)
            self._holders[what, level] = () if node is None else _holders(self._state, what, node)
        return self._holders[what, level]


def explain(engine: Engine, key: str, now: Instant) -> Explanation | None:
    """None for a workload that does not wait."""
    info = engine.pending.get(key)
    return None if info is None else Explainer(engine, now).explain(info, engine.pending.position(key))


def explained(document: Document, explanation: Explanation, now: Instant) -> Document:
    """The document with the condition that says why it waits. Changed in place: it is a draft already."""
    reason = "Problem" if explanation.problem else "Queued"
    conditions.set_condition(document, WAITING, conditions.TRUE, reason, str(explanation), timestamps.to_text(now))
    return document


def _problem(state: QuotaState, queue: QueueState, info: WorkloadInfo) -> str:
    inactive = state.inactive(queue)
    if inactive:
        return f"ClusterQueue {queue.name} admits nothing: {inactive[0][1]}"
    if state.tree.is_in_cycle(queue.name):
        return f"ClusterQueue {queue.name} admits nothing: its cohorts are each other's parents"
    if not state.accepts_namespace(queue, info.view.metadata.namespace):
        return f"ClusterQueue {queue.name} does not take workloads of namespace {info.view.metadata.namespace}"
    return ""


def _tried(assignment: Assignment) -> tuple[Attempt, ...]:
    return tuple(dict.fromkeys(attempt for pods in assignment.pod_sets for attempt in pods.attempts))


def _unplaced(assignment: Assignment) -> tuple[str, ...]:
    """What was found last counts: an earlier reason is that of a place which others hold, this one's of any place."""
    found: list[str] = []
    for pods in assignment.pod_sets:
        of_flavors = {reason for attempt in pods.attempts for reason in attempt.reasons}
        reasons = [pods.error] if pods.error is not None else pods.reasons
        others = [reason for reason in reasons if reason not in of_flavors]
        if others:
            found.append(f"pod set {pods.name}: {others[-1]}")
    return tuple(found)


def _holders(state: QuotaState, what: FlavorResource, level: Node) -> tuple[Holder, ...]:
    """Those that borrow most first: they are the ones who may have to give back."""
    using = [node for node in level.queues() if node.used(what) > 0]
    using.sort(key=lambda node: (-max(0, node.used(what) - node.nominal(what)), -node.used(what), node.name))
    return tuple(_holder(state, node, what) for node in using[:_MOST_HOLDERS])


def _holder(state: QuotaState, node: Node, what: FlavorResource) -> Holder:
    used = node.used(what)
    borrowed = max(0, used - node.nominal(what))
    workloads: list[WorkloadInfo] = []
    if borrowed:
        there = state.queues[node.name].workloads.values()
        workloads = [info for info in there if info.usage.quota.get(what)]
        workloads.sort(key=lambda info: (-(info.reserved_at or 0.0), info.key))
    return Holder(node.name, used, borrowed, tuple(info.key for info in workloads[:_MOST_WORKLOADS]))


def _held(holder: Holder, resource: str) -> str:
    text = f"{holder.queue}: {shown(resource, holder.used)}"
    if holder.borrowed:
        text += f", {shown(resource, holder.borrowed)} of it borrowed, by {', '.join(holder.workloads)}"
    return text


def _ahead(position: int, queue: str) -> str:
    if not position:
        return f"first in ClusterQueue {queue}"
    return f"{position} {'workload' if position == 1 else 'workloads'} ahead in ClusterQueue {queue}"


def _lack_document(lack: Lack) -> Document:
    return {
        "flavor": lack.flavor,
        "resource": lack.resource,
        "asked": shown(lack.resource, lack.asked),
        "free": shown(lack.resource, max(0, lack.free)),
        "missing": shown(lack.resource, lack.missing),
        "level": lack.level,
        "isPermanent": lack.is_permanent,
        "holders": [
            {
                "clusterQueue": holder.queue,
                "used": shown(lack.resource, holder.used),
                "borrowed": shown(lack.resource, holder.borrowed),
                "workloads": list(holder.workloads),
            }
            for holder in lack.holders
        ],
    }
