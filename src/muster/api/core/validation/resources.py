"""Checks of requests, limits and other lists of quantities."""

from collections.abc import Iterator

from muster.api import fields, quantity
from muster.api.core import requests as amounts
from muster.api.core.views import PodSpec, ResourceRequirements
from muster.api.errors import FieldError
from muster.api.quantity import Quantity
from muster.api.scalars import ResourceList

_FOR_CONTAINERS = frozenset({amounts.CPU, amounts.MEMORY, amounts.EPHEMERAL_STORAGE})
_MOST_CPU = quantity.from_milli(quantity.MAX_UNITS)


def validate_resource_list(path: str, listed: ResourceList | None) -> Iterator[FieldError]:
    """Named quantities, none negative; extended resources in whole units."""
    for name, value in (listed or {}).items():
        at = f"{path}[{name}]"
        yield from fields.qualified_name(at, name)
        problems = list(fields.amount(at, value))
        yield from problems
        if not problems:
            yield from _amount_fits(at, name, quantity.parse(value))


def _amount_fits(path: str, name: str, amount: Quantity) -> Iterator[FieldError]:
    if name == amounts.CPU and amount > _MOST_CPU:
        yield fields.invalid(path, str(amount), f"must be less than or equal to {_MOST_CPU}")
    if not amount.is_whole and (not amounts.is_native(name) or amounts.is_huge_pages(name)):
        yield fields.invalid(path, str(amount), "must be an integer")


def validate_resources(path: str, resources: ResourceRequirements | None) -> Iterator[FieldError]:
    """Requests and limits of one container."""
    if resources is None:
        return
    limits = resources.limits or {}
    # A request that only repeats its limit was copied from it by the defaults: one complaint is enough.
    own_requests = {name: value for name, value in (resources.requests or {}).items() if limits.get(name) != value}
    problems = [
        problem
        for part, listed in (("limits", limits), ("requests", own_requests))
        for problem in (
            *_container_resource_names(f"{path}.{part}", listed),
            *validate_resource_list(f"{path}.{part}", listed),
        )
    ]
    yield from problems
    if not problems:
        yield from _requests_within_limits(path, resources)
        yield from _huge_pages(path, resources)


def _container_resource_names(path: str, listed: ResourceList | None) -> Iterator[FieldError]:
    for name in listed or {}:
        if "/" not in name and name not in _FOR_CONTAINERS and not amounts.is_huge_pages(name):
            yield fields.invalid(
                f"{path}[{name}]", name, "must be a standard resource for containers, or a name with a domain"
            )


def _requests_within_limits(path: str, resources: ResourceRequirements) -> Iterator[FieldError]:
    limits = amounts.amounts(resources.limits)
    for name, asked in amounts.amounts(resources.requests).items():
        limit = limits.get(name)
        may_overcommit = amounts.is_native(name) and not amounts.is_huge_pages(name)
        if limit is None and not may_overcommit:
            yield fields.required(
                f"{path}.limits[{name}]", "Required value: Limit must be set for non overcommitable resources"
            )
        elif limit is not None and not may_overcommit and asked != limit:
            yield fields.invalid(f"{path}.requests", str(asked), f"must be equal to {name} limit of {limit}")
        elif limit is not None and asked > limit:
            yield fields.invalid(
                f"{path}.requests", str(asked), f"must be less than or equal to {name} limit of {limit}"
            )


def _huge_pages(path: str, resources: ResourceRequirements) -> Iterator[FieldError]:
    names = {*(resources.limits or {}), *(resources.requests or {})}
    if any(map(amounts.is_huge_pages, names)) and not names & {amounts.CPU, amounts.MEMORY}:
        yield fields.forbidden(path, "HugePages require cpu or memory")


def validate_pod_resources(path: str, spec: PodSpec) -> Iterator[FieldError]:
    """What is said for the pod as a whole. The containers' own amounts have been checked without complaint."""
    resources = spec.resources
    if resources is None:
        return
    problems = [
        fields.unsupported(f"{path}.{part}[{name}]", name, ["cpu", "memory", "hugepages-<size>"])
        for part, listed in (("limits", resources.limits), ("requests", resources.requests))
        for name in listed or {}
        if not amounts.is_pod_level(name)
    ]
    problems.extend(validate_resources(path, resources))
    yield from problems
    if problems:
        return
    needed = amounts.container_requests(spec)
    for name, given in amounts.amounts(resources.requests).items():
        if name in needed and needed[name] > given:
            yield fields.invalid(
                f"{path}.requests[{name}]",
                str(given),
                f"must be greater than or equal to aggregate container requests of {needed[name]}",
            )
    for name, limit in amounts.amounts(resources.limits).items():
        for index, container in enumerate(spec.containers):
            own = amounts.limits_of(container.resources).get(name)
            if own is not None and own > limit:
                at = f"{path.removesuffix('.resources')}.containers[{index}].resources.limits[{name}]"
                yield fields.invalid(at, str(own), f"must be less than or equal to pod limits of {limit}")
