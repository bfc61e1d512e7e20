"""Whether room that was made may help a workload that has been looked at in vain: a test that is cheap, and never says
no where a look would find that it fits."""

from muster.quota.amounts import FlavorResource
from muster.quota.queues import Queue, Victims
from muster.quota.state import QueueState
from muster.quota.workloads import WorkloadInfo


def may_fit(queue: QueueState, info: WorkloadInfo) -> bool:
    """False: of something it asks for, no flavor of the queue has enough left, and nobody can be made to leave. (Places
    in a topology are not looked at: there may be none where quota is.)"""
    if _preempts(queue.policy) or info.can_be_partial() or info.replaced_key is not None:
        return True
    by_resource, node = queue.policy.by_resource, queue.node
    for pods in info.pod_sets:
        for resource, value in pods.requests.items():
            group = by_resource.get(resource)
            if group is not None and all(
                node.available(FlavorResource(flavor, resource)) < value for flavor in group.flavors
            ):
                return False
    return True


def _preempts(policy: Queue) -> bool:
    rules = (policy.within_queue, policy.reclaim_within_cohort, policy.borrow_within_cohort)
    return any(rule is not Victims.NEVER for rule in rules)
