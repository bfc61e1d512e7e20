"""Dominant resource share: what a queue or cohort borrows, of what its parent could lend, relative to its weight."""

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from functools import total_ordering
from math import ceil, inf
from typing import Final, TypeVar

from muster.quota.amounts import MOST, FlavorResource
from muster.quota.tree import Node

K = TypeVar("K", bound=Hashable)
_NOTHING: Final[Mapping[FlavorResource, int]] = {}


@total_ordering
@dataclass(frozen=True, slots=True, eq=False)
class Share:
    """`ratio`: thousandths of what could be lent, of the resource of which the largest part is borrowed."""

    ratio: float = 0.0
    weight: float = 1.0
    resource: str = ""
    borrowed: frozenset[FlavorResource] = frozenset()

    @property
    def value(self) -> float:
        if not self.ratio:
            return 0.0
        return self.ratio / self.weight if self.weight else inf

    @property
    def shown(self) -> int:
        return MOST if self.value == inf else ceil(self.value)

    @property
    def is_endless(self) -> bool:
        return self.value == inf

    def borrows_any(self, whats: Iterable[FlavorResource]) -> bool:
        return any(what in self.borrowed for what in whats)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Share) and self.order == other.order

    def __lt__(self, other: "Share") -> bool:
        return self.order < other.order

    @property
    def order(self) -> tuple[float, float]:
        """Among borrowers without any weight, the one that borrows more."""
        value = self.value
        return (value, self.ratio if value == inf else 0.0)

    __hash__ = None  # type: ignore[assignment]


NO_SHARE: Final = Share()


def share_of(node: Node, more: Mapping[FlavorResource, int] = _NOTHING) -> Share:
    """With so much more used. A root shares with nobody."""
    parent = node.parent
    weight = float(node.weight)
    if parent is None:
        return Share(weight=weight)
    by_resource: dict[str, int] = {}
    borrowed = []
    for what, owned in node.subtree.items():
        beyond = node.usage.get(what, 0) + more.get(what, 0) - owned
        if beyond > 0:
            borrowed.append(what)
            by_resource[what.resource] = by_resource.get(what.resource, 0) + beyond
    if not by_resource:
        return Share(weight=weight)
    ratio, dominant = 0.0, ""
    could_be_lent = parent.lendable()
    for resource, beyond in by_resource.items():
        lendable = could_be_lent.get(resource, 0)
        if lendable > 0:
            found = beyond * 1000 / lendable
            if found > ratio or (found == ratio and resource < dominant):
                ratio, dominant = found, resource
    return Share(ratio, weight, dominant, frozenset(borrowed))


def served(node: Node) -> tuple[float, ...]:
    """How far the queue is served, and all that it is below: from the root's child down to it."""
    path = [node, *(above for above in node.ancestors() if above.parent is not None)]
    return tuple(part_served(each.usage, each.subtree, is_wanting=True) for each in reversed(path))


def part_served(allocated: Mapping[K, int], deserved: Mapping[K, int], *, is_wanting: bool) -> float:
    """What it has, in parts of what it deserves, of that of which the part is largest. One that deserves nothing counts
    as served as soon as it has, or wants, anything: others come first."""
    if not any(deserved.values()):
        return float(is_wanting or any(allocated.values()))
    parts = (
        allocated.get(what, 0) / amount if amount else float(allocated.get(what, 0) > 0)
        for what, amount in deserved.items()
    )
    return max(parts, default=0.0)
