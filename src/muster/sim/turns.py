"""Nobody waits while others start that came later, to the same queue, and ask for the same.

The bound: once somebody has been passed by, others may go on passing him for two minutes, and no longer. Who is
preempted keeps his place.
"""

from collections.abc import Hashable
from dataclasses import dataclass

from muster.api import conditions, core, kueue
from muster.api.core.requests import pod_requests
from muster.api.objects import Object
from muster.cluster.pods import GROUP_ANNOTATION
from muster.runtime.clock import Clock
from muster.sim.invariants import place_of
from muster.sim.ledger import Violation
from muster.sim.troubles import Troubles

BOUND_SECONDS = 120.0
_SAME_SECONDS = 1.0  # when they were made is written in whole seconds: within one, nobody is first


@dataclass(slots=True)
class _Waiting:
    found: Object
    line: Hashable
    came: float
    passed_at: float | None = None
    """When the first who came later was served."""


class Turns:
    name = "starvation"
    kinds = frozenset({core.POD, kueue.WORKLOAD})

    def __init__(self, clock: Clock, troubles: Troubles) -> None:
        self._clock = clock
        self._troubles = troubles
        self._waiting: dict[str, _Waiting] = {}  # by uid
        self._came: dict[str, float] = {}
        self._served: list[_Waiting] = []

    def heard(self, old: Object | None, new: Object | None) -> None:
        found = new or old
        assert found is not None
        known = self._waiting.get(found.uid)
        if new is None:
            self._came.pop(found.uid, None)
            self._waiting.pop(found.uid, None)
            return
        came, line = self._came.setdefault(new.uid, self._clock.monotonic()), _line(new)
        if line is None:
            self._waiting.pop(new.uid, None)
            if known is not None and _is_served(new):
                self._served.append(known)
        elif known is None or known.line != line:
            self._waiting[found.uid] = _Waiting(new, line, came)

    def broken(self) -> Violation | None:
        served, self._served = self._served, []
        now = self._clock.monotonic()
        for one in served:
            for other in self._waiting.values():
                if other.line != one.line or other.came > one.came - _SAME_SECONDS:
                    continue
                if other.passed_at is None:
                    other.passed_at = now
                if now > max(other.passed_at, self._troubles.recovered_at) + BOUND_SECONDS:
                    message = (
                        f"{other.found.kind.name} {other.found.key} came {now - other.came:g} s ago, and others like "
                        f"it pass it by: {one.found.key} came {now - one.came:g} s ago"
                    )
                    return Violation(self.name, message, (place_of(other.found), place_of(one.found)))
        return None


def _line(found: Object) -> Hashable | None:
    """Whom it waits with; None where it does not wait for a decision."""
    return _workload_line(found) if found.kind is kueue.WORKLOAD else _pod_line(found)


def _workload_line(found: Object) -> Hashable | None:
    view = found.read(kueue.Workload)
    is_out = conditions.is_true(view.status.conditions, "Finished") or view.spec.active is False
    if is_out or found.is_terminating or _is_served(found):
        return None
    sets = tuple((one.count, tuple(sorted(pod_requests(one.template.spec).items()))) for one in view.spec.pod_sets)
    return found.key.namespace, view.spec.queue_name, view.spec.priority, sets


def _pod_line(found: Object) -> Hashable | None:
    """Of pods that stand for themselves: a gang's wait for each other."""
    view = found.read(core.Pod)
    if view.spec.scheduling_gates or found.is_terminating or _is_served(found) or view.status.nominated_node_name:
        return None
    if view.status.phase not in (None, "", "Pending") or GROUP_ANNOTATION in (found.meta.annotations or {}):
        return None
    selector = tuple(sorted((view.spec.node_selector or {}).items()))
    return view.spec.scheduler_name, view.spec.priority, selector, tuple(sorted(pod_requests(view.spec).items()))


def _is_served(found: Object) -> bool:
    if found.kind is kueue.WORKLOAD:
        return conditions.is_true(found.read(kueue.Workload).status.conditions, "QuotaReserved")
    return bool(found.read(core.Pod).spec.node_name)
