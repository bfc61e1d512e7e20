"""Scores of nodes by how much of their resources is used: the strategies of NodeResourcesFit, over columns.

Every strategy rates one resource at a time, 0..100, and a node by the weighted mean of its ratings. All is whole-number
arithmetic, rounded as Kubernetes rounds, for all nodes at once (`score`) and for one in plain numbers (`score_at`).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeAlias

import numpy as np

from muster.api.core.requests import is_huge_pages
from muster.cluster.columns import Amounts, NodeMask
from muster.cluster.state import ClusterState
from muster.placement.framework import MAX_SCORE, NodeScores
from muster.placement.plugins.resource_args import (
    LEAST_ALLOCATED,
    MOST_ALLOCATED,
    ResourceSpec,
    ScoringStrategy,
    ShapePoint,
)

_NONZERO_LANES = {"cpu": 0, "memory": 1}
_NATIVE = ("cpu", "memory", "ephemeral-storage")
_SHAPE_SCORE_TO_SCORE = 10


class Asked(NamedTuple):
    """One resource that counts in a pod's scores."""

    name: str
    amount: int
    weight: int
    lane: int
    """Its row in `ClusterState.nonzero`; -1 where its usage is that of `ClusterState.used`."""


Asking: TypeAlias = tuple[Asked, ...]


class Rating(Protocol):
    """How good it is that so much of a resource is used. Both methods say the same."""

    skips_zero: bool
    """A rating of zero counts neither for the node nor against it."""
    rounds: bool
    """The mean is rounded to the nearest, not down."""

    def of_all(self, requested: Amounts, capacity: Amounts) -> Amounts:
        """0 where there is no capacity."""
        ...

    def of_one(self, requested: int, capacity: int) -> int: ...


class LeastAllocated:
    """The share that is left."""

    skips_zero = False
    rounds = False

    def of_all(self, requested: Amounts, capacity: Amounts) -> Amounts:
        left = capacity - requested
        np.maximum(left, 0, out=left)
        left *= MAX_SCORE
        left //= np.maximum(capacity, 1)
        return left

    def of_one(self, requested: int, capacity: int) -> int:
        return 0 if requested > capacity else (capacity - requested) * MAX_SCORE // capacity


class MostAllocated:
    """The share that is used."""

    skips_zero = False
    rounds = False

    def of_all(self, requested: Amounts, capacity: Amounts) -> Amounts:
        return _utilization(requested, capacity)

    def of_one(self, requested: int, capacity: int) -> int:
        return MAX_SCORE if requested > capacity else requested * MAX_SCORE // capacity


