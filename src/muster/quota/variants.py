"""Concurrent admission: one job waits as several workloads, one a flavor, and moves to a better flavor when it can.

The siblings have a Workload as their owner. At most one holds quota; flavors are better the earlier a queue names them.
"""

from dataclasses import dataclass
from typing import Final

from muster.quota.entries import Entry
from muster.quota.state import QueueState
from muster.quota.workloads import WorkloadInfo

MORE_FAVORABLE: Final = "A more favorable variant is already admitted"
BELOW_LAST: Final = "Target flavor is below LastAcceptableFlavorName"
_WORKLOAD: Final = "Workload"


@dataclass(frozen=True, slots=True)
class Verdict:
    """`refusal`: why it must not be admitted. `moves`: the sibling that has to make way first."""

    refusal: str = ""
    moves: WorkloadInfo | None = None


def parent_of(info: WorkloadInfo) -> str | None:
    """Uid of the workload that this one is a variant of."""
    for owner in info.view.metadata.owner_references:
        if owner.controller and owner.kind == _WORKLOAD and owner.api_version.startswith("kueue.x-k8s.io/"):
            return owner.uid
    return None


def judge(entry: Entry) -> Verdict | None:
    """None where there is nothing to say: no variant, or no sibling that holds quota."""
    parent, queue = parent_of(entry.info), entry.queue
    if parent is None or queue is None:
        return None
    sibling = next(
        (
            info
            for info in queue.workloads.values()
            if info.key != entry.info.key and not info.is_finished and parent_of(info) == parent
        ),
        None,
    )
    if sibling is None:
        return None
    given = {choice.flavor for pods in entry.assignment.pod_sets for choice in pods.flavors.values()}
    held = {flavor for pods in sibling.pod_sets for flavor in pods.flavors.values()}
    target, current = _worst(queue, given), _worst(queue, held)
    if current <= target:
        return Verdict(MORE_FAVORABLE)
    if target > _last_acceptable(queue):
        return Verdict(BELOW_LAST)
    return Verdict(moves=sibling)


def _worst(queue: QueueState, flavors: set[str]) -> int:
    order = queue.policy.flavors
    return max((order.index(flavor) for flavor in flavors if flavor in order), default=len(order))


def _last_acceptable(queue: QueueState) -> int:
    policy = queue.policy.concurrent
    constraints = policy.migration.constraints if policy is not None and policy.migration is not None else None
    name = constraints.last_acceptable_flavor_name if constraints is not None else None
    order = queue.policy.flavors
    return order.index(name) if name and name in order else len(order)
