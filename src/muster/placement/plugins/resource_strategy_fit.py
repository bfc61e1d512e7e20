"""ResourceStrategyFit: packs pods by some resources and spreads them by others, as Volcano's resource-strategy-fit.

The mean, weighted, over what the pod asks for: how full the node is with the pod (MostAllocated), or how empty
(LeastAllocated). A resource that the node has none of counts as nothing, and a node where one of them does not fit is
worth nothing. Beside that, a node is the better the fewer scarce resources it has that the pod does not ask for.
"""

from typing import ClassVar, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from muster.cluster.columns import NodeMask
from muster.cluster.pods import PodInfo
from muster.cluster.state import ClusterState
from muster.placement.framework import MAX_SCORE, SKIP, AtOneNode, NodeScores, Prepared, PreScore, Reads, Score
from muster.placement.plugins.resource_args import MOST_ALLOCATED
from muster.placement.plugins.resource_strategies import ResourceStrategyFitArgs

Shares: TypeAlias = npt.NDArray[np.float64]
"""[slot] → 0..1."""


class _Asked(NamedTuple):
    resource: str
    amount: int
    is_packed: bool
    weight: int


_DEFAULTS = ResourceStrategyFitArgs()


class ResourceStrategyFit:
    name: ClassVar[str] = "ResourceStrategyFit"
    reads: ClassVar[Reads] = Reads.NODE_PODS

    def __init__(self, args: ResourceStrategyFitArgs = _DEFAULTS) -> None:
        self._args = args
        self._key = f"{self.name} {args}"
        self._weights = max(args.weight + args.scarce_weight, 1)

    def pre_score(self, pod: PodInfo, cluster: ClusterState, feasible: NodeMask) -> Prepared:
        return Prepared() if self._asked(pod) or self._args.scarce_weight else Prepared(SKIP)

    def score(self, pod: PodInfo, cluster: ClusterState, state: object) -> NodeScores:
        total = self.shares(pod, cluster) * self._args.weight + self.spared(pod, cluster) * self._args.scarce_weight
        scores: NodeScores = np.rint(total / self._weights * MAX_SCORE).astype(np.int64)
        return scores

    def shares(self, pod: PodInfo, cluster: ClusterState) -> Shares:
        """How well each node suits what the pod asks for."""
        width = cluster.width
        total, weights, fits = np.zeros(width), 0, cluster.mask(True)
        for resource, amount, is_packed, weight in self._asked(pod):
            weights += weight
            row = cluster.column(resource)
            if row is None:
                continue
            capacity, filled = cluster.allocatable[row, :width], cluster.used[row, :width] + amount
            has_any = capacity > 0
            fits &= (filled <= capacity) | ~has_any
            counted = filled if is_packed else capacity - filled
            total += np.where(has_any, counted * weight / np.maximum(capacity, 1), 0.0)
        return np.where(fits, total / max(weights, 1), 0.0)

    def spared(self, pod: PodInfo, cluster: ClusterState) -> Shares:
        """The part, by weight, of what is scarce that a node has none of; nothing where it lacks what the pod needs."""
        width, scarce, needs = cluster.width, self._args.scarce, pod.shape.needs
        total, suits = np.zeros(width), cluster.mask(True)
        for resource, weight in scarce:
            row = cluster.column(resource)
            lacks = cluster.mask(True) if row is None else cluster.allocatable[row, :width] <= 0
            total += np.where(lacks, weight, 0)
            if needs.get(resource):
                suits &= ~lacks
        return np.where(suits, total / max(sum(weight for _, weight in scarce), 1), 0.0)

    def fits_at(self, pod: PodInfo, cluster: ClusterState, state: object, node: int) -> bool:
        return True

    def score_at(self, pod: PodInfo, cluster: ClusterState, state: object, node: int) -> int:
        args = self._args
        total = (
            self._share_at(pod, cluster, node) * args.weight + self._spared_at(pod, cluster, node) * args.scarce_weight
        )
        return round(total / self._weights * MAX_SCORE)

    def _share_at(self, pod: PodInfo, cluster: ClusterState, node: int) -> float:
        total, weights = 0.0, 0
        for resource, amount, is_packed, weight in self._asked(pod):
            weights += weight
            row = cluster.column(resource)
            capacity = 0 if row is None else cluster.allocatable.item(row, node)
            if row is None or capacity <= 0:
                continue
            filled = cluster.used.item(row, node) + amount
            if filled > capacity:
                return 0.0
            total += (filled if is_packed else capacity - filled) * weight / capacity
        return total / max(weights, 1)

    def _spared_at(self, pod: PodInfo, cluster: ClusterState, node: int) -> float:
        total, weights = 0, 0
        for resource, weight in self._args.scarce:
            weights += weight
            row = cluster.column(resource)
            lacks = row is None or cluster.allocatable.item(row, node) <= 0
            if lacks and pod.shape.needs.get(resource):
                return 0.0
            total += weight if lacks else 0
        return total / max(weights, 1)

    def _asked(self, pod: PodInfo) -> tuple[_Asked, ...]:
        found = pod.shape.scratch.get(self._key)
        if not isinstance(found, tuple):
            named = ((name, amount, self._args.strategy_of(name)) for name, amount in pod.shape.needs.items() if amount)
            found = tuple(
                _Asked(name, amount, strategy.type == MOST_ALLOCATED, strategy.weight)
                for name, amount, strategy in named
                if strategy is not None and strategy.weight
            )
            pod.shape.scratch[self._key] = found
        return found


_PLUGIN = ResourceStrategyFit()
_score: Score = _PLUGIN
_pre_score: PreScore = _PLUGIN
_at_one: AtOneNode = _PLUGIN
