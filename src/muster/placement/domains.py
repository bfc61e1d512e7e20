"""Which part of the cluster a gang goes to: a rack, a switch, an island, or anywhere, counted and chosen as a whole.

How many pods of a shape each node can take is one integer vector; summed by domain at each level of the topology it
says, without placing a pod, which domains can hold the gang. Of those the narrowest level counts first, then the
tightest fit, so that large domains stay whole for large gangs. Pure, and no loop over nodes.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from muster.cluster.columns import ABSENT, PODS, Amounts, Codes, NodeMask
from muster.cluster.groups import Mode
from muster.cluster.state import ClusterState

Counts: TypeAlias = npt.NDArray[np.int64]
"""[slot] → pods that fit there, or are put there."""
ANYWHERE = ""
"""The name of the level above all others: the whole cluster."""
_MOST = np.int64(1 << 31)  # of pods on one node: sums over all nodes stay far from the end of int64


class Level(Protocol):
    """A way to split nodes into domains, of which each node is in one, or none; or in several where trees overlap."""

    @property
    def name(self) -> str: ...

    @property
    def size(self) -> int:
        """Number of domains."""
        ...

    def domain(self, number: int) -> str:
        """The name of a domain."""
        ...

    def sums(self, counts: Counts) -> Counts:
        """[domain] → the sum of `counts` over its nodes."""
        ...

    def nodes(self, number: int) -> NodeMask: ...

    def containing(self, slots: npt.NDArray[np.intp]) -> NodeMask:
        """[domain] → whether it has all these nodes."""
        ...


Fullness: TypeAlias = Callable[[Level], npt.NDArray[np.float64]]
"""[domain] → how full it is with the gang in it."""


@dataclass(frozen=True, slots=True, eq=False)
class LabelLevel:
    """Nodes that have the same value of a label."""

    name: str
    codes: Codes
    """[slot] → number of the domain, or ABSENT."""
    values: Sequence[str]

    @classmethod
    def of(cls, cluster: ClusterState, key: str) -> "LabelLevel":
        found = cluster.labelled(key)
        if found is None:
            return cls(key, np.full(cluster.width, ABSENT, dtype=np.int32), ())
        labelled = np.where(cluster.exists[: cluster.width], found, ABSENT)
        present, first, dense = np.unique(labelled, return_index=True, return_inverse=True)
        has_absent = int(present[0] == ABSENT) if len(present) else 0  # sorted, and ABSENT is less than every code
        values = [_label(cluster, int(slot), key) for slot in first[has_absent:]]
        return cls(key, (dense.reshape(-1) - has_absent).astype(np.int32), values)

    @property
    def size(self) -> int:
        return len(self.values)

    def domain(self, number: int) -> str:
        return self.values[number]

    def sums(self, counts: Counts) -> Counts:
        # Shifted by one, nodes without the label fall into a bin of their own. Weights are floats: exact below 2^53,
        # which 2^31 pods on each of four million nodes do not reach.
        bins = np.bincount(self.codes + 1, weights=counts, minlength=self.size + 1)
        return bins[1:].astype(np.int64)

    def nodes(self, number: int) -> NodeMask:
        found: NodeMask = self.codes == number
        return found

    def containing(self, slots: npt.NDArray[np.intp]) -> NodeMask:
        found = np.ones(self.size, dtype=np.bool_)
        if len(slots):
            codes = self.codes[slots]
            found[:] = False
            if codes[0] != ABSENT and (codes == codes[0]).all():
                found[codes[0]] = True
        return found


@dataclass(frozen=True, slots=True, eq=False)
class TreeLevel:
    """Domains that say which nodes they have, such as HyperNodes of one tier."""

    name: str
    names: Sequence[str]
    slots: npt.NDArray[np.intp]
    """The nodes of all domains, one domain after the other."""
    starts: npt.NDArray[np.intp]
    """[domain] → where its nodes begin in `slots`. No domain is without nodes."""
    width: int

    @classmethod
    def of(cls, name: str, members: Mapping[str, npt.NDArray[np.intp]], width: int) -> "TreeLevel":
        """`members`: by domain, the slots that it has. Those without any are left out."""
        full = {domain: np.unique(slots) for domain, slots in members.items() if len(slots)}
        sizes = [len(slots) for slots in full.values()]
        starts = np.concatenate(([0], np.cumsum(sizes)[:-1])).astype(np.intp) if sizes else np.zeros(0, dtype=np.intp)
        slots = np.concatenate(list(full.values())).astype(np.intp) if sizes else np.zeros(0, dtype=np.intp)
        return cls(name, tuple(full), slots, starts, width)

    @property
    def size(self) -> int:
        return len(self.names)

    def domain(self, number: int) -> str:
        return self.names[number]

    def sums(self, counts: Counts) -> Counts:
        if not self.size:
            return np.zeros(0, dtype=np.int64)
        return np.add.reduceat(counts[self.slots], self.starts)

    def nodes(self, number: int) -> NodeMask:
        end = self.starts[number + 1] if number + 1 < self.size else len(self.slots)
        mask = np.zeros(self.width, dtype=np.bool_)
        mask[self.slots[self.starts[number] : end]] = True
        return mask

    def containing(self, slots: npt.NDArray[np.intp]) -> NodeMask:
        marked = np.zeros(self.width, dtype=np.int64)
        marked[slots] = 1
        found: NodeMask = self.sums(marked) == int(marked.sum())
        return found


@dataclass(frozen=True, slots=True)
class Requirement:
    """`widest`: position, in levels from wide to narrow, of the widest level that the gang accepts (REQUIRED) or would
    like (PREFERRED). SOFT has no use for it."""

    mode: Mode = Mode.REQUIRED
    widest: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Domain:
    """Where the gang goes. `capacity`: how many of its pods the domain could take."""

    level: str
    name: str
    nodes: NodeMask
    capacity: int

    @property
    def is_whole_cluster(self) -> bool:
        return self.level == ANYWHERE


@dataclass(frozen=True, slots=True)
class NoDomain:
    """No domain holds the gang. The best one of each level that was tried, from narrow to wide."""

    need: int
    best: tuple[tuple[str, str, int], ...]
    """(level, domain, pods that would fit there); the domain is empty where the level has none."""

    def __str__(self) -> str:
        tried = "; ".join(
            f"{level}: at most {count} in {name}" if name else f"{level}: no such domain"
            for level, name, count in self.best
        )
        return f"no topology domain holds {self.need} pods ({tried or 'no level to try'})"


@dataclass(frozen=True, slots=True, eq=False)
class Demand:
    """So many pods of one shape. `feasible`: nodes that are right for it, whatever is free there."""

    needs: Mapping[str, int]
    count: int
    feasible: NodeMask


def pods_per_node(
    cluster: ClusterState, demand: Demand, slots: npt.NDArray[np.intp] | None = None, free: Amounts | None = None
) -> Counts:
    """How many more pods of the shape each node takes, of all nodes or of those at `slots`. `free` [resource, slot] is
    what is left there, where that is not as in the state."""
    at = np.arange(cluster.width) if slots is None else slots
    usable = demand.feasible[at] & cluster.exists[at]
    counts = np.full(len(at), _MOST, dtype=np.int64)
    for resource, amount in demand.needs.items():
        if amount <= 0:
            continue
        row = cluster.column(resource)
        if row is None:
            return np.zeros(len(at), dtype=np.int64)
        left = cluster.allocatable[row, at] - cluster.used[row, at] if free is None else free[row]
        np.minimum(counts, left // amount, out=counts)
    np.maximum(counts, 0, out=counts)
    counts[~usable] = 0
    return counts


def choose_domain(
    counts: Counts,
    levels: Sequence[Level],
    need: int,
    requirement: Requirement,
    pinned: npt.NDArray[np.intp] | None = None,
) -> Domain | NoDomain:
    """The domain for `need` pods of one shape. `levels` from wide to narrow; `pinned`: slots where members of the gang
    are already, which the domain must have too."""
    return next(_for_one_shape(counts, levels, need, requirement, pinned, None))


def candidates(
    cluster: ClusterState,
    demands: Sequence[Demand],
    levels: Sequence[Level],
    requirement: Requirement,
    pinned: npt.NDArray[np.intp] | None = None,
) -> Iterator[Domain | NoDomain]:
    """All domains that hold the gang by their numbers, the best first, and NoDomain at the end: what counting does not
    see, such as pods that keep apart, may rule out the first ones. Where it has several shapes, domains that hold each
    of them, and the sum of what all ask for, are tried from the tightest on by filling them: what fits shape by shape
    need not fit together."""
    if len(demands) == 1:
        counted, full = pods_per_node(cluster, demands[0]), partial(_fullness, cluster, demands)
        yield from _for_one_shape(counted, levels, demands[0].count, requirement, pinned, full)
        return
    fixed = np.zeros(0, dtype=np.intp) if pinned is None else np.unique(pinned)
    counts = [pods_per_node(cluster, demand) for demand in demands]
    wanted = np.array([demand.count for demand in demands])[:, None]
    best: list[tuple[str, str, int]] = []
    for level in _tried(levels, requirement):
        sums = np.stack([level.sums(count) for count in counts])
        inside = level.containing(fixed)
        holding = np.flatnonzero((sums >= wanted).all(axis=0) & _enough(cluster, demands, level) & inside)
        fitting = np.minimum(sums, wanted).sum(axis=0)
        for number in _tightest(holding, sums.sum(axis=0), level, partial(_fullness, cluster, demands)):
            nodes = level.nodes(number)
            if fill_all(cluster, demands, nodes) is not None:
                yield Domain(level.name, level.domain(number), nodes, int(fitting[number]))
        best.append(_best(level, np.where(inside, fitting, -1)))
    if requirement.mode is not Mode.REQUIRED:
        everywhere = np.ones(cluster.width, dtype=np.bool_)
        total = sum(min(int(count.sum()), demand.count) for count, demand in zip(counts, demands, strict=True))
        if fill_all(cluster, demands, everywhere) is not None:
            yield Domain(ANYWHERE, ANYWHERE, everywhere, total)
        best.append(("the cluster", "all nodes", total))
    yield NoDomain(int(wanted.sum()), tuple(best))


def _for_one_shape(
    counts: Counts,
    levels: Sequence[Level],
    need: int,
    requirement: Requirement,
    pinned: npt.NDArray[np.intp] | None,
    fullness: Fullness | None,
) -> Iterator[Domain | NoDomain]:
    fixed = np.zeros(0, dtype=np.intp) if pinned is None else np.unique(pinned)
    best: list[tuple[str, str, int]] = []
    for level in _tried(levels, requirement):
        sums = np.where(level.containing(fixed), level.sums(counts), -1)
        holding = np.flatnonzero(sums >= need)
        for number in _tightest(holding, sums, level, fullness):
            yield Domain(level.name, level.domain(number), level.nodes(number), int(sums[number]))
        best.append(_best(level, sums))
    if requirement.mode is not Mode.REQUIRED:
        total = int(counts.sum())
        if total >= need:
            yield Domain(ANYWHERE, ANYWHERE, np.ones(len(counts), dtype=np.bool_), total)
        best.append(("the cluster", "all nodes", total))
    yield NoDomain(need, tuple(best))


def _tightest(holding: npt.NDArray[np.intp], sums: Counts, level: Level, fullness: Fullness | None) -> Iterator[int]:
    """Those that hold the fewest pods first; of equals, those that are fullest."""
    order = holding[np.argsort(sums[holding], kind="stable")]
    if fullness is not None and len(order) > 1 and sums[order[0]] == sums[order[1]]:
        order = holding[np.lexsort((-fullness(level)[holding], sums[holding]))]
    yield from order.tolist()


def _fullness(cluster: ClusterState, demands: Sequence[Demand], level: Level) -> npt.NDArray[np.float64]:
    """[domain] → how full it is with all demands in it: the mean share that is used of what they ask for."""
    width, total, count = cluster.width, np.zeros(level.size), 0
    for resource in dict.fromkeys(resource for demand in demands for resource in demand.needs):
        row = cluster.column(resource)
        wanted = sum(demand.needs.get(resource, 0) * demand.count for demand in demands)
        if row is None or not wanted or resource == PODS:
            continue
        capacity = level.sums(cluster.allocatable[row, :width])
        total += (level.sums(cluster.used[row, :width]) + wanted) / np.maximum(capacity, 1)
        count += 1
    return total / max(count, 1)


def fill(counts: Counts, need: int, order: npt.NDArray[np.intp] | None = None) -> Counts | None:
    """[slot] → how many of `need` pods go there, taking nodes in `order` (every node once; fullest use first where not
    given: the fewest nodes). None where they do not all fit."""
    slots = np.argsort(-counts, kind="stable") if order is None else order
    taken = np.cumsum(counts[slots])
    if need > (int(taken[-1]) if len(taken) else 0):
        return None
    before = taken - counts[slots]
    filled = np.zeros_like(counts)
    filled[slots] = np.clip(need - before, 0, counts[slots])
    return filled


def fill_all(cluster: ClusterState, demands: Sequence[Demand], nodes: NodeMask) -> list[Counts] | None:
    """[demand][slot] → pods, all within `nodes`; None where this finds no way to place them all. The shape that is
    hardest to place goes first: filling small pods first leaves room that no large one can use."""
    slots = np.flatnonzero(nodes)
    free = cluster.allocatable[:, slots] - cluster.used[:, slots]
    filled = [np.zeros(cluster.width, dtype=np.int64) for _ in demands]
    room = [int(pods_per_node(cluster, demand, slots).sum()) for demand in demands]
    for number in sorted(range(len(demands)), key=lambda number: room[number]):
        demand = demands[number]
        placed = fill(pods_per_node(cluster, demand, slots, free), demand.count)
        if placed is None:
            return None
        filled[number][slots] = placed
        for resource, amount in demand.needs.items():
            row = cluster.column(resource)
            if row is not None:
                free[row] -= placed * amount
    return filled


def _enough(cluster: ClusterState, demands: Sequence[Demand], level: Level) -> NodeMask:
    """[domain] → whether it has as much of every resource as all demands together, give or take what floats lose."""
    width = cluster.width
    usable = np.logical_or.reduce([demand.feasible for demand in demands]) & cluster.exists[:width]
    found = np.ones(level.size, dtype=np.bool_)
    for resource in {resource for demand in demands for resource in demand.needs}:
        row = cluster.column(resource)
        total = sum(demand.needs.get(resource, 0) * demand.count for demand in demands)
        if row is not None and total:
            left = cluster.allocatable[row, :width] - cluster.used[row, :width]
            found &= level.sums(np.where(usable, np.maximum(left, 0), 0)) >= total * (1 - 1e-9)
    return found


def _tried(levels: Sequence[Level], requirement: Requirement) -> Iterator[Level]:
    """From narrow to wide."""
    last = requirement.widest if requirement.mode is Mode.REQUIRED else 0
    yield from reversed(levels[last:])


def _best(level: Level, sums: Counts) -> tuple[str, str, int]:
    if not level.size or int(sums.max()) < 0:
        return level.name, "", 0
    number = int(np.argmax(sums))
    return level.name, level.domain(number), int(sums[number])


def _label(cluster: ClusterState, slot: int, key: str) -> str:
    node = cluster.nodes[slot]
    assert node is not None, "a slot that exists has a node"
    return (node.metadata.labels or {})[key]
