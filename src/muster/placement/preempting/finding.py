"""Preemption for one pod: whether it may preempt, where that would help, and at whose cost."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from muster.cluster.columns import NodeMask
from muster.cluster.pods import PodInfo
from muster.cluster.state import ClusterState
from muster.placement.framework import Code, Status
from muster.placement.judging import Diagnosis, Judgement
from muster.placement.preempting.budgets import Budgets
from muster.placement.preempting.candidates import Candidate, ExtenderFailed, best, narrow
from muster.placement.preempting.options import Options
from muster.placement.preempting.quick import NOT_HELPFUL, QuickSearch
from muster.placement.preempting.selecting import dry_run
from muster.placement.preempting.victims import alone, priority_of

NEVER = "not eligible due to preemptionPolicy=Never."
WAITING = "not eligible due to a terminating pod on the nominated node."
_USUAL = Options()


@dataclass(frozen=True, slots=True)
class Preemption:
    """Evict the victims, and the pod goes to the node. The most important victim first."""

    node: str
    victims: tuple[PodInfo, ...]
    violations: int = 0

    @property
    def status(self) -> Status:
        said = f"found a potential placement for pod on node {self.node}, preempting {len(self.victims)} victims"
        return Status(Code.SUCCESS, (said,))


@dataclass(frozen=True, slots=True)
class NoPreemption:
    """Nobody is evicted."""

    status: Status
    clears_nomination: bool = False
    """The node that the pod was promised, if any, is no hope any more."""


def find(
    preemptor: PodInfo,
    judgement: Judgement,
    cluster: ClusterState,
    budgets: Budgets,
    options: Options = _USUAL,
    resolvable: NodeMask | None = None,
    quick: QuickSearch | None = None,
) -> Preemption | NoPreemption:
    """`judgement`: of the preemptor's class, up to date; it is again when this returns. `resolvable`: nodes that
    rejected the pod in a way that evicting pods could help, where somebody knows better than the judgement. `quick`:
    what was remembered of this class; used where it gives the same answer as trying node by node."""
    is_quick = quick is not None and resolvable is None and quick.applies(preemptor, options)
    promised = cluster.slots.get(preemptor.nominated)
    if resolvable is None and (promised is not None or not is_quick):
        resolvable = resolvable_nodes(judgement, cluster)
    is_hopeless = promised is not None and resolvable is not None and not resolvable[promised]
    refused = ineligibility(preemptor, cluster, options, is_hopeless and not judgement.feasible[promised])
    if refused is not None:
        return NoPreemption(Status(Code.UNSCHEDULABLE, (refused,)))
    if not cluster.node_count:
        return NoPreemption(Status(Code.ERROR, ("no nodes available",)))
    if quick is not None and is_quick:
        answer = quick.find(budgets, options)
        return _preemption(answer) if isinstance(answer, Candidate) else _not_helpful(answer, cluster)
    assert resolvable is not None
    slots = np.flatnonzero(resolvable).tolist()
    found = dry_run(preemptor, slots, judgement, cluster, budgets, options)
    if not found.candidates:
        if found.failures:
            return NoPreemption(Status(Code.ERROR, (_joined(found.failures),)))
        return _not_helpful(
            Counter(reason for status in found.statuses for reason in status.reasons), cluster, len(slots)
        )
    try:
        agreed = [one for one in narrow(preemptor, found.candidates, options.extenders) if _is_allowed(one, options)]
    except ExtenderFailed as failure:
        return NoPreemption(Status(Code.ERROR, (str(failure),)))
    chosen = best(agreed)
    if chosen is None:
        return NoPreemption(Status(Code.UNSCHEDULABLE, ("no candidate node for preemption",)))
    return _preemption(chosen)


def ineligibility(
    preemptor: PodInfo, cluster: ClusterState, options: Options = _USUAL, is_hopeless: bool = False
) -> str | None:
    """Why the pod may not preempt; None where it may. `is_hopeless`: evicting pods cannot make its promised node take
    it any more, so it need not wait for those that are leaving there."""
    if preemptor.spec.preemption_policy == "Never":
        return NEVER
    slot = cluster.slots.get(preemptor.nominated)
    if slot is None or is_hopeless:
        return None
    for pod in cluster.pods_on[slot].values():
        if pod.is_preempted and _could_evict(pod, preemptor, options):
            return WAITING
    return None


def _is_allowed(candidate: Candidate, options: Options) -> bool:
    """An extender may have put a pod among the victims that is not to be evicted."""
    return not options.protected or not any(options.protected.has(pod) for pod in candidate.victims)


def _could_evict(pod: PodInfo, preemptor: PodInfo, options: Options) -> bool:
    priority = priority_of(pod, options.groups)
    if priority >= preemptor.priority or options.protected.has(pod):
        return False
    return options.may_evict is None or options.may_evict(alone(pod, priority), preemptor.nominated, preemptor)


def resolvable_nodes(judgement: Judgement, cluster: ClusterState) -> NodeMask:
    """Nodes that rejected the pod in a way that evicting pods could help."""
    unresolvable = judgement.diagnosis().unresolvable
    if unresolvable is None:
        return cluster.mask()
    mask: NodeMask = cluster.exists[: cluster.width] & ~judgement.feasible & ~unresolvable
    return mask


def _preemption(chosen: Candidate) -> Preemption:
    return Preemption(chosen.node, chosen.victims, chosen.violations)


def _not_helpful(reasons: "Counter[str]", cluster: ClusterState, tried: int | None = None) -> NoPreemption:
    """`tried`: of how many nodes the reasons speak; the others are counted too."""
    counts = Counter(reasons)
    untried = cluster.node_count - tried if tried is not None else 0
    if untried:
        counts[NOT_HELPFUL] += untried
    status = Status(Code.UNSCHEDULABLE, (Diagnosis(cluster.node_count, counts).message,))
    return NoPreemption(status, clears_nomination=True)


def _joined(failures: Iterable[str]) -> str:
    different = list(dict.fromkeys(failures))
    return different[0] if len(different) == 1 else f"[{', '.join(different)}]"
