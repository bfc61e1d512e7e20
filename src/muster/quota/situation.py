"""What has become of a workload that does not wait in a queue: a word for it, and a sentence.

Read off the object alone; why one waits that does stand in a queue, `explaining` works out.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

from muster.api import conditions, kueue
from muster.api.meta import Condition
from muster.api.raw import Document
from muster.quota.workloads import (
    ADMISSION_GATES_ANNOTATION,
    ADMITTED,
    EVICTED,
    FINISHED,
    QUOTA_RESERVED,
    REQUEUED,
)


class State(StrEnum):
    WAITING = "Waiting"
    RESERVED = "QuotaReserved"
    ADMITTED = "Admitted"
    EVICTED = "Evicted"
    DEACTIVATED = "Deactivated"
    FINISHED = "Finished"


class Situation(NamedTuple):
    state: State
    summary: str


def situation(view: kueue.Workload) -> Situation:
    found, admission = view.status.conditions, view.status.admission
    queue = admission.cluster_queue if admission is not None else ""
    if conditions.is_true(found, FINISHED):
        return Situation(State.FINISHED, _said("it has finished", _find(found, FINISHED)))
    if conditions.is_true(found, EVICTED) and conditions.is_true(found, QUOTA_RESERVED):
        return Situation(State.EVICTED, _said("it is being stopped", _find(found, EVICTED)))
    if view.spec.active is False:
        return Situation(
            State.DEACTIVATED, _said("it is deactivated, until spec.active is true", _find(found, EVICTED))
        )
    if conditions.is_true(found, ADMITTED):
        return Situation(State.ADMITTED, f"it does not wait: ClusterQueue {queue} has admitted it")
    if conditions.is_true(found, QUOTA_RESERVED):
        return Situation(State.RESERVED, f"ClusterQueue {queue} holds quota for it; {_checks(view)}")
    return Situation(State.WAITING, _kept_out(view))


def to_document(view: kueue.Workload) -> Document:
    """As an explanation is written, of a workload for which there is nothing to explain."""
    found, admission = situation(view), view.status.admission
    return {
        "workload": f"{view.metadata.namespace}/{view.metadata.name}",
        "state": found.state.value,
        "clusterQueue": admission.cluster_queue if admission is not None else "",
        "position": None,
        "positionInLocalQueue": None,
        "problem": "",
        "summary": found.summary,
        "missing": [],
        "tried": [],
        "unplaced": [],
    }


def _checks(view: kueue.Workload) -> str:
    open_ = [
        f"{check.name} ({check.state or 'Pending'})" for check in view.status.admission_checks if not _is_done(check)
    ]
    if open_:
        return f"it waits for admission checks: {', '.join(open_)}"
    return "it starts in a moment"


def _is_done(check: kueue.AdmissionCheckState) -> bool:
    return check.state == "Ready"


def _kept_out(view: kueue.Workload) -> str:
    """Why it does not queue though it has no quota."""
    gates = (view.metadata.annotations or {}).get(ADMISSION_GATES_ANNOTATION)
    if gates:
        return f"it does not queue until these let it: {gates}"
    rest = view.status.requeue_state
    if rest is not None and rest.requeue_at:
        return f"it rests until {rest.requeue_at} and queues again then"
    for name in (REQUEUED, QUOTA_RESERVED):
        found = _find(view.status.conditions, name)
        if found is not None and found.status == conditions.FALSE and found.message:
            return f"it does not queue: {found.message}"
    return "it is about to be queued"


def _find(listed: Sequence[Condition], type: str) -> Condition | None:
    return next((found for found in listed if found.type == type), None)


def _said(text: str, condition: Condition | None) -> str:
    return f"{text}: {condition.message}" if condition is not None and condition.message else text
