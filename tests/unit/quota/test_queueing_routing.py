"""All queues: how a workload gets to its queue, what is taken from where, and what an event wakes."""

from typing import Any

import pytest
from tests.unit.quota.queue_worlds import (
    START,
    World,
    a_condition,
    a_local_queue,
    a_queue,
    a_workload,
    after,
    text,
)

from muster.quota.queueing import PendingQueues, RequeueReason
from muster.quota.queueing.second_pass import SecondPass, needs_second_pass
from muster.quota.settings import AdmissionFairSharing, Settings
from muster.quota.workloads import ADMITTED, EVICTED, QUOTA_RESERVED, REQUEUED, WorkloadInfo

BY_USAGE = Settings(admission_fair_sharing=AdmissionFairSharing(600.0, 300.0))


def park_all(pending: PendingQueues) -> None:
    while heads := pending.heads(lambda _name: True):
        for info in heads:
            pending.requeue(info, RequeueReason.GENERIC, START)


# Doors


def test_the_first_of_each_active_queue_by_name() -> None:
    world = World({"b": "", "a": "", "c": ""}, {"la": "a", "lb": "b", "lc": "c"})
    for number, queue in enumerate(("lb", "lb", "la", "lc")):
        world.pending.push(a_workload(f"w{number}", queue, at=number), START)
    heads = world.pending.heads(lambda name: name != "c")
    assert [(info.key, info.queue) for info in heads] == [("ns/w2", "a"), ("ns/w0", "b")]
    assert world.heads() == ["w1", "w3"]
    assert world.heads() == []
    assert world.pending.counts("b") == (2, 0)  # both in flight


def test_queues_may_come_after_the_workload() -> None:
    world = World({}, {})
    info = a_workload("a")
    assert world.pending.push(info, START)
    world.pending.set_local_queue(a_local_queue("lq", "cq"), START)
    assert world.heads() == []
    world.add_queue(a_queue("cq"))
    assert world.pending.local_count("ns/lq") == 1
    assert world.heads() == ["a"]
    assert info.queue == "cq"


def test_a_queue_that_goes_and_comes_back_has_the_same_workloads() -> None:
    world = World({"cq": ""}, {"lq": "cq"})
    world.pending.push(a_workload("a"), START)
    (info,) = world.pending.heads(lambda _name: True)
    world.pending.remove_queue("cq")
    assert not world.pending.requeue(info, RequeueReason.FAILED_AFTER_NOMINATION, START)
    assert world.pending.counts("cq") == (0, 0)
    world.pending.set_queue(a_queue("cq"), START)
    assert world.heads() == ["a"]


@pytest.mark.parametrize("stop", ["Hold", "HoldAndDrain"])
def test_a_stopped_local_queue_keeps_its_workloads_out(stop: str) -> None:
    world = World({"cq": ""}, {"lq": "cq", "other": "cq"})
    for name, queue in (("a", "lq"), ("b", "other"), ("c", "lq")):
        world.pending.push(a_workload(name, queue), START)
    world.pending.set_local_queue(a_local_queue("lq", "cq", stop=stop), START)
    world.pending.push(a_workload("d", "lq"), START)
    assert world.names("cq") == ["b"]
    assert world.pending.local_count("ns/lq") == 0
    world.pending.set_local_queue(a_local_queue("lq", "cq"), START)
    assert world.names("cq") == ["a", "b", "c", "d"]
    assert world.pending.local_count("ns/lq") == 3


def test_a_local_queue_made_anew_may_lead_elsewhere() -> None:
    world = World({"cq": "", "new": ""}, {"lq": "cq"})
    world.pending.push(a_workload("a"), START)
    world.pending.remove_local_queue("ns/lq")
    assert world.heads() == []
    world.pending.set_local_queue(a_local_queue("lq", "new"), START)
    assert world.names("cq") == []
    assert world.names("new") == ["a"]


