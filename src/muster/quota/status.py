"""What happens to a Workload, as changes of its status: reserved, admitted, waiting, evicted, requeued, finished.

Every function takes the whole document and gives a new one, which shares nothing of the status with the old. Reasons
and messages are the ones a Kueue user knows. Nothing here decides whether something should happen.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Final

from muster.api import conditions, kueue, raw, timestamps
from muster.api.meta import Instant
from muster.api.raw import Document
from muster.quota.gates import Gate, Gates
from muster.quota.workloads import (
    ADMITTED,
    BLOCKED_ON_GATES,
    DEACTIVATION_TARGET,
    EVICTED,
    FINISHED,
    PREEMPTED,
    QUOTA_RESERVED,
    REQUEUED,
    WAITING,
)

MOST_TEXT: Final = 32 * 1024
"""Characters of a condition's message."""
MOST_EVENT_TEXT: Final = 1024
ACCUMULATED: Final = "accumulatedPastExecutionTimeSeconds"
_CUT: Final = " ..."


class Pending(StrEnum):
    """Why no quota is reserved: the reason of `QuotaReserved=False`."""

    NO_MATCHING_FLAVOR = "NoMatchingFlavor"
    WAITING_FOR_QUOTA = "WaitingForQuota"
    EXCEEDS_MAX_QUOTA = "ExceedsMaxQuota"
    TOPOLOGY_PLACEMENT_FAILED = "TopologyPlacementFailed"
    WAITING_FOR_PREEMPTED = "WaitingForPreemptedWorkloads"
    WAITING_FOR_PODS_READY = "WaitingForPodsReady"
    PENDING_EVALUATION = "PendingEvaluation"
    SUSPENDED = "Suspended"
    MISCONFIGURED = "Misconfigured"
    ADMISSION_GATED = "AdmissionGated"
    ON_HOLD = "OnHold"
    DEACTIVATED = "Deactivated"


class Evicted(StrEnum):
    """Why a workload has to give back its quota."""

    PREEMPTED = "Preempted"
    PODS_READY_TIMEOUT = "PodsReadyTimeout"
    ADMISSION_CHECK = "AdmissionCheck"
    CLUSTER_QUEUE_STOPPED = "ClusterQueueStopped"
    LOCAL_QUEUE_STOPPED = "LocalQueueStopped"
    NODE_FAILURES = "NodeFailures"
    FLAVOR_MIGRATION = "FlavorMigration"
    DEACTIVATED = "Deactivated"


class CheckState(StrEnum):
    PENDING = "Pending"
    READY = "Ready"
    RETRY = "Retry"
    REJECTED = "Rejected"


_COARSE: Final[Mapping[str, str]] = {
    Pending.WAITING_FOR_PODS_READY: "Waiting",
    Pending.ADMISSION_GATED: "AdmissionGated",
    Pending.ON_HOLD: "OnHold",
    Pending.DEACTIVATED: "Inadmissible",
}
_REQUEUES_AT_ONCE: Final = frozenset({Evicted.PREEMPTED, Evicted.NODE_FAILURES})
OPEN: Final = "Open"
CLOSED: Final = "Closed"


# Quota


def reserve(document: Document, admission: Document, now: Instant) -> Document:
    """Quota is set aside for it. Says nothing of `Admitted`: see `admit`."""
    draft, status = _draft(document)
    message = f"Quota reserved in ClusterQueue {admission['clusterQueue']}"
    status["admission"] = admission
    status.pop("resourceRequests", None)
    _set(draft, QUOTA_RESERVED, conditions.TRUE, "QuotaReserved", message, now)
    conditions.remove_condition(draft, WAITING)
    for name in (EVICTED, PREEMPTED, BLOCKED_ON_GATES):
        found = conditions.find_in(draft, name)
        if found is not None and found.get("status") == conditions.TRUE:
            _set(draft, name, conditions.FALSE, "QuotaReserved", f"Previously: {found.get('message', '')}", now)
    return draft


