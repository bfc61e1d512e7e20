"""What has happened to an allocation, told from its object: the events between what was told and what it says now.

Pure. Steps that were too quick to be seen are told all the same, in their order.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from muster.api import muster, timestamps
from muster.api.meta import Instant
from muster.api.muster.names import BEGUN, EndReason, Phase, ResourcePhase
from muster.api.timestamps import BadTimestamp
from muster.engines.protocol import (
    STATE_ORDER,
    AllocationId,
    Event,
    Exit,
    Failure,
    Granted,
    PreemptionAsked,
    Resource,
    ResourceChanged,
    ResourceId,
    ResourceState,
)

_STATES: Final[Mapping[str, ResourceState]] = {
    ResourcePhase.STARTING: ResourceState.STARTING,
    ResourcePhase.RUNNING: ResourceState.RUNNING,
    ResourcePhase.TERMINATED: ResourceState.TERMINATED,
}
_FAILURES: Final[Mapping[str, Failure]] = {
    EndReason.FAILED: Failure.RESOURCES_FAILED,
    EndReason.NODE_LOST: Failure.AGENT_FAILED,
    EndReason.EVICTED: Failure.RESOURCES_ABORTED,
    EndReason.DELETED: Failure.RESOURCES_ABORTED,
}
_SYNTHESISED: Final = (ResourceState.PULLING, ResourceState.STARTING, ResourceState.RUNNING)


@dataclass(slots=True)
class Told:
    """What was told of one allocation."""

    is_granted: bool = False
    is_preemption_asked: bool = False
    resources: dict[ResourceId, Resource] = field(default_factory=dict)

    @property
    def is_running(self) -> bool:
        """All of it, or it has."""
        least = STATE_ORDER[ResourceState.RUNNING]
        return self.is_granted and all(STATE_ORDER[found.state] >= least for found in self.resources.values())


def news(found: muster.Allocation, told: Told, *, is_recovered: bool = False) -> list[Event]:
    """`told` is changed: it says now that all of this was told."""
    id, status = AllocationId(found.metadata.name), found.status
    if status.phase not in BEGUN:
        return []
    resources = [_resource(found, part) for part in status.resources]
    events: list[Event] = []
    if not told.is_granted:
        told.is_granted = True
        given = [resource if is_recovered else _assigned(resource) for resource in resources]
        told.resources = {resource.id: resource for resource in given}
        events.append(Granted(id, tuple(given), is_recovered))
    if found.spec.suspend and status.phase != Phase.TERMINATED and not told.is_preemption_asked:
        told.is_preemption_asked = True
        events.append(PreemptionAsked(id, "its resources are needed elsewhere"))
    for resource in resources:
        events += (ResourceChanged(id, step) for step in _steps(told.resources.get(resource.id), resource))
        told.resources[resource.id] = resource
    return events


def vanished(id: AllocationId, told: Told) -> list[Event]:
    """Its object is gone, and we have not asked for that."""
    end = Exit(None, Failure.RESOURCES_ABORTED, "its allocation was deleted by somebody else")
    events: list[Event] = []
    for name, resource in told.resources.items():
        if resource.state is not ResourceState.TERMINATED:
            told.resources[name] = ended = _with(resource, ResourceState.TERMINATED, end)
            events.append(ResourceChanged(id, ended))
    return events


def _steps(before: Resource | None, now: Resource) -> list[Resource]:
    if before is None:
        return []
    passed = STATE_ORDER[before.state]
    if STATE_ORDER[now.state] < passed:
        return []
    if now.state is before.state:
        return [now] if now.address != before.address else []
    has_run = now.started_at is not None or now.state is not ResourceState.TERMINATED
    between = [
        _with(now, state, None)
        for state in _SYNTHESISED
        if has_run
        if passed < STATE_ORDER[state] < STATE_ORDER[now.state]
    ]
    return [*between, now]


def _resource(found: muster.Allocation, part: muster.AllocatedResource) -> Resource:
    state = _STATES.get(part.phase or "", ResourceState.ASSIGNED)
    return Resource(
        id=ResourceId(part.name),
        rank=part.rank or 0,
        node=part.node or "",
        slots=(found.spec.slots or 0) // (found.spec.pods or 1),
        state=state,
        address=part.address or "",
        started_at=_instant(part.started_at),
        exit=_exit(part) if state is ResourceState.TERMINATED else None,
    )


def _exit(part: muster.AllocatedResource) -> Exit:
    if part.exit_code == 0:
        return Exit(0)
    return Exit(part.exit_code, _FAILURES.get(part.reason or "", Failure.RESOURCES_FAILED), part.message or "")


def _assigned(resource: Resource) -> Resource:
    return _with(resource, ResourceState.ASSIGNED, None)


def _with(resource: Resource, state: ResourceState, exit: Exit | None) -> Resource:
    return Resource(
        id=resource.id,
        rank=resource.rank,
        node=resource.node,
        slots=resource.slots,
        state=state,
        address=resource.address,
        started_at=resource.started_at if state is not ResourceState.ASSIGNED else None,
        exit=exit,
    )


def _instant(text: str | None) -> Instant | None:
    try:
        return timestamps.parse(text) if text else None
    except BadTimestamp:
        return None
