"""Whether a workload's containers ask for what they may: no more than their own limits, and within LimitRanges."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from muster.api import core, raw
from muster.api.core.requests import pod_requests
from muster.api.raw import Document
from muster.quota.amounts import Requests, amount, amounts
from muster.quota.workloads import WorkloadInfo

ABOVE_LIMITS: Final = "requests must not exceed its limits"
ABOVE_MAX: Final = "requests must not be above the limitRange max"
BELOW_MIN: Final = "requests must not be below the limitRange min"
CONTAINER: Final = "Container"
POD: Final = "Pod"


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a LimitRange allows of each resource."""

    most: Requests
    least: Requests


LimitRanges = Mapping[str, Bounds]
"""By what they are about: `Container` or `Pod`."""


def read_limit_ranges(documents: Iterable[Document]) -> LimitRanges:
    """All of one namespace together: the tightest of each bound counts."""
    most: dict[str, dict[str, int]] = {}
    least: dict[str, dict[str, int]] = {}
    for document in documents:
        for item in raw.dig(document, "spec", "limits", default=None) or ():
            kind = str(item.get("type", ""))
            for bounds, field, tighter in ((most, "max", min), (least, "min", max)):
                found = bounds.setdefault(kind, {})
                for resource, value in (item.get(field) or {}).items():
                    bound = amount(resource, value)
                    found[resource] = tighter(found[resource], bound) if resource in found else bound
    return {kind: Bounds(most[kind], least[kind]) for kind in most}


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
            asked = amounts(container.resources.requests) if container.resources is not None else {}
            _note_bounds(found, path, asked, containers)
    if pods is not None:
        for index, pod_set in enumerate(info.pod_sets):
            spec = pod_set.spec.template.spec
            _note_bounds(found, f"spec.podSets[{index}].template.spec", pod_requests(spec), pods)
    return _joined(found)


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