class RequestedToCapacityRatio:
    """A function of the share that is used, given by points and straight lines between them."""

    skips_zero = True
    rounds = True

    def __init__(self, shape: Sequence[ShapePoint]) -> None:
        points = [ShapePoint(point.utilization, point.score * _SHAPE_SCORE_TO_SCORE) for point in shape]
        self._ratings = [broken_linear(points, utilization) for utilization in range(MAX_SCORE + 1)]
        self._column: Amounts = np.array(self._ratings, dtype=np.int64)

    def of_all(self, requested: Amounts, capacity: Amounts) -> Amounts:
        found: Amounts = self._column[_utilization(requested, capacity)]
        found *= capacity > 0
        return found

    def of_one(self, requested: int, capacity: int) -> int:
        return self._ratings[MAX_SCORE if requested > capacity else requested * MAX_SCORE // capacity]


def _utilization(requested: Amounts, capacity: Amounts) -> Amounts:
    used: Amounts = np.minimum(requested, capacity)
    used *= MAX_SCORE
    used //= np.maximum(capacity, 1)
    return used


def broken_linear(points: Sequence[ShapePoint], utilization: int) -> int:
    """The value at `utilization` of the function through the points; before the first and after the last it is flat."""
    for index, point in enumerate(points):
        if utilization > point.utilization:
            continue
        if index == 0:
            return point.score
        before = points[index - 1]
        rise = (point.score - before.score) * (utilization - before.utilization)
        run = point.utilization - before.utilization
        # Kubernetes rounds towards zero, also where the line falls.
        return before.score + (rise // run if rise >= 0 else -(-rise // run))
    return points[-1].score


def rating_of(strategy: ScoringStrategy) -> Rating:
    if strategy.type == LEAST_ALLOCATED:
        return LeastAllocated()
    if strategy.type == MOST_ALLOCATED:
        return MostAllocated()
    return RequestedToCapacityRatio(strategy.shape or ())


def is_scalar(resource: str) -> bool:
    """Counted in whole units and known by nothing but its name: extended resources, huge pages, attachable volumes."""
    return "/" in resource or is_huge_pages(resource) or resource.startswith("attachable-volumes-")


def asking(requests: Mapping[str, int], resources: Iterable[ResourceSpec], *, nonzero: bool) -> Asking:
    """Which of the resources count in the scores of a pod with these requests. `nonzero`: cpu and memory are counted
    with what containers use that ask for none."""
    found = []
    for resource, weight in resources:
        amount = requests.get(resource, 0)
        if is_scalar(resource):
            if amount == 0:
                continue  # what the pod does not want of the few must not decide where it goes
        elif resource not in _NATIVE:
            continue
        found.append(Asked(resource, amount, weight, _NONZERO_LANES.get(resource, -1) if nonzero else -1))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Usage:
    """Columns of one resource."""

    allocated: Amounts
    allocatable: Amounts


def usage(cluster: ClusterState, resource: Asked) -> Usage | None:
    """None where no node has any and no pod uses any."""
    row, width = cluster.resources.get(resource.name), cluster.width
    if row is None:
        return None
    allocated = cluster.used[row, :width] if resource.lane < 0 else cluster.nonzero[resource.lane, :width]
    return Usage(allocated, cluster.allocatable[row, :width])


def score(rating: Rating, asked: Asking, cluster: ClusterState) -> NodeScores:
    total: Amounts = np.zeros(cluster.width, dtype=np.int64)
    weights: Amounts = np.zeros(cluster.width, dtype=np.int64)
    for resource in asked:
        found = usage(cluster, resource)
        if found is None:
            continue
        rated = rating.of_all(found.allocated + resource.amount, found.allocatable)
        counts: NodeMask = rated > 0 if rating.skips_zero else found.allocatable > 0
        rated *= resource.weight
        total += rated
        weights += counts * np.int64(resource.weight)
    return _mean(rating, total, weights)


def _mean(rating: Rating, total: Amounts, weights: Amounts) -> NodeScores:
    np.maximum(weights, 1, out=weights)
    if rating.rounds:
        total *= 2
        total += weights
        weights *= 2
    total //= weights
    return total


def score_at(rating: Rating, asked: Asking, cluster: ClusterState, node: int) -> int:
    total = weights = 0
    rows, allocatable = cluster.resources, cluster.allocatable
    for name, amount, weight, lane in asked:
        row = rows.get(name)
        if row is None:
            continue
        capacity = allocatable.item(row, node)
        if capacity <= 0:
            continue
        used = cluster.used.item(row, node) if lane < 0 else cluster.nonzero.item(lane, node)
        rated = rating.of_one(used + amount, capacity)
        if rated or not rating.skips_zero:
            total += rated * weight
            weights += weight
    if not weights:
        return 0
    return (2 * total + weights) // (2 * weights) if rating.rounds else total // weights


def score_of_many(rating: Rating, asked: Asking, cluster: ClusterState, nodes: NodeMask) -> int:
    """The score of several nodes taken as one, with all that `asked` wants put on them."""
    total = weights = 0
    for resource in asked:
        found = usage(cluster, resource)
        if found is None:
            continue
        counted = nodes & (found.allocatable > 0)
        capacity = int(found.allocatable[counted].sum())
        if not capacity:
            continue
        rated = rating.of_one(int(found.allocated[counted].sum()) + resource.amount, capacity)
        if rated or not rating.skips_zero:
            total += rated * resource.weight
            weights += resource.weight
    if not weights:
        return 0
    return (2 * total + weights) // (2 * weights) if rating.rounds else total // weights
