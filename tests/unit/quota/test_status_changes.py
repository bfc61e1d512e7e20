"""Changes of a Workload's status: what each writes, and what it leaves alone."""

import pytest

from muster.api import conditions, raw
from muster.api.meta import Instant
from muster.api.raw import Document
from muster.quota import status
from muster.quota.gates import Gates

NOW = Instant(1_793_491_200.0)
TEXT = "2026-11-01T00:00:00Z"
LATER = Instant(NOW + 90)
GATES = Gates.default()
COARSE = GATES.changed({"UnadmittedWorkloadsObservability": False})
ADMISSION: Document = {"clusterQueue": "gold", "podSetAssignments": [{"name": "main", "flavors": {"cpu": "spot"}}]}


def a_workload(**changes: raw.JSON) -> Document:
    return {"metadata": {"name": "w", "namespace": "n", "generation": 3}, "spec": {}, "status": changes}


def condition(document: Document, type: str) -> tuple[str, str, str]:
    found = conditions.find_in(document, type)
    assert found is not None, f"no condition {type}"
    return found["status"], found["reason"], found["message"]


def test_a_reserved_workload_without_checks_is_admitted() -> None:
    before = a_workload(resourceRequests=[{"name": "main"}])
    after = status.admit(status.reserve(before, ADMISSION, NOW), NOW, GATES)

    assert condition(after, "QuotaReserved") == ("True", "QuotaReserved", "Quota reserved in ClusterQueue gold")
    assert condition(after, "Admitted") == ("True", "Admitted", "The workload is admitted")
    assert after["status"]["admission"] == ADMISSION
    assert "resourceRequests" not in after["status"]
    assert after["status"]["conditions"][0]["observedGeneration"] == 3
    assert before == a_workload(resourceRequests=[{"name": "main"}])


@pytest.mark.parametrize(
    ("checks", "delayed", "reason"),
    [
        ([{"name": "c", "state": "Pending"}], None, "UnsatisfiedAdmissionChecks"),
        ([{"name": "c", "state": "Ready"}], "Pending", "PendingDelayedTopologyRequests"),
        ([{"name": "c", "state": "Retry"}], "Pending", "UnsatisfiedAdmissionChecks"),
    ],
)
def test_what_is_waited_for_is_said_in_order(checks: list[Document], delayed: str | None, reason: str) -> None:
    admission = {"clusterQueue": "gold", "podSetAssignments": [{"name": "main", "delayedTopologyRequest": delayed}]}
    reserved = status.reserve(a_workload(admissionChecks=checks), admission, NOW)

    assert condition(status.admit(reserved, NOW, GATES), "Admitted")[:2] == ("False", reason)
    assert conditions.find_in(status.admit(reserved, NOW, COARSE), "Admitted") is None


def test_reserving_tells_that_earlier_trouble_is_over() -> None:
    evicted = status.preempt(a_workload(), "InClusterQueue", "for another", NOW)
    after = status.reserve(evicted, ADMISSION, LATER)

    assert condition(after, "Evicted") == ("False", "QuotaReserved", "Previously: for another")
    assert condition(after, "Preempted") == ("False", "QuotaReserved", "Previously: for another")
    assert conditions.find_in(after, "BlockedOnPreemptionGates") is None


def test_losing_the_reservation_adds_up_the_time_it_ran() -> None:
    ran = status.admit(status.reserve(a_workload(), ADMISSION, NOW), NOW, GATES)
    ran["status"]["accumulatedPastExecutionTimeSeconds"] = 10
    after = status.pending(ran, status.Pending.PENDING_EVALUATION, "stopped", LATER, GATES, [{"name": "main"}])

    assert after["status"]["accumulatedPastExecutionTimeSeconds"] == 100
    assert "admission" not in after["status"]
    assert condition(after, "QuotaReserved") == ("False", "PendingEvaluation", "stopped")
    assert condition(after, "Admitted") == ("False", "NoReservation", "The workload has no reservation")


@pytest.mark.parametrize(
    ("reason", "coarse"),
    [("WaitingForQuota", "Pending"), ("WaitingForPodsReady", "Waiting"), ("OnHold", "OnHold")],
)
def test_without_the_gate_reasons_are_coarse_and_nothing_is_said_of_admitted(reason: str, coarse: str) -> None:
    after = status.pending(a_workload(), reason, "wait", NOW, COARSE)

    assert condition(after, "QuotaReserved")[1] == coarse
    assert conditions.find_in(after, "Admitted") is None


def test_an_eviction_resets_what_belongs_to_the_attempt() -> None:
    before = a_workload(
        clusterName="far",
        nominatedClusterNames=["far"],
        unhealthyNodes=[{"name": "x"}],
        preemptionGates=[{"name": "g", "position": "Open"}],
        admissionChecks=[
            {"name": "a", "state": "Ready", "podSetUpdates": [{"name": "main"}]},
            {"name": "b", "state": "Retry", "retryCount": 1},
            {"name": "c", "state": "Pending", "message": "kept"},
        ],
        schedulingStats={"evictions": [{"reason": "PodsReadyTimeout", "underlyingCause": "WaitForStart", "count": 2}]},
    )
    after = status.evict(before, status.Evicted.PODS_READY_TIMEOUT, "too slow", NOW, "WaitForStart")["status"]

    assert not {"clusterName", "nominatedClusterNames", "unhealthyNodes"} & after.keys()
    assert after["preemptionGates"] == [{"name": "g", "position": "Closed", "lastTransitionTime": TEXT}]
    assert [(check["state"], check.get("retryCount")) for check in after["admissionChecks"]] == [
        ("Pending", None),
        ("Pending", 2),
        ("Pending", None),
    ]
    assert after["admissionChecks"][0]["message"] == "Reset to Pending after eviction. Previously: Ready"
    assert after["admissionChecks"][2]["message"] == "kept"
    assert after["schedulingStats"]["evictions"][0]["count"] == 3


def test_a_deactivated_workload_forgets_its_requeues() -> None:
    before = status.target_deactivation(a_workload(requeueState={"count": 3}), "RequeuingLimitExceeded", "enough", NOW)
    after = status.evict(before, "DeactivatedDueToRequeuingLimitExceeded", "enough", NOW)

    assert conditions.find_in(after, "DeactivationTarget") is None
    assert "requeueState" not in after["status"]


@pytest.mark.parametrize(("reason", "again"), [("Preempted", "True"), ("PodsReadyTimeout", "False")])
def test_what_has_stopped_queues_again_at_once_or_when_told(reason: str, again: str) -> None:
    evicted = status.evict(status.reserve(a_workload(), ADMISSION, NOW), reason, "gone", NOW)
    after = status.release(evicted, status.Pending.PENDING_EVALUATION, LATER, GATES)

    assert condition(after, "Requeued") == (again, reason, "gone")
    assert condition(after, "QuotaReserved") == ("False", "PendingEvaluation", "gone")


def test_checks_are_exactly_the_wanted_ones() -> None:
    before = a_workload(admissionChecks=[{"name": "old", "state": "Ready"}, {"name": "kept", "state": "Ready"}])
    after = status.sync_checks(before, {"kept", "new"}, NOW)["status"]["admissionChecks"]

    assert [(check["name"], check["state"]) for check in after] == [("kept", "Ready"), ("new", "Pending")]
    assert "admissionChecks" not in status.sync_checks(before, (), NOW)["status"]


def test_a_long_message_is_cut() -> None:
    after = status.pending(a_workload(), "WaitingForQuota", "x" * 40_000, NOW, GATES)

    assert len(condition(after, "QuotaReserved")[2]) == status.MOST_TEXT
