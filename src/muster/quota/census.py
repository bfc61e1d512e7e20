"""How many workloads are not admitted, and why, and how many have finished: as the store shows it, kept up with every
change instead of counted anew.

By LocalQueue, because that is what a workload names: where it leads is asked when somebody reads.
"""

from collections.abc import Hashable
from typing import Final, NamedTuple, TypeAlias, TypeVar

from muster.api import conditions, kueue
from muster.quota.status import Pending
from muster.quota.workloads import ADMITTED, FINISHED, QUOTA_RESERVED

NO_RESERVATION: Final = "NoReservation"
UNSATISFIED_CHECKS: Final = "UnsatisfiedAdmissionChecks"


class Unadmitted(NamedTuple):
    """`local_queue`: by `namespace/name`, the name empty where it names none. `queue`: where quota is reserved for it;
    empty where none is. `cause`: why none is; empty where it is."""

    local_queue: str
    queue: str
    reason: str
    cause: str


class Finished(NamedTuple):
    """`queue`: where it had quota; empty where it never had."""

    local_queue: str
    queue: str


_Place: TypeAlias = Unadmitted | Finished | None
_P = TypeVar("_P", bound=Hashable)


class Census:
    def __init__(self) -> None:
        self.unadmitted: dict[Unadmitted, int] = {}
        self.finished: dict[Finished, int] = {}
        self._places: dict[str, Unadmitted | Finished] = {}

    def put(self, view: kueue.Workload) -> None:
        """The workload is like that now."""
        self._set(f"{view.metadata.namespace}/{view.metadata.name}", place_of(view))

    def drop(self, key: str) -> None:
        self._set(key, None)

    def _set(self, key: str, place: _Place) -> None:
        old = self._places.get(key)
        if old == place:
            return
        self._count(old, -1)
        self._count(place, 1)
        if place is None:
            self._places.pop(key, None)
        else:
            self._places[key] = place

    def _count(self, place: _Place, sign: int) -> None:
        if isinstance(place, Unadmitted):
            _add(self.unadmitted, place, sign)
        elif place is not None:
            _add(self.finished, place, sign)


def place_of(view: kueue.Workload) -> _Place:
    """None for what is admitted."""
    listed, admission = view.status.conditions, view.status.admission
    local_queue = f"{view.metadata.namespace}/{view.spec.queue_name or ''}"
    queue = admission.cluster_queue if admission is not None else ""
    if conditions.is_true(listed, FINISHED):
        return Finished(local_queue, queue)
    admitted, reserved = conditions.find(listed, ADMITTED), conditions.find(listed, QUOTA_RESERVED)
    if admitted is not None and admitted.status == conditions.TRUE:
        return None
    if reserved is not None and reserved.status == conditions.TRUE:
        reason = admitted.reason if admitted is not None else None
        return Unadmitted(local_queue, queue, reason or UNSATISFIED_CHECKS, "")
    cause = reserved.reason if reserved is not None and reserved.reason else Pending.PENDING_EVALUATION
    return Unadmitted(local_queue, "", NO_RESERVATION, str(cause))


def _add(counts: dict[_P, int], place: _P, sign: int) -> None:
    count = counts.get(place, 0) + sign
    if count:
        counts[place] = count
    else:
        del counts[place]
