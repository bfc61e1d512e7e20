"""Room that was made wakes whom it can help, and nobody else."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.api import core, kueue, timestamps
from muster.api.meta import Condition, Instant, LabelSelector, ObjectMeta
from muster.quota.amounts import FlavorResource
from muster.quota.engine import Engine
from muster.quota.settings import FairSharing, Settings
from muster.quota.topology.assignments import HOSTNAME

NOW = Instant(1_800_000_000.0)
CPU = FlavorResource("default", "cpu")


def an_engine(
    strategy: str = "BestEffortFIFO", sharing: FairSharing | None = None, reclaim: str = "Never", **nominal: int
) -> Engine:
    """Queues of one cohort, none of which preempts unless it may `reclaim`."""
    engine = Engine(Settings(fair_sharing=sharing))
    engine.namespace_changed(core.Namespace(metadata=ObjectMeta(name="ns")))
    engine.flavor_changed(kueue.ResourceFlavor(metadata=ObjectMeta(name="default")))
    for name, cpus in nominal.items():
        quota = kueue.FlavorQuotas(
            name="default", resources=(kueue.ResourceQuota(name="cpu", nominal_quota=str(cpus)),)
        )
        spec = kueue.ClusterQueueSpec(
            resource_groups=(kueue.ResourceGroup(covered_resources=("cpu",), flavors=(quota,)),),
            cohort_name="all",
            queueing_strategy=strategy,
            namespace_selector=LabelSelector(),
            preemption=kueue.ClusterQueuePreemption(reclaim_within_cohort=reclaim, within_cluster_queue="Never"),
        )
        engine.queue_changed(kueue.ClusterQueue(metadata=ObjectMeta(name=name), spec=spec), NOW)
        door = kueue.LocalQueueSpec(cluster_queue=name)
        engine.local_queue_changed(kueue.LocalQueue(metadata=ObjectMeta(name=name, namespace="ns"), spec=door), NOW)
    return engine


def submit(engine: Engine, name: str, queue: str, cpus: int) -> None:
    resources = core.ResourceRequirements(requests={"cpu": str(cpus)})
    spec = core.PodSpec(containers=(core.Container(name="c", resources=resources),))
    pods = kueue.PodSet(name="main", count=1, template=core.PodTemplateSpec(spec=spec))
    made = ObjectMeta(name=name, namespace="ns", uid=name, generation=1, creation_timestamp=timestamps.to_text(NOW))
    engine.workload_changed(kueue.Workload(metadata=made, spec=kueue.WorkloadSpec((pods,), queue)), NOW)


def settle(engine: Engine) -> int:
    """How many cycles looked at something."""
    looks = 0
    while engine.has_work(NOW):
        looks += engine.step(NOW).is_attempt
    return looks


def running(engine: Engine) -> list[str]:
    return sorted(engine.state.holders)


def test_what_asks_for_more_than_is_free_is_not_looked_at_again():
    engine = an_engine(a=8)
    submit(engine, "first", "a", 4)
    submit(engine, "second", "a", 4)
    submit(engine, "large", "a", 8)
    settle(engine)
    engine.workload_removed("ns/first")
    assert settle(engine) == 0
    engine.workload_removed("ns/second")
    assert settle(engine) > 0
    assert running(engine) == ["ns/large"]


def test_all_of_the_shape_are_woken_when_there_is_room_for_one():
    engine = an_engine(a=8)
    submit(engine, "first", "a", 8)
    for number in range(3):
        submit(engine, f"small-{number}", "a", 4)
    settle(engine)
    engine.workload_removed("ns/first")
    settle(engine)
    assert running(engine) == ["ns/small-0", "ns/small-1"]


def test_one_that_was_overtaken_and_cannot_fit_does_not_stand_in_the_way_of_others():
    engine = an_engine(a=4, b=2, c=3)
    submit(engine, "all", "c", 9)
    submit(engine, "large", "c", 8)
    submit(engine, "other", "a", 5)
    settle(engine)
    engine.workload_removed("ns/all")
    settle(engine)
    submit(engine, "small", "c", 1)
    settle(engine)
    assert running(engine) == ["ns/other", "ns/small"]


def test_room_that_somebody_else_was_faster_to_take_costs_others_no_look():
    engine = an_engine(a=2, b=2, c=2)
    for name in "abc":
        submit(engine, f"{name}-0", name, 2)
        submit(engine, f"{name}-1", name, 1)
        submit(engine, f"{name}-2", name, 1)
    settle(engine)
    engine.workload_removed("ns/a-0")
    looks = settle(engine)
    assert running(engine) == ["ns/a-1", "ns/b-0", "ns/b-1", "ns/c-0"], "one of each queue, until there is no more"
    assert looks <= 2
    engine.workload_removed("ns/a-1")
    settle(engine)
    assert running(engine) == ["ns/a-2", "ns/b-0", "ns/b-1", "ns/c-0"], "the others wait on, and are woken again"


def test_who_comes_later_waits_with_its_like_and_is_woken_with_them():
    engine = an_engine(a=8)
    submit(engine, "first", "a", 7)
    submit(engine, "one", "a", 1)
    submit(engine, "large-0", "a", 8)
    settle(engine)
    engine.workload_removed("ns/one")
    settle(engine)
    submit(engine, "large-1", "a", 8)
    assert settle(engine) == 0, "its shape has a verdict that still holds"
    engine.workload_removed("ns/first")
    settle(engine)
    assert running(engine) == ["ns/large-0"]
    engine.workload_removed("ns/large-0")
    settle(engine)
    assert running(engine) == ["ns/large-1"]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 9), st.integers(0, 3)), min_size=1, max_size=25))
def test_nobody_waits_for_whom_there_is_room(moves):
    """Each move: one comes, and so many of those that run end."""
    engine = an_engine(a=4, b=2, c=3)
    asked: dict[str, tuple[str, int]] = {}
    for number, (queue, cpus, endings) in enumerate(moves):
        asked[f"ns/w{number}"] = (queue, cpus)
        submit(engine, f"w{number}", queue, cpus)
        settle(engine)
        for key in running(engine)[:endings]:
            del asked[key]
            engine.workload_removed(key)
        settle(engine)
        held = set(running(engine))
        for key, (queue_name, wanted) in asked.items():
            free = engine.state.queues[queue_name].node.available(CPU)
            assert key in held or free < 1000 * wanted, f"{key} waits for {wanted}, and {free} are free"


def test_a_strict_queue_looks_again_at_its_head_when_that_may_fit():
    engine = an_engine("StrictFIFO", a=8)
    submit(engine, "first", "a", 4)
    submit(engine, "second", "a", 3)
    submit(engine, "third", "a", 8)
    settle(engine)
    submit(engine, "w", "a", 1)
    assert settle(engine) == 0, "there is one free, for which the head does not ask"
    engine.workload_removed("ns/first")
    assert settle(engine) == 0
    assert running(engine) == ["ns/second"]
    engine.workload_removed("ns/second")
    settle(engine)
    assert running(engine) == ["ns/third"]
    engine.workload_removed("ns/third")
    settle(engine)
    assert running(engine) == ["ns/w"]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 3)), min_size=1, max_size=25))
def test_the_head_of_a_strict_queue_does_not_wait_where_there_is_room(moves):
    engine = an_engine("StrictFIFO", a=9)
    waiting: dict[str, int] = {}
    for number, (cpus, endings) in enumerate(moves):
        waiting[f"ns/w{number:02}"] = cpus
        submit(engine, f"w{number:02}", "a", cpus)
        settle(engine)
        for key in running(engine)[:endings]:
            engine.workload_removed(key)
            waiting.pop(key)
        settle(engine)
        held = set(running(engine))
        head = next((key for key in sorted(waiting) if key not in held), None)
        free = engine.state.queues["a"].node.available(CPU)
        assert head is None or free < 1000 * waiting[head]
        assert head is None or all(key < head for key in held), "nobody has passed it by"


def test_who_comes_behind_a_strict_head_that_waits_is_not_looked_at():
    engine = an_engine("StrictFIFO", a=4, b=4)
    submit(engine, "all", "b", 8)
    settle(engine)
    submit(engine, "head", "a", 2)
    settle(engine)
    submit(engine, "next", "a", 1)
    assert settle(engine) == 0
    engine.workload_removed("ns/head")
    submit(engine, "last", "a", 1)
    settle(engine)
    engine.workload_removed("ns/all")
    settle(engine)
    assert running(engine) == ["ns/last", "ns/next"]


class TestFairSharing:
    """Queues that take back what is theirs."""

    def engine(self) -> Engine:
        return an_engine(a=4, b=4, sharing=FairSharing(), reclaim="Any")

    def test_nobody_is_looked_at_who_could_only_take_from_those_who_borrow_less(self):
        engine = self.engine()
        for number in range(4):
            submit(engine, f"a-{number}", "a", 1)
            submit(engine, f"b-{number}", "b", 1)
        submit(engine, "a-more", "a", 2)
        settle(engine)
        engine.workload_removed("ns/b-0")
        assert settle(engine) == 0, "one is free, and b borrows nothing"
        engine.workload_removed("ns/b-1")
        settle(engine)
        assert "ns/a-more" in running(engine)

    def test_who_can_take_back_what_is_lent_is_woken_though_there_is_no_room(self):
        engine = self.engine()
        submit(engine, "b-0", "b", 3)
        submit(engine, "a-0", "a", 4)
        settle(engine)
        submit(engine, "b-1", "b", 1)
        settle(engine)
        engine.workload_removed("ns/a-0")
        submit(engine, "b-2", "b", 4)
        settle(engine)
        submit(engine, "a-1", "a", 4)
        assert settle(engine) > 0
        assert any(info.is_evicted for info in engine.state.queues["b"].workloads.values())


def a_node(name: str, cpus: int) -> core.Node:
    return core.Node(
        metadata=ObjectMeta(name=name, labels={HOSTNAME: name}),
        status=core.NodeStatus(
            allocatable={"cpu": str(cpus), "pods": "10"}, conditions=(Condition(type="Ready", status="True"),)
        ),
    )


def with_nodes(engine: Engine, *cpus: int) -> Engine:
    """The same, with nodes to be placed on, one by one."""
    for number, each in enumerate(cpus):
        engine.state.cluster.node_changed(a_node(f"n{number}", each))
    levels = (kueue.TopologyLevel(node_label=HOSTNAME),)
    topology = kueue.Topology(metadata=ObjectMeta(name="nodes"), spec=kueue.TopologySpec(levels=levels))
    engine.topology_changed(topology)
    spec = kueue.ResourceFlavorSpec(topology_name="nodes")
    engine.flavor_changed(kueue.ResourceFlavor(metadata=ObjectMeta(name="default"), spec=spec))
    return engine


@pytest.mark.parametrize("strategy", ["BestEffortFIFO", "StrictFIFO"])
def test_quota_that_no_node_has_room_for_wakes_nobody(strategy):
    engine = with_nodes(an_engine(strategy, a=8), 4, 4)
    for name in ("p", "q"):
        submit(engine, name, "a", 2)
    submit(engine, "r", "a", 3)
    submit(engine, "s", "a", 4)
    settle(engine)
    assert running(engine) == ["ns/p", "ns/q", "ns/r"], "two and two on one node, three on the other"
    engine.workload_removed("ns/p")
    assert settle(engine) == 0, "three are free, on two nodes"
    engine.workload_removed("ns/q")
    settle(engine)
    assert running(engine) == ["ns/r", "ns/s"]


@pytest.mark.parametrize("strategy", ["BestEffortFIFO", "StrictFIFO"])
def test_a_node_that_grows_wakes_who_was_not_worth_a_look_when_another_was_freed(strategy):
    engine = with_nodes(an_engine(strategy, a=12), 4)
    submit(engine, "p", "a", 2)
    submit(engine, "q", "a", 5)
    settle(engine)
    engine.workload_removed("ns/p")
    settle(engine)
    engine.state.cluster.node_changed(a_node("n0", 3))
    engine.room_on_nodes()
    assert settle(engine) == 0
    engine.state.cluster.node_changed(a_node("n0", 5))
    engine.room_on_nodes()
    settle(engine)
    assert running(engine) == ["ns/q"]


@pytest.mark.parametrize("strategy", ["BestEffortFIFO", "StrictFIFO"])
def test_who_lacked_quota_first_and_then_nodes_is_woken_when_there_are_nodes(strategy):
    engine = with_nodes(an_engine(strategy, a=4), 4)
    submit(engine, "p", "a", 2)
    submit(engine, "q", "a", 4)
    settle(engine)
    engine.state.cluster.node_changed(a_node("n0", 2))  # somebody else's pods are there
    engine.room_on_nodes()
    settle(engine)
    engine.workload_removed("ns/p")
    assert settle(engine) == 0, "now it is nodes that it lacks"
    engine.state.cluster.node_changed(a_node("n0", 4))
    engine.room_on_nodes()
    settle(engine)
    assert running(engine) == ["ns/q"]


def test_who_comes_back_while_nobody_else_waits_is_still_short_of_nodes():
    """What was said of his like is remembered, so that nobody looks at him."""
    engine = with_nodes(an_engine("BestEffortFIFO", a=8), 4)
    submit(engine, "p", "a", 5)
    settle(engine)
    engine.workload_removed("ns/p")
    engine.state.cluster.node_changed(a_node("n0", 3))
    engine.room_on_nodes()
    settle(engine)
    submit(engine, "q", "a", 5)
    settle(engine)
    engine.state.cluster.node_changed(a_node("n0", 5))
    engine.room_on_nodes()
    settle(engine)
    assert running(engine) == ["ns/q"]
