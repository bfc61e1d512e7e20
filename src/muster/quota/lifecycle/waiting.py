"""Workloads that hold no quota, or shall not: inactive or resting ones, and those whose queue is missing or shut."""

from functools import partial
from typing import Final

from muster.api import conditions, kueue, timestamps
from muster.quota import status
from muster.quota.decisions import NORMAL
from muster.quota.gates import Gate
from muster.quota.lifecycle.cases import MAXIMUM_TIME, NOTHING, Case, Change, Plan
from muster.quota.queues import Stop
from muster.quota.status import Evicted, Pending
from muster.quota.workloads import ADMISSION_GATES_ANNOTATION, DEACTIVATION_TARGET, QUOTA_RESERVED, REQUEUED

_DEACTIVATED: Final = "The workload is deactivated"
_NOT_SEEN: Final = "The workload has not been looked at yet"


# Activity


def deactivate(case: Case) -> Plan | None:
    return Plan(deactivates=True) if case.is_active and case.is_true(DEACTIVATION_TARGET) else None


def stay_inactive(case: Case) -> Plan | None:
    if case.is_active:
        return None
    target = case.conditions.get(DEACTIVATION_TARGET)
    if not case.is_evicted:
        if target is None or target.status != conditions.TRUE:
            return case.evict(Evicted.DEACTIVATED, _DEACTIVATED)
        return case.evict(Evicted.DEACTIVATED, f"{_DEACTIVATED} due to {target.message}", cause=target.reason or "")
    if target is not None or case.view.status.requeue_state is not None:
        return Plan(changes=(status.forget_plans,))
    if case.has_reservation or case.is_on_hold or case.says(Pending.DEACTIVATED, _DEACTIVATED):
        return NOTHING
    return Plan(changes=(case.pending(Pending.DEACTIVATED, _DEACTIVATED),))


# Queueing again


def requeue(case: Case) -> Plan | None:
    reason = case.why_not(REQUEUED)
    if not reason:
        return None
    if reason.startswith(Evicted.DEACTIVATED):
        # Who reactivates what took too long gives it the whole time again.
        before = (status.forget_time,) if reason.endswith(MAXIMUM_TIME) else ()
        return Plan(changes=(*before, _allow(case, "Reactivated", "The workload was reactivated")))
    if reason in (Evicted.PODS_READY_TIMEOUT, Evicted.ADMISSION_CHECK):
        return _end_rest(case)
    queue = case.place.queue
    if reason == Evicted.CLUSTER_QUEUE_STOPPED and queue is not None and not queue.is_closed:
        message = "The ClusterQueue was restarted after being stopped"
        return Plan(changes=(_allow(case, "ClusterQueueRestarted", message),))
    if reason == Evicted.LOCAL_QUEUE_STOPPED and _is_open(case.place.local_queue):
        message = "The LocalQueue was restarted after being stopped"
        return Plan(changes=(_allow(case, "LocalQueueRestarted", message),))
    return None


def _end_rest(case: Case) -> Plan | None:
    state = case.view.status.requeue_state
    if state is not None and state.requeue_at and not case.is_time(timestamps.parse(state.requeue_at)):
        return None
    message = "The workload backoff was finished"
    return Plan(changes=(partial(status.end_backoff, reason="BackoffFinished", message=message, now=case.now),))


def _allow(case: Case, reason: str, message: str) -> Change:
    return partial(status.requeued, is_allowed=True, reason=reason, message=message, now=case.now)


# Before quota is asked for


def stay_on_hold(case: Case) -> Plan | None:
    """Its job asked for that, and ends it."""
    return NOTHING if case.is_on_hold else None


def wait_for_gates(case: Case) -> Plan | None:
    if Gate.ADMISSION_GATED_BY not in case.gates or case.has_reservation:
        return None
    gates = (case.view.metadata.annotations or {}).get(ADMISSION_GATES_ANNOTATION)
    if gates:
        reason, event, message = Pending.ADMISSION_GATED, "AdmissionGated", f"The workload is gated by {gates}"
        if case.says(reason, message):
            return NOTHING
    elif case.why_not(QUOTA_RESERVED) == Pending.ADMISSION_GATED:
        reason, event, message = Pending.PENDING_EVALUATION, "AdmissionGateCleared", "The admission gates were cleared"
    else:
        return None
    return Plan(changes=(case.pending(reason, message),), events=(case.event(NORMAL, event, message),))


def wait_for_queues(case: Case) -> Plan | None:
    """What is wrong with its queues. Once they are there and open, the engine says why it waits."""
    if case.has_reservation:
        return None
    problem = _queue_problem(case)
    if problem is not None:
        return None if case.says(*problem) else Plan(changes=(case.pending(*problem),))
    found = case.conditions.get(QUOTA_RESERVED)
    is_stale = found is not None and found.message in _queue_messages(case)
    is_unsaid = found is None and Gate.UNADMITTED_WORKLOADS_EXPLICIT_STATUS in case.gates
    return Plan(changes=(case.pending(Pending.PENDING_EVALUATION, _NOT_SEEN),)) if is_stale or is_unsaid else None


def _queue_problem(case: Case) -> tuple[Pending, str] | None:
    place, name = case.place, case.view.spec.queue_name
    if name and place.local_queue is None:
        return Pending.MISCONFIGURED, f"LocalQueue {name} doesn't exist"
    if name and not _is_open(place.local_queue):
        return Pending.SUSPENDED, f"LocalQueue {name} is inactive"
    if place.queue is None:
        return Pending.MISCONFIGURED, f"ClusterQueue {place.queue_name} doesn't exist"
    if place.queue.is_closed or not place.queue.is_active:
        return Pending.SUSPENDED, f"ClusterQueue {place.queue_name} is inactive"
    return None


def _queue_messages(case: Case) -> frozenset[str]:
    """All that may have been said while something was wrong with its queues."""
    names = (f"LocalQueue {case.view.spec.queue_name}", f"ClusterQueue {case.place.queue_name}")
    ends = ("doesn't exist", "is inactive", "is stopped", "is terminating or missing")
    return frozenset(f"{name} {end}" for name in names for end in ends)


def _is_open(local_queue: kueue.LocalQueue | None) -> bool:
    return (
        local_queue is not None
        and local_queue.metadata.deletion_timestamp is None
        and (local_queue.spec.stop_policy or Stop.NONE) == Stop.NONE
    )
