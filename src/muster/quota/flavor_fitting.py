"""How well one flavor suits: whether its nodes can take the pods at all, and whether its quota can.

Also which of two fits is better, and whether the search goes on after one. Nothing here changes any state.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol

from muster.api import core, kueue
from muster.api.selectors import Operator, Requirement
from muster.quota.amounts import FlavorResource, shown
from muster.quota.assignments import Degree, Fitness, NoFitReason, Shortfall
from muster.quota.queues import Fungibility, Preference, Queue, Victims
from muster.quota.settings import Settings
from muster.quota.state import QueueState
from muster.quota.tree import Node
from muster.quota.workloads import WorkloadInfo

_DO_NOT_SCHEDULE: Final = frozenset({"NoSchedule", "NoExecute"})
BEST: Final = Fitness(Degree.FIT, 0)
WORST: Final = Fitness(Degree.NO_FIT, 0)


class Possibility(StrEnum):
    """What preemption could do for one resource of one flavor."""

    NO_CANDIDATES = "NoCandidates"
    PREEMPT = "Preempt"
    RECLAIM = "Reclaim"
    """Only what others borrow."""

    @property
    def degree(self) -> Degree:
        return _DEGREES[self]


_DEGREES: Final = {
    Possibility.NO_CANDIDATES: Degree.NO_CANDIDATES,
    Possibility.PREEMPT: Degree.PREEMPT,
    Possibility.RECLAIM: Degree.RECLAIM,
}
POSSIBILITIES: Final = {degree: possibility for possibility, degree in _DEGREES.items()}


class Oracle(Protocol):
    """Tries preemption out, and takes it back."""

    def simulate(
        self, queue: QueueState, info: WorkloadInfo, what: FlavorResource, amount: int
    ) -> tuple[Possibility, int]:
        """What preemption could do for so much, and how high up the lender would be afterwards."""
        ...


# Nodes


def scheduling_key(spec: core.PodSpec) -> object:
    """Equal for pods that the same flavors suit; hashable. None for those that say nothing about nodes."""
    wanted = _required(spec)
    if not spec.node_selector and wanted is None and not spec.tolerations:
        return None
    return tuple(sorted((spec.node_selector or {}).items())), wanted, spec.tolerations


def _required(spec: core.PodSpec) -> core.NodeSelector | None:
    affinity = spec.affinity.node_affinity if spec.affinity is not None else None
    return affinity.required_during_scheduling_ignored_during_execution if affinity is not None else None


def mismatch(flavor: kueue.ResourceFlavor, spec: core.PodSpec) -> str | None:
    """Why pods of the spec could not run on the flavor's nodes."""
    name = flavor.metadata.name
    taint = _untolerated(flavor.spec.node_taints, (*spec.tolerations, *flavor.spec.tolerations))
    if taint is not None:
        return f"untolerated taint {{{taint.key} {taint.value or ''} {taint.effect} <nil>}} in flavor {name}"
    labels = flavor.spec.node_labels or {}
    selector = spec.node_selector or {}
    if any(key in labels and labels[key] != value for key, value in selector.items()):
        return f"flavor {name} doesn't match node affinity"
    if not _matches(_required(spec), labels):
        return f"flavor {name} doesn't match node affinity"
    return None


def _untolerated(taints: Iterable[core.Taint], tolerations: tuple[core.Toleration, ...]) -> core.Taint | None:
    for taint in taints:
        if taint.effect in _DO_NOT_SCHEDULE and not any(tolerates(one, taint) for one in tolerations):
            return taint
    return None


