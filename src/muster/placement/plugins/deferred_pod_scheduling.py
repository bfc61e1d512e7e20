"""DeferredPodScheduling: a running pod whose resize its node had to defer is judged again on that node alone, so that
preemption can make room; it is never bound anew. Does nothing unless switched on."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from muster.api import core, raw
from muster.api.meta import Resource
from muster.cluster.pods import PodInfo
from muster.cluster.state import ClusterState
from muster.placement.framework import (
    SKIP,
    SUCCESS,
    Action,
    Code,
    Filter,
    Hint,
    Permit,
    PreFilter,
    Prepared,
    Reads,
    Rejection,
    Status,
    Wake,
    Wakes,
)
from muster.placement.plugins import changes

REASON_DISABLED = "node had resize preemption disabled"
REASON_ELSEWHERE = "pod assigned to different node"
REASON_FITS = "pod resize fits, waiting for Kubelet actuation"


@dataclass(frozen=True, slots=True)
class DeferredPodScheduling:
    name: ClassVar[str] = "DeferredPodScheduling"
    reads: ClassVar[Reads] = Reads.NODES
    resize_preemption: bool = False

    def pre_filter(self, pod: PodInfo, cluster: ClusterState) -> Prepared:
        return Prepared() if self._concerns(pod) else Prepared(SKIP)

    def filter(self, pod: PodInfo, cluster: ClusterState, state: object) -> Sequence[Rejection]:
        """Only the pod's own node is looked at: a pod that waits for a resize has one."""
        if not self._concerns(pod):
            return ()
        slot = cluster.slots.get(pod.spec.node_name or "")
        elsewhere = cluster.mask(True)
        if slot is None:
            return (Rejection(REASON_ELSEWHERE, elsewhere, is_unresolvable=True),)
        elsewhere[slot] = False
        rejections = [Rejection(REASON_ELSEWHERE, elsewhere, is_unresolvable=True)]
        node = cluster.nodes[slot]
        if node is not None and _refuses(node):
            rejections.append(Rejection(REASON_DISABLED, ~elsewhere, is_unresolvable=True))
        return rejections

    def permit(self, pod: PodInfo, node: str) -> tuple[Status, float]:
        """There is nothing to bind: the pod waits, unschedulable, until its node's agent has resized it."""
        return (Status(Code.UNRESOLVABLE, (REASON_FITS,)) if self._concerns(pod) else SUCCESS), 0.0

    def wakes(self) -> Sequence[Wake]:
        return (
            Wake("Node", frozenset({Action.UPDATE_NODE_PREEMPTION_POLICY}), self.after_node_change),
            Wake("Node", frozenset({Action.ADD}), self.after_node_added),
        )

    def after_node_change(
        self, pod: PodInfo, old: Resource | None, new: Resource | None, _cluster: ClusterState
    ) -> Hint:
        if not self._concerns(pod):
            return Hint.SKIP
        before, node = changes.after(core.Node, old, new)
        if before is None:
            raise TypeError("wanted the Node as it was, found none")
        allows_now = _refuses(before) and not _refuses(node)
        return Hint.QUEUE if node.metadata.name == pod.spec.node_name and allows_now else Hint.SKIP

    def after_node_added(
        self, pod: PodInfo, old: Resource | None, new: Resource | None, _cluster: ClusterState
    ) -> Hint:
        if not self._concerns(pod):
            return Hint.SKIP
        _, node = changes.after(core.Node, old, new)
        return Hint.QUEUE if node.metadata.name == pod.spec.node_name and not _refuses(node) else Hint.SKIP

    def _concerns(self, pod: PodInfo) -> bool:
        return self.resize_preemption and pod.has_deferred_resize


def _refuses(node: core.Node) -> bool:
    """Somebody has asked that pods on this node are not evicted for the resize of others."""
    return bool(raw.dig(node.spec.pod_preemption_policy or {}, "disableResizePreemption", default=None))


_: Filter = DeferredPodScheduling()
_pre_filter: PreFilter = DeferredPodScheduling()
_permit: Permit = DeferredPodScheduling()
_wakes: Wakes = DeferredPodScheduling()
