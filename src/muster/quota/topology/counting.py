"""Phase 1: how many pods, and how many slices of them, fit into each domain; with the leader there too, and without.

Leaves are counted from what is free; every level above is a sum over ranges of the level below.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from typing import Final

import numpy as np

from muster.cluster.columns import Amounts, NodeMask
from muster.cluster.domains import Positions
from muster.quota.topology.requests import Shape
from muster.quota.topology.tree import Span, Tree

_NEVER: Final = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True, eq=False)
class LevelCounts:
    """The domains of one level, or some of them, as columns."""

    pods: Amounts
    slices: Amounts
    """All zero below the level of the slices."""
    pods_led: Amounts
    """If the leader is there too. Without a leader, and where each slice is one pod, columns are the same objects."""
    slices_led: Amounts
    leaders: Amounts | None = None
    """How many leaders fit there: one is asked for, so one or none. None: none is asked for."""
    affinity: Amounts | None = None
    """How much the pods would rather be there. None: they do not say."""

    def __len__(self) -> int:
        return len(self.pods)

    def take(self, rows: Positions | Span) -> "LevelCounts":
        pods = self.pods[rows]
        slices = pods if self.slices is self.pods else self.slices[rows]
        if self.leaders is None:
            pods_led, slices_led, leaders = pods, slices, None
        else:
            pods_led, slices_led, leaders = self.pods_led[rows], self.slices_led[rows], self.leaders[rows]
        affinity = None if self.affinity is None else self.affinity[rows]
        return LevelCounts(pods, slices, pods_led, slices_led, leaders, affinity)

    def in_units_of(self, size: int) -> "LevelCounts":
        """With slices of that many pods."""
        slices = sliced(self.pods, size)
        led = slices if self.pods_led is self.pods else sliced(self.pods_led, size)
        return LevelCounts(self.pods, slices, self.pods_led, led, self.leaders, self.affinity)


def pods_that_fit(free: Iterable[tuple[Amounts, int]]) -> Amounts:
    """[leaf] → the least number over resources. `free`: for each resource what is there, and what one pod needs, which
    is more than nothing."""
    fits = (there if needed == 1 else there // needed for there, needed in free)
    return np.maximum(reduce(np.minimum, fits), 0)


def leaf_counts(
    tree: Tree, shape: Shape, pods: Amounts, led: tuple[Amounts, NodeMask] | None, affinity: Amounts | None
) -> LevelCounts:
    """`led`: pods if the leader is there too, and whether it fits."""
    pods_led, leaders = (pods, None) if led is None else (led[0], led[1].astype(np.int64))
    counts = LevelCounts(pods, pods, pods_led, pods_led, leaders, affinity)
    return _with_slices(counts, tree.lowest, shape)


class Counts:
    """Level by level, each worked out from the one below when it is first asked for."""

    def __init__(self, tree: Tree, shape: Shape, leaves: LevelCounts) -> None:
        self.tree = tree
        self.shape = shape
        self._levels = {tree.lowest: leaves}

    def at(self, level: int) -> LevelCounts:
        found = self._levels.get(level)
        if found is None:
            starts = self.tree.first_child[level][:-1]
            found = self._levels[level] = rolled_up(self.at(level + 1), starts, level, self.shape)
        return found


def rolled_up(below: LevelCounts, starts: Positions, level: int, shape: Shape) -> LevelCounts:
    """The counts of a level from those of the one below. `starts`: of each domain, where its children begin."""
    size = shape.size_at(level + 1)
    leaders = None if below.leaders is None else np.maximum.reduceat(below.leaders, starts)
    affinity = None if below.affinity is None else np.add.reduceat(below.affinity, starts)
    pods, pods_led = _summed(_whole(below.pods, size), _whole(below.pods_led, size), below, starts)
    if level >= shape.slice_level:
        return _with_slices(LevelCounts(pods, pods, pods_led, pods_led, leaders, affinity), level, shape)
    if below.slices is below.pods:
        slices, slices_led = pods, pods_led
    else:
        slices, slices_led = _summed(below.slices, below.slices_led, below, starts)
    return LevelCounts(pods, slices, pods_led, slices_led, leaders, affinity)


def _summed(amounts: Amounts, led: Amounts, below: LevelCounts, starts: Positions) -> tuple[Amounts, Amounts]:
    """Sums over children, and the same with the leader in that child where it costs least."""
    total = np.add.reduceat(amounts, starts)
    if below.leaders is None:
        return total, total
    least = np.minimum.reduceat(np.where(below.leaders > 0, amounts - led, _NEVER), starts)
    return total, np.where(least == _NEVER, 0, total - least)


def _with_slices(counts: LevelCounts, level: int, shape: Shape) -> LevelCounts:
    if level > shape.slice_level:
        none = np.zeros_like(counts.pods)
        return LevelCounts(counts.pods, none, counts.pods_led, none, counts.leaders, counts.affinity)
    return counts.in_units_of(shape.slice_size)


def sliced(pods: Amounts, size: int) -> Amounts:
    return pods if size == 1 else pods // size


def _whole(pods: Amounts, size: int) -> Amounts:
    """Rounded down to whole inner slices: what is left over cannot be used."""
    return pods if size == 1 else pods - pods % size
