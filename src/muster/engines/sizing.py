"""Pools and what they can give: how many slots, and how an allocation's slots are shared out among pods. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from muster.api import core, errors, fields, kueue, quantity
from muster.api.core.requests import CPU, MEMORY
from muster.api.errors import FieldError
from muster.api.raw import Document
from muster.api.volcano.queue_naming import MANAGED_LABEL
from muster.engines.protocol import Caveat, Pool, Request

GPU: Final = "nvidia.com/gpu"
DEFAULT_POOL: Final = "default"


@dataclass(frozen=True, slots=True)
class Auxiliary:
    """What a task without slots asks for."""

    cpu: str = "100m"
    memory: str = "128Mi"


@dataclass(frozen=True, slots=True)
class Ground:
    """What pools are made of."""

    queues: Sequence[kueue.ClusterQueue]
    flavors: Mapping[str, kueue.ResourceFlavor]
    nodes: Sequence[core.Node]

    def pool_queues(self) -> list[kueue.ClusterQueue]:
        """Those that are pools, by name."""
        return sorted(filter(is_pool, self.queues), key=lambda queue: queue.metadata.name)

    def queue(self, name: str) -> kueue.ClusterQueue | None:
        return next((queue for queue in self.pool_queues() if queue.metadata.name == name), None)


@dataclass(frozen=True, slots=True)
class Shape:
    """So many pods, and what each of them asks for."""

    pods: int
    slots_per_pod: int
    requests: Mapping[str, str]
    limits: Mapping[str, str]
    caveats: Sequence[Caveat] = ()

    def resources(self) -> Document:
        found: Document = {"requests": dict(self.requests)} if self.requests else {}
        return found | ({"limits": dict(self.limits)} if self.limits else {})


def is_pool(queue: kueue.ClusterQueue) -> bool:
    """Every ClusterQueue is, but for those that stand for Volcano's queues: jobs come to them as Volcano says, and who
    submits a task has no business there."""
    return MANAGED_LABEL not in (queue.metadata.labels or {})


def pools(ground: Ground) -> list[Pool]:
    return [pool(queue, ground) for queue in ground.pool_queues()]


def pool(queue: kueue.ClusterQueue, ground: Ground) -> Pool:
    nodes = [node for node in ground.nodes if _is_in(node, queue, ground.flavors)]
    resource = GPU if any(_has(node, GPU) for node in nodes) else CPU
    amounts = [_amount(node, resource) for node in nodes]
    name = queue.metadata.name
    return Pool(
        name,
        resource,
        sum(amounts),
        max(amounts, default=0),
        tuple(sorted(node.metadata.name for node in nodes)),
        name == DEFAULT_POOL,
    )


def _is_in(node: core.Node, queue: kueue.ClusterQueue, flavors: Mapping[str, kueue.ResourceFlavor]) -> bool:
    """On the nodes of any of its flavors; a queue that names none leads everywhere."""
    named = {given.name for group in queue.spec.resource_groups for given in group.flavors}
    if not named:
        return True
    labels = (node.metadata.labels or {}).items()
    found = [flavors[name] for name in named if name in flavors]
    return any((flavor.spec.node_labels or {}).items() <= labels for flavor in found)


def _has(node: core.Node, resource: str) -> bool:
    """Also where it is not to be used for now: what a slot is does not change with that."""
    return bool(quantity.parsed_or_none((node.status.capacity or node.status.allocatable or {}).get(resource)))


def _amount(node: core.Node, resource: str) -> int:
    """In whole units: half a CPU is no slot."""
    found = quantity.parsed_or_none((node.status.allocatable or {}).get(resource))
    return 0 if found is None else found.milli // 1000


def shape(request: Request, ground: Ground, auxiliary: Auxiliary) -> Shape:
    """Raises NotFound, Invalid."""
    name = request.pool or DEFAULT_POOL
    queue = ground.queue(name)
    if queue is None:
        known = ", ".join(found.metadata.name for found in ground.pool_queues()) or "none"
        raise errors.NotFound(f'resources.resource_pool: there is no pool "{name}"; there are: {known}')
    found = pool(queue, ground)
    problems = list(_problems(request, found))
    if problems:
        raise errors.invalid("Allocation", request.allocation, problems)
    if not request.slots:
        wanted = {CPU: auxiliary.cpu, MEMORY: auxiliary.memory}
        return Shape(1, 0, {key: value for key, value in wanted.items() if _covers(queue, key)}, {})
    most = _most_per_pod(request, found)
    pods = next(count for count in range(1, request.slots + 1) if _fits(request.slots, count, most))
    each = {found.slot_resource: str(request.slots // pods)}
    caveats = [Caveat.CURRENT_SLOTS_EXCEEDED] if request.slots > found.slots else []
    # A CPU is shared and need not be limited; a device is had or not.
    return Shape(pods, request.slots // pods, each, each if found.slot_resource == GPU else {}, caveats)


def _problems(request: Request, found: Pool) -> Iterable[FieldError]:
    if request.slots < 0:
        yield fields.invalid("resources.slots", request.slots, "must be greater than or equal to 0")
    if request.slots_per_pod is not None and request.slots_per_pod < 1:
        yield fields.invalid("resources.max_slots_per_pod", request.slots_per_pod, "must be greater than 0")
        return
    most = _most_per_pod(request, found)
    if request.is_single_node and found.nodes and request.slots > most:
        told = f'must be on one node, and the largest of pool "{found.name}" has {most}; ask for fewer'
        yield fields.invalid("resources.slots", request.slots, told)
    if request.slots_per_pod is not None and request.slots > most and request.slots % most:
        told = f"must be at most, or a multiple of, the slots of a pod, which are {most}"
        yield fields.invalid("resources.slots", request.slots, told)


def _most_per_pod(request: Request, found: Pool) -> int:
    """Where a pool has no nodes (yet), all that is asked for."""
    most = found.slots_per_node or max(request.slots, 1)
    return most if request.slots_per_pod is None else min(request.slots_per_pod, most)


def _fits(slots: int, pods: int, most: int) -> bool:
    """In equal parts: ranks of distributed training each have as many slots."""
    return slots % pods == 0 and slots // pods <= most


def _covers(queue: kueue.ClusterQueue, resource: str) -> bool:
    """Whether the queue counts it at all; what it does not would never be admitted."""
    groups = queue.spec.resource_groups
    return not groups or any(resource in group.covered_resources for group in groups)