def admit(document: Document, now: Instant, gates: Gates) -> Document:
    """`Admitted` says whether it may run: quota is reserved, every listed check ready, and no topology awaited."""
    draft, status = _draft(document)
    _sync_admitted(draft, status, now, gates)
    return draft


def replace_nodes(document: Document, admission: Document, now: Instant, gates: Gates) -> Document:
    """Its reservation stays; its pods are told other places than before."""
    draft, status = _draft(document)
    status["admission"] = admission
    status.pop("unhealthyNodes", None)
    _sync_admitted(draft, status, now, gates)
    return draft


def mark_unhealthy(document: Document, nodes: tuple[str, ...]) -> Document:
    """These of its nodes have failed, and no others."""
    draft, status = _draft(document)
    if nodes:
        status["unhealthyNodes"] = [{"name": name} for name in nodes]
    else:
        status.pop("unhealthyNodes", None)
    return draft


def pending(
    document: Document,
    reason: str,
    message: str,
    now: Instant,
    gates: Gates,
    requests: list[Document] | None = None,
) -> Document:
    """It holds no quota (any more), for that reason. `requests`: what it asks for, by pod set; None: as written."""
    draft, status = _draft(document)
    _set(draft, QUOTA_RESERVED, conditions.FALSE, shown_reason(reason, gates), message, now)
    status.pop("admission", None)
    if requests is not None:
        status["resourceRequests"] = requests
    _sync_admitted(draft, status, now, gates)
    return draft


def shown_reason(reason: str, gates: Gates) -> str:
    """As users are told: without the gate for it, coarser."""
    return reason if Gate.UNADMITTED_WORKLOADS_OBSERVABILITY in gates else _COARSE.get(reason, "Pending")


def block_on_gates(document: Document, message: str, now: Instant) -> Document:
    """It would have to preempt, and one of its gates does not let it."""
    draft, _ = _draft(document)
    _set(draft, BLOCKED_ON_GATES, conditions.TRUE, "PreemptionGated", message, now)
    return draft


def release(
    document: Document, reason: str, now: Instant, gates: Gates, *, may_requeue: bool | None = None
) -> Document:
    """An evicted workload has stopped: it gives back its quota, and queues again at once or when told.

    `may_requeue` None: as the reason of its eviction says.
    """
    found = conditions.find_in(document, EVICTED) or {}
    cause, message = str(found.get("reason", "")), str(found.get("message", ""))
    again = cause in _REQUEUES_AT_ONCE if may_requeue is None else may_requeue
    return pending(requeued(document, again, cause, message, now), reason, message, now, gates)


def requeued(document: Document, is_allowed: bool, reason: str, message: str, now: Instant) -> Document:
    """Whether it may queue again."""
    draft, _ = _draft(document)
    _set(draft, REQUEUED, conditions.TRUE if is_allowed else conditions.FALSE, reason, message, now)
    return draft


def end_backoff(document: Document, reason: str, message: str, now: Instant) -> Document:
    """Its waiting time is over."""
    draft, status = _draft(document)
    state = status.get("requeueState")
    if isinstance(state, dict):
        state.pop("requeueAt", None)
        if not state:
            del status["requeueState"]
    _set(draft, REQUEUED, conditions.TRUE, reason, message, now)
    return draft


def back_off(document: Document, until: Instant, *, counts: bool) -> Document:
    """It rests at least until then. `counts`: one more of the times that it may."""
    draft, status = _draft(document)
    state = raw.section(status, "requeueState")
    known = state.get("requeueAt")
    if not known or timestamps.parse(known) < until:
        state["requeueAt"] = timestamps.to_text(until)
    if counts:
        state["count"] = (state.get("count") or 0) + 1
    return draft


# Eviction


