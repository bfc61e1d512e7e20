"""NodeResourcesBalancedAllocation: prefers nodes whose resources the pod makes more evenly used.

The measure is the standard deviation of the used shares, with the pod and without it. A pod that asks for nothing
changes no balance, and is not scored: else many such would all go to the one best balanced node.
"""

import math
from collections.abc import Iterable
from typing import ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt

from muster.cluster.amounts import requests_in
from muster.cluster.columns import NodeMask
from muster.cluster.pods import PodInfo
from muster.cluster.state import ClusterState
from muster.placement.framework import MAX_SCORE, SKIP, AtOneNode, NodeScores, Prepared, PreScore, Reads, Score
from muster.placement.plugins import resource_scores
from muster.placement.plugins.resource_args import NodeResourcesBalancedAllocationArgs
from muster.placement.plugins.resource_scores import Asking

Shares: TypeAlias = npt.NDArray[np.float64]
"""Of one resource that is used, 0..1, for each node."""

_HALF = MAX_SCORE // 2
_DEFAULTS = NodeResourcesBalancedAllocationArgs()


class NodeResourcesBalancedAllocation:
    name: ClassVar[str] = "NodeResourcesBalancedAllocation"
    reads: ClassVar[Reads] = Reads.NODE_PODS

    def __init__(
        self, args: NodeResourcesBalancedAllocationArgs = _DEFAULTS, *, pod_level_resources: bool = True
    ) -> None:
        self._args = args
        self._pod_level = pod_level_resources
        self._key = f"{self.name} {args} {pod_level_resources}"

    def pre_score(self, pod: PodInfo, cluster: ClusterState, feasible: NodeMask) -> Prepared:
        asked = self._asking(pod)
        if not any(resource.amount for resource in asked):
            return Prepared(SKIP)
        return Prepared(state=asked)

    def score(self, pod: PodInfo, cluster: ClusterState, state: object) -> NodeScores:
        before: list[Shares] = []
        after: list[Shares] = []
        present: list[NodeMask] = []
        for resource in self._asking(pod):
            found = resource_scores.usage(cluster, resource)
            if found is None:
                continue
            capacity = np.maximum(found.allocatable, 1).astype(np.float64)
            before.append(_shares(found.allocated.astype(np.float64), capacity))
            after.append(_shares((found.allocated + resource.amount).astype(np.float64), capacity))
            present.append(found.allocatable > 0)
        gained = _balance(after, present, cluster) - _balance(before, present, cluster)
        gained += _HALF
        gained //= 2
        gained += _HALF
        return gained

    def fits_at(self, pod: PodInfo, cluster: ClusterState, state: object, node: int) -> bool:
        return True

    def score_at(self, pod: PodInfo, cluster: ClusterState, state: object, node: int) -> int:
        rows, allocatable, used = cluster.resources, cluster.allocatable, cluster.used
        before, after = [], []
        for name, amount, _, _ in self._asking(pod):
            row = rows.get(name)
            if row is None:
                continue
            capacity = allocatable.item(row, node)
            if capacity <= 0:
                continue
            allocated = used.item(row, node)
            share = allocated / capacity
            before.append(share if share < 1.0 else 1.0)
            share = (allocated + amount) / capacity
            after.append(share if share < 1.0 else 1.0)
        return _HALF + (_HALF + _balance_of(after) - _balance_of(before)) // 2

    def _asking(self, pod: PodInfo) -> Asking:
        scratch = pod.shape.scratch
        found = scratch.get(self._key)
        if isinstance(found, tuple):
            return found
        requests = requests_in(pod.spec, pod_level=self._pod_level)
        asked = scratch[self._key] = resource_scores.asking(requests, self._args.resources, nonzero=False)
        return asked


def _shares(used: Shares, capacity: Shares) -> Shares:
    used /= capacity
    np.minimum(used, 1.0, out=used)
    return used


def _balance(shares: list[Shares], present: list[NodeMask], cluster: ClusterState) -> NodeScores:
    """0..100, whole: 100 where all resources are used alike. Resources that a node lacks do not count there."""
    gone = np.logical_not(cluster.exists[: cluster.width])
    if len(shares) == 2 and all((mask | gone).all() for mask in present):
        deviation: Shares = shares[0] - shares[1]
        np.abs(deviation, out=deviation)
        deviation /= 2
    else:
        deviation = _deviation(shares, present, cluster.width)
    np.subtract(1.0, deviation, out=deviation)
    deviation *= MAX_SCORE
    return deviation.astype(np.int64)


def _deviation(shares: list[Shares], present: list[NodeMask], width: int) -> Shares:
    count = np.zeros(width)
    total = np.zeros(width)
    lowest, highest = np.ones(width), np.zeros(width)
    for share, counts in zip(shares, present, strict=True):
        count += counts
        total += np.where(counts, share, 0.0)
        lowest = np.minimum(lowest, np.where(counts, share, 1.0))
        highest = np.maximum(highest, np.where(counts, share, 0.0))
    mean = total / np.maximum(count, 1)
    squares = np.zeros(width)
    for share, counts in zip(shares, present, strict=True):
        away = np.where(counts, share - mean, 0.0)
        squares += away * away
    spread = np.sqrt(squares / np.maximum(count, 1))
    # Of two, half the difference: the same number, but for its last bit, which can decide a rounding.
    deviation: Shares = np.where(count == 2, (highest - lowest) / 2, spread)
    deviation[count < 2] = 0.0
    return deviation


def _balance_of(shares: list[float]) -> int:
    if len(shares) == 2:
        deviation = abs((shares[0] - shares[1]) / 2)
    elif len(shares) > 2:
        mean = _sum(shares) / len(shares)
        deviation = math.sqrt(_sum((share - mean) * (share - mean) for share in shares) / len(shares))
    else:
        deviation = 0.0
    return int((1.0 - deviation) * MAX_SCORE)


def _sum(numbers: Iterable[float]) -> float:
    """In order and rounded at each step, as columns are summed: `sum` is more exact, and so different."""
    total = 0.0
    for number in numbers:
        total += number
    return total


_PLUGIN = NodeResourcesBalancedAllocation()
_pre_score: PreScore = _PLUGIN
_score: Score = _PLUGIN
_at_one_node: AtOneNode = _PLUGIN
