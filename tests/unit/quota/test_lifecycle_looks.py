"""Whatever a workload looks like, looking at it a few times leads to rest."""

from typing import Final

from hypothesis import given
from hypothesis import strategies as st
from tests.unit.quota.lifecycle_worlds import (
    ADMISSION,
    EVERY,
    ON_F,
    PATIENT,
    PLAIN,
    a_check,
    a_condition,
    a_place,
    a_workload,
    plan,
    text,
)

from muster.api.raw import Document
from muster.quota.lifecycle import Place
from muster.quota.settings import Settings

FLAGS: Final = ("QuotaReserved", "Admitted", "Evicted", "Requeued", "DeactivationTarget", "PodsReady")
REASONS: Final = (
    "Deactivated",
    "PodsReadyTimeout",
    "AdmissionCheck",
    "ClusterQueueStopped",
    "LocalQueueStopped",
    "OnHold",
    "R",
)


@st.composite
def workloads(draw: st.DrawFn) -> Document:
    listed = [
        a_condition(type, draw(st.sampled_from(("True", "False"))), draw(st.sampled_from(REASONS)), -1000, "m")
        for type in draw(st.sets(st.sampled_from(FLAGS)))
    ]
    checks = [
        a_check(name, draw(st.sampled_from(("Pending", "Ready", "Retry", "Rejected"))), requeueAfterSeconds=30)
        for name in draw(st.sets(st.sampled_from(("all", "on-f", "old"))))
    ]
    status: Document = {"admissionChecks": checks} if checks else {}
    if any(found["type"] == "QuotaReserved" and found["status"] == "True" for found in listed):
        status["admission"] = ADMISSION
    if draw(st.booleans()):
        status["requeueState"] = {"count": draw(st.integers(0, 3)), "requeueAt": text(draw(st.integers(0, 200)))}
    spec: Document = {"active": draw(st.booleans())}
    if draw(st.booleans()):
        spec["maximumExecutionTimeSeconds"] = draw(st.integers(1, 2000))
    return a_workload(*listed, spec=spec, **status)


@st.composite
def places(draw: st.DrawFn) -> Place:
    stops = st.sampled_from(("None", "Hold", "HoldAndDrain"))
    checks = tuple(draw(st.sets(st.sampled_from((0, 1)))))
    return a_place(
        stop=draw(stops),
        local_stop=draw(stops),
        is_active=draw(st.booleans()),
        checks=tuple((EVERY, ON_F)[index] for index in checks),
        local_queue=draw(st.booleans()),
        queue=draw(st.booleans()),
    )


@given(workloads(), places(), st.sampled_from((PLAIN, PATIENT)))
def test_a_few_looks_lead_to_rest_and_each_changes_something(
    document: Document, place: Place, settings: Settings
) -> None:
    """If not, two looks would undo each other, or one would be written for ever."""
    for _ in range(10):
        found = plan(document, place, settings)
        made = found.apply(document)
        if made is document:
            assert not found.events
            return
        assert made != document, "what is written makes a difference"
        document = made
    raise AssertionError("it never comes to rest")
