"""Candidates of classical preemption: of the workload's own queue, and of queues that use beyond their quota.

One cohort after the other is asked on the way to the root. Where the workload fits into what a subtree owns, it has the
advantage over everybody beyond that subtree: they have borrowed what belongs there.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from heapq import merge
from operator import itemgetter
from typing import Final

from muster.quota.amounts import FlavorResource
from muster.quota.preempting.policies import Picker, Reason, Wanted
from muster.quota.queues import Victims
from muster.quota.ranking import Rank, Ranked, Ranking
from muster.quota.state import QueueState, QuotaState
from muster.quota.tree import Node
from muster.quota.workloads import WorkloadInfo


class Kind(Enum):
    """By what right a candidate is taken out."""

    OWN = 0
    HIERARCHICAL = 1
    WITHOUT_BORROWING = 2
    """Only if the preemptor's queue stays within its own quota."""
    WHILE_BORROWING = 3


REASONS: Final[Mapping[Kind, Reason]] = {
    Kind.OWN: Reason.IN_QUEUE,
    Kind.HIERARCHICAL: Reason.RECLAMATION,
    Kind.WITHOUT_BORROWING: Reason.RECLAMATION,
    Kind.WHILE_BORROWING: Reason.RECLAIM_WHILE_BORROWING,
}


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    info: WorkloadInfo
    queue: QueueState
    kind: Kind
    cohort: Node | None = None
    """The lowest that its queue shares with the preemptor's; None in the preemptor's own queue."""


@dataclass(frozen=True, slots=True, eq=False)
class Level:
    """Queues beyond their quota in one cohort, without the branch that was asked before."""

    cohort: Node
    has_advantage: bool
    queues: tuple[QueueState, ...]


class Candidates:
    """Iterated in the order in which they are to go, as often as needed. Each is looked for only when it is asked for:
    most searches need few of many. Whether a queue is still beyond its quota when its turn comes is not asked here."""

    def __init__(
        self,
        state: QuotaState,
        wanted: Wanted,
        ranking: Callable[[QueueState], Ranking],
        is_active: Callable[[QueueState], bool],
    ) -> None:
        self._state = state
        self._wanted = wanted
        self._ranking = ranking
        self._is_active = is_active
        policy = wanted.queue.policy
        self._own = Picker(policy.within_queue, wanted.info, wanted.needing)
        self._others = Picker(policy.reclaim_within_cohort, wanted.info, wanted.needing)
        self._levels = tuple(self._found_levels()) if policy.reclaim_within_cohort is not Victims.NEVER else ()
        self.has_hierarchical = self._has_any(has_advantage=True)
        self.has_others = self.has_hierarchical or self._has_any(has_advantage=False)

    def queues(self) -> Iterator[QueueState]:
        """Where there may be candidates."""
        if self._wanted.queue.policy.within_queue is not Victims.NEVER:
            yield self._wanted.queue
        for level in self._levels:
            yield from level.queues

    def __iter__(self) -> Iterator[Candidate]:
        for is_evicted in (True, False):
            for has_advantage in (True, False):
                runs = self._runs(has_advantage, is_evicted)
                yield from (candidate for _, candidate in merge(*runs, key=itemgetter(0)))
            own = self._wanted.queue
            for _, info in _picked(self._own, self._ranking(own), is_evicted):
                yield Candidate(info, own, Kind.OWN)

    def _has_any(self, *, has_advantage: bool) -> bool:
        return any(True for is_evicted in (True, False) for run in self._runs(has_advantage, is_evicted) for _ in run)

    # Other queues

    def _found_levels(self) -> Iterator[Level]:
        node = self._wanted.queue.node
        has_advantage, remaining = _fit(node, self._wanted.amounts)
        asked = node
        for cohort in node.ancestors():
            yield Level(cohort, has_advantage, tuple(self._beyond_quota(cohort, asked)))
            fits, remaining = _fit(cohort, remaining)
            has_advantage = has_advantage or fits
            asked = cohort

    def _beyond_quota(self, cohort: Node, asked: Node) -> Iterator[QueueState]:
        for child in cohort.children_beyond(self._wanted.needing):
            if child is asked:
                continue
            if not child.is_queue:
                yield from self._beyond_quota(child, asked)
            elif self._is_active(self._state.queues[child.name]):
                yield self._state.queues[child.name]

    def _runs(self, has_advantage: bool, is_evicted: bool) -> Iterator[Iterator[tuple[Rank, Candidate]]]:
        """One for each queue, each in order."""
        for level in self._levels:
            if level.has_advantage is has_advantage:
                for queue in level.queues:
                    yield self._run(level, queue, is_evicted)

    def _run(self, level: Level, queue: QueueState, is_evicted: bool) -> Iterator[tuple[Rank, Candidate]]:
        for rank, info in _picked(self._others, self._ranking(queue), is_evicted):
            kind = Kind.HIERARCHICAL if level.has_advantage else self._kind(info)
            yield rank, Candidate(info, queue, kind, level.cohort)

    def _kind(self, info: WorkloadInfo) -> Kind:
        policy, threshold = self._wanted.queue.policy, self._wanted.queue.policy.max_priority_threshold
        is_too_important = info.priority >= self._wanted.info.priority or (
            threshold is not None and info.priority > threshold
        )
        if is_too_important or not policy.may_preempt_while_borrowing:
            return Kind.WITHOUT_BORROWING
        return Kind.WHILE_BORROWING


def _picked(picker: Picker, ranking: Ranking, is_evicted: bool) -> Iterator[Ranked]:
    for rank, info in ranking.evicted if is_evicted else ranking.others:
        if picker.picks(info):
            yield rank, info
        elif ranking.is_by_rank and rank[0] > picker.most:
            return


def _fit(node: Node, amounts: Mapping[FlavorResource, int]) -> tuple[bool, dict[FlavorResource, int]]:
    """Whether they fit into what the subtree owns and does not use, and what would have to come from above."""
    fits = all(node.used(what) + amount <= node.owned(what) for what, amount in amounts.items())
    return fits, {what: max(0, amount - node.local_available(what)) for what, amount in amounts.items()}
