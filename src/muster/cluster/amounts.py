"""Amounts of resources in the columns' units: milli for cpu, whole units for all else, within what can be summed."""

from collections.abc import Callable, Mapping

from muster.api import core, quantity
from muster.api.core.requests import Amounts, amounts, combine, is_pod_level, is_sidecar, requests_of
from muster.api.muster import node_slots
from muster.cluster.columns import PODS

LARGEST_AMOUNT = 2**50
"""Absurd amounts count as this (a pebibyte): thousands of them still add up inside an int64."""
UNSAID: Amounts = {"cpu": quantity.from_milli(100), "memory": quantity.from_units(200 * 1024 * 1024)}
"""What a container that asks for nothing counts as using, where scores count: else a node full of such containers would
look empty."""

GPU = "nvidia.com/gpu"
"""Whole GPUs."""
GPU_MILLI = "muster.dev/gpu-milli"
"""Thousandths of one GPU: a resource that a container requests, or an annotation of the pod. Nodes do not report it:
one that has whole GPUs offers a thousand of each."""
WHOLE_GPU = 1000

ReadContainer = Callable[[core.Container], Amounts]


def gpus_of(node: core.Node) -> tuple[int, frozenset[int]]:
    """How many GPUs the node has, and the positions of those that are not to be used: they are not allocatable."""
    said = (node.metadata.annotations or {}).get(node_slots.DISABLED_SLOTS)
    amounts = (node.status.allocatable if said is None else node.status.capacity) or {}
    found = quantity.parsed_or_none(amounts.get(GPU))
    count = 0 if found is None else min(max(found.units, 0), LARGEST_AMOUNT)
    return count, frozenset(number for number in node_slots.parse_disabled(said) if number < count)


def allocatable_of(node: core.Node) -> dict[str, int]:
    """What a node has for pods. One that does not say how many pods it takes, takes none."""
    found: dict[str, int] = {}
    for name, text in (node.status.allocatable or {}).items():
        try:
            amount = quantity.parse(text)
        except quantity.BadQuantity:
            continue  # status is not validated; one node's nonsense must not stop the placing of all others
        found[name] = max(amount.milli if name == "cpu" else amount.units, 0)
    return clamped(found)


def needs_of(spec: core.PodSpec) -> dict[str, int]:
    """What a pod takes of its node, its place among the node's pods included."""
    return clamped({**core.pod_requests(spec), PODS: 1})


def clamped(amounts: Mapping[str, int]) -> dict[str, int]:
    return {name: min(amount, LARGEST_AMOUNT) for name, amount in amounts.items()}


def requests_in(spec: core.PodSpec, *, unsaid: Amounts | None = None, pod_level: bool = True) -> dict[str, int]:
    """What a pod asks for. `unsaid` stands in for what a container does not say; without `pod_level`, what is said for
    the pod as a whole does not count."""
    total = container_total(spec, lambda container: requests_of(container.resources), unsaid)
    if pod_level:
        total |= pod_level_requests(spec)
    return in_units(with_overhead(total, spec))


def nonzero_needs(spec: core.PodSpec) -> tuple[int, int]:
    """Milli CPU and bytes of memory as scores count a pod that is on a node."""
    return nonzero_of(lambda unsaid: requests_in(spec, unsaid=unsaid), spec)


def nonzero_of(total: Callable[[Amounts], Mapping[str, int]], spec: core.PodSpec) -> tuple[int, int]:
    """`total` sums the pod with the given stand-ins. A pod that speaks for itself as a whole has stand-ins only for
    what neither it nor any of its containers names."""
    unsaid = UNSAID
    if pod_level_requests(spec):
        named = total({})
        unsaid = {name: amount for name, amount in UNSAID.items() if name not in named}
    found = total(unsaid)
    return found.get("cpu", 0), found.get("memory", 0)


def container_total(spec: core.PodSpec, read: ReadContainer, unsaid: Amounts | None = None) -> Amounts:
    known = unsaid or {}
    return combine(
        (known | read(container) for container in spec.containers),
        ((is_sidecar(container), known | read(container)) for container in spec.init_containers),
    )


def pod_level_requests(spec: core.PodSpec) -> Amounts:
    if spec.resources is None:
        return {}
    return {name: amount for name, amount in requests_of(spec.resources).items() if is_pod_level(name)}


def with_overhead(total: Amounts, spec: core.PodSpec) -> Amounts:
    return combine((total, amounts(spec.overhead)), ()) if spec.overhead else total


def in_units(total: Amounts) -> dict[str, int]:
    return clamped({name: amount.milli if name == "cpu" else amount.units for name, amount in total.items()})
