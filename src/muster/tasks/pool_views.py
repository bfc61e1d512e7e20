"""ClusterQueues as Determined shows resource pools. Pure."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from muster.api import core, kueue, quantity
from muster.api.core.requests import CPU, MEMORY
from muster.api.muster.node_slots import GPU_PRODUCT
from muster.engines import sizing
from muster.engines.protocol import Pool
from muster.engines.sizing import Auxiliary, Ground
from muster.tasks.job_views import Counts, JobView, counts

DESCRIPTION: Final = "muster.dev/description"
"""An annotation of a ClusterQueue, for people to read."""
_PODS: Final = "pods"


@dataclass(frozen=True, slots=True)
class PoolView:
    """`slots`: what tasks may use in all, by nodes and by quota. `small_capacity`: for how many tasks without slots
    there is room."""

    name: str
    description: str
    is_default: bool
    has_gpus: bool
    accelerator: str
    nodes: int
    slots: int
    slots_used: int
    slots_per_node: int
    small_capacity: int
    small_capacity_per_node: int
    small_running: int
    preempts: bool
    counts: Counts


def pools(ground: Ground, jobs: Collection[JobView], auxiliary: Auxiliary) -> list[PoolView]:
    """By name."""
    nodes = {node.metadata.name: node for node in ground.nodes}
    queues = {queue.metadata.name: queue for queue in ground.queues}
    return [
        _pool(pool, queues[pool.name], [nodes[name] for name in pool.nodes], jobs, auxiliary)
        for pool in sizing.pools(ground)
    ]


def _pool(
    pool: Pool, queue: kueue.ClusterQueue, nodes: Sequence[core.Node], jobs: Collection[JobView], auxiliary: Auxiliary
) -> PoolView:
    here = [job for job in jobs if job.pool == pool.name]
    rooms = [_room(node, auxiliary) for node in nodes]
    limit = _limit(queue, pool.slot_resource)
    brands = sorted({(node.metadata.labels or {}).get(GPU_PRODUCT, "") for node in nodes} - {""})
    within = queue.spec.preemption.within_cluster_queue if queue.spec.preemption is not None else None
    return PoolView(
        pool.name,
        _description(queue),
        pool.is_default,
        pool.slot_resource != CPU,
        ", ".join(brands),
        len(nodes),
        pool.slots if limit is None else min(pool.slots, limit),
        sum(job.allocated_slots for job in here),
        pool.slots_per_node,
        sum(rooms),
        max(rooms, default=0),
        sum(part.is_scheduled and not part.slots for job in here for part in job.parts if part.task),
        within not in (None, "Never"),
        counts(here, pool.name),
    )


def _description(queue: kueue.ClusterQueue) -> str:
    said = (queue.metadata.annotations or {}).get(DESCRIPTION)
    if said:
        return said
    flavors = [flavor.name for group in queue.spec.resource_groups for flavor in group.flavors]
    told = f"flavors {', '.join(dict.fromkeys(flavors))}" if flavors else "all nodes"
    return f"{told}; cohort {queue.spec.cohort_name}" if queue.spec.cohort_name else told


def _limit(queue: kueue.ClusterQueue, resource: str) -> int | None:
    """What quota lets it have of a resource, borrowed ones included; None where that is not limited."""
    quotas = [
        quota
        for group in queue.spec.resource_groups
        for flavor in group.flavors
        for quota in flavor.resources
        if quota.name == resource
    ]
    if not quotas:
        return None
    if queue.spec.cohort_name and any(quota.borrowing_limit is None for quota in quotas):
        return None
    borrowed = [quota.borrowing_limit if queue.spec.cohort_name else None for quota in quotas]
    return sum(_units(quota.nominal_quota) for quota in quotas) + sum(map(_units, borrowed))


def _room(node: core.Node, auxiliary: Auxiliary) -> int:
    have = node.status.allocatable or {}
    each = {CPU: auxiliary.cpu, MEMORY: auxiliary.memory, _PODS: "1"}
    found = [(_milli(have.get(name)), _milli(wanted)) for name, wanted in each.items()]
    return min(amount // wanted for amount, wanted in found if wanted)


def _units(text: object) -> int:
    return _milli(text) // 1000


def _milli(text: object) -> int:
    found = quantity.parsed_or_none(text)
    return 0 if found is None else found.milli
