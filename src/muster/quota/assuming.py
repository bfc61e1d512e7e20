"""A workload as it will be once the store has what was decided: what the next cycle is decided from.

The store's own word replaces it as soon as it is seen.
"""

from typing import Final

import msgspec
from msgspec import structs

from muster.api import kueue
from muster.api.conditions import FALSE, TRUE
from muster.api.meta import Condition
from muster.quota.amounts import all_shown
from muster.quota.assignments import Assignment, PodSetAssignment
from muster.quota.settings import Settings
from muster.quota.topology import to_document
from muster.quota.workloads import (
    ADMITTED,
    BLOCKED_ON_GATES,
    EVICTED,
    PREEMPTED,
    QUOTA_RESERVED,
    PodSetTotals,
    WorkloadInfo,
)

_OVER: Final = (EVICTED, PREEMPTED, BLOCKED_ON_GATES)


def reserved(
    info: WorkloadInfo, assignment: Assignment, queue: str, when: str, settings: Settings, *, is_admitted: bool
) -> WorkloadInfo:
    """It holds what it was given."""
    changes = {name: _condition(name, FALSE, when) for name in _OVER if info.is_true(name)}
    if not info.has_reservation:
        changes[QUOTA_RESERVED] = _condition(QUOTA_RESERVED, TRUE, when)
    if is_admitted and not info.is_admitted:
        changes[ADMITTED] = _condition(ADMITTED, TRUE, when)
    given = [_given(totals, pods) for totals, pods in zip(info.pod_sets, assignment.pod_sets, strict=True)]
    status = structs.replace(
        info.view.status,
        admission=kueue.Admission(queue, tuple(_view(totals) for totals in given)),
        conditions=_merged(info, changes),
        unhealthy_nodes=(),
        resource_requests=(),
    )
    return info.changed(structs.replace(info.view, status=status), queue, tuple(given), settings)


def evicted(info: WorkloadInfo, reason: str, when: str, settings: Settings) -> WorkloadInfo:
    """It has been told to stop, and holds what it has until it has stopped."""
    conditions = _merged(info, {EVICTED: _condition(EVICTED, TRUE, when, reason)})
    status = structs.replace(info.view.status, conditions=conditions)
    return info.changed(structs.replace(info.view, status=status), info.queue, info.pod_sets, settings)


def _given(totals: PodSetTotals, pods: PodSetAssignment) -> PodSetTotals:
    charged = {resource: value for resource, value in pods.requests.items() if resource in pods.flavors}
    flavors = {resource: choice.flavor for resource, choice in pods.flavors.items()}
    return PodSetTotals(totals.spec, pods.count, charged, flavors, pods.topology, pods.delayed_topology)


def _view(totals: PodSetTotals) -> kueue.PodSetAssignment:
    topology = None
    if totals.topology is not None:
        topology = msgspec.convert(to_document(totals.topology), kueue.TopologyAssignment)
    return kueue.PodSetAssignment(
        totals.name, totals.flavors, all_shown(totals.requests), totals.count, topology, totals.delayed_topology
    )


def _merged(info: WorkloadInfo, changes: dict[str, Condition]) -> tuple[Condition, ...]:
    return tuple({**info.conditions, **changes}.values())


def _condition(type: str, status: str, when: str, reason: str | None = None) -> Condition:
    return Condition(type=type, status=status, reason=reason or QUOTA_RESERVED, last_transition_time=when)