def evict(document: Document, reason: str, message: str, now: Instant, cause: str = "") -> Document:
    """It has to stop. It holds its quota until it has. `cause`: what led to the reason, where that says too little."""
    draft, status = _draft(document)
    _set(draft, EVICTED, conditions.TRUE, evicted_reason(reason, cause), message, now)
    conditions.remove_condition(draft, WAITING)
    for field in ("clusterName", "nominatedClusterNames", "unhealthyNodes"):
        status.pop(field, None)
    if reason.startswith(Evicted.DEACTIVATED):
        _forget_plans(draft, status)
    when = timestamps.to_text(now)
    for gate in status.get("preemptionGates") or ():
        if gate.get("position") != CLOSED:
            gate.update(position=CLOSED, lastTransitionTime=when)
    _reset_checks(status, when)
    _count_eviction(status, reason, cause)
    return draft


def reset_checks(document: Document, now: Instant) -> Document:
    """All are asked again."""
    draft, status = _draft(document)
    _reset_checks(status, timestamps.to_text(now))
    return draft


def _reset_checks(status: Document, when: str) -> None:
    if status.get("admissionChecks"):
        status["admissionChecks"] = [_reset_check(check, when) for check in status["admissionChecks"]]


def _reset_check(check: Document, when: str) -> Document:
    state = check.get("state")
    if state == CheckState.PENDING:
        return check
    fresh: Document = {
        "name": check["name"],
        "state": CheckState.PENDING.value,
        "lastTransitionTime": when,
        "message": f"Reset to Pending after eviction. Previously: {state}",
    }
    retries = (check.get("retryCount") or 0) + (1 if state == CheckState.RETRY else 0)
    if retries:
        fresh["retryCount"] = retries
    return fresh


def _count_eviction(status: Document, reason: str, cause: str) -> None:
    evictions = raw.section(status, "schedulingStats").setdefault("evictions", [])
    for entry in evictions:
        if entry.get("reason") == reason and (entry.get("underlyingCause") or "") == cause:
            entry["count"] = (entry.get("count") or 0) + 1
            return
    evictions.append({"reason": reason, "underlyingCause": cause, "count": 1})


def preempt(document: Document, reason: str, message: str, now: Instant) -> Document:
    """It has to stop for another one. `reason`: on what grounds."""
    draft = evict(document, Evicted.PREEMPTED, message, now)
    _set(draft, PREEMPTED, conditions.TRUE, reason, message, now)
    return draft


def evicted_reason(reason: str, cause: str) -> str:
    """Who was deactivated reads why in the reason itself."""
    return f"{reason}DueTo{cause}" if cause and reason == Evicted.DEACTIVATED else reason


def forget_plans(document: Document) -> Document:
    """It is deactivated: neither is it to be, nor will it be tried again."""
    draft, status = _draft(document)
    _forget_plans(draft, status)
    return draft


def _forget_plans(draft: Document, status: Document) -> None:
    status.pop("requeueState", None)
    conditions.remove_condition(draft, DEACTIVATION_TARGET)


def forget_time(document: Document) -> Document:
    """What it ran before counts no longer against its limit."""
    draft, status = _draft(document)
    status.pop(ACCUMULATED, None)
    return draft


def target_deactivation(document: Document, cause: str, message: str, now: Instant) -> Document:
    """It is to be deactivated: whoever reconciles it sets `spec.active` to false."""
    draft, _ = _draft(document)
    _set(draft, DEACTIVATION_TARGET, conditions.TRUE, cause, message, now)
    return draft


def finish(document: Document, reason: str, message: str, now: Instant) -> Document:
    draft, _ = _draft(document)
    _set(draft, FINISHED, conditions.TRUE, reason, message, now)
    conditions.remove_condition(draft, WAITING)
    return draft


def say(document: Document, type: str, holds: bool, reason: str, message: str, now: Instant) -> Document:
    """Any other condition: of its pods, say. The same document where it says so already."""
    found = conditions.find_in(document, type)
    value = conditions.TRUE if holds else conditions.FALSE
    if found is not None and (found.get("status"), found.get("reason"), found.get("message")) == (
        value,
        reason,
        message,
    ):
        return document
    draft, _ = _draft(document)
    _set(draft, type, value, reason, message, now)
    return draft


