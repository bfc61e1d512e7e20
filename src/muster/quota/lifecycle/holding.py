"""Workloads that hold quota: checks that must agree, queues that stop, and limits of time.

One that is evicted waits for its job to stop: nothing more is asked of it.
"""

from collections.abc import Set as AbstractSet
from functools import partial
from typing import Final

from muster.api import kueue, timestamps
from muster.api.meta import Instant
from muster.quota import status
from muster.quota.decisions import NORMAL, WARNING, Event
from muster.quota.gates import Gate
from muster.quota.lifecycle.cases import MAXIMUM_TIME, REQUEUING_LIMIT, Case, Change, Plan
from muster.quota.queues import Stop
from muster.quota.settings import PodsReady
from muster.quota.status import CheckState, Evicted, Pending
from muster.quota.workloads import ADMITTED, PODS_READY, QUOTA_RESERVED

_WAIT_FOR_START: Final = "WaitForStart"
_WAIT_FOR_RECOVERY: Final = "WaitForRecovery"
_MOST_DOUBLINGS: Final = 60


# Checks


def sync_checks(case: Case) -> Plan | None:
    """Those that are asked for are listed; once all agree, it is admitted. Before it holds quota, only those are asked
    for that do not depend on the flavor."""
    states = {check.name: check.state for check in case.view.status.admission_checks}
    wanted = _wanted(case)
    changes: list[Change] = []
    if wanted is not None and wanted != states.keys():
        changes.append(partial(status.sync_checks, wanted=wanted, now=case.now))
        states = {name: states.get(name, CheckState.PENDING) for name in wanted}
    events: list[Event] = []
    if case.has_reservation and not case.is_admitted and not case.is_evicted:
        reason = _unready(case, set(states.values()))
        is_told = case.why_not(ADMITTED) == reason or Gate.UNADMITTED_WORKLOADS_OBSERVABILITY not in case.gates
        if not reason or not is_told:
            changes.append(partial(status.admit, now=case.now, gates=case.gates))
        if not reason:
            events.append(_admitted(case))
    return Plan(changes=tuple(changes), events=tuple(events)) if changes else None


def _wanted(case: Case) -> frozenset[str] | None:
    """None where its queue is gone, and nobody can say."""
    queue, admission = case.place.queue, case.view.status.admission
    if queue is None:
        return None
    if admission is None or not case.has_reservation:
        return queue.policy.checks_for(None)
    given = (flavor for pods in admission.pod_set_assignments for flavor in (pods.flavors or {}).values())
    return queue.policy.checks_for(frozenset(given))


def _unready(case: Case, states: AbstractSet[str]) -> str:
    """Why it may not run yet; empty where it may."""
    if states - {CheckState.READY}:
        return "UnsatisfiedAdmissionChecks"
    admission = case.view.status.admission
    if admission is not None and any(
        pods.delayed_topology_request == "Pending" for pods in admission.pod_set_assignments
    ):
        return "PendingDelayedTopologyRequests"
    return ""


def _admitted(case: Case) -> Event:
    admission = case.view.status.admission
    queue = admission.cluster_queue if admission is not None else ""
    waited = max(0.0, case.now - case.since(QUOTA_RESERVED))
    message = f"Admitted by ClusterQueue {queue}, wait time since reservation was {waited:.0f}s"
    return case.event(NORMAL, "Admitted", message)


def obey_checks(case: Case) -> Plan | None:
    """One that says no ends it; one that asks for another try sends it back to the queue."""
    if case.has_reservation and case.is_evicted:
        return None
    checks = case.view.status.admission_checks
    rejected = [check for check in checks if check.state == CheckState.REJECTED]
    if rejected and case.has_reservation:
        names = ", ".join(check.name for check in rejected)
        return Plan(
            changes=(case.target(Evicted.ADMISSION_CHECK, f"Admission check(s): {names}, were rejected"),),
            events=tuple(case.event(WARNING, "AdmissionCheckRejected", _rejection(check)) for check in rejected),
        )
    retrying = [check for check in checks if check.state == CheckState.RETRY]
    if rejected or not retrying:
        return None
    message = f"Evicted due to AdmissionCheck(s) in Retry state: {', '.join(check.name for check in retrying)}"
    until = max(_may_retry_at(check, case.now) for check in retrying)
    rest = partial(status.back_off, until=until, counts=False)
    if case.has_reservation:
        return case.evict(Evicted.ADMISSION_CHECK, message, after=rest)
    # Its controller answered when the quota was gone already: without this, it would not be looked at ever again.
    reset = partial(status.reset_checks, now=case.now)
    reason = Evicted.ADMISSION_CHECK
    wait = partial(status.requeued, is_allowed=False, reason=reason, message=message, now=case.now)
    return Plan(changes=(rest, reset, wait))


