"""Preemption for pods that go together: victims are found for all at once, and only if all then have a place."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self, TypeAlias

from muster.cluster.columns import NodeMask
from muster.cluster.groups import Group, PodGroups
from muster.cluster.pods import PodInfo
from muster.cluster.state import ClusterState
from muster.cluster.trial import Trial
from muster.placement.framework import Code, Reads, Status
from muster.placement.judging import Judgement, PluginFailed
from muster.placement.preempting import agreeing
from muster.placement.preempting.agreeing import Spared
from muster.placement.preempting.budgets import Budgets
from muster.placement.preempting.candidates import ExtenderFailed
from muster.placement.preempting.finding import NEVER, NoPreemption
from muster.placement.preempting.options import Options
from muster.placement.preempting.victims import Victim, gather, priority_of

NO_VICTIMS = "No preemption victims found for incoming preemptor"
NOT_AGREED = "extenders agree to no victims whose room would be enough"
_ROUNDS = 16  # with extenders: each time they object, it is tried without those whom they spare
ONGOING = Status(Code.SUCCESS, ("ongoing preemption on nominated nodes",))

Place: TypeAlias = Callable[[Trial], Status]
"""Assigns members of the gang to nodes through the trial, as many as it can; success if that is enough of them."""
Judge: TypeAlias = Callable[[PodInfo], Judgement]
"""The judgement of a member's class, which follows the cluster."""


@dataclass(frozen=True, slots=True)
class GangPreemptor:
    members: Sequence[PodInfo]
    """Those that have no node, in the order in which they are placed."""
    priority: int
    preempts: bool = True

    @classmethod
    def of(cls, members: Sequence[PodInfo], group: Group | None = None) -> Self:
        """What the group does not say follows from its members."""
        priority = group.priority if group is not None else None
        preempts = group.preempts if group is not None else None
        if priority is None:
            priority = min((pod.priority for pod in members), default=0)
        if preempts is None:
            preempts = all(pod.spec.preemption_policy != "Never" for pod in members)
        return cls(members, priority, preempts)


@dataclass(frozen=True, slots=True)
class GangPreemption:
    """Evict the victims, and every member goes where `nodes` says."""

    victims: tuple[PodInfo, ...]
    nodes: Mapping[str, str]
    """By uid of a member. Members beyond what the gang needs at least may be left out."""
    violations: int = 0
    disrupted_groups: int = 0
    """Victims that are groups, or members of groups."""

    @property
    def status(self) -> Status:
        return Status(Code.SUCCESS, (f"found a placement for podgroup, preempting {len(self.victims)} victims",))


@dataclass(frozen=True, slots=True)
class Ongoing:
    """Victims of an earlier preemption for this gang are still leaving: wait for them."""

    nodes: Mapping[str, str]
    """By uid of a member, the node it was promised, or nothing."""
    status: Status = ONGOING


class _Found(NamedTuple):
    victims: Sequence[tuple[Victim, int]]
    """With how many of their pods go beyond a budget."""
    members: Sequence[tuple[PodInfo, str]]
    """With their nodes."""


def find_for_gang(
    preemptor: GangPreemptor,
    place: Place,
    judge: Judge,
    cluster: ClusterState,
    budgets: Budgets,
    options: Options,
    domain: NodeMask | None = None,
) -> GangPreemption | Ongoing | NoPreemption:
    """`domain`: only pods on these nodes are evicted, and others of groups that go as a whole. The cluster is left as
    it was found."""
    if not preemptor.preempts:
        return NoPreemption(Status(Code.UNSCHEDULABLE, (NEVER,)))
    if _is_ongoing(preemptor, cluster, options.groups):
        return Ongoing({pod.uid: pod.nominated for pod in preemptor.members})
    search = _Search(preemptor, place, judge, cluster, budgets, options, domain)
    try:
        return _agreed(search)
    except ExtenderFailed as failure:
        return NoPreemption(Status(Code.ERROR, (str(failure),)))
    except PluginFailed as failure:
        for pod in preemptor.members:
            judge(pod).start_afresh()
        return NoPreemption(Status(Code.ERROR, (str(failure),)))


