"""ProportionalReserve: keeps, for each free device of a node, the CPU and memory that go with it, as Volcano's
proportional predicate does. A node full of pods that ask for no GPU is of no use to those that do."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Self

import numpy as np

from muster.api import core, fields, quantity, raw
from muster.api.errors import FieldError
from muster.api.meta import Resource
from muster.cluster.columns import Amounts
from muster.cluster.pods import PodInfo
from muster.cluster.state import ClusterState
from muster.placement.framework import (
    SKIP,
    Action,
    AtOneNode,
    Filter,
    Hint,
    PreFilter,
    Prepared,
    Reads,
    Rejection,
    Wake,
    Wakes,
)
from muster.placement.plugins.resource_args import Reader
from muster.placement.plugins.resource_hints import expect

REASON = "proportional of resource check failed"
_GIGABYTE = 10**9


class Companions(NamedTuple):
    device: str
    milli_cpu: int
    memory_bytes: int
    """Both for each one of the device."""

    def amounts(self) -> Iterator[tuple[str, int]]:
        yield from (("cpu", self.milli_cpu), ("memory", self.memory_bytes))


@dataclass(frozen=True, slots=True)
class ProportionalReserveArgs:
    resources: tuple[Companions, ...] = ()

    @classmethod
    def from_document(cls, document: Mapping[str, raw.JSON]) -> Self | list[FieldError]:
        read = Reader(document, ("resources",), "ProportionalReserveArgs")
        found = [
            _companions(read, path, entry)
            for path, entry in read.entries("resources", document.get("resources"), ("name", "cpu", "memory"))
        ]
        return read.errors or cls(tuple(found))

    @classmethod
    def from_volcano(cls, proportional: Mapping[str, Mapping[str, float]]) -> Self:
        """By device, whole CPUs and gigabytes."""
        return cls(
            tuple(
                Companions(device, round(rates["CPU"] * 1000), round(rates["Memory"] * _GIGABYTE))
                for device, rates in proportional.items()
            )
        )


def _companions(read: Reader, path: str, entry: Mapping[str, raw.JSON]) -> Companions:
    name = read.text(f"{path}.name", entry.get("name"))
    read.errors += fields.qualified_name(f"{path}.name", name)
    cpu, memory = (_amount(read, f"{path}.{field}", entry.get(field)) for field in ("cpu", "memory"))
    return Companions(name, cpu.milli, memory.units)


def _amount(read: Reader, path: str, value: raw.JSON) -> quantity.Quantity:
    found = quantity.parsed_or_none(0 if value is None else value)
    if found is None or found.milli < 0:
        read.errors.append(fields.invalid(path, value, "must be a quantity, and not negative"))
        return quantity.parse(0)
    return found


_NOTHING = ProportionalReserveArgs()


class ProportionalReserve:
    name: ClassVar[str] = "ProportionalReserve"
    reads: ClassVar[Reads] = Reads.NODE_PODS

    def __init__(self, args: ProportionalReserveArgs = _NOTHING) -> None:
        self._resources = args.resources

    def pre_filter(self, pod: PodInfo, cluster: ClusterState) -> Prepared:
        """Who asks for such a device uses what is kept for it."""
        has_one = any(pod.shape.needs.get(companions.device) for companions in self._resources)
        return Prepared(SKIP) if has_one or not self._resources else Prepared()

    def filter(self, pod: PodInfo, cluster: ClusterState, state: object) -> Sequence[Rejection]:
        short, needs = cluster.mask(), pod.shape.needs
        for companions in self._resources:
            devices = _free(cluster, companions.device)
            for resource, each in companions.amounts():
                left = _free(cluster, resource) - needs.get(resource, 0)
                short |= (devices > 0) & (left < devices * each)
        return [Rejection(REASON, short, is_unresolvable=True)] if short.any() else []

    def fits_at(self, pod: PodInfo, cluster: ClusterState, state: object, node: int) -> bool:
        needs = pod.shape.needs
        for companions in self._resources:
            devices = _free_at(cluster, companions.device, node)
            for resource, each in companions.amounts():
                if devices > 0 and _free_at(cluster, resource, node) - needs.get(resource, 0) < devices * each:
                    return False
        return True

    def score_at(self, pod: PodInfo, cluster: ClusterState, state: object, node: int) -> int:
        return 0

    def wakes(self) -> Sequence[Wake]:
        return (
            Wake("Pod", frozenset({Action.ADD}), self.after_pod_added, reads_labels=False),
            Wake("Pod", frozenset({Action.DELETE, Action.UPDATE_POD_SCALE_DOWN})),
            Wake("Node", frozenset({Action.ADD, Action.UPDATE_NODE_ALLOCATABLE})),
        )

    def after_pod_added(self, pod: PodInfo, old: Resource | None, new: Resource | None, cluster: ClusterState) -> Hint:
        """Where another pod takes a device, less is kept."""
        other = expect(core.Pod, new)
        asked = {} if other is None else core.pod_requests(other.spec)
        takes_any = any(asked.get(companions.device) for companions in self._resources)
        return Hint.QUEUE if takes_any else Hint.SKIP


def _free(cluster: ClusterState, resource: str) -> Amounts:
    row, width = cluster.column(resource), cluster.width
    if row is None:
        return np.zeros(width, dtype=np.int64)
    free: Amounts = cluster.allocatable[row, :width] - cluster.used[row, :width]
    return free


def _free_at(cluster: ClusterState, resource: str, node: int) -> int:
    row = cluster.column(resource)
    return 0 if row is None else cluster.allocatable.item(row, node) - cluster.used.item(row, node)


_PLUGIN = ProportionalReserve()
_pre_filter: PreFilter = _PLUGIN
_filter: Filter = _PLUGIN
_at_one_node: AtOneNode = _PLUGIN
_wakes: Wakes = _PLUGIN
