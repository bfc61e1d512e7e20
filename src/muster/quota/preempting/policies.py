"""Who may be preempted, for whom, and on what grounds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf

from muster.quota.amounts import FlavorResource
from muster.quota.queues import Victims
from muster.quota.ranking import Ranked
from muster.quota.state import QueueState
from muster.quota.topology import PlacementRequest
from muster.quota.workloads import WorkloadInfo


class Reason(StrEnum):
    """On what grounds a workload is preempted: the reason of its condition `Preempted`."""

    IN_QUEUE = "InClusterQueue"
    RECLAMATION = "InCohortReclamation"
    FAIR_SHARING = "InCohortFairSharing"
    RECLAIM_WHILE_BORROWING = "InCohortReclaimWhileBorrowing"


@dataclass(frozen=True, slots=True, eq=False)
class Target:
    """A workload that has to go, and the queue in which it holds its quota."""

    info: WorkloadInfo
    reason: Reason
    queue: QueueState


@dataclass(frozen=True, slots=True, eq=False)
class Wanted:
    """What is looked for: room for a workload, in its queue."""

    info: WorkloadInfo
    queue: QueueState
    needing: frozenset[FlavorResource]
    """Of what there is too little: a victim has some of it."""
    amounts: Mapping[FlavorResource, int]
    """All that the workload takes, whether there is too little of it or not."""
    places: Mapping[str, Sequence[PlacementRequest]] = field(default_factory=dict)
    """By flavor with a topology: pods that must find a place there too."""


class Picker:
    """Whom the policy of a queue lets a workload preempt."""

    __slots__ = ("_is_newer_too", "_needing", "_priority", "_since", "most")

    def __init__(self, policy: Victims, preemptor: WorkloadInfo, needing: frozenset[FlavorResource]) -> None:
        self._needing = needing
        self._priority = preemptor.priority
        self._since = preemptor.queued_since
        self._is_newer_too = policy is Victims.LOWER_OR_NEWER
        self.most = _most(policy, preemptor.priority)
        """The highest priority among those who might be picked."""

    def picks(self, info: WorkloadInfo) -> bool:
        if info.priority > self.most or self._needing.isdisjoint(info.usage.quota):
            return False
        return not self._is_newer_too or info.priority < self._priority or self._since < info.queued_since

    def first(self, ranked: Sequence[Ranked], start: int, is_by_rank: bool) -> int:
        """The index of the first that is picked, from `start` on; -1: nobody."""
        most = self.most
        for index in range(start, len(ranked)):
            info = ranked[index][1]
            if info.priority > most:
                if is_by_rank:
                    return -1
            elif self.picks(info):
                return index
        return -1


def _most(policy: Victims, priority: int) -> float:
    match policy:
        case Victims.NEVER | Victims.UNSAID:
            return -inf
        case Victims.LOWER:
            return priority - 1
        case Victims.LOWER_OR_NEWER:
            return priority
        case Victims.ANY:
            return inf


def may_preempt(preemptor: WorkloadInfo, candidate: WorkloadInfo, policy: Victims) -> bool:
    """Whether the policy lets the one take the other's place, whatever that one holds."""
    if candidate.priority > _most(policy, preemptor.priority):
        return False
    is_lower = policy is not Victims.LOWER_OR_NEWER or candidate.priority < preemptor.priority
    return is_lower or preemptor.queued_since < candidate.queued_since
