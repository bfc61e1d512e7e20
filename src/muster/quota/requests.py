"""What the pods of a workload count for: the pod's own request, without what is excluded, rewritten as configured."""

from collections.abc import Mapping
from fractions import Fraction
from math import ceil

from muster.api import core
from muster.api.core.requests import pod_requests
from muster.quota.amounts import CPU
from muster.quota.settings import Settings, Transformation


def quota_requests(spec: core.PodSpec, settings: Settings) -> dict[str, int]:
    """Of one pod, as quota counts it."""
    found = {
        resource: max(0, value)
        for resource, value in pod_requests(spec).items()
        if not resource.startswith(settings.excluded_prefixes or "\0")
    }
    return transformed(found, settings.transformations) if settings.transformations else found


def topology_requests(spec: core.PodSpec) -> dict[str, int]:
    """Of one pod, as nodes feel it: nothing excluded, nothing rewritten."""
    return dict(pod_requests(spec))


def transformed(requests: Mapping[str, int], rules: tuple[Transformation, ...]) -> dict[str, int]:
    kept, made = dict(requests), dict[str, Fraction]()
    for rule in rules:
        if rule.input not in requests:
            continue
        units = _units(rule.input, requests[rule.input])
        if rule.multiply_by is not None and rule.multiply_by in requests:
            units *= _units(rule.multiply_by, requests[rule.multiply_by])
        for resource, factor in rule.outputs.items():
            made[resource] = made.get(resource, Fraction(0)) + units * factor
        if not rule.keeps_input:
            kept.pop(rule.input, None)
    for resource, units in made.items():
        more = ceil(max(Fraction(0), units) * (1000 if resource == CPU else 1))
        kept[resource] = kept.get(resource, 0) + more
    return kept


def _units(resource: str, value: int) -> Fraction:
    return Fraction(value, 1000) if resource == CPU else Fraction(value)
