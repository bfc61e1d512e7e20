"""What changed between two versions of a node or a pod, as far as a plugin could care."""

from collections.abc import Iterator

from muster.api import core
from muster.placement.framework import Action


def of_node(old: core.Node, new: core.Node) -> Iterator[Action]:
    if old.status.allocatable != new.status.allocatable:
        yield Action.UPDATE_NODE_ALLOCATABLE
    if old.metadata.labels != new.metadata.labels:
        yield Action.UPDATE_NODE_LABEL
    if old.spec.taints != new.spec.taints or old.spec.unschedulable != new.spec.unschedulable:
        yield Action.UPDATE_NODE_TAINT  # a cordon is a taint to Kubernetes, too
    if _conditions(old) != _conditions(new):
        yield Action.UPDATE_NODE_CONDITION


def matters(old: core.Node, new: core.Node) -> bool:
    """Whether anything changed that placement reads: heartbeats are not."""
    return any(of_node(old, new)) or old.status.images != new.status.images


def _conditions(node: core.Node) -> list[tuple[str, str]]:
    return [(condition.type, condition.status) for condition in node.status.conditions]


def of_pod(old: core.Pod, new: core.Pod) -> Iterator[Action]:
    if old.metadata.labels != new.metadata.labels:
        yield Action.UPDATE_POD_LABEL
    if old.spec.tolerations != new.spec.tolerations:
        yield Action.UPDATE_POD_TOLERATION
    if old.spec.scheduling_gates and not new.spec.scheduling_gates:
        yield Action.UPDATE_POD_GATES_ELIMINATED
    if old.spec != new.spec:  # most updates are reports, and quantities are dear to read
        before, after = core.pod_requests(old.spec), core.pod_requests(new.spec)
        if any(after.get(resource, 0) < amount for resource, amount in before.items()):
            yield Action.UPDATE_POD_SCALE_DOWN
        if any(before.get(resource, 0) < amount for resource, amount in after.items()):
            yield Action.UPDATE_POD_SCALE_UP