def test_a_workload_may_change_its_queue() -> None:
    world = World({"cq": "", "new": ""}, {"lq": "cq", "ln": "new"})
    world.pending.push(a_workload("a"), START)
    world.pending.push(a_workload("a", "ln", generation=2), START)
    assert world.names("cq") == []
    assert world.names("new") == ["a"]
    assert len(world.pending) == 1


@pytest.mark.parametrize(
    "why",
    [
        {"conditions": [a_condition("Finished")]},
        {"conditions": [a_condition(QUOTA_RESERVED)]},
        {"conditions": [a_condition(QUOTA_RESERVED, "False", "OnHold")]},
        {"conditions": [a_condition("WaitingForReplacementPods")]},
    ],
)
def test_what_no_longer_waits_for_quota_leaves(why: dict[str, Any]) -> None:
    world = World({"cq": ""}, {"lq": "cq"})
    world.pending.push(a_workload("a"), START)
    assert not world.pending.push(a_workload("a", **why), START)
    assert "ns/a" not in world.pending
    assert world.heads() == []


def test_what_was_deleted_while_in_flight_does_not_come_back() -> None:
    world = World({"cq": ""}, {"lq": "cq"})
    world.pending.push(a_workload("a"), START)
    (info,) = world.pending.heads(lambda _name: True)
    world.pending.delete(info.key)
    assert not world.pending.requeue(info, RequeueReason.FAILED_AFTER_NOMINATION, START)
    assert len(world.pending) == 0
    assert world.heads() == []


def test_nothing_is_left_of_what_has_gone() -> None:
    world = World({"cq": ""}, {"lq": "cq"})
    world.pending.push(a_workload("a"), START)
    world.pending.push(a_workload("b", "nowhere"), START)
    world.pending.remove_local_queue("ns/lq")
    world.pending.remove_local_queue("ns/unknown")
    for key in ("ns/a", "ns/b", "ns/c"):
        world.pending.delete(key)
    assert not world.pending._doors
    assert not world.pending._doors_to


# What an event wakes


def test_a_flush_wakes_the_whole_tree_and_no_other() -> None:
    world = World({"a": "left", "b": "right", "c": "", "d": "far"}, {f"l{name}": name for name in "abcd"})
    world.tree.set_cohort("left", "root", {})
    world.tree.set_cohort("right", "root", {})
    for name in "abcd":
        world.pending.push(a_workload(name, f"l{name}"), START)
    park_all(world.pending)
    assert world.pending.flush(["a"], START) == 2
    assert world.heads() == ["a", "b"]
    assert world.pending.flush(["c", "unknown"], START) == 1
    assert world.heads() == ["c"]
    assert [info.key for info in world.pending.inadmissible("d")] == ["ns/d"]


def test_a_circle_of_cohorts_wakes_nobody() -> None:
    world = World({"a": "left", "b": ""}, {"la": "a", "lb": "b"})
    world.tree.set_cohort("left", "right", {})
    world.tree.set_cohort("right", "left", {})
    world.pending.push(a_workload("a", "la"), START)
    world.pending.push(a_workload("b", "lb"), START)
    park_all(world.pending)
    assert world.pending.flush(["a", "b"], START) == 1
    assert world.heads() == ["b"]


def test_a_flush_wakes_only_namespaces_that_the_queue_selects() -> None:
    world = World({"cq": ""}, {"lq": "cq"}, selector={"team": "blue"})
    world.pending.push(a_workload("a"), START)
    park_all(world.pending)
    assert world.pending.flush(["cq"], START) == 0
    world.namespaces["ns"] = {"team": "blue"}
    assert world.pending.flush(["cq"], START) == 1


def test_moved_and_verdicts_are_told_across_queues() -> None:
    world = World({"a": "", "b": ""}, {"la": "a", "lb": "b"})
    for number in range(4):
        world.pending.push(a_workload(f"w{number}", "la" if number % 2 else "lb", at=number), START)
    for info in world.pending.heads(lambda _name: True):
        world.pending.requeue(info, RequeueReason.NO_FIT, START, "WaitingForQuota")
    assert [(info.key, verdict.key) for info, verdict in world.pending.take_moved()] == [
        ("ns/w3", "ns/w1"),
        ("ns/w2", "ns/w0"),
    ]
    verdict = world.pending.verdict("ns/w3")
    assert verdict is not None
    assert verdict.reason == "WaitingForQuota"
    assert world.pending.verdict("ns/none") is None
    assert world.pending.ready() == []


