"""BinPacking: prefers the node that is fullest with the pod on it, resource by resource, as Volcano's binpack does.

The mean, weighted, of the shares that are used of what the pod asks for. A resource that the node has none of counts as
unused; one without a weight does not count; and a node where one of them does not fit is worth nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Self, TypeAlias

import numpy as np
import numpy.typing as npt

from muster.api import fields, raw
from muster.api.errors import FieldError
from muster.cluster.columns import NodeMask
from muster.cluster.pods import PodInfo
from muster.cluster.state import ClusterState
from muster.placement.framework import MAX_SCORE, SKIP, AtOneNode, NodeScores, Prepared, PreScore, Reads, Score
from muster.placement.plugins.resource_args import Reader, ResourceSpec

Shares: TypeAlias = npt.NDArray[np.float64]
"""[slot] → 0..1."""
_USUAL = (ResourceSpec("cpu", 1), ResourceSpec("memory", 1))
_PREFIX = "binpack."
_RESOURCES = "binpack.resources"


@dataclass(frozen=True, slots=True)
class BinPackingArgs:
    resources: tuple[ResourceSpec, ...] = _USUAL
    """What is packed, and how much each counts."""
    weight: int = 1
    """Of the plugin, as Volcano's configuration has it; a profile says it where it enables the plugin."""

    @classmethod
    def from_document(cls, document: Mapping[str, raw.JSON]) -> Self | list[FieldError]:
        read = Reader(document, ("resources",), "BinPackingArgs")
        found: list[ResourceSpec] = []
        for path, entry in read.entries("resources", document.get("resources"), ("name", "weight")):
            name = read.text(f"{path}.name", entry.get("name"))
            weight = 1 if entry.get("weight") is None else read.number(f"{path}.weight", entry["weight"])
            read.errors += fields.qualified_name(f"{path}.name", name)
            if weight < 0:
                read.errors.append(fields.invalid(f"{path}.weight", weight, "must not be negative"))
            if any(other.name == name for other in found):
                read.errors.append(fields.duplicate(f"{path}.name", name))
            found.append(ResourceSpec(name, weight))
        return read.errors or (cls(tuple(found)) if found else cls())

    @classmethod
    def from_volcano(cls, arguments: Mapping[str, raw.JSON]) -> Self:
        """From `binpack.cpu`, `binpack.resources` and so on. As there, what makes no sense counts as not said."""
        listed = arguments.get(_RESOURCES)
        names = [name.strip() for name in listed.split(",")] if isinstance(listed, str) else []
        weights = {name: _weight(arguments, f"{_RESOURCES}.{name}") for name in names if name}
        weights |= {name: _weight(arguments, _PREFIX + name) for name in ("cpu", "memory")}
        return cls(
            tuple(ResourceSpec(name, weight) for name, weight in weights.items()),
            _number(arguments, "binpack.weight"),
        )


class _Packed(NamedTuple):
    resource: str
    amount: int
    weight: int


_DEFAULTS = BinPackingArgs()


class BinPacking:
    name: ClassVar[str] = "BinPacking"
    reads: ClassVar[Reads] = Reads.NODE_PODS

    def __init__(self, args: BinPackingArgs = _DEFAULTS) -> None:
        self._weights = {resource.name: resource.weight for resource in args.resources}
        self._key = f"{self.name} {args}"

    def pre_score(self, pod: PodInfo, cluster: ClusterState, feasible: NodeMask) -> Prepared:
        return Prepared() if self._packed(pod) else Prepared(SKIP)

    def score(self, pod: PodInfo, cluster: ClusterState, state: object) -> NodeScores:
        scores: NodeScores = np.rint(self.shares(pod, cluster) * MAX_SCORE).astype(np.int64)
        return scores

    def shares(self, pod: PodInfo, cluster: ClusterState) -> Shares:
        """How full each node is with the pod on it."""
        width = cluster.width
        total, weights, fits = np.zeros(width), 0, cluster.mask(True)
        for resource, amount, weight in self._packed(pod):
            weights += weight
            row = cluster.column(resource)
            if row is None or not weight:
                continue
            capacity, filled = cluster.allocatable[row, :width], cluster.used[row, :width] + amount
            has_any = capacity > 0
            fits &= (filled <= capacity) | ~has_any
            total += np.where(has_any, filled * weight / np.maximum(capacity, 1), 0.0)
        return np.where(fits, total / max(weights, 1), 0.0)

    def fits_at(self, pod: PodInfo, cluster: ClusterState, state: object, node: int) -> bool:
        return True

    def score_at(self, pod: PodInfo, cluster: ClusterState, state: object, node: int) -> int:
        total, weights = 0.0, 0
        for resource, amount, weight in self._packed(pod):
            weights += weight
            row = cluster.column(resource)
            if row is None or not weight:
                continue
            capacity, filled = cluster.allocatable.item(row, node), cluster.used.item(row, node) + amount
            if capacity > 0:
                if filled > capacity:
                    return 0
                total += filled * weight / capacity
        return round(total / max(weights, 1) * MAX_SCORE)

    def _packed(self, pod: PodInfo) -> tuple[_Packed, ...]:
        found = pod.shape.scratch.get(self._key)
        if not isinstance(found, tuple):
            asked = pod.shape.needs.items()
            weights = self._weights
            found = tuple(_Packed(name, amount, weights[name]) for name, amount in asked if amount and name in weights)
            pod.shape.scratch[self._key] = found
        return found


def _weight(arguments: Mapping[str, raw.JSON], key: str) -> int:
    number = _number(arguments, key)
    return number if number >= 0 else 1


def _number(arguments: Mapping[str, raw.JSON], key: str) -> int:
    value = arguments.get(key, 1)
    if isinstance(value, str):
        return int(value) if value.removeprefix("-").isdecimal() and value.isascii() else 1
    return value if isinstance(value, int) and not isinstance(value, bool) else 1


_score: Score = BinPacking()
_pre_score: PreScore = BinPacking()
_at_one: AtOneNode = BinPacking()
