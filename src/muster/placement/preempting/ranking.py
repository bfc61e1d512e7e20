"""Victims on many nodes at once, for a pod that needs nothing but resources.

The same steps as `selecting.select`, each done for all nodes in one go: remove every pod of lower priority, see where
the preemptor then fits, and give the places back in order of importance. Who the victims are is not written down, only
what they cost.
"""

from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from muster.cluster.columns import Amounts, NodeMask
from muster.cluster.priorities import HIGHEST, Priorities, Times
from muster.cluster.state import ClusterState

Slots: TypeAlias = npt.NDArray[np.intp]
_At: TypeAlias = "Slots | slice[None, None, None]"
_LEVELS = 8  # so many places are looked at before nodes that have no more pods are left out


class Wanted(NamedTuple):
    """What the preemptor asks for, by row of the cluster's columns, and what it may evict for it."""

    rows: Sequence[int]
    resources: Sequence[str]
    amounts: Sequence[int]
    priority: int

    @classmethod
    def of(cls, request: Sequence[tuple[str, int]], priority: int, cluster: ClusterState) -> "Wanted | None":
        """None where no node has any of a resource."""
        rows = [row for row in (cluster.column(resource) for resource, _ in request) if row is not None]
        if len(rows) < len(request):
            return None
        return cls(rows, [resource for resource, _ in request], [amount for _, amount in request], priority)


@dataclass(slots=True)
class Costs:
    """[slot] → what evicting there would cost. Only those of candidates mean anything."""

    is_candidate: NodeMask
    violations: Amounts
    highest: Amounts
    """The highest priority among the victims."""
    total: Amounts
    """The sum of their priorities, each made positive."""
    count: Amounts
    earliest: Times
    """When the first of those of the highest priority started."""
    ties: list[int] = field(default_factory=list)
    """The slots that cost least, in order. Empty where that is not known."""

    @classmethod
    def nothing(cls, width: int) -> "Costs":
        def none() -> Amounts:
            return np.zeros(width, dtype=np.int64)

        return cls(np.zeros(width, dtype=np.bool_), none(), none(), none(), none(), np.full(width, inf))

    def cheapest(self, start: int) -> int | None:
        """The slot that costs least; of equals, the first from `start` on."""
        self.ties = self.ties or self._find_cheapest()
        return self.ties[bisect_left(self.ties, start) % len(self.ties)] if self.ties else None

    def changed(self, slot: int) -> None:
        """The costs of one slot are others now. Looking through all for the cheapest each time would take longer than
        everything else about a preemption."""
        place = bisect_left(self.ties, slot)
        if place < len(self.ties) and self.ties[place] == slot:
            del self.ties[place]
        if self.ties and self.is_candidate[slot]:
            costs, least = self._at(slot), self._at(self.ties[0])
            if costs < least:
                self.ties = [slot]
            elif costs == least:
                insort(self.ties, slot)

    def _at(self, slot: int) -> tuple[float, ...]:
        columns = (self.violations, self.highest, self.total, self.count)
        return (*(column.item(slot) for column in columns), -self.earliest.item(slot))

    def _find_cheapest(self) -> list[int]:
        slots = np.flatnonzero(self.is_candidate)
        for column in (self.violations, self.highest, self.total, self.count):
            if slots.size > 1:
                values = column[slots]
                least = values.min()
                if least != values.max():  # most often all cost the same
                    slots = slots[values == least]
        if slots.size > 1:
            times = self.earliest[slots]
            slots = slots[times == times.max()]
        found: list[int] = slots.tolist()
        return found


@dataclass(slots=True)
class Emptied:
    """Nodes without the pods of lower priority, the preemptor in their place."""

    has_victims: NodeMask
    left: list[Amounts]
    """By wanted resource: what is left over; negative where the preemptor does not fit."""

    @property
    def fits(self) -> NodeMask:
        fits = self.has_victims.copy()
        for amounts in self.left:
            fits &= amounts >= 0
        return fits


def emptied(wanted: Wanted, cluster: ClusterState, slots: Slots) -> Emptied:
    index = cluster.priorities
    evictable, needs = _evictable(wanted, index)
    has_victims = np.zeros(slots.size, dtype=np.bool_)
    left = [
        cluster.allocatable[row, slots] - cluster.used[row, slots] - amount
        for row, amount in zip(wanted.rows, wanted.amounts, strict=True)
    ]
    for place, at in _places(index, slots):
        kinds = index.kinds[place, slots[at]]
        has_victims[at] |= evictable[kinds]
        for amounts, freed in zip(left, needs, strict=True):
            amounts[at] += freed[kinds]
    return Emptied(has_victims, left)


def rate(wanted: Wanted, cluster: ClusterState, slots: Slots, costs: Costs) -> None:
    """Sets the costs of the nodes. Budgets and groups are not looked at."""
    index = cluster.priorities
    index.refresh()
    evictable, needs = _evictable(wanted, index)
    priorities = index.priorities()
    empty = emptied(wanted, cluster, slots)
    fits = empty.fits
    costs.is_candidate[slots] = False
    slots = slots[fits]
    left = [amounts[fits] for amounts in empty.left]
    highest = np.full(slots.size, -HIGHEST, dtype=np.int64)
    total = np.zeros(slots.size, dtype=np.int64)
    count = np.zeros(slots.size, dtype=np.int64)
    earliest = np.full(slots.size, inf)
    for place, at in _places(index, slots):
        kinds = index.kinds[place, slots[at]]
        returns = evictable[kinds]
        victims = returns.copy()
        for amounts, taken in zip(left, needs, strict=True):
            returns &= amounts[at] >= taken[kinds]
        for amounts, taken in zip(left, needs, strict=True):
            amounts[at] -= taken[kinds] * returns
        victims &= ~returns
        priority = priorities[kinds]
        count[at] += victims
        total[at] += (priority + HIGHEST) * victims
        highest[at] = np.where(victims, np.maximum(highest[at], priority), highest[at])
        leading = victims & (priority == highest[at])
        earliest[at] = np.where(leading, np.minimum(earliest[at], index.started[place, slots[at]]), earliest[at])
    costs.is_candidate[slots] = count > 0
    costs.violations[slots] = 0
    costs.highest[slots], costs.total[slots], costs.count[slots] = highest, total, count
    costs.earliest[slots] = earliest
    costs.ties = []


def _evictable(wanted: Wanted, index: Priorities) -> tuple[NodeMask, list[Amounts]]:
    """By kind of pod: whether it may be evicted, and how much of each wanted resource that frees."""
    evictable: NodeMask = index.priorities() < wanted.priority
    return evictable, [index.needs(resource) * evictable for resource in wanted.resources]


def _places(index: Priorities, slots: Slots) -> Iterator[tuple[int, _At]]:
    """Places from the most important on, each with which of the slots may have a pod there. A few nodes with very many
    pods must not make all others pay."""
    counts = index.counts[slots]
    at: _At = slice(None)
    for place in range(int(counts.max(initial=0))):
        if place and place % _LEVELS == 0:
            at = np.flatnonzero(counts > place)
        yield place, at