# Rest


def test_rest_ends_when_the_object_says_so() -> None:
    world = World({"cq": ""}, {"lq": "cq"})
    for name, seconds in (("late", 60), ("early", 30)):
        blocked = [a_condition(REQUEUED, "False", "PodsReadyTimeout")]
        resting = a_workload(name, conditions=blocked, status={"requeueState": {"requeueAt": text(seconds)}})
        world.pending.push(resting, START)
    assert world.heads() == []
    world.pending.push(a_workload("early", conditions=[a_condition(REQUEUED, reason="BackoffFinished")]), after(60))
    assert world.heads() == ["early"]


# Visibility


def test_positions_in_both_queues() -> None:
    world = World({"cq": ""}, {"x": "cq", "y": "cq"})
    for number, queue in enumerate("xyxyx"):
        world.pending.push(a_workload(f"w{number}", queue, at=number, cpu=str(number + 1)), START)
    (flying,) = world.pending.heads(lambda _name: True)
    parked = world.pending.pop("cq")
    assert parked is not None
    world.pending.requeue(parked, RequeueReason.NO_FIT, START)
    found = world.pending.positions("cq")
    assert [(place.info.key, place.in_queue, place.in_local_queue) for place in found] == [
        ("ns/w0", 0, 0),
        ("ns/w1", 1, 0),
        ("ns/w2", 2, 1),
        ("ns/w3", 3, 1),
        ("ns/w4", 4, 2),
    ]
    assert found[0].info is flying
    assert world.pending.positions("cq", 1, 2) == found[1:3]
    assert world.pending.position("ns/w3") == found[3]
    world.pending.delete("ns/w0")
    place = world.pending.position("ns/w3")
    assert place is not None
    assert place.in_queue == 2
    for unknown in (world.pending.positions("none"), world.names("none")):
        assert unknown == []
    assert world.pending.position("ns/none") is None


# Past usage


def usage_world() -> World:
    world = World({"cq": ""}, {"x": "cq", "y": "cq"}, settings=BY_USAGE, by_usage=True)
    for number, queue in enumerate("xxyy"):
        world.pending.push(a_workload(f"w{number}", queue, at=number, priority=4 - number, settings=BY_USAGE), START)
    return world


def test_the_local_queue_that_used_less_comes_first() -> None:
    world = usage_world()
    ledger = world.pending.ledger
    assert ledger is not None
    assert world.names("cq") == ["w0", "w1", "w2", "w3"]
    ledger.seed("ns/x", {"cpu": "2"}, START)
    ledger.seed("ns/y", {"cpu": "1"}, START)
    assert world.names("cq") == ["w2", "w3", "w0", "w1"]
    (first,) = world.pending.heads(lambda _name: True)
    assert first.key == "ns/w2"
    assert first.local_queue_usage == 1.0


def test_a_penalty_changes_the_order_of_what_already_waits() -> None:
    world = usage_world()
    ledger = world.pending.ledger
    assert ledger is not None
    found = []
    while (info := world.pending.pop("cq")) is not None:
        found.append(info.view.metadata.name)
        ledger.charge(info, world.pending.queues["cq"].policy)
    assert found == ["w0", "w2", "w1", "w3"]


def test_a_local_queue_without_weight_comes_last() -> None:
    world = usage_world()
    world.pending.set_local_queue(a_local_queue("x", "cq", weight="0"), START)
    assert world.heads() == ["w2"]


def test_usage_counts_only_where_the_queue_says_so() -> None:
    world = World({"cq": ""}, {"x": "cq", "y": "cq"}, settings=BY_USAGE)
    ledger = world.pending.ledger
    assert ledger is not None
    ledger.seed("ns/x", {"cpu": "2"}, START)
    world.pending.push(a_workload("a", "x", priority=1), START)
    world.pending.push(a_workload("b", "y"), START)
    assert world.names("cq") == ["a", "b"]
    world.pending.set_queue(a_queue("cq", by_usage=True), START)
    assert world.heads() == ["b"]


