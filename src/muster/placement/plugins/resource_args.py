"""Options of the plugins that judge nodes by their resources: the documents of kubescheduler.config.k8s.io/v1, typed.

A document is read to the end: every mistake is reported, with the path of its field.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

from muster.api import fields, raw
from muster.api.errors import FieldError

LEAST_ALLOCATED = "LeastAllocated"
MOST_ALLOCATED = "MostAllocated"
REQUESTED_TO_CAPACITY_RATIO = "RequestedToCapacityRatio"
STRATEGIES = (LEAST_ALLOCATED, MOST_ALLOCATED, REQUESTED_TO_CAPACITY_RATIO)
_LARGEST_WEIGHT = 100
_LARGEST_UTILIZATION = 100
_LARGEST_SHAPE_SCORE = 10


class ResourceSpec(NamedTuple):
    name: str
    weight: int = 1


class ShapePoint(NamedTuple):
    """How good a node is (0..10) whose resource is used to so many percent."""

    utilization: int
    score: int


CPU_AND_MEMORY = (ResourceSpec("cpu"), ResourceSpec("memory"))


@dataclass(frozen=True, slots=True)
class ScoringStrategy:
    type: str = LEAST_ALLOCATED
    resources: tuple[ResourceSpec, ...] = CPU_AND_MEMORY
    shape: tuple[ShapePoint, ...] | None = None
    """For RequestedToCapacityRatio, and for nothing else."""


@dataclass(frozen=True, slots=True)
class NodeResourcesFitArgs:
    ignored_resources: tuple[str, ...] = ()
    ignored_resource_groups: tuple[str, ...] = ()
    scoring_strategy: ScoringStrategy = ScoringStrategy()

    @classmethod
    def from_document(cls, document: Mapping[str, raw.JSON], *, defaults: bool = True) -> Self | list[FieldError]:
        """`defaults`: False where the document has been through defaulting, so that what it leaves out is meant."""
        read = Reader(
            document, ("ignoredResources", "ignoredResourceGroups", "scoringStrategy"), "NodeResourcesFitArgs"
        )
        ignored = read.texts("ignoredResources")
        groups = read.texts("ignoredResourceGroups")
        read.errors += _ignored_errors(ignored, groups)
        strategy = _strategy(read, defaults)
        return read.errors or cls(ignored, groups, strategy)


@dataclass(frozen=True, slots=True)
class NodeResourcesBalancedAllocationArgs:
    resources: tuple[ResourceSpec, ...] = CPU_AND_MEMORY

    @classmethod
    def from_document(cls, document: Mapping[str, raw.JSON], *, defaults: bool = True) -> Self | list[FieldError]:
        read = Reader(document, ("resources",), "NodeResourcesBalancedAllocationArgs")
        resources = _resources(read, "resources", document.get("resources"), defaults)
        seen: set[str] = set()
        for index, resource in enumerate(resources):
            path = f"resources[{index}]"
            if resource.name in seen:
                read.errors.append(fields.duplicate(f"{path}.name", resource.name))
            seen.add(resource.name)
            if resource.weight != 1:
                read.errors.append(fields.invalid(f"{path}.weight", resource.weight, "must be 1"))
        return read.errors or cls(resources)


class Reader:
    """Reads one document of options, and keeps what was wrong with it."""

    def __init__(self, document: Mapping[str, raw.JSON], known: Sequence[str], kind: str) -> None:
        self.document = document
        self.errors: list[FieldError] = []
        self.only("", document, ("apiVersion", "kind", *known))
        if document.get("kind") not in (None, kind):
            self.errors.append(fields.unsupported("kind", document["kind"], (kind,)))

    def only(self, path: str, found: Mapping[str, raw.JSON], known: Sequence[str]) -> None:
        for name in found:
            if name not in known:
                where = f"{path}.{name}" if path else str(name)
                self.errors.append(fields.forbidden(where, f"unknown field; known are {', '.join(known)}"))

    def texts(self, name: str) -> tuple[str, ...]:
        listed = self.items(name, self.document.get(name))
        for path, item in listed:
            self.expect(path, item, str)
        return tuple(item for _, item in listed if isinstance(item, str))

    def items(self, path: str, value: raw.JSON) -> list[tuple[str, raw.JSON]]:
        if not self.expect(path, value, list):
            return []
        return [(f"{path}[{index}]", item) for index, item in enumerate(value or ())]

    def entries(self, path: str, value: raw.JSON, known: Sequence[str]) -> Iterator[tuple[str, Mapping[str, raw.JSON]]]:
        for where, item in self.items(path, value):
            yield where, self.entry(where, item, known)

    def entry(self, path: str, value: raw.JSON, known: Sequence[str]) -> Mapping[str, raw.JSON]:
        if not self.expect(path, value, dict) or value is None:
            return {}
        self.only(path, value, known)
        found: Mapping[str, raw.JSON] = value
        return found

    def text(self, path: str, value: raw.JSON, default: str = "") -> str:
        return value if self.expect(path, value, str) and value is not None else default

    def number(self, path: str, value: raw.JSON) -> int:
        return value if self.expect(path, value, int) and value is not None else 0

    def expect(self, path: str, value: raw.JSON, kind: type) -> bool:
        """None is what is left out, and always right."""
        if value is None or (isinstance(value, kind) and not (kind is int and isinstance(value, bool))):
            return True
        wanted = {str: "text", int: "a whole number", list: "a list", dict: "an object"}[kind]
        self.errors.append(fields.invalid(path, value, f"must be {wanted}"))
        return False


def _strategy(read: Reader, defaults: bool) -> ScoringStrategy:
    path, value = "scoringStrategy", read.document.get("scoringStrategy")
    if value is None:
        if not defaults:
            read.errors.append(fields.required(path, "Required value: says how nodes are scored"))
        return ScoringStrategy()
    found = read.entry(path, value, ("type", "resources", "requestedToCapacityRatio"))
    # Kubernetes has a default for the strategy as a whole, none for its type.
    type_ = read.text(f"{path}.type", found.get("type"))
    if type_ not in STRATEGIES:
        read.errors.append(fields.unsupported(f"{path}.type", type_, STRATEGIES))
    resources = _resources(read, f"{path}.resources", found.get("resources"), defaults)
    for index, resource in enumerate(resources):
        if not 0 < resource.weight <= _LARGEST_WEIGHT:
            message = f"resource weight of {resource.name} not in valid range (0, {_LARGEST_WEIGHT}]"
            read.errors.append(fields.invalid(f"{path}.resources[{index}].weight", resource.weight, message))
    ratio_path, ratio = f"{path}.requestedToCapacityRatio", found.get("requestedToCapacityRatio")
    if type_ != REQUESTED_TO_CAPACITY_RATIO:
        if ratio is not None:
            message = f"must be left out when type is not {REQUESTED_TO_CAPACITY_RATIO}"
            read.errors.append(fields.forbidden(ratio_path, message))
        return ScoringStrategy(type_, resources)
    if ratio is None:
        message = f"Required value: must be specified when type is {REQUESTED_TO_CAPACITY_RATIO}"
        read.errors.append(fields.required(ratio_path, message))
        return ScoringStrategy(type_, resources)
    return ScoringStrategy(type_, resources, _shape(read, ratio_path, ratio))


def _resources(read: Reader, path: str, value: raw.JSON, defaults: bool) -> tuple[ResourceSpec, ...]:
    found = tuple(
        ResourceSpec(
            read.text(f"{where}.name", item.get("name")),
            read.number(f"{where}.weight", item.get("weight")) or (1 if defaults else 0),
        )
        for where, item in read.entries(path, value, ("name", "weight"))
    )
    return CPU_AND_MEMORY if defaults and not found else found


def _shape(read: Reader, path: str, ratio: raw.JSON) -> tuple[ShapePoint, ...]:
    found = read.entry(path, ratio, ("shape",))
    path = f"{path}.shape"
    points = tuple(
        ShapePoint(
            read.number(f"{where}.utilization", item.get("utilization")),
            read.number(f"{where}.score", item.get("score")),
        )
        for where, item in read.entries(path, found.get("shape"), ("utilization", "score"))
    )
    if not points:
        read.errors.append(fields.required(path, "Required value: at least one point must be specified"))
    for index in range(1, len(points)):
        if points[index - 1].utilization >= points[index].utilization:
            message = "values must be sorted in increasing order"
            read.errors.append(fields.invalid(f"{path}[{index}].utilization", points[index].utilization, message))
            break
    for index, point in enumerate(points):
        read.errors += _range_errors(f"{path}[{index}].utilization", point.utilization, _LARGEST_UTILIZATION)
        read.errors += _range_errors(f"{path}[{index}].score", point.score, _LARGEST_SHAPE_SCORE)
    return points


def _range_errors(path: str, value: int, largest: int) -> Iterator[FieldError]:
    if not 0 <= value <= largest:
        yield fields.invalid(path, value, f"not in valid range [0, {largest}]")


def _ignored_errors(resources: Sequence[str], groups: Sequence[str]) -> Iterator[FieldError]:
    for index, resource in enumerate(resources):
        yield from fields.qualified_name(f"ignoredResources[{index}]", resource)
    for index, group in enumerate(groups):
        path = f"ignoredResourceGroups[{index}]"
        if "/" in group:
            yield fields.invalid(path, group, "resource group name can't contain '/'")
        yield from fields.qualified_name(path, group)
