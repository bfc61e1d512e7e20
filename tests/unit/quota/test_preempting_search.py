"""The searches for victims against plain ones: everything sorted, everything measured, step by step as specified."""

from collections.abc import Iterator

from hypothesis import given, settings
from tests.unit.quota.preempting_worlds import NOW, World, columns, worlds

from muster.quota.amounts import FlavorResource
from muster.quota.preempting import Preemptor
from muster.quota.queues import Victims
from muster.quota.settings import ShareRule
from muster.quota.shares import share_of
from muster.quota.state import QueueState, QuotaState
from muster.quota.tree import Node
from muster.quota.workloads import WorkloadInfo

Found = list[tuple[WorkloadInfo, str]]
EXAMPLES = 40


@settings(max_examples=EXAMPLES, deadline=None)
@given(worlds(is_fair=False))
def test_classical_search_finds_whom_a_plain_one_finds(world: World) -> None:
    _agrees(world, _Plain(world).classical())


@settings(max_examples=EXAMPLES, deadline=None)
@given(worlds(is_fair=True))
def test_fair_search_finds_whom_a_plain_one_finds(world: World) -> None:
    _agrees(world, _Plain(world).fair())


@settings(max_examples=EXAMPLES, deadline=None)
@given(worlds(is_fair=False) | worlds(is_fair=True))
def test_with_the_targets_gone_the_workload_fits_and_without_any_of_them_it_does_not(world: World) -> None:
    state, queue = world.state, world.state.queues[world.queue]
    targets = Preemptor(state, NOW).targets(world.preemptor, queue, world.assignment)
    wanted = {FlavorResource("default", name): value for name, value in world.preemptor.pod_sets[0].requests.items()}
    for target in targets:
        state.remove(target.info.key)
    assert not targets or state.fits_quota(queue, wanted)
    for target in targets:
        assert not target.info.usage.quota.keys().isdisjoint(world.needing)


@settings(max_examples=EXAMPLES, deadline=None)
@given(worlds(is_fair=False) | worlds(is_fair=True))
def test_trying_out_changes_nothing_and_tells_where_the_lender_would_be(world: World) -> None:
    state, queue = world.state, world.state.queues[world.queue]
    before = columns(state)
    for what in world.needing:
        amount = world.preemptor.pod_sets[0].requests[what.resource]
        possibility, height = Preemptor(state, NOW).simulate(queue, world.preemptor, what, amount)
        assert columns(state) == before
        plain = _Plain(world, {what: amount})
        found = plain.classical() if state.settings.fair_sharing is None else plain.fair()
        for info, _ in found:
            state.remove(info.key)
        expected, _ = queue.node.borrow_height(what, amount)
        for info, _ in found:
            state.add(info)
        own = any(info.queue == queue.name for info, _ in found)
        assert possibility == ("NoCandidates" if not found else "Preempt" if own else "Reclaim")
        assert height == expected


def _agrees(world: World, expected: Found) -> None:
    before = columns(world.state)
    targets = Preemptor(world.state, NOW).targets(world.preemptor, world.state.queues[world.queue], world.assignment)
    assert [(target.info.key, target.reason) for target in targets] == [(info.key, reason) for info, reason in expected]
    assert all(target.queue.name == target.info.queue for target in targets)
    assert columns(world.state) == before