# Second passes


def waiting_for_topology(name: str, *more: dict[str, str], state: str = "Ready") -> WorkloadInfo:
    assignment = {"name": "main", "count": 1, "flavors": {"cpu": "f"}, "delayedTopologyRequest": "Pending"}
    status = {
        "admission": {"clusterQueue": "cq", "podSetAssignments": [assignment]},
        "admissionChecks": [{"name": "check", "state": state}],
    }
    return a_workload(name, conditions=[a_condition(QUOTA_RESERVED), *more], status=status)


def on_nodes(name: str, *nodes: str, broken: str, level: str = "kubernetes.io/hostname") -> WorkloadInfo:
    values = {"individual": {"roots": list(nodes)}}
    topology = {
        "levels": [level],
        "slices": [{"domainCount": len(nodes), "valuesPerLevel": [values], "podCounts": {"universal": 1}}],
    }
    assignment = {"name": "main", "count": len(nodes), "flavors": {"cpu": "f"}, "topologyAssignment": topology}
    status = {
        "admission": {"clusterQueue": "cq", "podSetAssignments": [assignment]},
        "unhealthyNodes": [{"name": broken}],
    }
    return a_workload(name, conditions=[a_condition(QUOTA_RESERVED), a_condition(ADMITTED)], status=status)


@pytest.mark.parametrize(
    ("info", "needed"),
    [
        pytest.param(waiting_for_topology("a"), True, id="checks are ready"),
        pytest.param(waiting_for_topology("a", state="Pending"), False, id="a check is pending"),
        pytest.param(waiting_for_topology("a", a_condition(EVICTED)), False, id="evicted"),
        pytest.param(waiting_for_topology("a", a_condition("Finished")), False, id="finished"),
        pytest.param(waiting_for_topology("a", a_condition(ADMITTED)), False, id="admitted"),
        pytest.param(a_workload("a"), False, id="without quota"),
        pytest.param(on_nodes("a", "n1", "n2", broken="n2"), True, id="a node has failed"),
        pytest.param(on_nodes("a", "n1", broken="n2"), False, id="another's node has failed"),
    ],
)
def test_who_needs_a_second_pass(info: WorkloadInfo, needed: bool) -> None:
    assert needs_second_pass(info) is needed


def test_delays_double_up_to_half_a_minute() -> None:
    queue, now, delays = SecondPass(), START, []
    info = waiting_for_topology("a")
    assert queue.queue(info, now)
    for _ in range(8):
        due = queue.next_due()
        assert due is not None
        delays.append(due - now)
        now = due
        assert queue.take(now) == [info]
        assert queue.retry(info, now)
    assert delays == [1, 2, 4, 8, 16, 30, 30, 30]
    queue.forget("ns/a")
    assert len(queue) == 0
    assert queue.queue(info, now)
    assert queue.next_due() == now + 1


def test_a_second_pass_is_of_the_workload_as_it_is_then() -> None:
    queue = SecondPass()
    for name in ("a", "b"):
        queue.queue(waiting_for_topology(name), START)
    assert not queue.queue(waiting_for_topology("a"), after(0.5))
    newer = waiting_for_topology("a")
    queue.update(newer)
    queue.update(waiting_for_topology("b", a_condition(EVICTED)))
    queue.update(waiting_for_topology("c"))
    assert queue.take(after(0.9)) == []
    assert queue.take(after(1)) == [newer]
    assert queue.next_due() is None


def test_what_needs_no_other_pass_is_forgotten() -> None:
    queue = SecondPass()
    queue.queue(waiting_for_topology("a"), START)
    assert not queue.retry(waiting_for_topology("a"), START)
    assert "ns/a" in queue
    assert not queue.retry(waiting_for_topology("a", a_condition(EVICTED)), START)
    assert "ns/a" not in queue
    assert not queue.queue(a_workload("a"), START)
