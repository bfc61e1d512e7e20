"""NodeName: a pod that names its node goes nowhere else."""

from collections.abc import Sequence
from typing import ClassVar

from muster.api import core
from muster.api.meta import Resource
from muster.cluster.columns import NodeMask
from muster.cluster.pods import PodInfo
from muster.cluster.state import ClusterState
from muster.placement.framework import Action, Filter, Hint, PreFilter, Prepared, Reads, Rejection, Wake, Wakes
from muster.placement.plugins import changes

REASON = "node(s) didn't match the requested node name"


class NodeName:
    name: ClassVar[str] = "NodeName"
    reads: ClassVar[Reads] = Reads.NODES

    def pre_filter(self, pod: PodInfo, cluster: ClusterState) -> Prepared:
        return Prepared(nodes=_named(pod.spec.node_name, cluster)) if pod.spec.node_name else Prepared()

    def filter(self, pod: PodInfo, cluster: ClusterState, state: object) -> Sequence[Rejection]:
        if not pod.spec.node_name:
            return ()
        return (Rejection(REASON, ~_named(pod.spec.node_name, cluster), is_unresolvable=True),)

    def wakes(self) -> Sequence[Wake]:
        return (Wake("Node", frozenset({Action.ADD}), after_node_added),)


def after_node_added(pod: PodInfo, old: Resource | None, new: Resource | None, _cluster: ClusterState) -> Hint:
    _, node = changes.after(core.Node, old, new)
    return Hint.QUEUE if node.metadata.name == pod.spec.node_name else Hint.SKIP


def _named(name: str, cluster: ClusterState) -> NodeMask:
    mask = cluster.mask()
    slot = cluster.slots.get(name)
    if slot is not None:
        mask[slot] = True
    return mask


_: Filter = NodeName()
_pre_filter: PreFilter = NodeName()
_wakes: Wakes = NodeName()
