"""NodePorts: a pod that claims ports of its node goes where they are free."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from muster.api import core
from muster.api.meta import Resource
from muster.cluster.pods import PodInfo
from muster.cluster.ports import host_ports, host_ports_of
from muster.cluster.state import ClusterState
from muster.placement.framework import (
    SKIP,
    Action,
    AtOneNode,
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

REASON = "node(s) didn't have free ports for the requested pod ports"


@dataclass(frozen=True, slots=True)
class NodePorts:
    name: ClassVar[str] = "NodePorts"
    reads: ClassVar[Reads] = Reads.NODE_PODS
    resize_preemption: bool = False
    """Pods that wait for a resize hold their ports already, and are not judged again."""

    def pre_filter(self, pod: PodInfo, cluster: ClusterState) -> Prepared:
        return Prepared() if self._claims(pod) else Prepared(SKIP)

    def filter(self, pod: PodInfo, cluster: ClusterState, state: object) -> Sequence[Rejection]:
        if not self._claims(pod):
            return ()
        taken = cluster.ports.conflicting(host_ports(pod), cluster.width)
        return () if taken is None else (Rejection(REASON, taken),)

    def fits_at(self, pod: PodInfo, cluster: ClusterState, state: object, node: int) -> bool:
        return not self._claims(pod) or not cluster.ports.conflicts_at(host_ports(pod), node)

    def score_at(self, pod: PodInfo, cluster: ClusterState, state: object, node: int) -> int:
        return 0  # it scores nothing

    def wakes(self) -> Sequence[Wake]:
        return (
            Wake("Pod", frozenset({Action.DELETE}), after_pod_deleted),
            Wake("Node", frozenset({Action.ADD})),
        )

    def _claims(self, pod: PodInfo) -> bool:
        return bool(host_ports(pod)) and not (self.resize_preemption and pod.has_deferred_resize)


def after_pod_deleted(pod: PodInfo, old: Resource | None, _new: Resource | None, _cluster: ClusterState) -> Hint:
    gone, _ = changes.both(core.Pod, old, None)
    if gone is None or not gone.spec.node_name:
        return Hint.SKIP
    freed = host_ports_of(gone.spec)
    return Hint.QUEUE if any(port.conflicts(other) for port in host_ports(pod) for other in freed) else Hint.SKIP


_: Filter = NodePorts()
_pre_filter: PreFilter = NodePorts()
_at_one_node: AtOneNode = NodePorts()
_wakes: Wakes = NodePorts()
