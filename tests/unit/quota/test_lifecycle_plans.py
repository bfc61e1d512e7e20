"""The next thing to be written about a workload, case by case."""

from dataclasses import dataclass, field
from typing import Final

import pytest
from tests.unit.quota.lifecycle_worlds import (
    ADMISSION,
    ADMITTED,
    EVERY,
    NOW,
    ON_F,
    ON_G,
    PATIENT,
    PLAIN,
    RESERVED,
    UNCHECKED,
    a_check,
    a_place,
    a_workload,
    is_,
    is_not,
    plan,
    text,
)

from muster.api import conditions, raw
from muster.api.raw import JSON, Document
from muster.quota.gates import Gates
from muster.quota.lifecycle import Place, holding
from muster.quota.settings import PodsReady, Settings


@dataclass(frozen=True)
class Case:
    """`says`: reason of each condition that is looked at, with a sign for its status; None: it is gone."""

    workload: Document
    place: Place = field(default_factory=a_place)
    says: dict[str, str | None] = field(default_factory=dict)
    events: tuple[str, ...] = ()
    settings: Settings = PLAIN
    again: float | None = None
    status: Document = field(default_factory=dict)


OBSERVED_OFF: Final = Settings(gates=Gates.default().changed({"UnadmittedWorkloadsObservability": False}))
EXPLICIT: Final = Settings(gates=Gates.default().changed({"UnadmittedWorkloadsExplicitStatus": True}))
GATED: Final = {"kueue.x-k8s.io/admission-gated-by": "example.com/a"}
REST: Final = is_not("Requeued", "PodsReadyTimeout")