class _Plain:
    """No bounds, nothing kept, nothing merged: removes from the state, asks, and adds again."""

    def __init__(self, world: World, amounts: dict[FlavorResource, int] | None = None) -> None:
        self.state: QuotaState = world.state
        self.info = world.preemptor
        self.queue: QueueState = self.state.queues[world.queue]
        self.node = self.queue.node
        self.policy = self.queue.policy
        requests = world.preemptor.pod_sets[0].requests
        self.amounts = amounts or {FlavorResource("default", name): value for name, value in requests.items()}
        self.needing = world.needing if amounts is None else frozenset(amounts)

    def satisfies(self, info: WorkloadInfo, policy: Victims) -> bool:
        if not any(what in self.needing for what in info.usage.quota):
            return False
        if policy is Victims.ANY:
            return True
        if policy is Victims.NEVER:
            return False
        if info.priority < self.info.priority:
            return True
        is_newer = info.priority == self.info.priority and self.info.created < info.created
        return policy is Victims.LOWER_OR_NEWER and is_newer

    def order(self, info: WorkloadInfo) -> tuple[bool, bool, int, float, str]:
        assert info.reserved_at is not None
        return (not info.is_evicted, info.queue == self.queue.name, info.priority, -info.reserved_at, info.uid)

    def fits(self, may_borrow: bool) -> bool:
        for what, amount in self.amounts.items():
            if not may_borrow and self.node.nominal(what) < self.node.used(what) + amount:
                return False
            if amount > max(0, self.node.available(what)):
                return False
        return True

    def fill_back(self, taken: Found, may_borrow: bool) -> Found:
        kept = list(taken)
        for number in range(len(taken) - 2, -1, -1):
            self.state.add(taken[number][0])
            if self.fits(may_borrow):
                del kept[number]
            else:
                self.state.remove(taken[number][0].key)
        return kept

    def restore(self, taken: Found) -> None:
        for info, _ in taken:
            self.state.add(info)

    # Classical

    def classical(self) -> Found:
        hierarchical, by_priority, own = self._candidates()
        listed = [entry for group in (hierarchical, by_priority, own) for entry in group if entry[0].is_evicted]
        listed += [entry for group in (hierarchical, by_priority, own) for entry in group if not entry[0].is_evicted]
        never = not self.policy.may_preempt_while_borrowing
        is_exhausted = any(self.node.used(what) >= self.node.nominal(what) for what in self.needing)
        attempts = [True, False]
        if not (hierarchical or by_priority) or (never and is_exhausted):
            attempts = [True]
        elif never and not hierarchical:
            attempts = [False, True]
        for may_borrow in attempts:
            taken: Found = []
            for info, kind, lca in listed:
                if lca is not None and self._is_skipped(info, kind, lca, may_borrow):
                    continue
                self.state.remove(info.key)
                taken.append((info, _REASONS[kind]))
                if self.fits(may_borrow):
                    kept = self.fill_back(taken, may_borrow)
                    self.restore(kept)
                    return kept
            self.restore(taken)
        return []

    def _candidates(self) -> tuple[list, list, list]:
        own = [
            (info, "own", None)
            for info in self.queue.workloads.values()
            if self.satisfies(info, self.policy.within_queue)
        ]
        hierarchical: list = []
        by_priority: list = []
        remaining = dict(self.amounts)
        advantage, remaining = self._fit(self.node, remaining)
        visited = {self.node}
        if self.policy.reclaim_within_cohort is not Victims.NEVER:
            for cohort in self.node.ancestors():
                for queue in self._borrowers(cohort, visited):
                    for info in queue.workloads.values():
                        if self.satisfies(info, self.policy.reclaim_within_cohort):
                            kind = "hierarchical" if advantage else self._kind(info)
                            (hierarchical if advantage else by_priority).append((info, kind, cohort))
                fits, remaining = self._fit(cohort, remaining)
                advantage = advantage or fits
                visited.add(cohort)
        groups = (hierarchical, by_priority, own)
        for group in groups:
            group.sort(key=lambda entry: self.order(entry[0]))
        return groups

    def _fit(self, node: Node, amounts: dict) -> tuple[bool, dict]:
        fits = all(node.used(what) + amount <= node.owned(what) for what, amount in amounts.items())
        return fits, {what: max(0, amount - node.local_available(what)) for what, amount in amounts.items()}

    def _borrowers(self, cohort: Node, visited: set[Node]) -> Iterator[QueueState]:
        for child in cohort.children:
            if child in visited or all(child.used(what) <= child.owned(what) for what in self.needing):
                continue
            if child.is_queue:
                yield self.state.queues[child.name]
            else:
                yield from self._borrowers(child, visited)

    def _kind(self, info: WorkloadInfo) -> str:
        threshold = self.policy.max_priority_threshold
        if self.policy.borrow_within_cohort is Victims.NEVER or info.priority >= self.info.priority:
            return "without borrowing"
        return "without borrowing" if threshold is not None and info.priority > threshold else "while borrowing"

    def _is_skipped(self, info: WorkloadInfo, kind: str, lca: Node, may_borrow: bool) -> bool:
        if may_borrow and kind == "without borrowing":
            return True
        node: Node | None = self.state.queues[info.queue].node
        while node is not None and node is not lca:
            if all(node.used(what) <= node.owned(what) for what in self.needing):
                return True
            node = node.parent
        return False

    # Fair sharing

    def fair(self) -> Found:
        assert self.state.settings.fair_sharing is not None
        rules = self.state.settings.fair_sharing.rules or (ShareRule.FINAL, ShareRule.INITIAL)
        candidates = sorted(self._fair_candidates(), key=self.order)
        self.node.add_all(self.amounts)
        taken: Found = []
        is_enough, retried = self._first(candidates, rules[0], taken)
        if not is_enough and len(rules) > 1:
            is_enough = self._second(retried, taken)
        self.node.remove_all(self.amounts)
        kept = self.fill_back(taken, True) if is_enough else taken
        self.restore(kept)
        return kept if is_enough else []

    def _fair_candidates(self) -> Iterator[WorkloadInfo]:
        for node in self.queue.node.root().queues():
            queue = self.state.queues[node.name]
            if queue is self.queue:
                policy = self.policy.within_queue
            elif any(queue.node.used(what) > queue.node.nominal(what) for what in self.needing):
                policy = self.policy.reclaim_within_cohort
            else:
                continue
            yield from (info for info in queue.workloads.values() if self.satisfies(info, policy))

    def _first(self, candidates: list[WorkloadInfo], rule: ShareRule, taken: Found) -> tuple[bool, list[WorkloadInfo]]:
        left, retried = list(candidates), []
        is_within = all(self.node.used(what) <= self.node.nominal(what) for what in self.needing)
        while (target := self._next(left)) is not None:
            mine = [info for info in left if info.queue == target.name]
            if target is self.node or is_within:
                left.remove(mine[0])
                reason = "InClusterQueue" if target is self.node else "InCohortReclamation"
                if self._take(mine[0], reason, taken):
                    return True, []
                continue
            for info in mine:
                left.remove(info)
                ours, theirs = self._sides(target)
                share, old = share_of(ours), share_of(theirs)
                target.remove_all(info.usage.quota)
                new = share_of(theirs)
                target.add_all(info.usage.quota)
                if share <= new if rule is ShareRule.FINAL else share < old:
                    if self._take(info, "InCohortFairSharing", taken):
                        return True, []
                    break
                retried.append(info)
        return False, retried

    def _second(self, retried: list[WorkloadInfo], taken: Found) -> bool:
        left = list(retried)
        while (target := self._next(left)) is not None:
            first = next(info for info in left if info.queue == target.name)
            ours, theirs = self._sides(target)
            if share_of(ours) < share_of(theirs) and self._take(first, "InCohortFairSharing", taken):
                return True
            left = [info for info in left if info.queue != target.name]
        return False

    def _take(self, info: WorkloadInfo, reason: str, taken: Found) -> bool:
        self.state.remove(info.key)
        taken.append((info, reason))
        self.node.remove_all(self.amounts)
        fits = self.fits(True)
        self.node.add_all(self.amounts)
        return fits

    def _next(self, left: list[WorkloadInfo]) -> Node | None:
        if self.node.parent is None:
            return self.node if left else None
        return self._below(self.node.root(), left)

    def _below(self, cohort: Node, left: list[WorkloadInfo]) -> Node | None:
        """Tries the children from the highest share down, instead of pruning and starting over."""
        queues = [
            child
            for child in cohort.children
            if child.is_queue
            and any(info.queue == child.name for info in left)
            and (child is self.node or share_of(child).borrowed)
        ]
        cohorts = [
            child
            for child in cohort.children
            if not child.is_queue and (child in self.node.ancestors() or share_of(child).borrowed)
        ]
        best: Node | None = None
        for child in queues:
            first = self.order(next(info for info in left if info.queue == child.name))
            if best is None or share_of(child) > share_of(best):
                best = child
            elif share_of(child) == share_of(best):
                held, name = best, best.name
                other = self.order(next(info for info in left if info.queue == name))
                best = child if first < other else held
        for child in sorted(cohorts, key=lambda child: child.name):
            found = self._below(child, left)
            if found is None:
                continue
            others = [node for node in cohorts if node.name < child.name and self._below(node, left) is not None]
            is_highest = all(share_of(child) > share_of(node) for node in others) and all(
                share_of(child) >= share_of(node)
                for node in cohorts
                if node.name > child.name and self._below(node, left) is not None
            )
            if is_highest and (best is None or share_of(child) >= share_of(best)):
                return found
        return best

    def _sides(self, target: Node) -> tuple[Node, Node]:
        ours, theirs = [self.node, *self.node.ancestors()], [target, *target.ancestors()]
        lca = next(node for node in ours if node in theirs)
        return ours[ours.index(lca) - 1], theirs[theirs.index(lca) - 1]


_REASONS = {
    "own": "InClusterQueue",
    "hierarchical": "InCohortReclamation",
    "without borrowing": "InCohortReclamation",
    "while borrowing": "InCohortReclaimWhileBorrowing",
}
