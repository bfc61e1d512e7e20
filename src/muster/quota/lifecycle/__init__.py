"""What becomes of a Workload besides being given quota: deactivated and reactivated, sent to rest and called back,
checked, stopped with its queue, and given up when it takes too long.

Pure. `plan` looks at one workload as it is and says the one next thing to write. What was written is looked at again:
a few looks lead to where it should be, from wherever it starts.
"""

from collections.abc import Callable
from typing import Final

from muster.api import kueue
from muster.api.meta import Instant
from muster.quota.lifecycle import holding, waiting
from muster.quota.lifecycle.cases import NOTHING, Case, Place, Plan, QueueStanding, standing
from muster.quota.settings import Settings
from muster.quota.workloads import FINISHED

__all__ = ["NOTHING", "Place", "Plan", "QueueStanding", "plan", "standing"]

_STEPS: Final[tuple[Callable[[Case], Plan | None], ...]] = (
    waiting.deactivate,
    waiting.stay_inactive,
    waiting.requeue,
    waiting.stay_on_hold,
    waiting.wait_for_gates,
    holding.sync_checks,
    holding.obey_checks,
    holding.obey_stops,
    holding.limit_time,
    holding.await_pods,
    waiting.wait_for_queues,
)
"""The first that has something to say decides; None: the next is asked."""


def plan(view: kueue.Workload, place: Place, settings: Settings, now: Instant) -> Plan:
    """The next thing to be written about the workload; NOTHING where there is none, now or later."""
    case = Case(view, place, settings, now)
    if case.is_true(FINISHED) or view.metadata.deletion_timestamp is not None:
        return NOTHING
    for step in _STEPS:
        found = step(case)
        if found is not None:
            return found
    return NOTHING if case.look_again is None else Plan(look_again=case.look_again)
