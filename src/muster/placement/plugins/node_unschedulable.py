"""NodeUnschedulable: keeps pods off cordoned nodes, unless they tolerate the taint that a cordon stands for."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from muster.api import core
from muster.api.meta import Resource
from muster.cluster.pods import PodInfo
from muster.cluster.state import ClusterState
from muster.placement.framework import (
    SKIP,
    Action,
    Filter,
    Hint,
    PreFilter,
    Prepared,
    Reads,
    Rejection,
    Wake,
    Wakes,
)
from muster.placement.plugins import changes
from muster.placement.plugins.taint_toleration import tolerates

REASON = "node(s) were unschedulable"
CORDON = core.Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")


@dataclass(frozen=True, slots=True)
class NodeUnschedulable:
    name: ClassVar[str] = "NodeUnschedulable"
    reads: ClassVar[Reads] = Reads.NODES
    resize_preemption: bool = False
    """Pods that wait for a resize on their own node are not judged again."""

    def pre_filter(self, pod: PodInfo, cluster: ClusterState) -> Prepared:
        return Prepared(SKIP) if self.resize_preemption and pod.has_deferred_resize else Prepared()

    def filter(self, pod: PodInfo, cluster: ClusterState, state: object) -> Sequence[Rejection]:
        if (self.resize_preemption and pod.has_deferred_resize) or _tolerates_cordon(pod.spec.tolerations):
            return ()
        cordoned = cluster.unschedulable[: cluster.width]
        return (Rejection(REASON, cordoned.copy(), is_unresolvable=True),) if cordoned.any() else ()

    def wakes(self) -> Sequence[Wake]:
        return (
            Wake("Node", frozenset({Action.ADD, Action.UPDATE_NODE_TAINT}), after_node_change),
            Wake("UnscheduledPod", frozenset({Action.UPDATE_POD_TOLERATION}), after_toleration_change),
        )


def after_toleration_change(_pod: PodInfo, old: Resource | None, new: Resource | None, _cluster: ClusterState) -> Hint:
    _, pod = changes.after(core.Pod, old, new)
    return Hint.QUEUE if _tolerates_cordon(pod.spec.tolerations) else Hint.SKIP


def after_node_change(_pod: PodInfo, old: Resource | None, new: Resource | None, _cluster: ClusterState) -> Hint:
    before, node = changes.after(core.Node, old, new)
    was_open = before is not None and not before.spec.unschedulable
    return Hint.QUEUE if not node.spec.unschedulable and not was_open else Hint.SKIP


def _tolerates_cordon(tolerations: Sequence[core.Toleration]) -> bool:
    """The cordon has no value, so no toleration that compares numbers matches it."""
    return any(tolerates(one, CORDON) for one in tolerations)


_: Filter = NodeUnschedulable()
_pre_filter: PreFilter = NodeUnschedulable()
_wakes: Wakes = NodeUnschedulable()
