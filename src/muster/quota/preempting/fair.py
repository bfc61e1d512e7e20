"""Preemption under fair sharing: whoever borrows most, for its weight, gives first.

The preemptor takes from another queue only if its own share, with the workload in, is not above what the other is left
with (or, for those that this spares, below what the other has): so that the other cannot take it back at once.
"""

from collections.abc import Callable, Iterator, Mapping

from muster.quota.amounts import FlavorAmounts, FlavorResource
from muster.quota.gates import Gate
from muster.quota.preempting.policies import Picker, Reason, Target, Wanted
from muster.quota.preempting.room import Room
from muster.quota.preempting.visiting import Shares, Visits, Waiting
from muster.quota.queues import Victims
from muster.quota.ranking import Ranked, Ranking
from muster.quota.settings import ShareRule
from muster.quota.shares import Share, share_of
from muster.quota.state import QueueState, QuotaState
from muster.quota.tree import Node
from muster.quota.workloads import WorkloadInfo


def candidates(
    state: QuotaState,
    wanted: Wanted,
    ranking: Callable[[QueueState], Ranking],
    is_active: Callable[[QueueState], bool],
) -> dict[Node, Waiting]:
    """By queue, in the order in which they are to go."""
    own, policy = wanted.queue, wanted.queue.policy
    found: dict[Node, Waiting] = {}
    if policy.within_queue is not Victims.NEVER:
        found[own.node] = Waiting(ranking(own).all, Picker(policy.within_queue, wanted.info, wanted.needing))
    if own.node.parent is not None and policy.reclaim_within_cohort is not Victims.NEVER:
        picker = Picker(policy.reclaim_within_cohort, wanted.info, wanted.needing)
        for node in _borrowing(own.node.root(), wanted.needing):
            queue = state.queues[node.name]
            if queue is not own and queue.policy.is_reclaimable and is_active(queue):
                found[node] = Waiting(ranking(queue).all, picker)
    return {node: waiting for node, waiting in found.items() if waiting}


def _borrowing(cohort: Node, whats: frozenset[FlavorResource]) -> Iterator[Node]:
    yield from (child for child in cohort.children_beyond(whats) if child.is_queue)
    for child in cohort.children:
        if not child.is_queue:
            yield from _borrowing(child, whats)


def find(state: QuotaState, wanted: Wanted, found: Mapping[Node, Waiting]) -> list[Target]:
    """Nobody, where nothing helps."""
    if not found:
        return []
    assert state.settings.fair_sharing is not None
    rules = state.settings.fair_sharing.rules or (ShareRule.FINAL, ShareRule.INITIAL)
    with Room(state, wanted, may_borrow=True) as room:
        if not room.could_fit(state.queues[node.name] for node in found):
            return []
        with room.holding_wanted():
            search = _Search(state, wanted, room)
            is_enough = search.visit_all(found, rules[0]) or (len(rules) > 1 and search.visit_again())
        return room.spared(search.targets) if is_enough else []


class _Search:
    def __init__(self, state: QuotaState, wanted: Wanted, room: Room) -> None:
        self.targets: list[Target] = []
        self._state = state
        self._wanted = wanted
        self._own = wanted.queue.node
        self._room = room
        self._shares = Shares()
        self._spared: dict[Node, Ranked] = {}
        """Of each queue the first whom a rule has spared."""

    def visit_all(self, found: Mapping[Node, Waiting], rule: ShareRule) -> bool:
        visits = Visits(self._own, found, self._shares)
        reclaims = self._is_within_nominal()
        while (queue := visits.next()) is not None:
            if queue is self._own:
                is_enough = self._take(queue, found[queue].pop()[1], Reason.IN_QUEUE)
            elif reclaims:
                is_enough = self._take(queue, found[queue].pop()[1], Reason.RECLAMATION)
            else:
                is_enough = self._take_by_share(found[queue], queue, rule)
            if is_enough:
                return True
        return self._room.is_enough(is_last=True)

    def visit_again(self) -> bool:
        """Those that were spared, one of each queue, now that the others are gone."""
        found = {queue: Waiting((first,)) for queue, first in self._spared.items()}
        visits = Visits(self._own, found, self._shares)
        while (queue := visits.next()) is not None:
            ours, theirs = almost_common(self._own, queue)
            _, info = found[queue].pop()
            if self._shares.of(ours) < self._shares.of(theirs) and self._take(queue, info, Reason.FAIR_SHARING):
                return True
        return self._room.is_enough(is_last=True)

    def _is_within_nominal(self) -> bool:
        """With the wanted workload in: what it takes back is its queue's own."""
        if Gate.FAIR_SHARING_PREEMPT_WITHIN_NOMINAL not in self._state.settings.gates:
            return False
        return all(self._own.used(what) <= self._own.nominal(what) for what in self._wanted.needing)

    def _take_by_share(self, waiting: Waiting, queue: Node, rule: ShareRule) -> bool:
        """The first of the queue whose going the rule allows; then it is looked again which queue is next."""
        ours, theirs = almost_common(self._own, queue)
        share, before = self._shares.of(ours), self._shares.of(theirs)
        # Nobody's going leaves the other with more than it has: above that, there is no need to try each.
        is_hopeless = share > before if rule is ShareRule.FINAL else share >= before
        refused: FlavorAmounts | None = None
        while waiting and not is_hopeless:
            entry = waiting.pop()
            amounts = entry[1].usage.quota
            if amounts != refused:  # many are alike, and then so is what is left without them
                if rule is ShareRule.INITIAL or share <= self._share_without(amounts, queue, theirs):
                    return self._take(queue, entry[1], Reason.FAIR_SHARING)
                refused = amounts
            self._spared.setdefault(queue, entry)
        if waiting:
            self._spared.setdefault(queue, waiting.first)
            waiting.clear()
        return False

    def _share_without(self, amounts: FlavorAmounts, queue: Node, above: Node) -> Share:
        if above is queue:
            return share_of(queue, {what: -amount for what, amount in amounts.items()})
        queue.remove_all(amounts)
        found = share_of(above)
        queue.add_all(amounts)
        return found

    def _take(self, queue: Node, info: WorkloadInfo, reason: Reason) -> bool:
        holder = self._state.queues[queue.name]
        self._room.take(holder, info)
        self._shares.forget(queue)
        self.targets.append(Target(info, reason, holder))
        return self._room.is_enough()


def almost_common(one: Node, other: Node) -> tuple[Node, Node]:
    """On both ways up, the last node before they meet. The two must not be the same."""
    above = {one, *one.ancestors()}
    theirs = other
    while theirs.parent is not None and theirs.parent not in above:
        theirs = theirs.parent
    ours = one
    while ours.parent is not None and ours.parent is not theirs.parent:
        ours = ours.parent
    return ours, theirs
