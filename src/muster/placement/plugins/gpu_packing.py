"""GpuPacking: fills nodes that have GPUs one after another, so that whole nodes stay free for large gangs.

A pod that asks for GPUs prefers the node that has the fewest left when it is there, and takes an unused node only where
no other will do. A share of a GPU first of all prefers a GPU that is shared already. A pod that asks for none prefers
nodes without any, and then those whose GPUs are taken.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from muster.api import fields, raw
from muster.api.errors import FieldError
from muster.cluster.amounts import GPU, GPU_MILLI, WHOLE_GPU
from muster.cluster.columns import Amounts, NodeMask
from muster.cluster.devices import wants
from muster.cluster.pods import PodInfo
from muster.cluster.state import ClusterState
from muster.placement.framework import MAX_SCORE, SKIP, AtOneNode, NodeScores, Prepared, PreScore, Reads, Score
from muster.placement.plugins.resource_args import Reader

_WITHOUT_GPUS = MAX_SCORE
_GPUS_TAKEN = 50


class _Band(NamedTuple):
    """Scores for one way to serve a pod: `base + span` where nothing is left over, down to `base`."""

    base: int
    span: int


_UNUSED = _Band(0, 50)
_USED = _Band(51, 49)
_SHARE_UNUSED = _Band(0, 33)
_SHARE_NEW = _Band(34, 32)
_SHARE_OPENED = _Band(67, 33)


@dataclass(frozen=True, slots=True)
class GpuPackingArgs:
    resources: tuple[str, ...] = (GPU,)
    """Extended resources that are packed. Of several that a pod asks for, the first decides."""

    @classmethod
    def from_document(cls, document: Mapping[str, raw.JSON]) -> Self | list[FieldError]:
        read = Reader(document, ("resources",), "GpuPackingArgs")
        resources = read.texts("resources")
        for index, resource in enumerate(resources):
            path = f"resources[{index}]"
            read.errors += fields.qualified_name(path, resource)
            if "/" not in resource:
                read.errors.append(fields.invalid(path, resource, f"must be an extended resource, such as {GPU}"))
            elif resource == GPU_MILLI:
                read.errors.append(fields.invalid(path, resource, f"shares are packed together with {GPU}: name that"))
            if resource in resources[:index]:
                read.errors.append(fields.duplicate(path, resource))
        return read.errors or (cls(resources) if resources else cls())


class _Packing(NamedTuple):
    """What is packed for one pod. Amounts are thousandths."""

    resource: str
    """Empty for a pod that asks for nothing that is packed."""
    whole: int
    share: int
    scale: int
    """The most that any node has."""

    @property
    def wanted(self) -> int:
        return self.whole + self.share


_DEFAULTS = GpuPackingArgs()


class GpuPacking:
    name: ClassVar[str] = "GpuPacking"
    reads: ClassVar[Reads] = Reads.NODE_PODS

    def __init__(self, args: GpuPackingArgs = _DEFAULTS) -> None:
        self._args = args

    def pre_score(self, pod: PodInfo, cluster: ClusterState, feasible: NodeMask) -> Prepared:
        if not any(self._capacity(name, cluster)[feasible].any() for name in self._args.resources):
            return Prepared(SKIP)
        return Prepared(state=self._packing(pod, cluster))

    def score(self, pod: PodInfo, cluster: ClusterState, state: object) -> NodeScores:
        packing = state if isinstance(state, _Packing) else self._packing(pod, cluster)
        if not packing.resource:
            return self._avoid(cluster)
        capacity, free = self._capacity(packing.resource, cluster), self._free(packing.resource, cluster)
        left: Amounts = np.clip(free - packing.wanted, 0, packing.scale)
        is_unused: NodeMask = free >= capacity
        if not packing.share:
            scores = np.where(
                is_unused, _rated_all(_UNUSED, left, packing.scale), _rated_all(_USED, left, packing.scale)
            )
        else:
            new = _rated_all(_SHARE_NEW, left, packing.scale)
            scores = np.where(is_unused, _rated_all(_SHARE_UNUSED, left, packing.scale), new)
            opened = _least_left(cluster.devices.free(cluster.width), packing.share)
            scores = np.where(opened < WHOLE_GPU, _rated_all(_SHARE_OPENED, opened, WHOLE_GPU), scores)
        scores[capacity == 0] = 0
        return scores

    def fits_at(self, pod: PodInfo, cluster: ClusterState, state: object, node: int) -> bool:
        return True

    def score_at(self, pod: PodInfo, cluster: ClusterState, state: object, node: int) -> int:
        packing = state if isinstance(state, _Packing) else self._packing(pod, cluster)
        if not packing.resource:
            return self._avoid_at(cluster, node)
        capacity, free = self._at(packing.resource, cluster, node)
        if not capacity:
            return 0
        left = min(max(free - packing.wanted, 0), packing.scale)
        if not packing.share:
            return _rated(_UNUSED if free >= capacity else _USED, left, packing.scale)
        opened = [milli for milli in cluster.devices.free_at(node) if packing.share <= milli < WHOLE_GPU]
        if opened:
            return _rated(_SHARE_OPENED, min(opened) - packing.share, WHOLE_GPU)
        return _rated(_SHARE_UNUSED if free >= capacity else _SHARE_NEW, left, packing.scale)

    def _packing(self, pod: PodInfo, cluster: ClusterState) -> _Packing:
        for resource in self._args.resources:
            whole, share = wants(pod) if resource == GPU else (pod.needs.get(resource, 0), 0)
            if whole or share:
                scale = max(int(self._capacity(resource, cluster).max(initial=0)), 1)
                return _Packing(resource, whole * WHOLE_GPU, share, scale)
        return _Packing("", 0, 0, 1)

    def _capacity(self, resource: str, cluster: ClusterState) -> Amounts:
        row, width = cluster.resources.get(resource), cluster.width
        if resource == GPU:
            return cluster.devices.counts(width) * WHOLE_GPU
        return np.zeros(width, dtype=np.int64) if row is None else cluster.allocatable[row, :width] * WHOLE_GPU

    def _free(self, resource: str, cluster: ClusterState) -> Amounts:
        row, width = cluster.resources.get(resource), cluster.width
        if resource == GPU:
            free: Amounts = cluster.devices.free(width).sum(axis=0, dtype=np.int64)
            return free
        if row is None:
            return np.zeros(width, dtype=np.int64)
        return (cluster.allocatable[row, :width] - cluster.used[row, :width]) * WHOLE_GPU

    def _at(self, resource: str, cluster: ClusterState, node: int) -> tuple[int, int]:
        """(capacity, free) of one node."""
        if resource == GPU:
            free = cluster.devices.free_at(node)
            return len(free) * WHOLE_GPU, sum(free)
        row = cluster.resources.get(resource)
        if row is None:
            return 0, 0
        capacity = cluster.allocatable.item(row, node)
        return capacity * WHOLE_GPU, (capacity - cluster.used.item(row, node)) * WHOLE_GPU

    def _avoid(self, cluster: ClusterState) -> NodeScores:
        capacity = sum((self._capacity(name, cluster) for name in self._args.resources), np.int64(0))
        free = sum((np.maximum(self._free(name, cluster), 0) for name in self._args.resources), np.int64(0))
        taken = (capacity - free) * _GPUS_TAKEN // np.maximum(capacity, 1)
        scores: NodeScores = np.where(capacity == 0, _WITHOUT_GPUS, taken)
        return scores

    def _avoid_at(self, cluster: ClusterState, node: int) -> int:
        capacity = free = 0
        for name in self._args.resources:
            had, left = self._at(name, cluster, node)
            capacity, free = capacity + had, free + max(left, 0)
        return (capacity - free) * _GPUS_TAKEN // capacity if capacity else _WITHOUT_GPUS


def _least_left(free: npt.NDArray[np.int16], share: int) -> Amounts:
    """What the best of a node's GPUs in use would have left with the share; WHOLE_GPU where none can take it."""
    taking = np.where((free >= share) & (free < WHOLE_GPU), free - share, WHOLE_GPU)
    least: Amounts = taking.min(axis=0).astype(np.int64)
    return least


def _rated_all(band: _Band, left: Amounts, scale: int) -> Amounts:
    return band.base + band.span - left * band.span // scale


def _rated(band: _Band, left: int, scale: int) -> int:
    return band.base + band.span - left * band.span // scale


_PLUGIN = GpuPacking()
_pre_score: PreScore = _PLUGIN
_score: Score = _PLUGIN
_at_one_node: AtOneNode = _PLUGIN
