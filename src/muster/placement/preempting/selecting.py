"""Which pods must leave a node: all that may be evicted are removed in thought, then as many as possible come back."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cmp_to_key

from muster.cluster.pods import PodInfo
from muster.cluster.state import ClusterState
from muster.cluster.trial import Trial
from muster.placement.framework import Code, Status
from muster.placement.judging import Judgement, PluginFailed
from muster.placement.preempting.budgets import Budgets
from muster.placement.preempting.candidates import Candidate
from muster.placement.preempting.options import Options
from muster.placement.preempting.victims import Victim, gather

NO_VICTIMS = Status(Code.UNRESOLVABLE, ("No preemption victims found for incoming pod",))


@dataclass(slots=True)
class DryRun:
    """What trying many nodes found."""

    candidates: list[Candidate] = field(default_factory=list)
    statuses: list[Status] = field(default_factory=list)
    """Of the nodes that are no candidates."""
    failures: list[str] = field(default_factory=list)


def dry_run(
    preemptor: PodInfo,
    slots: Sequence[int],
    judgement: Judgement,
    cluster: ClusterState,
    budgets: Budgets,
    rules: Options,
) -> DryRun:
    """Tries the nodes in the given order, starting at the offset, until there are enough candidates; those that go
    beyond no budget come first. One that goes beyond a budget is never enough: the search goes on for a better one."""
    found = DryRun()
    beyond: list[Candidate] = []
    limit = rules.limit(len(slots))
    for number in range(len(slots)):
        slot = slots[(rules.offset + number) % len(slots)]
        answer = _try(preemptor, slot, judgement, cluster, budgets, rules)
        if isinstance(answer, Status):
            found.statuses.append(answer)
            if answer.code is Code.ERROR:
                found.failures += answer.reasons
        elif not answer.violations:
            found.candidates.append(answer)
        elif len(beyond) < limit:
            beyond.append(answer)
        if found.candidates and len(found.candidates) + len(beyond) >= limit:
            break
    judgement.refresh()
    found.candidates += beyond
    return found


def _try(
    preemptor: PodInfo, slot: int, judgement: Judgement, cluster: ClusterState, budgets: Budgets, rules: Options
) -> Candidate | Status:
    node = cluster.names[slot]
    try:
        with Trial(cluster) as trial:
            answer = select(preemptor, slot, judgement, trial, budgets, rules)
    except PluginFailed as failure:
        judgement.start_afresh()
        return Status(Code.ERROR, (str(failure),))
    if isinstance(answer, Candidate) and not answer.victims:
        return Status(Code.ERROR, (f'expected at least one victim pod on node "{node}"',))
    return answer


def select(
    preemptor: PodInfo, slot: int, judgement: Judgement, trial: Trial, budgets: Budgets, rules: Options
) -> Candidate | Status:
    """The victims on one node, all moves left to the trial to undo. A candidate without victims: the pod fits as is."""
    cluster = trial.cluster
    victims = evictable(preemptor, slot, cluster, rules)
    if not victims:
        return NO_VICTIMS
    homes = {pod.uid: cluster.pods[pod.uid][1] for victim in victims for pod in victim.pods}
    for victim in victims:
        for pod in victim.pods:
            trial.release(pod)
    judgement.refresh()
    if not judgement.feasible[slot]:
        return judgement.status_at(slot)
    ordered = by_importance(victims, rules)
    beyond, within = budgets.split(ordered)
    violations, evicted = 0, []
    for victim, count in (*beyond, *((victim, 0) for victim in within)):
        mark = trial.mark
        for pod in victim.pods:
            trial.assign(pod, homes[pod.uid])
        judgement.refresh()
        if not judgement.feasible[slot]:
            trial.undo(mark)
            evicted.append(victim)
            violations += count
    judgement.refresh()
    if beyond and within:
        evicted = by_importance(evicted, rules)
    return Candidate(cluster.names[slot], tuple(pod for victim in evicted for pod in victim.pods), violations)


def evictable(preemptor: PodInfo, slot: int, cluster: ClusterState, rules: Options) -> list[Victim]:
    """The victims on a node that are less than the preemptor."""
    found = gather(cluster.pods_on[slot].values(), cluster, rules.groups)
    return [
        victim
        for victim in found
        if victim.priority < preemptor.priority and _may_evict(victim, preemptor, cluster, rules)
    ]


def _may_evict(victim: Victim, preemptor: PodInfo, cluster: ClusterState, rules: Options) -> bool:
    if rules.protected.shields(victim):
        return False
    if rules.may_evict is None:
        return True
    nodes = dict.fromkeys(cluster.pods[pod.uid][1] for pod in victim.pods)
    return all(rules.may_evict(victim, node, preemptor) for node in nodes)


def by_importance(victims: Sequence[Victim], rules: Options) -> list[Victim]:
    """The most important first: it is the first to be given its place back."""
    if rules.is_more_important is None:
        return sorted(victims, key=lambda victim: victim.importance)
    before = rules.is_more_important

    def compare(one: Victim, other: Victim) -> int:
        return -1 if before(one, other) else 1 if before(other, one) else 0

    return sorted(victims, key=cmp_to_key(compare))
