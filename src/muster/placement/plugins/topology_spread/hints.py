"""Which changes may make room for a pod that hard constraints keep from being placed."""

from collections.abc import Mapping, Sequence

from muster.api import core
from muster.api.meta import Resource
from muster.cluster.pods import PodInfo
from muster.placement.framework import Hint
from muster.placement.plugins import changes
from muster.placement.plugins.topology_spread.constraints import Constraint


def after_assigned_pod(
    pod: PodInfo, constraints: Sequence[Constraint], old: Resource | None, new: Resource | None
) -> Hint:
    """A pod that is on a node, or is promised one, came, went or has other labels."""
    before, after = changes.both(core.Pod, old, new)
    if not all(_takes_part(found, pod) for found in (before, after) if found is not None):
        return Hint.SKIP
    if before is not None and after is not None:
        return _queue_if(_selects_otherwise(constraints, before, after))
    return _queue_if(any(_selects(constraint, after or before) for constraint in constraints))


def after_own_update(constraints: Sequence[Constraint], old: Resource | None, new: Resource | None) -> Hint:
    """The pod itself has other tolerations or labels."""
    before, after = changes.both(core.Pod, old, new)
    if before is None or after is None:
        return Hint.SKIP
    tolerates_otherwise = before.spec.tolerations != after.spec.tolerations
    if tolerates_otherwise and any(constraint.honors_taints for constraint in constraints):
        return Hint.QUEUE
    return _queue_if(_selects_otherwise(constraints, before, after))


def after_node(constraints: Sequence[Constraint], old: Resource | None, new: Resource | None) -> Hint:
    """A node came, went, or has other labels or taints. It matters if it has labels for all the topologies."""
    before, after = changes.both(core.Node, old, new)
    had, has = _domains(before, constraints), _domains(after, constraints)
    if before is None or after is None:
        return _queue_if(had is not None or has is not None)
    if had != has:
        return Hint.QUEUE
    return _queue_if(has is not None and before.spec.taints != after.spec.taints)


def _takes_part(found: core.Pod, pod: PodInfo) -> bool:
    has_node = bool(found.spec.node_name or found.status.nominated_node_name)
    return has_node and found.metadata.namespace == pod.namespace


def _selects(constraint: Constraint, pod: core.Pod | None) -> bool:
    return pod is not None and constraint.selector.matches(_labels(pod))


def _selects_otherwise(constraints: Sequence[Constraint], before: core.Pod, after: core.Pod) -> bool:
    return any(_selects(constraint, before) is not _selects(constraint, after) for constraint in constraints)


def _domains(node: core.Node | None, constraints: Sequence[Constraint]) -> tuple[str, ...] | None:
    """Its value for each topology; None where it lacks one, or is not there."""
    if node is None:
        return None
    labels = _labels(node)
    values = tuple(labels.get(constraint.topology_key) for constraint in constraints)
    present = tuple(value for value in values if value is not None)
    return present if len(present) == len(values) else None


def _labels(found: Resource) -> Mapping[str, str]:
    return found.metadata.labels or {}


def _queue_if(helps: bool) -> Hint:
    return Hint.QUEUE if helps else Hint.SKIP
