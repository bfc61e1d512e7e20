"""The invariants of the simulation by themselves: what each lets pass, and what it does not."""

from collections.abc import Sequence

import pytest

from muster.api import core, kueue, volcano
from muster.api.kinds import Kind
from muster.api.meta import Instant
from muster.api.objects import Object
from muster.api.raw import Document, encode
from muster.cluster.pods import GROUP_ANNOTATION
from muster.quota.engine import Engine
from muster.quota.settings import Settings
from muster.sim import orders
from muster.sim.beliefs import Beliefs
from muster.sim.gangs import IN_FLIGHT_SECONDS, Gangs
from muster.sim.ledger import Invariant
from muster.sim.loads import GPU
from muster.sim.plans import (
    BreakDevices,
    ChangeCapability,
    ChangeQuota,
    CloseQueue,
    MoveQueue,
    NodeShape,
    Order,
    Plan,
    QueueShape,
    StopQueue,
    VolcanoQueueShape,
)
from muster.sim.quotas import Quota
from muster.sim.troubles import RECOVERY_SECONDS, Troubles
from muster.sim.turns import BOUND_SECONDS, Turns
from muster.store.protocol import Create, Patch


class Watch:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.time = 1000.0

    def now(self) -> Instant:
        return Instant(self.time)

    def monotonic(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        self.time += seconds


def an_object(kind: Kind, name: str, namespace: str = "default", **parts: Document) -> Object:
    metadata = {"name": name, "uid": name, "generation": 1, **parts.pop("metadata", {})}
    if kind.namespaced:
        metadata["namespace"] = namespace
    return Object(kind, encode({"metadata": metadata, **parts}))


def a_queue(shape: QueueShape, **spec: str) -> Object:
    document = orders.cluster_queue(shape)
    return an_object(kueue.CLUSTER_QUEUE, shape.name, spec=document["spec"] | spec)


def a_workload(name: str, queue: str = "", gpus: int = 1, done: int = 0, count: int = 1) -> Object:
    """Admitted where a queue is named."""
    container = {"name": "main", "resources": {"requests": {GPU: str(gpus)}}}
    sets = [{"name": "main", "count": count + done, "template": {"spec": {"containers": [container]}}}]
    status: Document = {}
    if queue:
        given = {"name": "main", "count": count, "flavors": {GPU: "plain"}, "resourceUsage": {GPU: str(gpus * count)}}
        status["admission"] = {"clusterQueue": queue, "podSetAssignments": [given]}
        status["conditions"] = [{"type": "QuotaReserved", "status": "True"}]
        status["reclaimablePods"] = [{"name": "main", "count": done}] if done else []
    return an_object(kueue.WORKLOAD, name, spec={"queueName": "q", "priority": 0, "podSets": sets}, status=status)


def tell(invariant: Invariant, *objects: Object) -> None:
    for found in objects:
        invariant.heard(None, found)


RED, BLUE = QueueShape("red", 32, 8, cohort="all"), QueueShape("blue", 32, 8, cohort="all")


@pytest.mark.parametrize(
    ("shapes", "gpus", "problem"),
    [
        ((RED, BLUE), 16, ""),
        ((RED, BLUE), 17, "cohort all may use 16"),
        ((QueueShape("red", 32, 8, cohort="all", borrowing=2), BLUE), 10, ""),
        ((QueueShape("red", 32, 8, cohort="all", borrowing=2), BLUE), 11, "queue red may use 10"),
        ((RED, QueueShape("blue", 32, 8, cohort="all", lending=3)), 11, ""),
        ((RED, QueueShape("blue", 32, 8, cohort="all", lending=3)), 12, "cohort all may use 11"),
        ((QueueShape("red", 32, 8), BLUE), 9, "queue red may use 8"),
    ],
)
def test_a_queue_has_what_is_its_own_and_what_others_lend(
    shapes: Sequence[QueueShape], gpus: int, problem: str
) -> None:
    quota = Quota(Watch())
    tell(quota, *map(a_queue, shapes), a_workload("w", "red", gpus))
    found = quota.broken()
    assert problem in str(found) if problem else found is None


def test_what_was_changed_a_moment_ago_may_not_have_been_heard_of() -> None:
    watch = Watch()
    quota = Quota(watch)
    tell(quota, a_queue(RED))
    watch.time += 1
    tell(quota, a_queue(RED, stopPolicy="Hold"), a_workload("early", "red"))
    assert quota.broken() is None
    watch.time += 300
    tell(quota, a_workload("late", "red"))
    assert "is stopped" in str(quota.broken())


def test_what_is_done_of_a_workload_holds_nothing_and_is_not_taken_off_twice() -> None:
    quota = Quota(Watch())
    tell(quota, a_queue(RED), a_workload("w", "red", gpus=1, done=4, count=2))
    assert quota.held["red"][("plain", GPU)] == 2  # type: ignore[index]


def test_quota_that_believes_otherwise_is_found_once_it_could_know() -> None:
    watch = Watch()
    troubles, quota, engine = Troubles(watch), Quota(watch), Engine(Settings())
    beliefs = Beliefs(watch, troubles, quota, lambda: [engine])
    engine.queue_changed(a_queue(RED).read(kueue.ClusterQueue), watch.now())
    admitted = a_workload("w", "red", 3)
    for invariant in (quota, beliefs):
        tell(invariant, a_queue(RED), admitted)
    assert beliefs.overdue() is None, "it has just happened"
    watch.time += 10
    assert "3 nvidia.com/gpu reserved, and quota believes 0" in str(beliefs.overdue())
    with troubles.lasting():
        assert beliefs.overdue() is None
    watch.time += RECOVERY_SECONDS + 1
    assert beliefs.overdue() is not None
    engine.workload_changed(admitted.read(kueue.Workload), watch.now())
    assert beliefs.overdue() is None


def a_member(name: str, node: str = "") -> Object:
    spec: Document = {"containers": [], **({"nodeName": node} if node else {})}
    return an_object(core.POD, name, metadata={"annotations": {GROUP_ANNOTATION: "g"}}, spec=spec)


def test_a_gang_is_bound_whole_or_its_binds_are_under_way() -> None:
    watch = Watch()
    troubles = Troubles(watch)
    gangs = Gangs(watch, troubles)
    tell(gangs, an_object(volcano.POD_GROUP, "g", spec={"minMember": 2}), a_member("a", "n0"), a_member("b"))
    assert gangs.overdue() is None
    troubles.strike()
    watch.time += IN_FLIGHT_SECONDS + 1
    assert gangs.overdue() is None, "something failed meanwhile"
    watch.time += RECOVERY_SECONDS
    assert "1 of 2 pods of gang default/g" in str(gangs.overdue())
    gangs.heard(a_member("b"), a_member("b", "n1"))
    assert gangs.overdue() is None
    gangs.heard(a_member("b", "n1"), None)
    assert gangs.overdue() is None, "it had started"


def test_nobody_is_passed_by_for_long() -> None:
    watch = Watch()
    turns = Turns(watch, Troubles(watch))
    first, other = a_workload("first"), a_workload("other", gpus=2)
    tell(turns, first, other)
    for number in range(4):
        watch.time += 1 + number * BOUND_SECONDS / 2
        later = a_workload(f"later{number}")
        tell(turns, later)
        watch.time += 1
        turns.heard(later, a_workload(f"later{number}", "red"))
        found = turns.broken()
    assert "Workload default/first came" in str(found)


PLAN = Plan(0, (NodeShape(),), (RED,), volcano_queues=(VolcanoQueueShape("gold", 8, 4, 2),))


@pytest.mark.parametrize(
    "order",
    [
        ChangeQuota(at=1, queue=0, share=0.5, seconds=1, borrowing=1, lending=8),
        MoveQueue(at=1, queue=0, cohort="", seconds=1),
        StopQueue(at=1, queue=0, policy="Hold", seconds=1),
        ChangeCapability(at=1, queue=5, share=0.0, seconds=1),
        BreakDevices(at=1, node=3, gpus=2, seconds=1),
    ],
    ids=lambda order: type(order).__name__,
)
def test_an_order_is_taken_back_where_it_was_carried_out(order: Order) -> None:
    carrying = orders.carrying(order, PLAN)
    assert carrying is not None
    (out,), (back,) = carrying
    assert isinstance(out, Patch)
    assert isinstance(back, Patch)
    assert (out.kind, out.key) == (back.kind, back.key)
    assert out.body != back.body


def test_queues_are_closed_and_opened_by_commands_where_there_are_any() -> None:
    order = CloseQueue(at=1.5, queue=0, seconds=1)
    carrying = orders.carrying(order, PLAN)
    assert carrying is not None
    commands = [write.document for write in (*carrying.out, *carrying.back) if isinstance(write, Create)]
    assert [command["action"] for command in commands] == ["CloseQueue", "OpenQueue"]
    assert orders.carrying(order, Plan(0, (NodeShape(),), (RED,))) is None
