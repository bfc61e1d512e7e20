"""How long workloads are kept that are over, and jobs that quota gave up on."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from muster.api import conditions, kueue, timestamps
from muster.api.meta import Instant, OwnerReference
from muster.quota.settings import Retention
from muster.quota.workloads import EVICTED, FINISHED

_GIVEN_UP = "DeactivatedDueTo"


class End(StrEnum):
    FINISHED = "Deleted finished workload due to elapsed retention"
    GIVEN_UP = "Deleted the workload's job due to elapsed retention: quota deactivated it"


@dataclass(frozen=True, slots=True)
class Due:
    """When a workload goes, and why. `owners` go instead of it where there are any: it follows them."""

    at: Instant
    end: End
    owners: Sequence[OwnerReference] = ()


def due(view: kueue.Workload, retention: Retention) -> Due | None:
    """None where it is kept, as far as can be told now."""
    if view.metadata.deletion_timestamp is not None:
        return None
    finished = conditions.find(view.status.conditions, FINISHED)
    if finished is not None and finished.status == conditions.TRUE:
        return _after(finished.last_transition_time, retention.finished, End.FINISHED)
    evicted = conditions.find(view.status.conditions, EVICTED)
    if (
        evicted is not None
        and evicted.status == conditions.TRUE
        and (evicted.reason or "").startswith(_GIVEN_UP)
        and view.spec.active is False
    ):
        return _after(evicted.last_transition_time, retention.deactivated, End.GIVEN_UP, view.metadata.owner_references)
    return None


def _after(since: str | None, seconds: float | None, end: End, owners: Sequence[OwnerReference] = ()) -> Due | None:
    if seconds is None or not since:
        return None
    return Due(Instant(timestamps.parse(since) + seconds), end, owners)
