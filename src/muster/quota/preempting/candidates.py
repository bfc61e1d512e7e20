"""Candidates of classical preemption: of the workload's own queue, and of queues that use beyond their quota.

One cohort after the other is asked on the way to the root. Where the workload fits into what a subtree owns, it has the
advantage over everybody beyond that subtree: they have borrowed what belongs there.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from heapq import heapify, heappop, heapreplace
from typing import NamedTuple

from muster.quota.amounts import FlavorResource
from muster.quota.preempting.policies import Picker, Wanted
from muster.quota.queues import Victims
from muster.quota.ranking import Rank, Ranking
from muster.quota.state import QueueState, QuotaState
from muster.quota.tree import Node
from muster.quota.workloads import WorkloadInfo


class Run(NamedTuple):
    """The candidates of one queue, as they rank there."""

    queue: QueueState
    ranking: Ranking
    path: tuple[Node, ...] = ()
    """From the queue to below the lowest cohort that it shares with the preemptor's; empty for that one itself."""


class Candidates:
    """What they are taken from; each is looked for only when its turn comes: most searches need few of many."""

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
        self.own = Run(wanted.queue, ranking(wanted.queue))
        self.own_picker = Picker(policy.within_queue, wanted.info, wanted.needing)
        self.picker = Picker(policy.reclaim_within_cohort, wanted.info, wanted.needing)
        self._levels = tuple(self._found_levels()) if policy.reclaim_within_cohort is not Victims.NEVER else ()

    @cached_property
    def hierarchical(self) -> list[Run]:
        """Of those over whom the workload has the advantage."""
        return self._runs(has_advantage=True)

    @cached_property
    def by_priority(self) -> list[Run]:
        """Of all others."""
        return self._runs(has_advantage=False)

    def has_any(self, runs: list[Run]) -> bool:
        first = self.picker.first
        return any(
            first(part, 0, run.ranking.is_by_rank) >= 0
            for run in runs
            for part in (run.ranking.evicted, run.ranking.others)
        )

    # Other queues

    def _found_levels(self) -> Iterator[tuple[bool, Node, Node]]:
        """Whether the workload has the advantage there, the cohort, and the branch of it that was asked before."""
        node = self._wanted.queue.node
        amounts = self._wanted.amounts
        if self._wanted.queue.policy.has_volcano_rules:
            amounts = {what: amount for what, amount in amounts.items() if what in self._wanted.needing}
        has_advantage, remaining = _fit(node, amounts)
        asked = node
        for cohort in node.ancestors():
            yield has_advantage, cohort, asked
            fits, remaining = _fit(cohort, remaining)
            has_advantage = has_advantage or fits
            asked = cohort

    def _runs(self, *, has_advantage: bool) -> list[Run]:
        return [
            Run(queue, self._ranking(queue), path)
            for is_level, cohort, asked in self._levels
            if is_level is has_advantage
            for queue, path in self._beyond_quota(cohort, asked, ())
        ]

    def _beyond_quota(
        self, cohort: Node, asked: Node, path: tuple[Node, ...]
    ) -> Iterator[tuple[QueueState, tuple[Node, ...]]]:
        for child in cohort.children_beyond(self._wanted.needing):
            if child is asked:
                continue
            if not child.is_queue:
                yield from self._beyond_quota(child, asked, (child, *path))
            else:
                queue = self._state.queues[child.name]
                if queue.policy.is_reclaimable and self._is_active(queue):
                    yield queue, (child, *path)


def in_turn(
    runs: list[Run], picker: Picker, *, is_evicted: bool, is_closed: Callable[[Run], bool]
) -> Iterator[tuple[Run, WorkloadInfo]]:
    """Of all the runs, those who are to go first, one by one: of less important queues before others. Once a run
    `is_closed`, nobody else of it is."""
    heap: list[tuple[tuple[int, ...], Rank, int, int]] = []
    for number, run in enumerate(runs):
        part = run.ranking.evicted if is_evicted else run.ranking.others
        index = picker.first(part, 0, run.ranking.is_by_rank) if part else -1
        if index >= 0:
            heap.append((run.queue.node.priorities, part[index][0], number, index))
    heapify(heap)
    while heap:
        priorities, _, number, index = heap[0]
        run = runs[number]
        if is_closed(run):
            heappop(heap)
            continue
        part = run.ranking.evicted if is_evicted else run.ranking.others
        yield run, part[index][1]
        index = picker.first(part, index + 1, run.ranking.is_by_rank)
        if index >= 0:
            heapreplace(heap, (priorities, part[index][0], number, index))
        else:
            heappop(heap)


def _fit(node: Node, amounts: Mapping[FlavorResource, int]) -> tuple[bool, dict[FlavorResource, int]]:
    """Whether they fit into what the subtree owns and does not use, and what would have to come from above."""
    fits = all(node.used(what) + amount <= node.owned(what) for what, amount in amounts.items())
    return fits, {what: max(0, amount - node.local_available(what)) for what, amount in amounts.items()}
