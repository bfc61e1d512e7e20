"""Whether it is worth looking again at a workload that was looked at in vain: tests that are cheap, and never say no
where a look would find that it fits."""

from heapq import nlargest
from operator import itemgetter
from typing import TypeAlias

from muster.quota.amounts import FlavorResource
from muster.quota.flavors import only_choice
from muster.quota.queues import Group, Strategy, Victims
from muster.quota.shares import share_of
from muster.quota.state import QueueState, QuotaState
from muster.quota.topology_requests import is_requested
from muster.quota.tree import Node
from muster.quota.workloads import WorkloadInfo

Order: TypeAlias = tuple[float, float]
"""Of shares."""


class Borrowers:
    """Of each cohort, who borrows most. To be asked while nothing changes."""

    def __init__(self) -> None:
        self._known: dict[Node, list[tuple[Order, Node]]] = {}

    def most_beside(self, node: Node) -> Order | None:
        """The highest share of a sibling; None where none of them borrows."""
        assert node.parent is not None
        found = self._known.get(node.parent)
        if found is None:
            shares = ((share_of(child), child) for child in node.parent.children)
            borrowing = ((share.order, child) for share, child in shares if share.borrowed)
            found = self._known[node.parent] = nlargest(2, borrowing, key=itemgetter(0))
        return next((order for order, child in found if child is not node), None)


def may_make_do(state: QuotaState, queue: QueueState, info: WorkloadInfo, borrowers: Borrowers) -> bool:
    """False: where there is no room for all of it, it cannot do with less, and nobody can be made to leave."""
    if info.can_be_partial() or info.replaced_key is not None or info.has_reservation:
        return True
    return _may_preempt(state, queue, info, borrowers)


def is_news(queue: QueueState, head: WorkloadInfo) -> bool:
    """It has not been looked at, or it will make way for the next one."""
    return queue.policy.strategy is Strategy.BEST_EFFORT or not head.was_seen


def _may_preempt(state: QuotaState, queue: QueueState, info: WorkloadInfo, borrowers: Borrowers) -> bool:
    """Under fair sharing, only where with it the queue, or the cohort that is to gain, borrows no more than another."""
    policy, never = queue.policy, Victims.NEVER
    if policy.within_queue is policy.reclaim_within_cohort is policy.borrow_within_cohort is never:
        return False
    wanted = only_choice(info, policy)
    if state.settings.fair_sharing is None or policy.within_queue is not never or wanted is None:
        return True
    path = [node for node in (queue.node, *queue.node.ancestors()) if node.parent is not None]
    most = [borrowers.most_beside(node) for node in path]
    queue.node.add_all(wanted)
    is_possible = any(
        theirs is not None and share_of(ours).order <= theirs for ours, theirs in zip(path, most, strict=True)
    )
    queue.node.remove_all(wanted)
    return is_possible


def has_quota(queue: QueueState, info: WorkloadInfo) -> bool:
    """False: of something it asks for, no flavor of the queue has enough left."""
    for pods in info.pod_sets:
        for resource, value in pods.requests.items():
            group = queue.policy.by_resource.get(resource)
            if group is not None and not _has_any(queue.node, group, resource, value):
                return False
    return True


def _has_any(node: Node, group: Group, resource: str, value: int) -> bool:
    for flavor in group.flavors:  # noqa: SIM110 - asked of everybody who waits
        if node.available(FlavorResource(flavor, resource)) >= value:
            return True
    return False


def has_nodes(state: QuotaState, queue: QueueState, info: WorkloadInfo) -> bool:
    """False: no flavor of the queue has the nodes for its pods. Checks may bring nodes of their own: where there are
    any, nothing can be told."""
    if queue.policy.checks:
        return True
    topologies = [found for name in queue.policy.flavors if (found := state.topologies.flavor(name)) is not None]
    return all(
        not is_requested(state, queue, pods.spec)
        or any(topology.may_hold(pods.count, pods.pod_requests()) for topology in topologies)
        for pods in info.pod_sets
    )