def tolerates(toleration: core.Toleration, taint: core.Taint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if (toleration.operator or "Equal") == "Equal":
        return (toleration.value or "") == (taint.value or "")
    return toleration.operator == "Exists"


def _matches(wanted: core.NodeSelector | None, labels: Mapping[str, str]) -> bool:
    """A flavor knows only its own labels: what is said of others is for the nodes to answer. So a term that says
    nothing of the flavor's labels may match, and with it the whole selector."""
    if wanted is None or not wanted.node_selector_terms:
        return True
    for term in wanted.node_selector_terms:
        known = [expression for expression in term.match_expressions if expression.key in labels]
        if all(_holds(expression, labels) for expression in known):
            return True
    return False


def _holds(expression: core.NodeSelectorRequirement, labels: Mapping[str, str]) -> bool:
    try:
        operator = Operator(expression.operator)
    except ValueError:
        return False
    return Requirement(expression.key, operator, frozenset(expression.values)).matches(labels)


# Quota


@dataclass(frozen=True, slots=True)
class ResourceFit:
    """Of one resource. What is said is empty where it fits."""

    fitness: Fitness
    reason: str = ""
    no_fit_reason: NoFitReason = NoFitReason.NONE
    shortfall: Shortfall | None = None


FITS: Final = ResourceFit(BEST)


@dataclass(frozen=True, slots=True)
class Judge:
    """Says how an amount fits into the quota of a queue."""

    queue: QueueState
    info: WorkloadInfo
    oracle: Oracle
    may_preempt_while_borrowing: bool

    def fit(self, what: FlavorResource, before: int, more: int, *, asks_oracle: bool = True) -> ResourceFit:
        """`before`: what pod sets of the same workload take already. The oracle is costly, and not asked where the
        flavor is lost anyway."""
        node, asked = self.queue.node, before + more
        capacity = node.potentially_available(what)
        if asked > capacity:
            return self._never(what, before, more, capacity)
        free = max(0, node.available(what))
        height, may_reclaim = node.borrow_height(what, asked)
        if asked <= free:
            return FITS if not height else ResourceFit(Fitness(Degree.FIT, height))
        missing = shown(what.resource, asked - free)
        reason = f"insufficient unused quota for {what.resource} in flavor {what.flavor}, {missing} more needed"
        shortfall = Shortfall(what.resource, asked, free, scarce_at(node, what).path())
        if asks_oracle and (asked <= node.nominal(what) or may_reclaim or self.may_preempt_while_borrowing):
            possibility, height = self.oracle.simulate(self.queue, self.info, what, asked)
            return ResourceFit(Fitness(possibility.degree, height), reason, NoFitReason.NONE, shortfall)
        return ResourceFit(Fitness(Degree.NO_FIT, height), reason, NoFitReason.WAITING, shortfall)

    def _never(self, what: FlavorResource, before: int, more: int, capacity: int) -> ResourceFit:
        resource = what.resource
        reason = (
            f"insufficient quota for {resource} in flavor {what.flavor}, previously considered podsets requests "
            f"({shown(resource, before)}) + current podset request ({shown(resource, more)}) > maximum capacity "
            f"({shown(resource, capacity)})"
        )
        level = _capped_at(self.queue.node, what).path()
        shortfall = Shortfall(resource, before + more, capacity, level, is_permanent=True)
        return ResourceFit(WORST, reason, NoFitReason.EXCEEDS, shortfall)


def judge(queue: QueueState, info: WorkloadInfo, oracle: Oracle, settings: Settings) -> Judge:
    policy = queue.policy
    takes_back = settings.fair_sharing is not None and policy.reclaim_within_cohort is not Victims.NEVER
    return Judge(queue, info, oracle, policy.may_preempt_while_borrowing or takes_back)


def scarce_at(node: Node, what: FlavorResource) -> Node:
    """The node of the tree that has no more to give now: its borrowing limit is reached, or it is the root."""
    while node.parent is not None:
        limit = node.borrowing_limit(what)
        if limit is not None:
            kept = node.guaranteed.get(what, 0)
            lent = node.owned(what) - kept - max(0, node.used(what) - kept) + limit
            if lent <= node.parent.available(what):
                return node
        node = node.parent
    return node


def _capped_at(node: Node, what: FlavorResource) -> Node:
    """As `scarce_at`, if nobody used anything."""
    while node.parent is not None:
        limit = node.borrowing_limit(what)
        above = node.guaranteed.get(what, 0) + node.parent.potentially_available(what)
        if limit is not None and node.owned(what) + limit <= above:
            return node
        node = node.parent
    return node


# Which is better


def is_better(one: Fitness, other: Fitness, preference: Preference) -> bool:
    if one.degree is Degree.NO_FIT or other.degree is Degree.NO_FIT:
        return one.degree is not Degree.NO_FIT
    if (one.degree is Degree.NO_CANDIDATES) is not (other.degree is Degree.NO_CANDIDATES):
        return other.degree is Degree.NO_CANDIDATES
    if one.degree is not other.degree and (preference is Preference.BORROWING or one.borrow == other.borrow):
        return one.degree > other.degree
    return one.borrow < other.borrow


def goes_on(found: Fitness, policy: Queue) -> bool:
    """Whether a further flavor is looked at after this one."""
    if found.degree <= Degree.NO_CANDIDATES:
        return True
    if found.degree is not Degree.FIT and policy.when_can_preempt is Fungibility.TRY_NEXT:
        return True
    return found.borrow > 0 and policy.when_can_borrow is Fungibility.TRY_NEXT
