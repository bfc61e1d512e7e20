"""Classical preemption: the fewest, least important workloads in order whose going makes room.

Queues are protected as long as they use no more than they own, and so are the cohorts between them and the preemptor.
"""

from collections.abc import Iterator

from muster.quota.preempting.books import CopiedBooks
from muster.quota.preempting.candidates import Candidates, Run, in_turn
from muster.quota.preempting.policies import Reason, Target, Wanted
from muster.quota.preempting.room import Room
from muster.quota.preempting.trial import Part, Trial
from muster.quota.queues import Victims
from muster.quota.state import QueueState, QuotaState
from muster.quota.workloads import WorkloadInfo


def find(state: QuotaState, wanted: Wanted, candidates: Candidates) -> list[Target]:
    """Nobody, where nothing helps."""
    for may_borrow in _attempts(wanted, candidates):
        found = _Attempt(wanted, candidates, may_borrow).find(state)
        if found:
            return found
    return []


def _attempts(wanted: Wanted, candidates: Candidates) -> tuple[bool, ...]:
    """Whether the preemptor's queue may borrow, try by try."""
    node, is_forbidden = wanted.queue.node, not wanted.queue.policy.may_preempt_while_borrowing
    if is_forbidden and any(node.used(what) >= node.nominal(what) for what in wanted.needing):
        return (True,)
    if candidates.has_any(candidates.hierarchical):
        return (True, False)
    if not candidates.has_any(candidates.by_priority):
        return (True,)
    return (False, True) if is_forbidden else (True, False)


class _Attempt:
    def __init__(self, wanted: Wanted, candidates: Candidates, may_borrow: bool) -> None:
        self._wanted = wanted
        self._candidates = candidates
        self._may_borrow = may_borrow
        self._policy = wanted.queue.policy
        self._books = CopiedBooks(wanted.queue.node, wanted.needing, wanted.amounts)
        # Without leave to preempt while it borrows, the queue has those only over whom it has the advantage.
        is_leave = self._policy.may_preempt_while_borrowing or not may_borrow
        self._by_priority = candidates.by_priority if is_leave else []

    def find(self, state: QuotaState) -> list[Target]:
        if not self._wanted.places:
            return Trial(self._wanted, self._books, may_borrow=self._may_borrow).find(
                (
                    Part(self._others(is_evicted=True), is_own=False),
                    Part(self._own(is_evicted=True), is_own=True),
                    Part(self._others(is_evicted=False), is_own=False),
                    Part(self._own(is_evicted=False), is_own=True),
                )
            )
        targets: list[Target] = []
        with Room(state, self._wanted, may_borrow=self._may_borrow, books=self._books) as room:
            if not room.could_fit(self._queues()):
                return []
            for target in self._in_order():
                room.take(target.queue, target.info)
                targets.append(target)
                if room.is_enough():
                    return room.spared(targets)
            return room.spared(targets) if room.is_enough(is_last=True) else []

    def _queues(self) -> Iterator[QueueState]:
        """Where there may be candidates."""
        if self._policy.within_queue is not Victims.NEVER:
            yield self._wanted.queue
        for run in (*self._candidates.hierarchical, *self._by_priority):
            yield run.queue

    def _in_order(self) -> Iterator[Target]:
        """Whoever is evicted already comes first: taking from it costs nothing."""
        for is_evicted in (True, False):
            yield from self._others(is_evicted=is_evicted)
            yield from self._own(is_evicted=is_evicted)

    def _others(self, *, is_evicted: bool) -> Iterator[Target]:
        candidates, picker, is_closed = self._candidates, self._candidates.picker, self._is_closed
        for run, info in in_turn(candidates.hierarchical, picker, is_evicted=is_evicted, is_closed=is_closed):
            yield Target(info, Reason.RECLAMATION, run.queue)
        for run, info in in_turn(self._by_priority, picker, is_evicted=is_evicted, is_closed=is_closed):
            if not self._may_borrow or not self._is_too_important(info):
                yield Target(info, self._reason(info), run.queue)

    def _own(self, *, is_evicted: bool) -> Iterator[Target]:
        own, picker = [self._candidates.own], self._candidates.own_picker
        for run, info in in_turn(own, picker, is_evicted=is_evicted, is_closed=self._is_closed):
            yield Target(info, Reason.IN_QUEUE, run.queue)

    def _is_closed(self, run: Run) -> bool:
        """Whether the queue, or a cohort between it and the preemptor, uses no more than it owns by now."""
        for node in run.path:  # noqa: SIM110 - asked for every candidate
            if self._books.is_within_quota(node):
                return True
        return False

    def _reason(self, info: WorkloadInfo) -> Reason:
        if self._is_too_important(info) or not self._policy.may_preempt_while_borrowing:
            return Reason.RECLAMATION
        return Reason.RECLAIM_WHILE_BORROWING

    def _is_too_important(self, info: WorkloadInfo) -> bool:
        """To be preempted by one whose queue borrows."""
        threshold = self._policy.max_priority_threshold
        return info.priority >= self._wanted.info.priority or (threshold is not None and info.priority > threshold)