def _agreed(search: "_Search") -> GangPreemption | NoPreemption:
    """What all extenders agree to. Each of their objections spares somebody, and it is tried again without him."""
    spared, options = Spared(), search.options
    for _ in range(_ROUNDS):
        found = search.find(spared)
        if isinstance(found, NoPreemption):
            return NoPreemption(Status(Code.UNSCHEDULABLE, (NOT_AGREED,))) if spared else found
        said = agreeing.ask(found.members, found.victims, search.cluster, options.extenders)
        if any(options.protected.has(pod) for pod in said.added.values()):
            break
        if not said.refused:
            return GangPreemption(
                victims=(*(pod for victim, _ in found.victims for pod in victim.pods), *said.added.values()),
                nodes={pod.uid: node for pod, node in found.members},
                violations=sum(count for _, count in found.victims),
                disrupted_groups=sum(victim.pods[0].group is not None for victim, _ in found.victims),
            )
        spared.nodes |= said.refused.nodes
        spared.uids |= said.refused.uids
    return NoPreemption(Status(Code.UNSCHEDULABLE, (NOT_AGREED,)))


@dataclass(frozen=True, slots=True)
class _Search:
    preemptor: GangPreemptor
    place: Place
    judge: Judge
    cluster: ClusterState
    budgets: Budgets
    options: Options
    domain: NodeMask | None

    def find(self, spared: Spared) -> _Found | NoPreemption:
        cluster, preemptor = self.cluster, self.preemptor
        victims = self._victims(spared)
        if not victims:
            return NoPreemption(Status(Code.UNRESOLVABLE, (NO_VICTIMS,)))
        victims.sort(key=lambda victim: victim.importance)
        beyond, within = self.budgets.split(victims)
        with Trial(cluster) as trial:
            homes = {pod.uid: cluster.pods[pod.uid][1] for victim in victims for pod in victim.pods}
            for victim in victims:
                for pod in victim.pods:
                    trial.release(pod)
            status = self.place(trial)
            if not status.is_success:
                return NoPreemption(status)
            reprieve = _Reprieve(trial, self.judge, preemptor.members, homes)
            evicted = [
                (victim, count)
                for victim, count in (*beyond, *((victim, 0) for victim in within))
                if not reprieve.grant(victim)
            ]
            return _Found(evicted, [(pod, cluster.names[slot]) for pod, slot in reprieve.placed])

    def _victims(self, spared: Spared) -> list[Victim]:
        cluster, domain = self.cluster, self.domain
        slots = [slot for slot in cluster.slots.values() if domain is None or domain[slot]]
        present = (pod for slot in slots for pod in cluster.pods_on[slot].values())
        priority, protected = self.preemptor.priority, self.options.protected
        return [
            victim
            for victim in gather(present, cluster, self.options.groups)
            if victim.priority < priority and not protected.shields(victim) and not spared.has(victim, cluster)
        ]


def _is_ongoing(preemptor: GangPreemptor, cluster: ClusterState, groups: PodGroups) -> bool:
    promised = {cluster.slots[pod.nominated] for pod in preemptor.members if pod.nominated in cluster.slots}
    return any(
        pod.is_preempted and priority_of(pod, groups) < preemptor.priority
        for slot in promised
        for pod in cluster.pods_on[slot].values()
    )


class _Reprieve:
    """Gives victims their places back, one after the other, where every member of the gang still fits on its own."""

    def __init__(self, trial: Trial, judge: Judge, members: Sequence[PodInfo], homes: Mapping[str, str]) -> None:
        self._trial, self._judge, self._homes = trial, judge, homes
        slots = trial.cluster.slots
        homed = ((pod, trial.cluster.node_of(pod.uid)) for pod in members)
        self.placed = [(pod, slots[node]) for pod, node in homed if node is not None]
        self._on: dict[int, list[tuple[PodInfo, int]]] = {}
        for pod, slot in self.placed:
            self._on.setdefault(slot, []).append((pod, slot))
        # Where no filter looks beyond a pod's own node, only members on the victim's nodes can be in its way.
        self._is_local = all(
            plugin.reads is not Reads.ALL_PODS for pod, _ in self.placed for plugin, _state in judge(pod).active()
        )

    def grant(self, victim: Victim) -> bool:
        trial = self._trial
        mark = trial.mark
        for pod in victim.pods:
            trial.assign(pod, self._homes[pod.uid])
        neighbours = self._neighbours(victim)
        for pod, _slot in neighbours:
            trial.release(pod)
        for pod, slot in neighbours:
            judgement = self._judge(pod)
            judgement.refresh()
            if not judgement.feasible[slot]:
                trial.undo(mark)
                return False
            trial.assign(pod, trial.cluster.names[slot])
        return True

    def _neighbours(self, victim: Victim) -> Sequence[tuple[PodInfo, int]]:
        if not self._is_local:
            return self.placed
        nodes = dict.fromkeys(self._homes[pod.uid] for pod in victim.pods)
        slots = (self._trial.cluster.slots.get(node) for node in nodes)  # None: the node is gone
        return [found for slot in slots if slot is not None for found in self._on.get(slot, ())]
