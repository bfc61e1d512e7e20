"""What is made and ended for an allocation, and what its status says of its pods, whatever state they are in."""

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.api import core, muster
from muster.api.meta import Instant
from muster.api.muster.names import RANK_LABEL, Phase
from muster.api.raw import Document
from muster.jobs.allocations import Plan, Seen, plan

NOW = Instant(1000.0)
RUNS = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}


def ended(code: int) -> Document:
    return {"terminated": {"exitCode": code, "finishedAt": "2026-01-01T00:01:00Z"}}


def waits(reason: str) -> Document:
    return {"waiting": {"reason": reason, "message": "no luck"}}


def a_pod(rank: int = 0, node: str = "n1", phase: str = "Running", *states: Document, **more: Any) -> Document:
    """`states`: of its containers, the main one first. `inits`: of those before it."""
    listed = [{"name": f"c{number}", "state": state} for number, state in enumerate(states)]
    inits = [{"name": f"i{number}", "state": state} for number, state in enumerate(more.pop("inits", []))]
    meta = {"name": f"a-{rank}", "namespace": "ns", "uid": f"p{rank}", "labels": {RANK_LABEL: str(rank)}}
    if more.pop("is_deleted", False):
        meta["deletionTimestamp"] = "2026-01-01T00:00:30Z"
    status = {"phase": phase, "containerStatuses": listed, "initContainerStatuses": inits, **more}
    return {
        "metadata": meta,
        "spec": {"containers": [{"name": "c0"}], **({"nodeName": node} if node else {})},
        "status": status,
    }


def seen(*pods: Document, count: int = 1, phase: str = "Running", gone: tuple[str, ...] = (), **spec: Any) -> Seen:
    document: Document = {
        "metadata": {"name": "a", "namespace": "ns", "uid": "u"},
        "spec": {"taskId": "t", "taskType": "COMMAND", "pods": count, "template": {"spec": {"containers": []}}, **spec},
        "status": {"phase": phase, **spec.pop("status", {})},
    }
    found = [msgspec.convert(pod, core.Pod) for pod in pods]
    return Seen(msgspec.convert(document, muster.Allocation), document, found, frozenset(gone))


def resources(decided: Plan) -> list[Document]:
    assert decided.status is not None
    listed: list[Document] = decided.status["resources"]
    return listed


@pytest.mark.parametrize(
    ("pod", "phase", "reason", "code"),
    [
        (a_pod(0, "", "Pending"), "Pending", None, None),
        (a_pod(0, "n1", "Pending"), "Assigned", None, None),
        (a_pod(0, "n1", "Pending", startTime="2026-01-01T00:00:00Z"), "Starting", None, None),
        (a_pod(0, "n1", "Pending", waits("ContainerCreating"), startTime="x"), "Starting", None, None),
        (a_pod(0, "n1", "Running", RUNS), "Running", None, None),
        (a_pod(0, "n1", "Running", ended(0), RUNS), "Terminated", "Completed", 0),  # sidecars do not count
        (a_pod(0, "n1", "Running", ended(3), RUNS), "Terminated", "Failed", 3),
        (a_pod(0, "n1", "Succeeded", ended(0)), "Terminated", "Completed", 0),
        (a_pod(0, "n1", "Failed", ended(3)), "Terminated", "Failed", 3),
        (a_pod(0, "n1", "Failed", ended(137), is_deleted=True), "Terminated", "Deleted", 137),
        (a_pod(0, "n1", "Failed", waits("PodInitializing"), inits=[ended(0), ended(9)]), "Terminated", "Failed", 9),
        (a_pod(0, "n1", "Failed", message="node is full"), "Terminated", "Failed", None),
        (a_pod(0, "n1", "Pending", waits("ImagePullBackOff")), "Terminated", "Failed", None),
        (a_pod(0, "n1", "Pending", inits=[waits("InvalidImageName")]), "Terminated", "Failed", None),
    ],
)
def test_how_a_pod_counts(pod: Document, phase: str, reason: str | None, code: int | None) -> None:
    has_begun = bool(pod["spec"].get("nodeName"))
    (found,) = resources(plan(seen(pod, phase="Assigned" if has_begun else "Pending"), NOW))
    assert (found["phase"], found.get("reason"), found.get("exitCode")) == (phase, reason, code)


