"""Whether it is worth looking again at a workload that was looked at in vain: tests that are cheap, and never say no
where a look would find that it fits."""

from muster.quota.amounts import FlavorResource
from muster.quota.queues import Group, Queue, Strategy, Victims
from muster.quota.state import QueueState, QuotaState
from muster.quota.topology_requests import is_requested
from muster.quota.tree import Node
from muster.quota.workloads import WorkloadInfo


def may_fit(state: QuotaState, queue: QueueState, info: WorkloadInfo) -> bool:
    """False: of something it asks for, no flavor of the queue has enough left or none has the nodes for its pods, and
    nobody can be made to leave."""
    return has_room(state, queue, info) or _makes_way(queue.policy, info)


def has_room(state: QuotaState, queue: QueueState, info: WorkloadInfo) -> bool:
    """For all it asks for, as far as quota goes and the numbers of nodes."""
    return _has_quota(queue, info) and _has_nodes(state, queue, info)


def is_worth_a_look(state: QuotaState, queue: QueueState, head: WorkloadInfo) -> bool:
    """It has not been looked at, or may fit, or makes way for the next one. Where no head of a tree is, a cycle would
    decide nothing."""
    passes_by = queue.policy.strategy is Strategy.BEST_EFFORT
    return passes_by or head.scan is None or may_fit(state, queue, head)


def _makes_way(policy: Queue, info: WorkloadInfo) -> bool:
    """Others may have to leave for it, or it takes less than it asks for, or a place that it has already."""
    never = Victims.NEVER
    preempts = not (policy.within_queue is policy.reclaim_within_cohort is policy.borrow_within_cohort is never)
    return preempts or info.can_be_partial() or info.replaced_key is not None or info.has_reservation


def _has_quota(queue: QueueState, info: WorkloadInfo) -> bool:
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


def _has_nodes(state: QuotaState, queue: QueueState, info: WorkloadInfo) -> bool:
    """Checks may bring nodes of their own: where there are any, nothing can be told."""
    if queue.policy.checks:
        return True
    topologies = [found for name in queue.policy.flavors if (found := state.topologies.flavor(name)) is not None]
    return all(
        not is_requested(state, queue, pods.spec)
        or any(topology.may_hold(pods.count, pods.pod_requests()) for topology in topologies)
        for pods in info.pod_sets
    )
