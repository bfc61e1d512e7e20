"""What a pod as a whole asks for: containers side by side, init containers one after another, sidecars under both.

A missing request counts as its limit, so a template (which Kubernetes does not default) means what its pods will mean.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache

import msgspec

from muster.api import quantity
from muster.api.core.views import Container, PodSpec, ResourceRequirements
from muster.api.quantity import Quantity
from muster.api.scalars import ResourceList

CPU = "cpu"
MEMORY = "memory"
EPHEMERAL_STORAGE = "ephemeral-storage"
HUGE_PAGES_PREFIX = "hugepages-"

Amounts = dict[str, Quantity]
_NOTHING = ResourceRequirements()


def is_huge_pages(resource: str) -> bool:
    return resource.startswith(HUGE_PAGES_PREFIX)


def is_native(resource: str) -> bool:
    """Known to Kubernetes itself, as against extended resources such as nvidia.com/gpu."""
    prefix, slash, _ = resource.rpartition("/")
    return not slash or prefix == "kubernetes.io" or prefix.endswith(".kubernetes.io")


def is_pod_level(resource: str) -> bool:
    """May be given for the pod as a whole, and then counts instead of the containers' sum."""
    return resource in (CPU, MEMORY) or is_huge_pages(resource)


def requests_of(resources: ResourceRequirements | None) -> Amounts:
    """Requests, and limits for what has no request. Raises BadQuantity."""
    found = resources or _NOTHING
    return amounts(found.limits) | amounts(found.requests)


def limits_of(resources: ResourceRequirements | None) -> Amounts:
    return amounts((resources or _NOTHING).limits)


def amounts(listed: ResourceList | None) -> Amounts:
    return {name: quantity.parse(value) for name, value in (listed or {}).items()}


def pod_requests(spec: PodSpec) -> Mapping[str, int]:
    """What the pod needs of a node: cpu in thousandths, everything else in units, each within 64 bits. Not to be
    written."""
    asking = PodSpec(
        containers=tuple(Container(resources=found.resources) for found in spec.containers),
        init_containers=tuple(
            Container(resources=found.resources, restart_policy=found.restart_policy) for found in spec.init_containers
        ),
        resources=spec.resources,
        overhead=spec.overhead,
    )
    return _requests_of_pod(msgspec.json.encode(asking))


@lru_cache(maxsize=1024)
def _requests_of_pod(encoded: bytes) -> Mapping[str, int]:
    """Pods come by the thousand from one template, and several ask for each."""
    spec = msgspec.json.decode(encoded, type=PodSpec)
    total = container_requests(spec)
    total |= {name: amount for name, amount in requests_of(spec.resources).items() if is_pod_level(name)}
    return _whole(_sum(total, amounts(spec.overhead)))


def pod_limits(spec: PodSpec) -> Mapping[str, int]:
    """The most that the pod may use. A resource that has no limit is absent."""
    total = _aggregate(spec, limits_of)
    total |= {name: amount for name, amount in limits_of(spec.resources).items() if is_pod_level(name)}
    # Overhead raises a limit; it does not make one.
    return _whole(_sum(total, {name: more for name, more in amounts(spec.overhead).items() if total.get(name)}))


def container_requests(spec: PodSpec) -> Amounts:
    """The containers' requests taken together, without what is said for the pod as a whole."""
    return _aggregate(spec, requests_of)


def _aggregate(spec: PodSpec, read: Callable[[ResourceRequirements | None], Amounts]) -> Amounts:
    return combine(
        (read(container.resources) for container in spec.containers),
        ((is_sidecar(container), read(container.resources)) for container in spec.init_containers),
    )


def combine(running: Iterable[Amounts], starting: Iterable[tuple[bool, Amounts]]) -> Amounts:
    """The most that is needed at any time. `starting`: init containers in order, each with whether it is a sidecar."""
    sidecars: Amounts = {}
    peak: Amounts = {}
    for stays, needed in starting:
        asked = _sum(sidecars, needed)
        if stays:
            sidecars = asked
        peak = _largest(peak, asked)
    return _largest(_total((*running, sidecars)), peak)


def is_sidecar(container: Container) -> bool:
    """An init container that keeps running beside the others."""
    return container.restart_policy == "Always"


def _sum(left: Amounts, right: Amounts) -> Amounts:
    return left | {name: left.get(name, quantity.ZERO) + amount for name, amount in right.items()}


def _total(parts: Iterable[Amounts]) -> Amounts:
    total: Amounts = {}
    for part in parts:
        total = _sum(total, part)
    return total


def _largest(left: Amounts, right: Amounts) -> Amounts:
    return left | {name: max(left[name], amount) if name in left else amount for name, amount in right.items()}


def _whole(total: Amounts) -> Mapping[str, int]:
    # Capped: each quantity fits 64 bits, but a sum of them may not, and the columns that hold sums are 64 bits wide.
    return {
        name: min(amount.milli if name == CPU else amount.units, quantity.MAX_UNITS) for name, amount in total.items()
    }


def claims_of(spec: PodSpec) -> tuple[str, ...]:
    """Names of the PersistentVolumeClaims that the pod's volumes are, each once."""
    sources = (volume.persistent_volume_claim for volume in spec.volumes)
    return tuple(dict.fromkeys(source.claim_name for source in sources if source is not None))
