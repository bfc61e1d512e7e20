"""What the LimitRanges of a namespace do to a pod that is created there: what it asks for where it says nothing, and
what it may ask for at all. As Kubernetes' LimitRanger does."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from msgspec import structs

from muster.api import quantity, raw
from muster.api.core import requests
from muster.api.core.qos import qos_class
from muster.api.core.validation.limit_ranges import CONTAINER, POD
from muster.api.core.views import LimitRange, LimitRangeItem, PodSpec
from muster.api.documents import child, made_child, objects, text
from muster.api.errors import FieldError
from muster.api.quantity import Quantity
from muster.api.raw import Document

ANNOTATION: Final = "kubernetes.io/limit-ranger"
"""Of a pod: which requests and limits it did not bring along."""
_NOTED: Final = "LimitRanger plugin set"


def fill_in(pod: Document, ranges: Sequence[LimitRange]) -> None:
    """Changes the pod in place, after its defaults. Of several ranges the first that says something counts."""
    notes = [
        note
        for item in _items(ranges, CONTAINER)
        for part, word in (("initContainers", "init container"), ("containers", "container"))
        for container in objects(pod, "spec", part)
        for note in _fill_container(container, word, item)
    ]
    if notes:
        made_child(pod, "status")["qosClass"] = qos_class(child(pod, "spec"))
        made_child(made_child(pod, "metadata"), "annotations")[ANNOTATION] = f"{_NOTED}: {'; '.join(notes)}"


def _fill_container(container: Document, word: str, item: LimitRangeItem) -> Iterator[str]:
    for part, defaults, noun in (("requests", item.default_request, "request"), ("limits", item.default, "limit")):
        present = child(container, "resources", part)
        missing = {name: value for name, value in (defaults or {}).items() if name not in present}
        if missing:
            raw.section(container, "resources")[part] = {**present, **missing}
            yield f"{', '.join(sorted(missing))} {noun} for {word} {text(container, 'name')}"


def _items(ranges: Sequence[LimitRange], type: str) -> Iterator[LimitRangeItem]:
    for found in ranges:
        for item in found.spec.limits:
            if item.type == type:
                yield item


# What it may ask for


@dataclass(frozen=True, slots=True)
class _Asked:
    """What one container, or all of a pod's together, ask for and may use."""

    path: str
    type: str
    requests: Mapping[str, Quantity]
    limits: Mapping[str, Quantity]


def check(spec: PodSpec, ranges: Sequence[LimitRange]) -> list[FieldError]:
    """Of a pod that was filled in and is of good shape."""
    found: list[FieldError] = []
    for item in _items(ranges, CONTAINER):
        for asked in _containers(spec):
            found += _against(asked, item)
    for item in _items(ranges, POD):
        found += _against(_whole_pod(spec), item)
    return found


def _containers(spec: PodSpec) -> Iterator[_Asked]:
    for part, containers in (("initContainers", spec.init_containers), ("containers", spec.containers)):
        for index, container in enumerate(containers):
            resources = container.resources
            path = f"spec.{part}[{index}].resources"
            asked = requests.amounts(resources.requests) if resources is not None else {}
            yield _Asked(path, CONTAINER, asked, requests.limits_of(resources))


def _whole_pod(spec: PodSpec) -> _Asked:
    bare = structs.replace(spec, overhead=None)  # what the containers ask for, not what running them costs
    asked, limits = requests.pod_requests(bare), requests.pod_limits(bare)
    return _Asked("spec", POD, _quantities(asked), _quantities(limits))


def _quantities(found: Mapping[str, int]) -> dict[str, Quantity]:
    return {
        name: quantity.from_milli(value) if name == requests.CPU else quantity.from_units(value)
        for name, value in found.items()
    }


def _against(asked: _Asked, item: LimitRangeItem) -> Iterator[FieldError]:
    for name, least in requests.amounts(item.min).items():
        yield from _at_least(asked, name, least)
    for name, most in requests.amounts(item.max).items():
        yield from _at_most(asked, name, most)
    for name, ratio in requests.amounts(item.max_limit_request_ratio).items():
        yield from _within_ratio(asked, name, ratio)


def _at_least(asked: _Asked, name: str, least: Quantity) -> Iterator[FieldError]:
    words = f"minimum {name} usage per {asked.type} is {least}"
    request, limit = asked.requests.get(name), asked.limits.get(name)
    if request is None:
        yield _problem(_at(asked, "requests", name), f"{words}, and no request is specified")
    elif request < least:
        yield _problem(_at(asked, "requests", name), f"{words}, but request is {request}")
    if limit is not None and limit < least:
        yield _problem(_at(asked, "limits", name), f"{words}, but limit is {limit}")


def _at_most(asked: _Asked, name: str, most: Quantity) -> Iterator[FieldError]:
    words = f"maximum {name} usage per {asked.type} is {most}"
    request, limit = asked.requests.get(name), asked.limits.get(name)
    if limit is None:
        yield _problem(_at(asked, "limits", name), f"{words}, and no limit is specified")
    elif limit > most:
        yield _problem(_at(asked, "limits", name), f"{words}, but limit is {limit}")
    if request is not None and request > most:
        yield _problem(_at(asked, "requests", name), f"{words}, but request is {request}")


def _within_ratio(asked: _Asked, name: str, ratio: Quantity) -> Iterator[FieldError]:
    words = f"{name} max limit to request ratio per {asked.type} is {ratio}"
    request, limit = asked.requests.get(name), asked.limits.get(name)
    if not request or not limit or not request.nano or not limit.nano:
        missing = "request" if not request or not request.nano else "limit"
        yield _problem(_at(asked, f"{missing}s", name), f"{words}, but no {missing} is specified or it is 0")
    elif limit.nano * quantity.NANO > ratio.nano * request.nano:
        found = limit.nano / request.nano
        yield _problem(_at(asked, "limits", name), f"{words}, but provided ratio is {found:g}")


def _problem(path: str, why: str) -> FieldError:
    return FieldError(path, "FieldValueForbidden", why)


def _at(asked: _Asked, part: str, name: str) -> str:
    """A pod's sum stands in no field of its own."""
    return asked.path if asked.type == POD else f"{asked.path}.{part}[{name}]"
