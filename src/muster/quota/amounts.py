"""Amounts of resources as quota counts them: cpu in thousandths, everything else in whole units, rounded up.

Plain integers: they do not overflow, so a quota beyond 64 bits needs no mark of its own; `shown` caps what users see.
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final, NamedTuple, TypeAlias

from muster.api import quantity

CPU: Final = "cpu"
PODS: Final = "pods"
MOST: Final = 2**63 - 1
_BINARY: Final = frozenset({"memory", "ephemeral-storage", "storage"})


class FlavorResource(NamedTuple):
    """A resource in one flavor: what every quota is about."""

    flavor: str
    resource: str


Requests: TypeAlias = Mapping[str, int]
"""By resource."""
FlavorAmounts: TypeAlias = Mapping[FlavorResource, int]


def amount(resource: str, value: str | int | float) -> int:
    found = quantity.parse(value)
    return found.milli if resource == CPU else found.units


def amounts(listed: Mapping[str, str | int | float] | None) -> dict[str, int]:
    return {resource: amount(resource, value) for resource, value in (listed or {}).items()}


@lru_cache(maxsize=4096)
def shown(resource: str, value: int) -> str:
    """As Kubernetes writes the quantity. Remembered: many workloads ask for the same."""
    capped = min(value, MOST)
    if resource == CPU:
        return str(quantity.from_milli(capped))
    is_binary = resource in _BINARY or resource.startswith("hugepages-")
    return str(quantity.from_units(capped, quantity.Family.BINARY if is_binary else quantity.Family.DECIMAL))


def all_shown(requests: Requests) -> dict[str, str]:
    return {resource: shown(resource, value) for resource, value in requests.items()}


def total(parts: Iterable[Requests]) -> dict[str, int]:
    summed: dict[str, int] = {}
    for part in parts:
        for resource, value in part.items():
            summed[resource] = summed.get(resource, 0) + value
    return summed


def scaled(requests: Requests, factor: int) -> dict[str, int]:
    return {resource: value * factor for resource, value in requests.items()}
