"""The least that a job needs to start: the sum over as many pods as must run together, the important tasks first.

Amounts are named as a ResourceQuota names them (`cpu` and `requests.cpu`, `limits.cpu`, `pods`, `count/pods`), and
extended resources by their bare name as well.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from muster.api import core, quantity, volcano
from muster.api.core import requests
from muster.api.quantity import Quantity

Amounts = dict[str, Quantity]
_ONE = quantity.from_units(1)
_COMPUTE = (requests.CPU, requests.MEMORY, requests.EPHEMERAL_STORAGE)


@dataclass(frozen=True, slots=True)
class Part:
    """One task: what one of its pods needs, how many there are, and how few will do (None: it does not say)."""

    usage: Mapping[str, Quantity]
    replicas: int
    minimum: int | None
    priority: int = 0


def resources(job: volcano.Job, priorities: Mapping[str, int]) -> dict[str, str]:
    """`priorities`: of the PriorityClasses, by name. Raises BadQuantity."""
    parts = [
        Part(
            usage(task.template.spec),
            task.replicas or 0,
            task.min_available,
            priorities.get(task.template.spec.priority_class_name or "", 0),
        )
        for task in job.spec.tasks
    ]
    return {name: str(amount) for name, amount in total(parts, job.spec.min_available or 0).items()}


def total(parts: Sequence[Part], wanted: int) -> Amounts:
    """What `wanted` pods need. Where the tasks' own minimums leave some of them open, the most important are taken."""
    least = sum(part.replicas if part.minimum is None else part.minimum for part in parts)
    return by_priority(parts, wanted) if wanted < least else minimums_first(parts, wanted)


def by_priority(parts: Sequence[Part], wanted: int) -> Amounts:
    """All pods of the most important task, then those of the next."""
    ordered = _ordered(parts)
    counts = []
    for part in ordered:
        taken = min(wanted, part.replicas)
        counts.append(taken)
        wanted -= taken
    return _sum(ordered, counts)


def minimums_first(parts: Sequence[Part], wanted: int) -> Amounts:
    """Each task's own minimum, and then more of the most important."""
    ordered = _ordered(parts)
    counts = []
    for part in ordered:
        taken = min(part.minimum or 0, wanted)
        counts.append(taken)
        wanted -= taken
    for number, part in enumerate(ordered):
        more = max(0, min(wanted, part.replicas - (part.minimum or 0)))
        counts[number] += more
        wanted -= more
    return _sum(ordered, counts)


def _ordered(parts: Sequence[Part]) -> list[Part]:
    return sorted(parts, key=lambda part: -part.priority)


def _sum(parts: Sequence[Part], counts: Sequence[int]) -> Amounts:
    found: Amounts = {}
    for part, count in zip(parts, counts, strict=True):
        if count > 0:
            for name, amount in part.usage.items():
                found[name] = found.get(name, quantity.ZERO) + amount * count
    return found


def usage(spec: core.PodSpec) -> Amounts:
    """What one such pod counts for."""
    asked, limits = _asked(spec), _limits(spec)
    found: Amounts = {"count/pods": _ONE, "pods": _ONE}
    for name, amount in asked.items():
        if name in _COMPUTE or requests.is_huge_pages(name) or not requests.is_native(name):
            found[name] = found[f"requests.{name}"] = amount
    for name in _COMPUTE:
        if name in limits:
            found[f"limits.{name}"] = limits[name]
    return found


def _asked(spec: core.PodSpec) -> Amounts:
    found = requests.container_requests(spec)
    found |= _pod_level(requests.requests_of(spec.resources))
    return _plus(found, requests.amounts(spec.overhead))


def _limits(spec: core.PodSpec) -> Amounts:
    found = requests.combine(
        (requests.limits_of(container.resources) for container in spec.containers),
        ((requests.is_sidecar(first), requests.limits_of(first.resources)) for first in spec.init_containers),
    )
    found |= _pod_level(requests.limits_of(spec.resources))
    # Overhead raises a limit; it does not make one.
    return _plus(found, {name: more for name, more in requests.amounts(spec.overhead).items() if name in found})


def _pod_level(listed: Amounts) -> Amounts:
    return {name: amount for name, amount in listed.items() if requests.is_pod_level(name)}


def _plus(left: Amounts, right: Mapping[str, Quantity]) -> Amounts:
    return left | {name: left.get(name, quantity.ZERO) + amount for name, amount in right.items()}
