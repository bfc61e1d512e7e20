"""Options of ResourceStrategyFit: which resources are packed and which are spread, in our words and in Volcano's."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Self

from muster.api import fields, raw
from muster.api.errors import FieldError
from muster.placement.plugins.resource_args import LEAST_ALLOCATED, MOST_ALLOCATED, Reader, ResourceSpec

_TYPES = (LEAST_ALLOCATED, MOST_ALLOCATED)
_VOLCANO_WEIGHT = 10
"""What Volcano gives the strategies, and the care for scarce resources, where nobody says so."""


class Strategy(NamedTuple):
    name: str
    """Of a resource, or what the names of several begin with, and a `*`."""
    type: str = LEAST_ALLOCATED
    weight: int = 1

    @property
    def prefix(self) -> str | None:
        return self.name[:-1] if self.name.endswith("*") else None


_SPREAD = (Strategy("cpu"), Strategy("memory"))


@dataclass(frozen=True, slots=True)
class ResourceStrategyFitArgs:
    resources: tuple[Strategy, ...] = _SPREAD
    weight: int = 1
    """Of the strategies, beside `scarce_weight`."""
    scarce: tuple[ResourceSpec, ...] = ()
    """What few nodes have: pods that do not ask for it are better off elsewhere."""
    scarce_weight: int = 0

    def strategy_of(self, resource: str) -> Strategy | None:
        """The one of that name, or else the one with the longest beginning of it."""
        beginning = [
            found for found in self.resources if found.prefix is not None and resource.startswith(found.prefix)
        ]
        exact = next((found for found in self.resources if found.name == resource), None)
        return exact or max(beginning, key=lambda found: len(found.name), default=None)

    @classmethod
    def from_document(cls, document: Mapping[str, raw.JSON]) -> Self | list[FieldError]:
        read = Reader(document, ("resources", "weight", "scarce", "scarceWeight"), "ResourceStrategyFitArgs")
        strategies = [
            _strategy(read, path, entry)
            for path, entry in read.entries("resources", document.get("resources"), ("name", "type", "weight"))
        ]
        scarce = [
            ResourceSpec(read.text(f"{path}.name", entry.get("name")), _weight(read, path, entry))
            for path, entry in read.entries("scarce", document.get("scarce"), ("name", "weight"))
        ]
        for index, resource in enumerate(scarce):
            read.errors += fields.qualified_name(f"scarce[{index}].name", resource.name)
        read.errors += _duplicates("resources", [strategy.name for strategy in strategies])
        read.errors += _duplicates("scarce", [resource.name for resource in scarce])
        weight = _number(read, "weight", document.get("weight"), 1)
        scarce_weight = _number(read, "scarceWeight", document.get("scarceWeight"), 1 if scarce else 0)
        return read.errors or cls(tuple(strategies) or _SPREAD, weight, tuple(scarce), scarce_weight)

    @classmethod
    def from_volcano(cls, arguments: Mapping[str, raw.JSON]) -> Self:
        """From `resourceStrategyFitWeight`, `resources` and `sra`. As there, what makes no sense counts as not said."""
        said = arguments.get("resources")
        strategies = tuple(
            Strategy(name, str(raw.dig(entry, "type")), _as_number(raw.dig(entry, "weight"), 1))
            for name, entry in (said.items() if isinstance(said, dict) else ())
            if _is_pattern(name) and raw.dig(entry, "type") in _TYPES
        )
        weight = _as_number(arguments.get("resourceStrategyFitWeight"), _VOLCANO_WEIGHT)
        if raw.dig(arguments.get("sra"), "enable") is not True:
            return cls(strategies or _SPREAD, weight)
        listed = raw.dig(arguments["sra"], "resources")
        names = [name.strip() for name in listed.split(",")] if isinstance(listed, str) else []
        weights = raw.dig(arguments["sra"], "resourceWeight")
        scarce = tuple(ResourceSpec(name, _as_number(raw.dig(weights, name), 1)) for name in names if name)
        return cls(
            strategies or _SPREAD, weight, scarce, _as_number(raw.dig(arguments["sra"], "weight"), _VOLCANO_WEIGHT)
        )


def _strategy(read: Reader, path: str, entry: Mapping[str, raw.JSON]) -> Strategy:
    name = read.text(f"{path}.name", entry.get("name"))
    type_ = read.text(f"{path}.type", entry.get("type"), LEAST_ALLOCATED)
    if not _is_pattern(name):
        message = "must be the name of a resource, or the beginning of names and one `*` at the end"
        read.errors.append(fields.invalid(f"{path}.name", name, message))
    if type_ not in _TYPES:
        read.errors.append(fields.unsupported(f"{path}.type", type_, _TYPES))
    return Strategy(name, type_, _weight(read, path, entry))


def _weight(read: Reader, path: str, entry: Mapping[str, raw.JSON]) -> int:
    return _number(read, f"{path}.weight", entry.get("weight"), 1)


def _number(read: Reader, path: str, value: raw.JSON, usual: int) -> int:
    number = usual if value is None else read.number(path, value)
    if number < 0:
        read.errors.append(fields.invalid(path, number, "must not be negative"))
    return number


def _duplicates(path: str, names: Iterable[str]) -> list[FieldError]:
    seen: set[str] = set()
    found = []
    for index, name in enumerate(names):
        if name in seen:
            found.append(fields.duplicate(f"{path}[{index}].name", name))
        seen.add(name)
    return found


def _is_pattern(name: str) -> bool:
    return bool(name.removesuffix("*")) and "*" not in name.removesuffix("*")


def _as_number(value: raw.JSON, usual: int) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else usual