@pytest.mark.parametrize(("why", "expected"), [("NodeLost", "NodeLost"), ("PreemptionByScheduler", "Evicted")])
def test_whoever_was_disrupted_did_not_fail(why: str, expected: str) -> None:
    disrupted = [{"type": "DisruptionTarget", "status": "True", "reason": why, "message": "so"}]
    (found,) = resources(plan(seen(a_pod(0, "n1", "Failed", ended(137), conditions=disrupted)), NOW))
    assert (found["reason"], found["message"]) == (expected, "so")


def test_a_pod_that_would_wait_without_end_is_ended() -> None:
    decided = plan(seen(a_pod(0, "n1", "Pending", waits("ErrImageNeverPull")), phase="Assigned"), NOW)
    assert [pod.metadata.name for pod in decided.ended] == ["a-0"]
    assert "ErrImageNeverPull: no luck" in resources(decided)[0]["message"]


def test_what_has_no_node_is_ended_when_another_has_failed() -> None:
    waiting, working = a_pod(1, "", "Pending"), a_pod(2, "n2", "Running", RUNS)
    failed, done = a_pod(0, "n1", "Failed", ended(137)), a_pod(0, "n1", "Succeeded", ended(0))
    assert [pod.metadata.name for pod in plan(seen(failed, waiting, working, count=3), NOW).ended] == ["a-1"]
    assert not plan(seen(done, waiting, working, count=3), NOW).ended


def test_before_it_has_begun_what_is_missing_is_made_and_afterwards_it_has_ended() -> None:
    begun = [a_pod(0, "n1", "Running", RUNS), a_pod(1, "n1", "Running", RUNS)]
    assert list(plan(seen(begun[0], count=2, phase="Pending"), NOW).created) == [1]
    decided = plan(seen(begun[0], count=2, phase="Running"), NOW)
    assert list(decided.created) == []
    assert [found["phase"] for found in resources(decided)] == ["Running", "Terminated"]


def test_only_the_first_end_counts() -> None:
    first = {"name": "a-0", "rank": 0, "phase": "Terminated", "exitCode": 7, "reason": "Failed"}
    decided = plan(seen(a_pod(0, "n1", "Succeeded", ended(0)), status={"resources": [first]}), NOW)
    assert resources_or(decided, [first])[0]["exitCode"] == 7


def resources_or(decided: Plan, before: list[Document]) -> list[Document]:
    return before if decided.status is None or "resources" not in decided.status else resources(decided)


def test_one_that_waits_for_quota_has_no_pods() -> None:
    decided = plan(seen(a_pod(0, "", "Pending"), phase="Pending", suspend=True), NOW)
    assert [pod.metadata.name for pod in decided.ended] == ["a-0"]


def test_one_that_is_being_deleted_is_left_alone() -> None:
    going = seen(a_pod(0, "n1", "Running", RUNS))
    meta = msgspec.structs.replace(going.allocation.metadata, deletion_timestamp="2026-01-01T00:00:00Z")
    allocation = msgspec.structs.replace(going.allocation, metadata=meta)
    assert plan(Seen(allocation, going.document, going.pods), NOW) == Plan()


states = st.sampled_from([RUNS, ended(0), ended(1), waits("ContainerCreating"), waits("ImagePullBackOff")])
pods = st.builds(
    lambda rank, node, phase, state, is_deleted: a_pod(rank, node, phase, state, is_deleted=is_deleted),
    st.integers(0, 3),
    st.sampled_from(["", "n1"]),
    st.sampled_from(["Pending", "Running", "Succeeded", "Failed"]),
    states,
    st.booleans(),
)


@settings(max_examples=50, deadline=None)
@given(
    st.lists(pods, max_size=5, unique_by=lambda pod: pod["metadata"]["uid"]),
    st.integers(1, 3),
    st.sampled_from([phase.value for phase in Phase]),
    st.booleans(),
)
def test_whatever_is_there(found: list[Document], count: int, phase: str, is_suspended: bool) -> None:
    decided = plan(seen(*found, count=count, phase=phase, suspend=is_suspended), NOW)
    there = {int(pod["metadata"]["labels"][RANK_LABEL]) for pod in found}
    assert not set(decided.created) & there, "no rank has two pods"
    assert all(0 <= rank < count for rank in decided.created)
    if phase in (Phase.ASSIGNED, Phase.STARTING, Phase.RUNNING, Phase.TERMINATED):
        assert not decided.created, "it runs once"
    assert all(pod.metadata.deletion_timestamp is None for pod in decided.ended), "nothing is ended twice"
    if decided.status is not None and "phase" in decided.status and phase in (Phase.STARTING, Phase.RUNNING):
        assert decided.status["phase"] in (Phase.STARTING, Phase.RUNNING, Phase.TERMINATED), "it does not go back"