def reclaim(document: Document, counts: Mapping[str, int]) -> Document:
    """By pod set, how many of its pods are done. The same document where it says so already."""
    listed = [{"name": name, "count": count} for name, count in counts.items() if count]
    if listed == (raw.dig(document, "status", "reclaimablePods", default=None) or []):
        return document
    draft, status = _draft(document)
    status["reclaimablePods"] = listed
    return draft


# Checks and gates


def sync_checks(document: Document, wanted: Iterable[str], now: Instant) -> Document:
    """Exactly the wanted checks are listed; what is new is pending."""
    draft, status = _draft(document)
    names = set(wanted)
    listed = [check for check in status.get("admissionChecks") or () if check.get("name") in names]
    known = {check["name"] for check in listed}
    when = timestamps.to_text(now)
    for name in sorted(names - known):
        listed.append(
            {"name": name, "state": CheckState.PENDING.value, "lastTransitionTime": when, "message": ""},
        )
    if listed:
        status["admissionChecks"] = listed
    else:
        status.pop("admissionChecks", None)
    return draft


def failed_checks(view: kueue.Workload) -> list[str]:
    """Names of those that ask for another try, or say no."""
    if not view.status.admission_checks:
        return []
    bad = (CheckState.RETRY, CheckState.REJECTED)
    return [check.name for check in view.status.admission_checks if check.state in bad]


def closed_gates(view: kueue.Workload) -> list[str]:
    """Names of the gates that keep it from preempting: closed unless its status says open."""
    if not view.spec.preemption_gates:
        return []
    opened = {gate.name for gate in view.status.preemption_gates if gate.position == OPEN}
    return [gate.name for gate in view.spec.preemption_gates if gate.name not in opened]


def are_checks_ready(view: kueue.Workload) -> bool:
    """All that are listed."""
    return all(check.state == CheckState.READY for check in view.status.admission_checks)


# Inside


def _sync_admitted(draft: Document, status: Document, now: Instant, gates: Gates) -> None:
    why = _unready(status, draft)
    found = conditions.find_in(draft, ADMITTED)
    was_admitted = found is not None and found.get("status") == conditions.TRUE
    if why is None:
        if not was_admitted:
            _set(draft, ADMITTED, conditions.TRUE, "Admitted", "The workload is admitted", now)
        return
    if was_admitted:
        assert found is not None
        since = found.get("lastTransitionTime")
        elapsed = max(0, int(now - timestamps.parse(since))) if since else 0
        status[ACCUMULATED] = (status.get(ACCUMULATED) or 0) + elapsed
    if was_admitted or Gate.UNADMITTED_WORKLOADS_OBSERVABILITY in gates:
        _set(draft, ADMITTED, conditions.FALSE, *why, now)


def _unready(status: Document, draft: Document) -> tuple[str, str] | None:
    if not conditions.is_true_in(draft, QUOTA_RESERVED):
        return "NoReservation", "The workload has no reservation"
    if any(check.get("state") != CheckState.READY for check in status.get("admissionChecks") or ()):
        return "UnsatisfiedAdmissionChecks", "The workload has not all checks ready"
    if any(
        pods.get("delayedTopologyRequest") == "Pending"
        for pods in raw.dig(status, "admission", "podSetAssignments", default=None) or ()
    ):
        return "PendingDelayedTopologyRequests", "There are pending delayed topology requests"
    return None


def _draft(document: Document) -> tuple[Document, Document]:
    status = raw.copy(document.get("status") or {})
    return {**document, "status": status}, status


def _set(draft: Document, type: str, value: str, reason: str, message: str, now: Instant) -> None:
    conditions.set_condition(draft, type, value, reason, shortened(message, MOST_TEXT), timestamps.to_text(now))
    generation = raw.dig(draft, "metadata", "generation", default=None)
    found = conditions.find_in(draft, type)
    if generation and found is not None:
        found["observedGeneration"] = generation


def shortened(message: str, most: int) -> str:
    return message if len(message) <= most else message[: most - len(_CUT)] + _CUT