CHANGES: Final = {
    "an inactive workload is evicted": Case(
        a_workload(RESERVED, ADMITTED, spec={"active": False}),
        says={"Evicted": "+Deactivated", "QuotaReserved": "+QuotaReserved"},
        events=("EvictedDueToDeactivated",),
    ),
    "who was to be deactivated says why in the reason": Case(
        a_workload(RESERVED, is_("DeactivationTarget", "X"), spec={"active": False}, requeueState={"count": 2}),
        says={"Evicted": "+DeactivatedDueToX", "DeactivationTarget": None},
        events=("EvictedDueToDeactivatedDueToX",),
        status={"requeueState": None},
    ),
    "one that was evicted before it was deactivated is not evicted again": Case(
        a_workload(
            RESERVED,
            is_("Evicted", "Preempted"),
            is_("DeactivationTarget", "X"),
            spec={"active": False},
            requeueState={"count": 2},
        ),
        says={"Evicted": "+Preempted", "DeactivationTarget": None},
        status={"requeueState": None},
    ),
    "one that is inactive and has stopped says so": Case(
        a_workload(is_("Evicted", "Deactivated"), is_not("QuotaReserved", "PendingEvaluation"), spec={"active": False}),
        says={"QuotaReserved": "-Deactivated"},
    ),
    "one that is active again may queue": Case(
        a_workload(is_("Evicted", "Deactivated"), is_not("Requeued", "Deactivated")),
        says={"Requeued": "+Reactivated"},
        status={"accumulatedPastExecutionTimeSeconds": None},
    ),
    "one that is active again after it took too long has its whole time again": Case(
        a_workload(
            is_not("Requeued", "DeactivatedDueToMaximumExecutionTimeExceeded"), accumulatedPastExecutionTimeSeconds=9
        ),
        says={"Requeued": "+Reactivated"},
        status={"accumulatedPastExecutionTimeSeconds": None},
    ),
    "time that counts stays when another was the reason": Case(
        a_workload(is_not("Requeued", "Deactivated"), accumulatedPastExecutionTimeSeconds=9),
        says={"Requeued": "+Reactivated"},
        status={"accumulatedPastExecutionTimeSeconds": 9},
    ),
    "a rest that is over": Case(
        a_workload(REST, requeueState={"count": 3, "requeueAt": text(100)}),
        says={"Requeued": "+BackoffFinished"},
        status={"requeueState": {"count": 3}},
    ),
    "no rest at all": Case(a_workload(REST), says={"Requeued": "+BackoffFinished"}),
    "its queue was restarted": Case(
        a_workload(is_not("Requeued", "ClusterQueueStopped")), says={"Requeued": "+ClusterQueueRestarted"}
    ),
    "its local queue was restarted": Case(
        a_workload(is_not("Requeued", "LocalQueueStopped")), says={"Requeued": "+LocalQueueRestarted"}
    ),
    "a gate": Case(
        a_workload(annotations=GATED), says={"QuotaReserved": "-AdmissionGated"}, events=("AdmissionGated",)
    ),
    "a gate that is gone": Case(
        a_workload(is_not("QuotaReserved", "AdmissionGated")),
        says={"QuotaReserved": "-PendingEvaluation"},
        events=("AdmissionGateCleared",),
    ),
    "no local queue": Case(
        a_workload(), a_place(local_queue=True, queue=True), says={"QuotaReserved": "-Misconfigured"}
    ),
    "a local queue that is stopped": Case(
        a_workload(), a_place(local_stop="Hold"), says={"QuotaReserved": "-Suspended"}
    ),
    "no queue": Case(a_workload(), a_place(queue=True), says={"QuotaReserved": "-Misconfigured"}),
    "no queue, in few words": Case(
        a_workload(), a_place(queue=True), settings=OBSERVED_OFF, says={"QuotaReserved": "-Pending", "Admitted": None}
    ),
    "a queue that is inactive": Case(a_workload(), a_place(is_active=False), says={"QuotaReserved": "-Suspended"}),
    "a queue that is stopped": Case(a_workload(), a_place(stop="Hold"), says={"QuotaReserved": "-Suspended"}),
    "a queue that has come": Case(
        a_workload(is_not("QuotaReserved", "Misconfigured", message="ClusterQueue cq doesn't exist")),
        says={"QuotaReserved": "-PendingEvaluation"},
    ),
    "one that nobody has looked at, where that is to be said": Case(
        a_workload(), settings=EXPLICIT, says={"QuotaReserved": "-PendingEvaluation", "Admitted": "-NoReservation"}
    ),
    "checks that any flavor needs are listed from the start": Case(
        a_workload(admissionChecks=[a_check("old", "Ready")]),
        a_place(checks=(EVERY, ON_F)),
        status={"admissionChecks": ["all:Pending"]},
    ),
    "checks of its flavor are listed once it has one": Case(
        a_workload(RESERVED, admissionChecks=[a_check("all", "Ready")]),
        a_place(checks=(EVERY, ON_F, ON_G)),
        says={"Admitted": "-UnsatisfiedAdmissionChecks"},
        status={"admissionChecks": ["all:Ready", "on-f:Pending"]},
    ),
    "a check that is not asked for any more was the last": Case(
        a_workload(RESERVED, admissionChecks=[a_check("all", "Ready"), a_check("on-g", "Pending")]),
        a_place(checks=(EVERY, ON_G)),
        says={"Admitted": "+Admitted"},
        events=("Admitted",),
        status={"admissionChecks": ["all:Ready"]},
    ),
    "all checks agree": Case(
        a_workload(RESERVED, admissionChecks=[a_check("all", "Ready")]),
        a_place(checks=(EVERY,)),
        says={"Admitted": "+Admitted"},
        events=("Admitted",),
    ),
    "one that runs is asked a new check, and runs on": Case(
        a_workload(RESERVED, ADMITTED),
        a_place(checks=(EVERY,)),
        says={"Admitted": "+Admitted"},
        status={"admissionChecks": ["all:Pending"]},
    ),
    "a check says no": Case(
        a_workload(RESERVED, ADMITTED, admissionChecks=[a_check("all", "Rejected"), a_check("on-f", "Retry")]),
        a_place(checks=(EVERY, ON_F)),
        says={"DeactivationTarget": "+AdmissionCheck", "Evicted": None},
        events=("AdmissionCheckRejected",),
    ),
    "checks ask for another try: the longest rest counts": Case(
        a_workload(
            RESERVED,
            UNCHECKED,
            admissionChecks=[
                a_check("all", "Retry", requeueAfterSeconds=60, retryCount=1),
                a_check("on-f", "Retry"),
            ],
        ),
        a_place(checks=(EVERY, ON_F)),
        says={"Evicted": "+AdmissionCheck"},
        events=("EvictedDueToAdmissionCheck",),
        status={"requeueState": {"requeueAt": text(150)}, "admissionChecks": ["all:Pending:2", "on-f:Pending:1"]},
    ),
    "a check that asks for another try too late is asked again after its rest": Case(
        a_workload(is_not("QuotaReserved"), admissionChecks=[a_check("all", "Retry", requeueAfterSeconds=60)]),
        a_place(checks=(EVERY,)),
        says={"Requeued": "-AdmissionCheck", "Evicted": None},
        status={"requeueState": {"requeueAt": text(150)}, "admissionChecks": ["all:Pending:1"]},
    ),
    "a rest that was to be longer stays": Case(
        a_workload(
            RESERVED,
            UNCHECKED,
            admissionChecks=[a_check("all", "Retry")],
            requeueState={"requeueAt": text(900), "count": 1},
        ),
        a_place(checks=(EVERY,)),
        says={"Evicted": "+AdmissionCheck"},
        events=("EvictedDueToAdmissionCheck",),
        status={"requeueState": {"requeueAt": text(900), "count": 1}},
    ),
    "what runs in a queue that is drained": Case(
        a_workload(RESERVED, ADMITTED),
        a_place(stop="HoldAndDrain"),
        says={"Evicted": "+ClusterQueueStopped"},
        events=("EvictedDueToClusterQueueStopped",),
    ),
    "what runs in a local queue that is drained": Case(
        a_workload(RESERVED, ADMITTED),
        a_place(local_stop="HoldAndDrain"),
        says={"Evicted": "+LocalQueueStopped"},
        events=("EvictedDueToLocalQueueStopped",),
    ),
    "what holds quota in a queue that is stopped": Case(
        a_workload(RESERVED, UNCHECKED, admissionChecks=[a_check("all", "Pending")]),
        a_place(stop="Hold", checks=(EVERY,)),
        says={"QuotaReserved": "-Suspended", "Admitted": "-NoReservation", "Evicted": None},
        status={"admission": None},
    ),
    "what holds quota in a queue that is going": Case(
        a_workload(RESERVED, UNCHECKED, admissionChecks=[a_check("all", "Pending")]),
        a_place(terminating=True, checks=(EVERY,)),
        says={"QuotaReserved": "-Misconfigured"},
        status={"admission": None},
    ),
    "what holds quota through a local queue that is gone": Case(
        a_workload(RESERVED, UNCHECKED, admissionChecks=[a_check("all", "Pending")]),
        a_place(local_queue=True, checks=(EVERY,)),
        says={"QuotaReserved": "-Misconfigured"},
    ),
    "out of time": Case(
        a_workload(
            RESERVED, ADMITTED, spec={"maximumExecutionTimeSeconds": 130}, accumulatedPastExecutionTimeSeconds=30
        ),
        says={"DeactivationTarget": "+MaximumExecutionTimeExceeded"},
        events=("MaximumExecutionTimeExceeded",),
        status={"accumulatedPastExecutionTimeSeconds": None},
    ),
    "pods that did not get ready": Case(
        a_workload(RESERVED, is_("Admitted", "Admitted", at=-200), is_not("PodsReady", "WaitForStart")),
        settings=PATIENT,
        says={"Evicted": "+PodsReadyTimeout"},
        events=("EvictedDueToPodsReadyTimeoutDueToWaitForStart",),
        status={"requeueState": {"count": 1, "requeueAt": text(110)}},
    ),
    "pods of which nobody has said anything": Case(
        a_workload(RESERVED, is_("Admitted", "Admitted", at=-200), requeueState={"count": 1}),
        settings=PATIENT,
        says={"Evicted": "+PodsReadyTimeout"},
        events=("EvictedDueToPodsReadyTimeoutDueToWaitForStart",),
        status={"requeueState": {"count": 2, "requeueAt": text(120)}},
    ),
    "pods that did not come back": Case(
        a_workload(RESERVED, ADMITTED, is_not("PodsReady", "WaitForRecovery", at=50)),
        settings=PATIENT,
        says={"Evicted": "+PodsReadyTimeout"},
        events=("EvictedDueToPodsReadyTimeoutDueToWaitForRecovery",),
    ),
    "pods that did not get ready once too often": Case(
        a_workload(RESERVED, is_("Admitted", "Admitted", at=-200), requeueState={"count": 2}),
        settings=PATIENT,
        says={"DeactivationTarget": "+RequeuingLimitExceeded", "Evicted": None},
        status={"requeueState": {"count": 2}},
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_is_written(name: str) -> None:
    case = CHANGES[name]
    found = plan(case.workload, case.place, case.settings)
    before = raw.copy(case.workload)
    made = found.apply(case.workload)

    assert case.workload == before, "the document that it was made from is left alone"
    assert made["spec"] == before["spec"]
    for type, said in case.says.items():
        assert _said(made, type) == said, type
    assert tuple(event.reason for event in found.events) == case.events
    for name_, value in case.status.items():
        assert _shown(name_, made["status"].get(name_)) == value, name_


def _said(document: Document, type: str) -> str | None:
    found = conditions.find_in(document, type)
    return None if found is None else ("+" if found["status"] == "True" else "-") + found["reason"]


def _shown(name: str, value: JSON) -> JSON:
    if name != "admissionChecks":
        return value
    retries = {check["name"]: f":{check['retryCount']}" if "retryCount" in check else "" for check in value}
    return [f"{check['name']}:{check['state']}{retries[check['name']]}" for check in value]


CALM: Final = {
    "finished": Case(a_workload(RESERVED, is_("Finished"), spec={"active": False})),
    "deactivated, evicted, still stopping": Case(
        a_workload(RESERVED, ADMITTED, is_("Evicted", "Deactivated"), spec={"active": False})
    ),
    "inactive and on hold": Case(
        a_workload(is_("Evicted", "Deactivated"), is_not("QuotaReserved", "OnHold"), spec={"active": False})
    ),
    "on hold, whatever its queue does": Case(
        a_workload(is_not("QuotaReserved", "OnHold")), a_place(local_queue=True, queue=True)
    ),
    "waiting, and the engine says why": Case(a_workload(is_not("QuotaReserved", "WaitingForQuota"))),
    "new, and nobody has looked at it": Case(a_workload()),
    "resting": Case(
        a_workload(is_not("QuotaReserved", "PendingEvaluation"), REST, requeueState={"requeueAt": text(130)}),
        again=30,
    ),
    "its queue is still stopped": Case(
        a_workload(
            is_not("QuotaReserved", "Suspended", message="ClusterQueue cq is inactive"),
            is_not("Requeued", "ClusterQueueStopped"),
        ),
        a_place(stop="HoldAndDrain"),
    ),
    "its queue is gone for good": Case(
        a_workload(
            is_not("QuotaReserved", "Misconfigured", message="ClusterQueue cq doesn't exist"),
            is_not("Requeued", "ClusterQueueStopped"),
        ),
        a_place(queue=True),
    ),
    "a check that is still out": Case(
        a_workload(RESERVED, UNCHECKED, admissionChecks=[a_check("all", "Pending")]),
        a_place(checks=(EVERY,)),
    ),
    "a topology that is still out": Case(
        a_workload(
            RESERVED,
            is_not("Admitted", "PendingDelayedTopologyRequests"),
            admission={**ADMISSION, "podSetAssignments": [{"name": "main", "delayedTopologyRequest": "Pending"}]},
        )
    ),
    "an evicted workload is not admitted though its checks agree": Case(
        a_workload(RESERVED, is_("Evicted", "Preempted"), admissionChecks=[a_check("all", "Ready")]),
        a_place(checks=(EVERY,)),
    ),
    "what runs in a queue that only holds": Case(
        a_workload(RESERVED, ADMITTED), a_place(stop="Hold", local_stop="Hold")
    ),
    "what runs, and its queues are gone": Case(a_workload(RESERVED, ADMITTED), a_place(local_queue=True, queue=True)),
    "what was evicted already is not evicted again": Case(
        a_workload(RESERVED, ADMITTED, is_("Evicted", "Preempted"), spec={"maximumExecutionTimeSeconds": 1}),
        a_place(stop="HoldAndDrain"),
    ),
    "time is left": Case(
        a_workload(
            RESERVED, ADMITTED, spec={"maximumExecutionTimeSeconds": 150}, accumulatedPastExecutionTimeSeconds=30
        ),
        again=20,
    ),
    "pods may still get ready, and time is left": Case(
        a_workload(RESERVED, ADMITTED, spec={"maximumExecutionTimeSeconds": 150}), settings=PATIENT, again=50
    ),
    "pods are ready": Case(a_workload(RESERVED, ADMITTED, is_("PodsReady", "Started")), settings=PATIENT),
    "pods may take as long as they like to come back": Case(
        a_workload(RESERVED, ADMITTED, is_not("PodsReady", "WaitForRecovery", at=-9999)),
        settings=Settings(pods_ready=PodsReady(recovery_timeout=None)),
    ),
    "nobody waits for pods": Case(
        a_workload(RESERVED, is_("Admitted", "Admitted", at=-9999)),
        settings=Settings(PATIENT.gates.changed({"DisableWaitForPodsReady": True}), pods_ready=PATIENT.pods_ready),
    ),
}


@pytest.mark.parametrize("name", CALM)
def test_what_is_left_alone(name: str) -> None:
    case = CALM[name]
    found = plan(case.workload, case.place, case.settings)
    assert not found.deactivates
    assert found.apply(case.workload) is case.workload
    assert found.look_again == (None if case.again is None else NOW + case.again)


def test_one_that_is_to_be_deactivated_is() -> None:
    found = plan(a_workload(RESERVED, is_("DeactivationTarget", "X")), a_place())
    assert found.deactivates
    assert found.apply(a_workload())["spec"]["active"] is False


def test_what_names_no_queue_waits_for_no_local_queue() -> None:
    place = Place(None, "default", a_place().queue)
    assert not plan(a_workload(spec={"queueName": None}), place).changes
    gone = plan(a_workload(spec={"queueName": None}), Place(None, "default", None)).apply(a_workload())
    assert conditions.find_in(gone, "QuotaReserved")["message"] == "ClusterQueue default doesn't exist"  # type: ignore[index]


def test_rests_double_up_to_the_longest() -> None:
    rule = PodsReady(backoff_base=60, backoff_max=3600)
    assert [holding.rest_seconds(rule, count) for count in (1, 2, 3, 7, 5000)] == [60, 120, 240, 3600, 3600]
