"""Queues that open and close with those above them, what is in them, and groups for pods that come without one."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.api import core, volcano
from muster.api.objects import view_of
from muster.api.raw import Document
from muster.api.volcano import grouping
from muster.jobs import queues
from muster.jobs.grouping import make_group
from muster.jobs.queues import CLOSED_BY_PARENT, Ledger, State, state_of, step
from muster.jobs.volcano.vocabulary import Action

OPEN, CLOSE, SYNC = Action.OPEN_QUEUE, Action.CLOSE_QUEUE, Action.SYNC_QUEUE


def a_queue(name: str = "q", state: str = "Open", *, mark: str | None = None, parent: str = "top") -> volcano.Queue:
    annotations = {CLOSED_BY_PARENT: mark} if mark is not None else {}
    view = view_of(
        volcano.QUEUE,
        {
            "metadata": {"name": name, "annotations": annotations},
            "spec": {"parent": parent},
            "status": {"state": state},
        },
    )
    assert isinstance(view, volcano.Queue)
    return view


@pytest.mark.parametrize(
    ("state", "action", "has_groups", "expected"),
    [
        ("Open", CLOSE, True, "Closing"),
        ("Open", CLOSE, False, "Closed"),
        ("Closing", SYNC, True, "Closing"),
        ("Closing", SYNC, False, "Closed"),
        ("Closing", OPEN, True, "Open"),
        ("Closed", OPEN, False, "Open"),
        ("Closed", SYNC, True, "Closed"),
        ("Closed", CLOSE, True, "Closed"),
        ("Unknown", CLOSE, True, "Closing"),
        ("Unknown", SYNC, False, "Unknown"),
        ("Unknown", OPEN, False, "Open"),
        ("", SYNC, True, "Open"),
        ("nonsense", SYNC, False, "Unknown"),
    ],
)
def test_what_becomes_of_a_state(state: str, action: Action, has_groups: bool, expected: str) -> None:
    assert step(state_of(state), state, action, has_groups=has_groups) == expected


@given(st.sampled_from(State), st.sampled_from([OPEN, CLOSE, SYNC]), st.booleans())
def test_nothing_changes_twice(state: State, action: Action, has_groups: bool) -> None:
    after = step(state, state, action, has_groups=has_groups)
    assert step(after, after, action, has_groups=has_groups) is after
    assert step(after, after, SYNC, has_groups=has_groups) is after


def reasons(plan: queues.Plan) -> list[str]:
    return [told.reason for told in plan.told]


def test_what_is_below_a_closed_queue_is_closed_and_opens_with_it() -> None:
    for above in ("Closing", "Closed"):
        plan = queues.plan(a_queue(), a_queue("top", above), has_groups=True)
        assert (plan.state, plan.mark) == (State.CLOSING, "true")
    plan = queues.plan(a_queue(state="Closed", mark="true"), a_queue("top", "Closed"), has_groups=False)
    assert (plan.state, plan.mark) == (State.CLOSED, None)
    plan = queues.plan(a_queue(state="Closed", mark="true"), a_queue("top"), has_groups=False)
    assert (plan.state, plan.mark) == (State.OPEN, "false")


def test_what_was_closed_for_itself_stays_closed() -> None:
    closed = a_queue(state="Closed")
    assert queues.plan(closed, a_queue("top", "Closed"), has_groups=False) == queues.Plan(State.CLOSED, told=[])
    assert queues.plan(closed, a_queue("top"), has_groups=False) == queues.Plan(State.CLOSED, told=[])
    by_command = queues.plan(a_queue(state="Closed", mark="true"), a_queue("top", "Closed"), CLOSE, has_groups=False)
    assert by_command.mark == "false", "somebody means it: it is no longer the parent's doing"


def test_a_queue_does_not_open_below_a_closed_one() -> None:
    plan = queues.plan(a_queue(state="Closed"), a_queue("top", "Closed"), OPEN, has_groups=False)
    assert (plan.state, reasons(plan)) == (State.CLOSED, ["FailedOpenQueue"])
    plan = queues.plan(a_queue(state="Closed", mark="true"), a_queue("top"), OPEN, has_groups=False)
    assert (plan.state, plan.mark) == (State.OPEN, "false")


def test_the_root_stays_open() -> None:
    plan = queues.plan(a_queue("root", parent=""), None, CLOSE, has_groups=False)
    assert (plan.state, plan.parent, reasons(plan)) == (State.OPEN, None, ["FailedCloseQueue"])


def test_who_names_no_parent_gets_the_root() -> None:
    assert queues.plan(a_queue(parent=""), None, has_groups=False).parent == "root"


def test_the_ledger_counts_groups_and_sums_pods() -> None:
    ledger = Ledger()
    ledger.set_group("g", "a", None)
    ledger.set_group("h", "a", "Running")
    ledger.set_group("i", "b", "Odd")
    ledger.set_pod("p", "g", {"cpu": 1500, "memory": 2**30, "pods": 1})
    ledger.set_pod("q", "i", {"cpu": 500, "nvidia.com/gpu": 2, "pods": 1})
    assert ledger.counts("a") == {"pending": 1, "running": 1, "inqueue": 0, "completed": 0, "unknown": 0}
    assert ledger.counts("b")["unknown"] == 1
    assert ledger.allocated(["a"]) == {"cpu": "1500m", "memory": "1Gi", "pods": "1"}
    assert ledger.allocated(["a", "b", "none"]) == {"cpu": "2", "memory": "1Gi", "nvidia.com/gpu": "2", "pods": "2"}
    ledger.set_group("g", "b", "Completed")
    assert ledger.allocated(["a"]) == {}
    for group in ("g", "h", "i"):
        ledger.remove_group(group)
    assert not ledger.has_groups("a")
    assert ledger.allocated(["a", "b"]) == {}
    ledger.set_group("g", "a", None)
    assert ledger.allocated(["a"])["cpu"] == "1500m", "its pods were there all the time"
    ledger.remove_pod("p")
    ledger.remove_pod("p")
    assert ledger.allocated(["a"]) == {}


MOVES = st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["x", "y", None]), st.integers(0, 3)), max_size=20)


@given(MOVES)
def test_the_ledger_is_what_its_last_entries_say(moves: list[tuple[str, str | None, int]]) -> None:
    ledger = Ledger()
    groups: dict[str, str] = {}
    pods: dict[str, int] = {}
    for name, queue, amount in moves:
        if queue is None:
            ledger.remove_group(name)
            groups.pop(name, None)
        else:
            ledger.set_group(name, queue, "Running")
            groups[name] = queue
        if amount:
            ledger.set_pod(f"pod-{name}", name, {"cpu": amount * 1000})
            pods[name] = amount
        else:
            ledger.remove_pod(f"pod-{name}")
            pods.pop(name, None)
    for queue in ("x", "y"):
        inside = [name for name, found in groups.items() if found == queue]
        assert ledger.counts(queue)["running"] == len(inside)
        total = sum(pods.get(name, 0) for name in inside)
        assert ledger.allocated([queue]) == ({"cpu": str(total)} if total else {})


def a_pod(*, owner: Document | None = None, annotations: Document | None = None, **spec: Any) -> core.Pod:
    metadata: Document = {"name": "p", "namespace": "ns", "uid": "pod-uid", "annotations": annotations or {}}
    if owner is not None:
        metadata["ownerReferences"] = [owner]
    metadata["labels"] = {"volcano.sh/preemptable": "true", "app": "x"}
    container = {"name": "c", "resources": {"requests": {"cpu": "1500m"}, "limits": {"nvidia.com/gpu": 1}}}
    view = view_of(core.POD, {"metadata": metadata, "spec": {"containers": [container], **spec}})
    assert isinstance(view, core.Pod)
    return view


def test_a_bare_pod_gets_a_group_of_its_own() -> None:
    said = {"scheduling.volcano.sh/queue-name": "gold", "volcano.sh/cooldown-time": "9s", "other": "x"}
    made = make_group(a_pod(annotations=said, priorityClassName="high"), {})
    assert made["metadata"]["name"] == "podgroup-pod-uid"
    assert made["metadata"]["ownerReferences"][0]["kind"] == "Pod"
    assert made["metadata"]["annotations"] == {"volcano.sh/cooldown-time": "9s"}
    assert made["metadata"]["labels"] == {"volcano.sh/preemptable": "true"}
    assert made["spec"]["queue"] == "gold"
    assert made["spec"]["priorityClassName"] == "high"
    assert made["spec"]["minMember"] == 1


def test_pods_of_one_owner_share_a_group() -> None:
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "job-uid", "controller": True}
    said = {"scheduling.volcano.sh/group-min-member": "4", "volcano.sh/sla-waiting-time": "1h", "a/b": "c"}
    made = make_group(a_pod(owner=owner, annotations={"volcano.sh/jdb-min-available": "1"}), said)
    assert made["metadata"]["name"] == "podgroup-job-uid"
    assert made["metadata"]["ownerReferences"] == [owner]
    assert made["metadata"]["annotations"] == {
        "volcano.sh/sla-waiting-time": "1h",
        "volcano.sh/jdb-min-available": "1",
    }
    assert made["spec"]["minMember"] == 4
    assert made["spec"]["minResources"]["cpu"] == "6"
    assert made["spec"]["minResources"]["nvidia.com/gpu"] == "4"
    for nonsense in ("0", "-1", "many", "9" * 30):
        assert (
            make_group(a_pod(owner=owner), {"scheduling.volcano.sh/group-min-member": nonsense})["spec"]["minMember"]
            == 1
        )


def test_which_pods_need_a_group() -> None:
    assert grouping.needs_group(a_pod(schedulerName="volcano"))
    assert not grouping.needs_group(a_pod(schedulerName="default-scheduler"))
    mark = {grouping.GROUP_ANNOTATION: "g"}
    assert not grouping.needs_group(a_pod(schedulerName="volcano", annotations=mark))
