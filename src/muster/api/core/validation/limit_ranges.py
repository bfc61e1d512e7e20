"""Checks of LimitRange, and the defaults that it gets itself."""

from collections.abc import Iterator, Mapping
from typing import Final

from muster.api import fields, quantity
from muster.api.core import requests
from muster.api.core.validation.resources import validate_resource_list
from muster.api.core.views import LimitRange, LimitRangeItem
from muster.api.errors import FieldError
from muster.api.quantity import Quantity
from muster.api.scalars import ResourceList

CONTAINER: Final = "Container"
POD: Final = "Pod"
CLAIM: Final = "PersistentVolumeClaim"
_TYPES: Final = frozenset({CONTAINER, POD, CLAIM})
_ONE: Final = quantity.from_units(1)


def validate_limit_range(found: LimitRange) -> list[FieldError]:
    return list(_limit_range(found))


def _limit_range(found: LimitRange) -> Iterator[FieldError]:
    seen: set[str] = set()
    for index, item in enumerate(found.spec.limits):
        path = f"spec.limits[{index}]"
        yield from _type(f"{path}.type", item.type)
        if item.type in seen:
            yield fields.duplicate(f"{path}.type", item.type)
        seen.add(item.type)
        yield from _item(path, item)


def _type(path: str, found: str) -> Iterator[FieldError]:
    if not found:
        yield fields.required(path)
    elif "/" not in found and found not in _TYPES:
        yield fields.unsupported(path, found, _TYPES)
    else:
        yield from fields.qualified_name(path, found)


def _item(path: str, item: LimitRangeItem) -> Iterator[FieldError]:
    parts: Mapping[str, ResourceList] = {
        "max": item.max or {},
        "min": item.min or {},
        "default": item.default or {},
        "defaultRequest": item.default_request or {},
        "maxLimitRequestRatio": item.max_limit_request_ratio or {},
    }
    if item.type == POD:
        for name in ("default", "defaultRequest"):
            if parts[name]:
                yield fields.forbidden(f"{path}.{name}", "may not be specified when `type` is 'Pod'")
    if item.type == CLAIM and "storage" not in parts["max"] and "storage" not in parts["min"]:
        yield fields.required(
            f"{path}.limits", "either minimum or maximum storage value is required, but neither was provided"
        )
    # A ratio is a plain number, whatever it is a ratio of.
    problems = [
        problem
        for name, listed in parts.items()
        if name != "maxLimitRequestRatio"
        for problem in validate_resource_list(f"{path}.{name}", listed)
    ]
    problems += _ratio_numbers(f"{path}.maxLimitRequestRatio", parts["maxLimitRequestRatio"])
    yield from problems
    if not problems:
        amounts = {name: requests.amounts(listed) for name, listed in parts.items()}
        for resource in dict.fromkeys(name for listed in amounts.values() for name in listed):
            yield from _order(path, resource, {name: listed.get(resource) for name, listed in amounts.items()})


def _ratio_numbers(path: str, ratios: ResourceList) -> Iterator[FieldError]:
    for name, value in ratios.items():
        try:
            quantity.parse(value)
        except quantity.BadQuantity as error:
            yield fields.invalid(f"{path}[{name}]", value, str(error))


def _order(path: str, resource: str, found: Mapping[str, Quantity | None]) -> Iterator[FieldError]:
    """min <= defaultRequest <= default <= max, of those that are there."""
    most, least, limit, asked = found["max"], found["min"], found["default"], found["defaultRequest"]
    for lower, lower_word, lower_value, upper_word, upper_value in (
        ("min", "min", least, "max", most),
        ("defaultRequest", "default request", asked, "max", most),
        ("default", "default", limit, "max", most),
        ("defaultRequest", "default request", asked, "default limit", limit),
    ):
        if lower_value is not None and upper_value is not None and lower_value > upper_value:
            message = f"{lower_word} value {lower_value} is greater than {upper_word} value {upper_value}"
            yield fields.invalid(f"{path}.{lower}[{resource}]", str(lower_value), message)
    for name, word, value in (("defaultRequest", "default request", asked), ("default", "default", limit)):
        if value is not None and least is not None and least > value:
            message = f"min value {least} is greater than {word} value {value}"
            yield fields.invalid(f"{path}.{name}[{resource}]", str(value), message)
    yield from _ratio(path, resource, found)
    may_overcommit = requests.is_native(resource) and not requests.is_huge_pages(resource)
    if not may_overcommit and limit is not None and asked is not None and limit != asked:
        message = f"default value {limit} must equal to defaultRequest value {asked} in {resource}"
        yield fields.invalid(f"{path}.defaultRequest[{resource}]", str(asked), message)


def _ratio(path: str, resource: str, found: Mapping[str, Quantity | None]) -> Iterator[FieldError]:
    ratio, most, least = found["maxLimitRequestRatio"], found["max"], found["min"]
    if ratio is None:
        return
    at = f"{path}.maxLimitRequestRatio[{resource}]"
    if ratio < _ONE:
        yield fields.invalid(at, str(ratio), f"ratio {ratio} is less than 1")
    if most is not None and least is not None and least > quantity.ZERO:
        widest = most.nano / least.nano
        if ratio.nano / quantity.NANO > widest:
            yield fields.invalid(at, str(ratio), f"ratio {ratio} is greater than max/min = {widest:f}")
