"""A workload as it will be once the store has what was decided: what the next cycle is decided from.

The store's own word replaces it as soon as it is seen.
"""

from copy import copy
from typing import Final

import msgspec
from msgspec import structs

from muster.api import kueue, timestamps
from muster.api.conditions import FALSE, TRUE
from muster.api.meta import Condition, Instant
from muster.api.raw import Document
from muster.quota.settings import Settings
from muster.quota.workloads import ADMITTED, BLOCKED_ON_GATES, EVICTED, PREEMPTED, QUOTA_RESERVED, WorkloadInfo

_OVER: Final = (EVICTED, PREEMPTED, BLOCKED_ON_GATES)


def reserved(
    info: WorkloadInfo, admission: Document, now: Instant, settings: Settings, *, is_admitted: bool
) -> WorkloadInfo:
    """It holds what it was given."""
    when = timestamps.to_text(now)
    changes = {name: _condition(name, FALSE, when) for name in _OVER if info.is_true(name)}
    if not info.has_reservation:
        changes[QUOTA_RESERVED] = _condition(QUOTA_RESERVED, TRUE, when)
    if is_admitted and not info.is_admitted:
        changes[ADMITTED] = _condition(ADMITTED, TRUE, when)
    status = structs.replace(
        info.view.status,
        admission=msgspec.convert(admission, kueue.Admission),
        conditions=_merged(info, changes),
        unhealthy_nodes=(),
        resource_requests=(),
    )
    return WorkloadInfo(structs.replace(info.view, status=status), str(admission["clusterQueue"]), settings)


def evicted(info: WorkloadInfo, reason: str, now: Instant) -> WorkloadInfo:
    """It has been told to stop, and holds what it has until it has stopped."""
    changes = {EVICTED: _condition(EVICTED, TRUE, timestamps.to_text(now), reason)}
    made = copy(info)
    conditions = _merged(info, changes)
    made.conditions = {condition.type: condition for condition in conditions}
    made.view = structs.replace(info.view, status=structs.replace(info.view.status, conditions=conditions))
    return made


def _merged(info: WorkloadInfo, changes: dict[str, Condition]) -> tuple[Condition, ...]:
    return tuple({**info.conditions, **changes}.values())


def _condition(type: str, status: str, when: str, reason: str | None = None) -> Condition:
    return Condition(type=type, status=status, reason=reason or QUOTA_RESERVED, last_transition_time=when)
