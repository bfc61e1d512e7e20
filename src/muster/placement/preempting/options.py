"""How preemption is to be done: the plugin's arguments, chance as a number, and rules that replace the usual ones."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from muster.cluster.groups import PodGroups
from muster.cluster.pods import PodInfo
from muster.placement.preempting.candidates import PreemptionExtender
from muster.placement.preempting.protecting import Protected
from muster.placement.preempting.victims import Victim

MayEvict: TypeAlias = Callable[[Victim, str, PodInfo], bool]
"""(victim, a node it is on, preemptor) → whether it may be evicted, besides having a lower priority."""
MoreImportant: TypeAlias = Callable[[Victim, Victim], bool]


@dataclass(frozen=True, slots=True)
class Options:
    offset: int = 0
    """Where among the nodes that could be helped the search starts: random, so that the first nodes are not always the
    ones that suffer. Any number."""
    min_percentage: int = 10
    min_absolute: int = 100
    """The search stops when it has found so many candidates: a share of the nodes, or this number if that is more."""
    groups: PodGroups = field(default_factory=PodGroups)
    may_evict: MayEvict | None = None
    """Asked once for each node that the victim is on; all answers must be yes."""
    is_more_important: MoreImportant | None = None
    extenders: Sequence[PreemptionExtender] = ()
    protected: Protected = field(default_factory=Protected)

    def limit(self, nodes: int) -> int:
        """How many candidates are enough among so many nodes."""
        return min(max(nodes * self.min_percentage // 100, self.min_absolute), nodes)
