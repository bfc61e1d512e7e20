"""GpuShares: keeps pods off nodes where their GPUs cannot be had as single devices: a share must fit within one GPU,
and whole GPUs must be used by nobody. That a node has enough whole GPUs by number is for NodeResourcesFit to say."""

from collections.abc import Iterator, Sequence
from typing import ClassVar

import numpy as np

from muster.api import core
from muster.api.meta import Resource
from muster.cluster.amounts import GPU, GPU_MILLI, WHOLE_GPU
from muster.cluster.columns import NodeMask
from muster.cluster.devices import NOTHING, wants
from muster.cluster.pods import PodInfo, read_share
from muster.cluster.state import ClusterState
from muster.placement.framework import (
    SKIP,
    Action,
    AtOneNode,
    Code,
    Filter,
    Hint,
    PreFilter,
    Prepared,
    Reads,
    Rejection,
    Status,
    Wake,
    Wakes,
)
from muster.placement.plugins.resource_hints import expect


class GpuShares:
    name: ClassVar[str] = "GpuShares"
    reads: ClassVar[Reads] = Reads.NODE_PODS

    def pre_filter(self, pod: PodInfo, cluster: ClusterState) -> Prepared:
        text = pod.shape.gpu_share
        if text and read_share(text) is None:
            return _refused(
                f'annotation {GPU_MILLI}: "{text[:40]}" is not a number of thousandths of one GPU, 1 to {WHOLE_GPU}'
            )
        wanted = wants(pod)
        if wanted.share > WHOLE_GPU:
            return _refused(f"{GPU_MILLI}: {wanted.share} is more than one GPU ({WHOLE_GPU}); ask for {GPU} instead")
        return Prepared(SKIP) if wanted is NOTHING else Prepared()

    def filter(self, pod: PodInfo, cluster: ClusterState, state: object) -> Sequence[Rejection]:
        width, wanted = cluster.width, wants(pod)
        free, count = cluster.devices.free(width), cluster.devices.counts(width)
        unused = (free == WHOLE_GPU).sum(axis=0)
        found: list[Rejection] = []
        if wanted.whole:
            taken: NodeMask = (unused < wanted.whole) & _is_enough_by_number(pod, cluster)
            found += _rejections(GPU if GPU in pod.needs else GPU_MILLI, taken, count < wanted.whole)
        if wanted.share:
            opened = ((free >= wanted.share) & (free < WHOLE_GPU)).any(axis=0)
            short: NodeMask = np.logical_not(opened | (unused > wanted.whole))
            found += _rejections(GPU_MILLI, short, count <= wanted.whole)
        return found

    def fits_at(self, pod: PodInfo, cluster: ClusterState, state: object, node: int) -> bool:
        whole, share = wants(pod)
        free = cluster.devices.free_at(node)
        unused = free.count(WHOLE_GPU)
        if unused < whole and _is_enough_by_number_at(pod, cluster, node):
            return False
        return not share or unused > whole or any(share <= milli < WHOLE_GPU for milli in free)

    def score_at(self, pod: PodInfo, cluster: ClusterState, state: object, node: int) -> int:
        return 0

    def wakes(self) -> Sequence[Wake]:
        return (
            Wake("Pod", frozenset({Action.DELETE}), self._after_pod_deleted),
            Wake("Node", frozenset({Action.ADD, Action.UPDATE_NODE_ALLOCATABLE})),
        )

    def _after_pod_deleted(
        self, pod: PodInfo, old: Resource | None, new: Resource | None, cluster: ClusterState
    ) -> Hint:
        gone = expect(core.Pod, old)
        if gone is None or not gone.spec.node_name:
            return Hint.SKIP
        asked = core.pod_requests(gone.spec)
        had_gpus = asked.get(GPU) or asked.get(GPU_MILLI) or (gone.metadata.annotations or {}).get(GPU_MILLI)
        return Hint.QUEUE if had_gpus else Hint.SKIP


def _refused(reason: str) -> Prepared:
    return Prepared(Status(Code.UNRESOLVABLE, (reason,)))


def _is_enough_by_number(pod: PodInfo, cluster: ClusterState) -> NodeMask:
    """Nodes that NodeResourcesFit lets pass, as far as whole GPUs are concerned."""
    row, wanted = cluster.resources.get(GPU), pod.needs.get(GPU, 0)
    if row is None or not wanted:
        return cluster.mask(not wanted)
    fits: NodeMask = cluster.allocatable[row, : cluster.width] - cluster.used[row, : cluster.width] >= wanted
    return fits


def _is_enough_by_number_at(pod: PodInfo, cluster: ClusterState, node: int) -> bool:
    row, wanted = cluster.resources.get(GPU), pod.needs.get(GPU, 0)
    if row is None or not wanted:
        return not wanted
    return bool(cluster.allocatable.item(row, node) - cluster.used.item(row, node) >= wanted)


def _rejections(resource: str, short: NodeMask, beyond: NodeMask) -> Iterator[Rejection]:
    """`beyond`: nodes that would be short also if they were empty."""
    for mask, is_unresolvable in ((short & np.logical_not(beyond), False), (short & beyond, True)):
        if mask.any():
            yield Rejection(f"Insufficient {resource}", mask, is_unresolvable)


_PLUGIN = GpuShares()
_pre_filter: PreFilter = _PLUGIN
_filter: Filter = _PLUGIN
_at_one_node: AtOneNode = _PLUGIN
_wakes: Wakes = _PLUGIN
