"""`Tree`: the domains of a topology, level by level, in the order of their values.

The children of a domain are a range of rows of the level below, and its leaves a range of rows of the lowest level:
sums over a subtree are `reduceat`, and the tie-break by level values is the row number.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from muster.cluster.columns import Codes, NodeMask
from muster.cluster.domains import Positions
from muster.cluster.state import ClusterState
from muster.quota.topology.assignments import HOSTNAME, Values

if TYPE_CHECKING:
    Span: TypeAlias = slice[int, int, int | None]
else:
    Span = slice  # cannot be subscripted at run time yet


@dataclass(frozen=True, slots=True, eq=False)
class Tree:
    levels: tuple[str, ...]
    first_child: tuple[Positions, ...]
    """[level][domain] → its first row one level below; one place more than domains, for the end. None for leaves."""
    first_leaf: tuple[Positions, ...]
    """[level][domain] → its first leaf; likewise."""
    leaf_values: Sequence[Values]
    """As an assignment names them: the host alone where that is the lowest level."""
    position: dict[Values, int]
    """Leaf by its values."""
    slots: Positions
    """Slots of the nodes in the order of their leaves."""
    first_slot: Positions
    """[leaf] → its first place in `slots`; one place more, for the end."""

    @property
    def lowest(self) -> int:
        return len(self.levels) - 1

    @property
    def is_by_host(self) -> bool:
        return self.levels[-1] == HOSTNAME

    @property
    def leaf_count(self) -> int:
        return len(self.leaf_values)

    @property
    def has_one_node_per_leaf(self) -> bool:
        return len(self.slots) == len(self.leaf_values)

    @property
    def assigned_levels(self) -> tuple[str, ...]:
        """The levels that an assignment names."""
        return self.levels[-1:] if self.is_by_host else self.levels

    def size(self, level: int) -> int:
        """How many domains the level has."""
        return len(self.first_leaf[level]) - 1

    def children(self, level: int, domain: int) -> Span:
        first = self.first_child[level]
        return slice(int(first[domain]), int(first[domain + 1]))

    def pooled_children(self, level: int, domains: Positions) -> Positions:
        """Rows one level below, of all these domains together, in order."""
        first = self.first_child[level]
        if len(domains) == 1:
            return np.arange(first[domains[0]], first[domains[0] + 1])
        return np.concatenate([np.arange(first[domain], first[domain + 1]) for domain in np.sort(domains)])

    def leaves(self, level: int, domain: int) -> Span:
        first = self.first_leaf[level]
        return slice(int(first[domain]), int(first[domain + 1]))

    def ancestor(self, leaf: int, level: int) -> int:
        return int(np.searchsorted(self.first_leaf[level], leaf, side="right")) - 1


def grow(levels: tuple[str, ...], cluster: ClusterState, nodes: NodeMask) -> Tree:
    """The tree over those nodes that have a label for every level."""
    columns = [cluster.labelled(level) for level in levels]
    present = [codes for codes in columns if codes is not None]
    if len(present) < len(levels):
        return _planted(levels, [], np.zeros((len(levels), 0), dtype=np.intp), np.zeros(0, dtype=np.intp))
    chosen = nodes.copy()
    for codes in present:
        chosen &= codes >= 0
    slots = np.flatnonzero(chosen)
    texts = list(cluster.label_values)
    names: list[list[str]] = []
    ranks = np.empty((len(levels), len(slots)), dtype=np.intp)
    for level, codes in enumerate(present):
        listed, ranks[level] = _ranked(codes[slots], texts)
        names.append(listed)
    order = np.lexsort(ranks[::-1])
    return _planted(levels, names, ranks[:, order], slots[order])


def _ranked(codes: Codes, texts: Sequence[str]) -> tuple[list[str], Positions]:
    """The distinct values in order, and for each code the place of its value."""
    distinct, inverse = np.unique(codes, return_inverse=True)
    values = [texts[code] for code in distinct]
    order = sorted(range(len(values)), key=values.__getitem__)
    places = np.empty(len(values), dtype=np.intp)
    places[order] = np.arange(len(values))
    return [values[i] for i in order], places[inverse]


def _planted(levels: tuple[str, ...], names: Sequence[Sequence[str]], ranks: Positions, slots: Positions) -> Tree:
    """`ranks`: [level, node], nodes in order; `names`: [level][rank]."""
    starts: list[Positions] = []
    differs = np.zeros(len(slots), dtype=np.bool_)
    if len(slots):
        differs[0] = True
    for level in range(len(levels)):
        differs[1:] |= ranks[level, 1:] != ranks[level, :-1]
        starts.append(np.append(np.flatnonzero(differs), len(slots)))
    first_leaf = tuple(np.searchsorted(starts[-1], level_starts) for level_starts in starts)
    first_child = tuple(np.searchsorted(below, above) for above, below in pairwise(starts))
    named = range(len(levels) - 1, len(levels)) if levels[-1] == HOSTNAME else range(len(levels))
    heads = starts[-1][:-1]
    columns = [[names[level][rank] for rank in ranks[level, heads].tolist()] for level in named]
    leaf_values = list(zip(*columns, strict=True))
    position = {values: leaf for leaf, values in enumerate(leaf_values)}
    return Tree(levels, first_child, first_leaf, leaf_values, position, slots, starts[-1])
