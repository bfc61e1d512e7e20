"""Clusters with blocks, racks and hosts, and a plain recomputation of how pods are counted and dealt out in them.

The recomputation is written from the description of the algorithm, with domains as objects and loops over them.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from muster.api import core, kueue
from muster.api.meta import ObjectMeta
from muster.cluster.state import ClusterState
from muster.quota.gates import Gates
from muster.quota.topology import FlavorTopology, Placed, PlacementRequest, Topologies
from muster.quota.topology.requests import Shape
from muster.testing.builders import NodeBuilder, a_node

BLOCK, RACK, HOST = "block", "rack", "kubernetes.io/hostname"
LEVELS = (BLOCK, RACK, HOST)


def a_host(name: str, block: str = "b1", rack: str = "r1", *, cpu: int | str = 4) -> NodeBuilder:
    return a_node(name).cpu(cpu).label(BLOCK, block).label(RACK, rack).label(HOST, name)


def a_cluster(hosts: Iterable[NodeBuilder]) -> ClusterState:
    return ClusterState.of(msgspec.convert(host.document(), core.Node) for host in hosts)


def a_flavor(name: str, **spec: Any) -> kueue.ResourceFlavor:
    return msgspec.convert({"metadata": {"name": name}, "spec": spec}, kueue.ResourceFlavor)


def a_topology(*levels: str) -> kueue.Topology:
    listed = tuple(kueue.TopologyLevel(level) for level in levels)
    return kueue.Topology(metadata=ObjectMeta(name="t"), spec=kueue.TopologySpec(listed))


def a_room(
    hosts: Iterable[NodeBuilder], *levels: str, gates: Mapping[str, bool] | None = None, **spec: Any
) -> FlavorTopology:
    topologies = Topologies(a_cluster(hosts), Gates.default().changed(gates or {}))
    topologies.set_flavor(a_flavor("f", **spec), a_topology(*(levels or LEVELS)))
    found = topologies.flavor("f")
    assert found is not None
    return found


def asking(count: int, cpu: int = 1, name: str = "main", **more: Any) -> PlacementRequest:
    """So many pods of so many CPUs. Fields of the topology request by their names, the others are the request's own."""
    own = {key: more.pop(key) for key in list(more) if key in PlacementRequest.__dataclass_fields__}
    topology = kueue.PodSetTopologyRequest(**more) if more else None
    return PlacementRequest(name, count, {"cpu": cpu * 1000}, topology, **own)


def pods_by_host(placed: Placed) -> dict[str, int]:
    """Also checks that it was placed."""
    assert placed.assignment is not None, placed.reason
    return {domain.values[-1]: domain.pods for domain in placed.assignment.domains}


# The recomputation


@dataclass(eq=False)
class PlainDomain:
    values: tuple[str, ...]
    children: list["PlainDomain"] = field(default_factory=list)
    pods: int = 0
    slices: int = 0
    pods_led: int = 0
    slices_led: int = 0
    leaders: int = 0


class PlainTree:
    """`room`: by leaf (its values on all levels), how many pods fit, how many with the leader there, and whether it
    fits."""

    def __init__(self, room: Mapping[tuple[str, ...], tuple[int, int, bool]], shape: Shape, *, is_led: bool) -> None:
        self.shape = shape
        self.is_led = is_led
        self.levels: list[list[PlainDomain]] = []
        width = len(next(iter(room)))
        known: dict[tuple[str, ...], PlainDomain] = {}
        for level in range(width):
            values = sorted({leaf[: level + 1] for leaf in room})
            self.levels.append([known.setdefault(one, PlainDomain(one)) for one in values])
            for one in values:
                if level:
                    known[one[:-1]].children.append(known[one])
        for level in reversed(range(width)):
            for domain in self.levels[level]:
                if level == width - 1:
                    domain.pods, domain.pods_led, leads = room[domain.values]
                    domain.leaders = int(leads)
                else:
                    self._sum(domain, level)
                if level == shape.slice_level:
                    domain.slices = domain.pods // shape.slice_size
                    domain.slices_led = domain.pods_led // shape.slice_size

    def _sum(self, domain: PlainDomain, level: int) -> None:
        size = self.shape.size_at(level + 1)
        pods = {child: (child.pods // size * size, child.pods_led // size * size) for child in domain.children}
        domain.pods, domain.pods_led = self._total(domain, pods.__getitem__)
        if level < self.shape.slice_level:
            domain.slices, domain.slices_led = self._total(domain, lambda child: (child.slices, child.slices_led))
        domain.leaders = max(child.leaders for child in domain.children)

    def _total(self, domain: PlainDomain, of: Callable[[PlainDomain], tuple[int, int]]) -> tuple[int, int]:
        total = sum(of(child)[0] for child in domain.children)
        capable = [child for child in domain.children if child.leaders or not self.is_led]
        if not capable:
            return total, 0
        return total, total - min(of(child)[0] - of(child)[1] for child in capable)

    def place(self, count: int, *, ascending: bool) -> dict[tuple[str, ...], int] | None:
        """Leaves with their pods, for a request without a leader. None where it does not fit."""
        wanted, level = count // self.shape.slice_size, self.shape.level
        while True:
            here = self._ordered(self.levels[level], ascending)
            fitting = [domain for domain in here if domain.slices >= wanted]
            if fitting:
                smallest = min(domain.slices for domain in fitting)
                given = [(next(domain for domain in fitting if domain.slices == smallest), wanted)]
                break
            if self.shape.is_required:
                return None
            if level == 0 or self.shape.is_unconstrained:
                filled = self._filled(here, wanted, ascending, lambda domain: domain.slices)
                if filled is None:
                    return None
                given = filled
                break
            level -= 1
        return self._down(level, given, wanted, ascending)

    def _down(
        self, level: int, given: list[tuple[PlainDomain, int]], wanted: int, ascending: bool
    ) -> dict[tuple[str, ...], int]:
        shape = self.shape
        for below in range(level, shape.slice_level):
            del below
            pool = self._ordered([child for domain, _ in given for child in domain.children], ascending)
            pooled = self._filled(pool, wanted, ascending, lambda domain: domain.slices)
            assert pooled is not None
            given = pooled
        given = [(domain, slices * shape.slice_size) for domain, slices in given]
        for below in range(max(level, shape.slice_level), len(self.levels) - 1):
            size = shape.size_at(below + 1)
            dealt: list[tuple[PlainDomain, int]] = []
            for domain, pods in given:
                order = sorted(domain.children, key=lambda child: (child.pods, child.values))
                part = self._filled(order, pods // size, True, lambda child, size=size: child.pods // size)  # type: ignore[misc]
                assert part is not None
                dealt += [(child, units * size) for child, units in part]
            given = dealt
        return {domain.values: pods for domain, pods in given if pods}

    def _ordered(self, domains: list[PlainDomain], ascending: bool) -> list[PlainDomain]:
        sign = 1 if ascending else -1
        return sorted(domains, key=lambda domain: (sign * domain.slices, domain.pods, domain.values))

    def _filled(
        self, order: list[PlainDomain], wanted: int, ascending: bool, room: Callable[[PlainDomain], int]
    ) -> list[tuple[PlainDomain, int]] | None:
        given: list[tuple[PlainDomain, int]] = []
        left = wanted
        for place, domain in enumerate(order):
            if not left:
                break
            if room(domain) >= left:
                enough = [other for other in order[place:] if room(other) >= left]
                last = domain if ascending else min(enough, key=room)
                given.append((last, left))
                left = 0
            elif room(domain):
                given.append((domain, room(domain)))
                left -= room(domain)
        return None if left else given
