"""Finds whom a workload has to preempt, by the rules that are set, and tries out what preemption could do."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from muster.api.meta import Instant
from muster.quota.amounts import FlavorResource
from muster.quota.assignments import Assignment
from muster.quota.fair_admission import Ledger, is_usage_based
from muster.quota.flavors import Possibility, total_requests
from muster.quota.gates import Gate
from muster.quota.marks import never_preempts
from muster.quota.preempting import classical, fair
from muster.quota.preempting.candidates import Candidates
from muster.quota.preempting.policies import Target, Wanted
from muster.quota.ranking import Ranking
from muster.quota.state import QueueState, QuotaState
from muster.quota.workloads import WorkloadInfo


class Preemptor:
    """For one cycle: which queues are active is asked once. Whatever is tried out is taken back."""

    def __init__(self, state: QuotaState, now: Instant, ledger: Ledger | None = None) -> None:
        """`ledger`: what local queues used before, for queues where that decides who goes first."""
        self._state = state
        self._now = now
        self._ledger = ledger
        self._active: dict[str, bool] = {}
        self._tried: dict[tuple[WorkloadInfo, FlavorResource, int], list[Target]] = {}
        """What came of trying out, in the state as it is."""

    def begin(self) -> None:
        """The state may have changed since it was asked last."""
        self._tried.clear()

    def targets(self, info: WorkloadInfo, queue: QueueState, assignment: Assignment) -> list[Target]:
        """Who has to go for the workload to fit as assigned. Nobody: there is no way."""
        amounts = total_requests(assignment, info, self._replaced(info))
        needing = assignment.needing_preemption()
        if needing == amounts.keys() and len(needing) == 1 and not assignment.places:
            known = self._tried.get((info, *next(iter(amounts.items()))))
            if known is not None:
                return known
        return self._find(Wanted(info, queue, needing, amounts, assignment.places))

    def simulate(
        self, queue: QueueState, info: WorkloadInfo, what: FlavorResource, amount: int
    ) -> tuple[Possibility, int]:
        """What preemption could do for so much of one thing, whatever else the workload needs, and how high up the
        lender would be afterwards."""
        targets = self._tried[info, what, amount] = self._find(Wanted(info, queue, frozenset((what,)), {what: amount}))
        is_own = any(target.queue is queue for target in targets)
        if not is_own and not queue.node.borrows(what, amount):
            height = 0
        else:
            with _without(targets, what):
                height, _ = queue.node.borrow_height(what, amount)
        if not targets:
            return Possibility.NO_CANDIDATES, height
        return Possibility.PREEMPT if is_own else Possibility.RECLAIM, height

    def _find(self, wanted: Wanted) -> list[Target]:
        if not wanted.needing or not wanted.queue.policy.may_preempt or never_preempts(wanted.info.view):
            return []
        if self._state.settings.fair_sharing is None:
            found = Candidates(self._state, wanted, self._ranking, self._is_active)
            return classical.find(self._state, wanted, found)
        return fair.find(self._state, wanted, fair.candidates(self._state, wanted, self._ranking, self._is_active))

    def _ranking(self, queue: QueueState) -> Ranking:
        if self._ledger is None or not is_usage_based(queue.policy, self._state.settings):
            return queue.ranking(self._now)
        for info in queue.workloads.values():
            info.local_queue_usage = self._ledger.usage(info.local_queue)
        return queue.ranking(self._now, by_usage=True)

    def _is_active(self, queue: QueueState) -> bool:
        """Workloads of queues that are not active are left alone."""
        found = self._active.get(queue.name)
        if found is None:
            found = self._active[queue.name] = self._state.is_active(queue)
        return found

    def _replaced(self, info: WorkloadInfo) -> WorkloadInfo | None:
        """The slice whose place it takes: what that one has need not be found again."""
        key = info.replaced_key
        if key is None or Gate.ELASTIC_JOBS_VIA_WORKLOAD_SLICES not in self._state.settings.gates:
            return None
        found = self._state.holder(key)
        return None if found is None or self._state.queues[found.queue].is_hidden(key) else found


@contextmanager
def _without(targets: Sequence[Target], what: FlavorResource) -> Iterator[None]:
    held = [(target.queue.node, target.info.usage.quota.get(what, 0)) for target in targets]
    for node, amount in held:
        node.remove(what, amount)
    try:
        yield
    finally:
        for node, amount in held:
            node.add(what, amount)