def _rejection(check: kueue.AdmissionCheckState) -> str:
    return f"Deactivating workload because AdmissionCheck for {check.name} was Rejected: {check.message or ''}"


def _may_retry_at(check: kueue.AdmissionCheckState, now: Instant) -> Instant:
    since = timestamps.parse(check.last_transition_time) if check.last_transition_time else now
    return Instant(since + (check.requeue_after_seconds or 0))


# Queues that stop


def obey_stops(case: Case) -> Plan | None:
    """What runs goes on until it is to be drained; what has only set quota aside gives it back at once."""
    if not case.has_reservation or case.is_evicted:
        return None
    local, queue, name = case.place.local_queue, case.place.queue, case.view.spec.queue_name
    local_stop = Stop(local.spec.stop_policy or Stop.NONE) if local is not None else Stop.NONE
    stop = queue.stop if queue is not None else Stop.NONE
    if case.is_admitted:
        if local_stop is Stop.DRAIN:
            return case.evict(Evicted.LOCAL_QUEUE_STOPPED, "The LocalQueue is stopped")
        if stop is Stop.DRAIN:
            return case.evict(Evicted.CLUSTER_QUEUE_STOPPED, "The ClusterQueue is stopped")
        return None
    if name and (local is None or local.metadata.deletion_timestamp is not None):
        return _give_back(case, Pending.MISCONFIGURED, f"LocalQueue {name} is terminating or missing")
    if local_stop is not Stop.NONE:
        return _give_back(case, Pending.SUSPENDED, f"LocalQueue {name} is stopped")
    if queue is None or queue.is_terminating:
        return _give_back(
            case, Pending.MISCONFIGURED, f"ClusterQueue {case.place.queue_name} is terminating or missing"
        )
    if stop is not Stop.NONE:
        return _give_back(case, Pending.SUSPENDED, f"ClusterQueue {case.place.queue_name} is stopped")
    return None


def _give_back(case: Case, reason: Pending, message: str) -> Plan:
    return Plan(changes=(case.pending(reason, message),))


# Time


def limit_time(case: Case) -> Plan | None:
    limit = case.view.spec.maximum_execution_time_seconds
    if limit is None or not case.is_admitted or case.is_evicted:
        return None
    before = case.view.status.accumulated_past_execution_time_seconds or 0
    if not case.is_time(Instant(case.since(ADMITTED) + limit - before)):
        return None
    message = f"The maximum execution time ({limit}s) exceeded"
    return Plan(
        changes=(status.forget_time, case.target(MAXIMUM_TIME, "exceeding the maximum execution time")),
        events=(case.event(WARNING, MAXIMUM_TIME, message),),
    )


def await_pods(case: Case) -> Plan | None:
    """An admitted workload whose pods do not get ready, or not ready again, makes room and rests before it is tried
    again."""
    rule = case.settings.pods_ready
    if rule is None or Gate.DISABLE_WAIT_FOR_PODS_READY in case.gates:
        return None
    if not case.is_admitted or case.is_evicted or case.is_true(PODS_READY):
        return None
    cause, deadline = _deadline(case, rule)
    if deadline is None or not case.is_time(deadline):
        return None
    state = case.view.status.requeue_state
    count = (state.count or 0) + 1 if state is not None else 1
    if rule.backoff_limit is not None and count > rule.backoff_limit:
        return Plan(changes=(case.target(REQUEUING_LIMIT, "exceeding the maximum number of re-queuing retries"),))
    rest = partial(status.back_off, until=Instant(case.now + rest_seconds(rule, count)), counts=True)
    return case.evict(Evicted.PODS_READY_TIMEOUT, f"Exceeded the PodsReady timeout {case.key}", after=rest, cause=cause)


def _deadline(case: Case, rule: PodsReady) -> tuple[str, Instant | None]:
    if case.why_not(PODS_READY) != _WAIT_FOR_RECOVERY:
        return _WAIT_FOR_START, Instant(case.since(ADMITTED) + rule.timeout)
    if rule.recovery_timeout is None:
        return _WAIT_FOR_RECOVERY, None
    return _WAIT_FOR_RECOVERY, Instant(case.since(PODS_READY) + rule.recovery_timeout)


def rest_seconds(rule: PodsReady, count: int) -> float:
    """How long it rests when it is put back for the `count`-th time."""
    return min(rule.backoff_base * 2.0 ** min(count - 1, _MOST_DOUBLINGS), rule.backoff_max)
