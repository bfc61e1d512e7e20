"""LimitRanges, as workloads meet them: what containers ask for where they say nothing, and whether they ask for what
they may, which is no more than their own limits and what the namespace allows."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from msgspec import structs

from muster.api import core, raw
from muster.api.core.requests import pod_requests
from muster.api.raw import Document
from muster.api.scalars import QuantityText, ResourceList
from muster.quota.amounts import Requests, amount, amounts
from muster.quota.workloads import Adjust, WorkloadInfo

ABOVE_LIMITS: Final = "requests must not exceed its limits"
ABOVE_MAX: Final = "requests must not be above the limitRange max"
BELOW_MIN: Final = "requests must not be below the limitRange min"
CONTAINER: Final = "Container"
POD: Final = "Pod"


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a LimitRange allows of each resource, and what it means where nothing is said."""

    most: Requests
    least: Requests
    limits: ResourceList = field(default_factory=dict)
    requests: ResourceList = field(default_factory=dict)


LimitRanges = Mapping[str, Bounds]
"""By what they are about: `Container` or `Pod`."""


def read_limit_ranges(documents: Iterable[Document]) -> LimitRanges:
    """All of one namespace together: the tightest of each bound counts, and the first of each default."""
    items = [item for document in documents for item in raw.dig(document, "spec", "limits", default=None) or ()]
    return {kind: _together([item for item in items if item.get("type") == kind]) for kind in _kinds(items)}


def _kinds(items: Sequence[Document]) -> list[str]:
    return list(dict.fromkeys(str(item.get("type", "")) for item in items))


def _together(items: Sequence[Document]) -> Bounds:
    most: dict[str, int] = {}
    least: dict[str, int] = {}
    limits: dict[str, QuantityText] = {}
    requests: dict[str, QuantityText] = {}
    for item in items:
        for found, part, tighter in ((most, "max", min), (least, "min", max)):
            for resource, value in (item.get(part) or {}).items():
                bound = amount(resource, value)
                found[resource] = tighter(found[resource], bound) if resource in found else bound
        for defaults, part in ((limits, "default"), (requests, "defaultRequest")):
            for resource, value in (item.get(part) or {}).items():
                defaults.setdefault(resource, value)
    return Bounds(most, least, limits, requests)


# What is meant where nothing is said


def adjustment(ranges: LimitRanges | None, overheads: Mapping[str, ResourceList]) -> Adjust | None:
    """What becomes of the pod templates of one namespace, before anything is counted: overhead first, then defaults.
    `overheads`: by RuntimeClass. None where nothing does."""
    if not ranges and not overheads:
        return None

    def adjust(spec: core.PodSpec) -> core.PodSpec:
        overhead = overheads.get(spec.runtime_class_name or "") if not spec.overhead else None
        if overhead:
            spec = structs.replace(spec, overhead=overhead)
        return with_defaults(spec, ranges) if ranges else spec

    return adjust


def with_defaults(spec: core.PodSpec, ranges: LimitRanges) -> core.PodSpec:
    """The same spec where it says everything."""
    containers, pods = ranges.get(CONTAINER), ranges.get(POD)
    changed: dict[str, object] = {}
    if containers is not None and (containers.limits or containers.requests):
        changed["containers"] = _all_filled(spec.containers, containers)
        changed["init_containers"] = _all_filled(spec.init_containers, containers)
    if pods is not None and spec.resources is not None:
        changed["resources"] = _filled(spec.resources, pods)
    return structs.replace(spec, **changed) if changed else spec


def _all_filled(listed: Sequence[core.Container], bounds: Bounds) -> tuple[core.Container, ...]:
    return tuple(structs.replace(found, resources=_filled(found.resources, bounds)) for found in listed)


def _filled(found: core.ResourceRequirements | None, bounds: Bounds) -> core.ResourceRequirements:
    said = found or core.ResourceRequirements()
    return structs.replace(
        said,
        limits={**bounds.limits, **(said.limits or {})},
        requests={**bounds.requests, **(said.requests or {})},
    )


# What may be asked for


def beyond_limits(info: WorkloadInfo) -> str:
    """Containers that ask for more than their own limits, in words; empty where there is none."""
    found: list[str] = []
    for path, container in _containers(info):
        resources = container.resources
        if resources is None or not resources.limits:
            continue
        limits, asked = amounts(resources.limits), amounts(resources.requests)
        _note(found, path, [name for name, limit in limits.items() if asked.get(name, 0) > limit], ABOVE_LIMITS)
    return _joined(found)


def beyond_ranges(info: WorkloadInfo, ranges: LimitRanges) -> str:
    """Containers and pods outside of what their namespace allows, in words; empty where there is none."""
    found: list[str] = []
    containers, pods = ranges.get(CONTAINER), ranges.get(POD)
    if containers is not None:
        for path, container in _containers(info):
            _note_bounds(found, path, _asked(container.resources), containers)
    if pods is not None:
        for index, pod_set in enumerate(info.pod_sets):
            spec = pod_set.spec.template.spec
            _note_bounds(found, f"spec.podSets[{index}].template.spec", pod_requests(spec), pods)
    return _joined(found)


def _asked(resources: core.ResourceRequirements | None) -> dict[str, int]:
    """Where only a limit is given it is the request too."""
    return amounts(resources.limits) | amounts(resources.requests) if resources is not None else {}


def _containers(info: WorkloadInfo) -> Iterable[tuple[str, core.Container]]:
    for index, pods in enumerate(info.pod_sets):
        spec, path = pods.spec.template.spec, f"spec.podSets[{index}].template.spec"
        for number, container in enumerate(spec.init_containers):
            yield f"{path}.initContainers[{number}]", container
        for number, container in enumerate(spec.containers):
            yield f"{path}.containers[{number}]", container


def _note_bounds(found: list[str], path: str, asked: Requests, bounds: Bounds) -> None:
    above = [name for name, bound in bounds.most.items() if name in asked and asked[name] > bound]
    below = [name for name, bound in bounds.least.items() if name in asked and asked[name] < bound]
    _note(found, path, above, ABOVE_MAX)
    _note(found, path, below, BELOW_MIN)


def _note(found: list[str], path: str, resources: Sequence[str], message: str) -> None:
    if resources:
        listed = ",".join(f'"{name}"' for name in sorted(resources))
        found.append(f"{path}: Invalid value: [{listed}]: {message}")


def _joined(found: Sequence[str]) -> str:
    return found[0] if len(found) == 1 else f"[{', '.join(found)}]" if found else ""
