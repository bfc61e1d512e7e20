"""`Scheduler.decide`: what must hold of every decision, and tables of what gangs come to."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.placement.preempt_worlds import node, pod

from muster.api import core, volcano
from muster.api.kinds import Kind
from muster.api.objects import Object
from muster.cluster.groups import Group, GroupKey, Mode, Parts, PodGroups, Topology, part_of, task_of
from muster.cluster.pods import PodInfo
from muster.cluster.state import ClusterState
from muster.placement.engine import Engine
from muster.placement.in_tree import Shared, default_profile
from muster.placement.judging import INFEASIBLE, Judgement
from muster.placement.plugins.resources_fit import NodeResourcesFit
from muster.placement.profiles import DEFAULT_SCHEDULER, Profile
from muster.placement.queueing.entities import Queued
from muster.placement.scheduling import Decision, Scheduler
from muster.testing.builders import a_node, a_pod, a_pod_group

TASK = "volcano.sh/task-spec"
RACKS = ("a", "b", "c")


@dataclass
class World:
    """A cluster with a scheduler, and what has been decided."""

    cluster: ClusterState = field(default_factory=ClusterState)
    groups: PodGroups = field(default_factory=PodGroups)
    seed: int = 0
    profile: Profile | None = None

    def __post_init__(self) -> None:
        self.profile = self.profile or default_profile(Shared(self.groups))
        self.scheduler = Scheduler({DEFAULT_SCHEDULER: self.profile}, self.cluster, self.groups, seed=self.seed)

    def info(self, view: core.Pod) -> PodInfo:
        return self.cluster.shapes.info(view)

    def running(self, view: core.Pod, where: str) -> PodInfo:
        info = self.info(view)
        self.cluster.assign(info, where)
        if info.group is not None:
            self.groups.bound(info, where)
        return info

    def decide(self, *views: core.Pod, within: Sequence[str] | None = None) -> Decision:
        pods = tuple(self.info(view) for view in views)
        for info in pods:
            self.groups.pending(info)
        key: Any = pods[0].uid if pods[0].group is None else GroupKey(*pods[0].group)
        mask = None if within is None else np.isin(np.array(self.cluster.names), within)
        return self.scheduler.decide(Queued(key, pods, 0.0, 1), mask)


def world_of(*nodes: core.Node, **options: Any) -> World:
    world = World(**options)
    for view in nodes:
        world.cluster.node_changed(view)
    return world


def placed(decision: Decision) -> dict[str, str]:
    return {one.pod.key.name: one.node for one in decision.assigned}


def rack(name: str) -> dict[str, str]:
    return {"rack": name}


def hypernode(name: str, tier: int, *nodes: str, of: Sequence[str] = ()) -> volcano.HyperNode:
    members = [{"type": "Node", "selector": {"exactMatch": {"name": found}}} for found in nodes]
    members += [{"type": "HyperNode", "selector": {"exactMatch": {"name": found}}} for found in of]
    return msgspec.convert({"metadata": {"name": name}, "spec": {"tier": tier, "members": members}}, volcano.HyperNode)


def apart(key: str = "kubernetes.io/hostname") -> dict[str, Any]:
    """An affinity that keeps members of a gang on different nodes."""
    term = {"labelSelector": {"matchLabels": {"gang": "g"}}, "topologyKey": key}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


# What holds of every decision

GANGS = st.lists(
    st.tuples(
        st.lists(st.tuples(st.integers(1, 4), st.sampled_from(["", "ps", "worker"])), min_size=1, max_size=6),
        st.integers(1, 6),  # min member
        st.sampled_from([None, Mode.REQUIRED, Mode.SOFT]),
        st.integers(0, 2),  # priority
        st.dictionaries(st.sampled_from(["ps", "worker"]), st.integers(0, 3), max_size=2),
        st.booleans(),  # members keep apart
    ),
    min_size=1,
    max_size=6,
)
NODES = st.lists(st.tuples(st.integers(1, 6), st.sampled_from(RACKS)), min_size=1, max_size=6)


def of_drawn(nodes: Sequence[tuple[int, str]], seed: int) -> World:
    views = [
        node(f"n{number}", cpu=cpu, labels={"rack": name, "kubernetes.io/hostname": f"n{number}"})
        for number, (cpu, name) in enumerate(nodes)
    ]
    return world_of(*views, seed=seed)


def decide_gang(world: World, number: int, gang: Any) -> tuple[Group, Decision]:
    pods, least, mode, priority, tasks, is_apart = gang
    topology = None if mode is None else Topology(mode, ("rack",))
    group = Group(GroupKey("here", f"g{number}"), least, min_per_task=tasks, topology=topology, priority=priority)
    world.groups.put(group)
    labels = {"gang": "g"} if is_apart else {}
    affinity: dict[str, Any] = {"affinity": apart()} if is_apart else {}
    views = [
        pod(
            f"g{number}-{index}",
            cpu=cpu,
            priority=priority,
            group=f"g{number}",
            labels={**labels, TASK: task},
            **affinity,
        )
        for index, (cpu, task) in enumerate(pods)
    ]
    return group, world.decide(*views)


def settle(world: World, decision: Decision) -> None:
    """Those evicted are gone before anybody is bound."""
    for victim in decision.victims:
        world.cluster.release(victim.uid)
        world.groups.remove(victim.uid)


@settings(max_examples=75, deadline=None)
@given(nodes=NODES, gangs=GANGS, seed=st.integers(0, 3))
def test_no_decision_breaks_a_promise(nodes: list[Any], gangs: list[Any], seed: int) -> None:
    world = of_drawn(nodes, seed)
    for number, gang in enumerate(gangs):
        before = dict(world.cluster.pods)
        group, decision = decide_gang(world, number, gang)
        members = world.groups.members(group.key)
        if not decision.assigned:
            assert decision.refusal is not None
            assert not decision.victims
            assert decision.refusal.message
            assert decision.refusal.plugins
            assert world.cluster.pods == before, "nothing of a refused gang is left behind"
            continue
        assert members.scheduled_count >= group.min_count
        assert all(members.tasks_scheduled[task] >= least for task, least in group.tasks_with_minimum.items())
        assert {one.pod.uid for one in decision.assigned} == set(members.assumed)
        assert all(victim.priority < gang[3] for victim in decision.victims)
        if group.topology is not None and group.topology.mode is Mode.REQUIRED:
            assert len({nodes[int(one.node[1:])][1] for one in decision.assigned}) == 1
        settle(world, decision)
        used, allocatable = world.cluster.used, world.cluster.allocatable
        assert (used <= allocatable).all()
        if gang[5]:
            assert max(Counter(one.node for one in decision.assigned).values()) == 1


@settings(max_examples=50, deadline=None)
@given(nodes=NODES, gangs=GANGS, seed=st.integers(0, 3))
def test_the_same_inputs_give_the_same_decisions(nodes: list[Any], gangs: list[Any], seed: int) -> None:
    def run() -> list[Any]:
        world, told = of_drawn(nodes, seed), []
        for number, gang in enumerate(gangs):
            _, decision = decide_gang(world, number, gang)
            said = "" if decision.refusal is None else decision.refusal.message
            told.append((placed(decision), [str(victim.key) for victim in decision.victims], said))
            settle(world, decision)
        return told

    assert run() == run()


@settings(max_examples=50, deadline=None)
@given(
    nodes=NODES,
    present=st.lists(st.tuples(st.integers(1, 3), st.integers(0, 5), st.booleans()), max_size=8),
    moves=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 5)), max_size=20),
    asked=st.tuples(st.integers(1, 4), st.booleans()),
)
def test_a_judgement_that_followed_moves_equals_one_made_afresh(
    nodes: list[Any], present: list[Any], moves: list[Any], asked: tuple[int, bool]
) -> None:
    world = of_drawn(nodes, 0)
    labels = {"gang": "g"}
    affinity: dict[str, Any] = {"affinity": apart("rack")}
    subject = world.info(pod("new", cpu=asked[0], labels=labels, **(affinity if asked[1] else {})))
    others = [
        world.info(pod(f"p{number}", cpu=cpu, labels=labels, **(affinity if is_apart else {})))
        for number, (cpu, _, is_apart) in enumerate(present)
    ]
    for info, (_, where, _) in zip(others, present, strict=True):
        world.cluster.assign(info, f"n{where % len(nodes)}")
    followed = world.scheduler.judge(subject)
    followed.best(0)
    for which, where in moves:
        if not others:
            break
        info = others[which % len(others)]
        if where == 0:
            world.cluster.release(info.uid)
        else:
            world.cluster.assign(info, f"n{where % len(nodes)}")
        followed = world.scheduler.judge(subject)
        afresh = Judgement(world.scheduler.profile_of(subject), subject, world.cluster)
        assert followed.feasible.tolist() == afresh.feasible.tolist()
        assert _totals(followed) == _totals(afresh)
        assert followed.diagnosis().counts == afresh.diagnosis().counts
        assert followed.rejected_by() == afresh.rejected_by()


def _totals(judgement: Judgement) -> list[int]:
    """Empty where no node is feasible, whichever way the judgement says so."""
    totals = judgement._totals(None)
    if totals is None or not judgement.feasible.any():
        return []
    found: list[int] = np.where(judgement.feasible, totals, INFEASIBLE).tolist()
    return found


# One pod


def test_a_pod_goes_only_where_it_may() -> None:
    world = world_of(node("n0"), node("n1"))
    assert placed(world.decide(pod("p"), within=["n1"])) == {"p": "n1"}
    refused = world.decide(pod("q", cpu=4), within=["n1"])
    assert refused.refusal is not None
    assert "1 Insufficient cpu" in refused.refusal.message
    assert "held back" in refused.refusal.message


def test_nobody_is_evicted_on_nodes_that_are_not_open_to_the_pod() -> None:
    world = world_of(node("n0"), node("n1"))
    for name in ("n0", "n1"):
        world.running(pod(f"low on {name}", cpu=4), name)
    decision = world.decide(pod("high", cpu=4, priority=9), within=["n1"])
    assert placed(decision) == {"high": "n1"}
    assert [victim.key.name for victim in decision.victims] == ["low on n1"]


def test_nobody_is_evicted_where_the_profile_has_no_preemption_at_its_place() -> None:
    groups = PodGroups()
    plugins = default_profile(Shared(groups)).plugins
    fit = next(plugin for plugin in plugins if isinstance(plugin, NodeResourcesFit))
    profile = Profile.of(plugins, points={"filter": [fit], "preFilter": [fit], "score": []})
    world = world_of(node("n0"), groups=groups, profile=profile)
    world.running(pod("low", cpu=4), "n0")
    assert world.decide(pod("high", cpu=4, priority=9)).victims == ()
    world.groups.put(Group(GroupKey("here", "g")))
    assert world.decide(pod("gang", cpu=4, priority=9, group="g")).victims == ()


# Gangs


def test_a_gang_that_knows_fewer_members_than_it_needs_waits() -> None:
    world = world_of(node("n0"))
    world.groups.put(Group(GroupKey("here", "g"), min_count=3))
    decision = world.decide(pod("p0", group="g"), pod("p1", group="g"))
    assert not decision.assigned
    assert decision.refusal is not None
    assert decision.refusal.message.startswith("2 of the 3 pods")


def test_members_beyond_the_minimum_are_placed_where_they_fit_and_wait_where_not() -> None:
    world = world_of(node("n0", cpu=3))
    world.groups.put(Group(GroupKey("here", "g"), min_count=2))
    decision = world.decide(*(pod(f"p{number}", group="g") for number in range(5)))
    assert len(decision.assigned) == 3
    assert decision.refusal is not None
    assert len(decision.refusal.pods) == 2
    assert "NodeResourcesFit" in decision.refusal.plugins
    for one in decision.assigned:
        world.cluster.release(one.pod.uid)
        world.groups.bound(one.pod, one.node)
    assert len(world.decide(pod("p9", group="g")).assigned) == 1, "one more goes on its own once enough have nodes"


def test_what_the_tasks_of_a_gang_need_at_least_goes_before_larger_extras() -> None:
    """Two workers would fill the node, and the gang would wait for its server for ever."""
    world = world_of(node("n0", cpu=4))
    world.groups.put(Group(GroupKey("here", "g"), min_count=2, min_per_task={"ps": 1, "worker": 1}))
    workers = [pod(f"w{number}", cpu=2, group="g", labels={TASK: "worker"}) for number in range(2)]
    decision = world.decide(*workers, pod("s", cpu=1, group="g", labels={TASK: "ps"}))
    assert sorted(task_of(one.pod) for one in decision.assigned) == ["ps", "worker"]


def test_a_member_that_fits_nowhere_does_not_keep_enough_others_from_a_domain() -> None:
    world = world_of(node("n0", cpu=4, labels=rack("a")))
    world.groups.put(Group(GroupKey("here", "g"), min_count=2, topology=Topology(keys=("rack",))))
    decision = world.decide(pod("large", cpu=9, group="g"), pod("p0", group="g"), pod("p1", group="g"))
    assert sorted(placed(decision)) == ["p0", "p1"]


def test_the_next_domain_is_tried_where_members_that_keep_apart_do_not_fit_the_tightest() -> None:
    world = world_of(
        node("n0", cpu=4, labels=rack("a") | {"kubernetes.io/hostname": "n0"}),
        *(node(f"n{number}", cpu=9, labels=rack("b") | {"kubernetes.io/hostname": f"n{number}"}) for number in (1, 2)),
    )
    world.groups.put(Group(GroupKey("here", "g"), min_count=2, topology=Topology(keys=("rack",))))
    views = [pod(f"p{number}", group="g", labels={"gang": "g"}, affinity=apart()) for number in range(2)]
    assert set(placed(world.decide(*views)).values()) == {"n1", "n2"}


def test_members_that_follow_others_are_tried_again_after_them() -> None:
    """The follower is larger, and so comes first, when nobody is there yet whom it could follow."""
    world = world_of(node("n0", labels=rack("a")), node("n1", labels=rack("b")))
    world.groups.put(Group(GroupKey("here", "g"), min_count=2))
    term = {"labelSelector": {"matchLabels": {"role": "leader"}}, "topologyKey": "rack"}
    affinity = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    follower = pod("f", cpu=3, group="g", affinity=affinity)
    decision = world.decide(follower, pod("l", cpu=1, group="g", labels={"role": "leader"}))
    assert len(set(placed(decision).values())) == 1
    assert len(decision.assigned) == 2


def test_members_of_one_shape_and_unlike_labels_are_not_taken_for_one_another() -> None:
    world = world_of(node("n0", labels={"kubernetes.io/hostname": "n0"}))
    world.running(pod("loner", labels={"gang": "g"}, affinity=apart()), "n0")
    world.groups.put(Group(GroupKey("here", "g"), min_count=1))
    decision = world.decide(pod("like", group="g", labels={"gang": "g"}), pod("unlike", group="g"))
    assert placed(decision) == {"unlike": "n0"}


def test_victims_of_a_gang_go_only_when_the_whole_gang_is_placed() -> None:
    world = world_of(node("n0", cpu=2), node("n1", cpu=2))
    world.running(pod("low", cpu=2), "n0")
    world.running(pod("same", cpu=2, priority=9), "n1")
    world.groups.put(Group(GroupKey("here", "g"), min_count=2, priority=9))
    views = [pod(f"p{number}", cpu=2, priority=9, group="g") for number in range(2)]
    refused = world.decide(*views)
    assert not refused.assigned
    assert not refused.victims
    world.cluster.release("uid of same")
    decision = world.decide(*views)
    assert len(decision.assigned) == 2
    assert [victim.key.name for victim in decision.victims] == ["low"]


def test_a_gang_without_a_domain_waits_for_whatever_may_make_room() -> None:
    world = world_of(node("n0", cpu=1, labels=rack("a")))
    world.groups.put(Group(GroupKey("here", "g"), min_count=2, topology=Topology(keys=("rack",))))
    decision = world.decide(pod("p0", group="g"), pod("p1", group="g"))
    assert decision.refusal is not None
    assert {"TopologyPlacementGenerator", "NodeResourcesFit", "GangScheduling"} <= decision.refusal.plugins


# Domains within domains


def of_racks(sizes: Mapping[str, int], cpu: int = 1) -> World:
    names = [(f"{name}{number}", name) for name, size in sizes.items() for number in range(size)]
    world = world_of(*(node(found, cpu=cpu) for found, _ in names))
    racks = {name: [found for found, where in names if where == name] for name in sizes}
    tree = [hypernode(name, 1, *nodes) for name, nodes in racks.items()]
    world.scheduler.hypernodes_changed([*tree, hypernode("top", 2, of=list(racks))])
    return world


def test_inside_a_wide_domain_the_fewest_racks_are_used() -> None:
    world = of_racks({"a": 2, "b": 3, "c": 1, "d": 2})
    world.groups.put(Group(GroupKey("here", "g"), min_count=5, topology=Topology(Mode.SOFT)))
    decision = world.decide(*(pod(f"p{number}", group="g") for number in range(5)))
    assert Counter(one.node[0] for one in decision.assigned) in ({"b": 3, "a": 2}, {"b": 3, "d": 2})


def test_members_that_come_later_go_near_those_that_are_there() -> None:
    world = of_racks({"a": 2, "b": 3})
    world.groups.put(Group(GroupKey("here", "g"), min_count=1, topology=Topology(highest_tier=2)))
    world.running(pod("first", group="g"), "a0")
    assert placed(world.decide(pod("second", group="g"))) == {"second": "a1"}
    assert placed(world.decide(pod("third", group="g")))["third"].startswith("b")


@pytest.mark.parametrize(
    ("highest", "expected"),
    [(1, 0), (2, 5), (None, 5), (7, 5)],
    ids=["no rack holds it", "the top does", "no tier is no limit", "above the top are all nodes"],
)
def test_a_gang_keeps_within_the_tier_it_allows(highest: int | None, expected: int) -> None:
    world = of_racks({"a": 2, "b": 3})
    world.groups.put(Group(GroupKey("here", "g"), min_count=5, topology=Topology(highest_tier=highest)))
    assert len(world.decide(*(pod(f"p{number}", group="g") for number in range(5))).assigned) == expected


# Parts of a gang


def in_parts(size: int, least: int = 0, tier: int = 1) -> tuple[Parts, ...]:
    return (Parts(("part",), size=size, min_parts=least, topology=Topology(highest_tier=tier)),)


def of_parts(counts: Mapping[str, int]) -> list[core.Pod]:
    return [pod(f"{name}{i}", group="g", labels={"part": name}) for name, count in counts.items() for i in range(count)]


@pytest.mark.parametrize(
    ("counts", "size", "least", "expected"),
    [
        ({"x": 2, "y": 2}, 2, 2, 4),
        ({"x": 2, "y": 2, "z": 2}, 2, 2, 4),
        ({"x": 2, "y": 2, "z": 2}, 2, 3, 0),
        ({"x": 3, "y": 1}, 2, 1, 0),
    ],
    ids=["each in a rack", "one more than fit", "more are needed than fit", "all of a part must fit"],
)
def test_parts_of_a_gang_are_placed_each_in_a_domain(
    counts: Mapping[str, int], size: int, least: int, expected: int
) -> None:
    world = of_racks({"a": 2, "b": 2})
    group = Group(GroupKey("here", "g"), min_count=2, parts=in_parts(size, least), topology=Topology(highest_tier=2))
    world.groups.put(group)
    decision = world.decide(*of_parts(counts))
    assert len(decision.assigned) == expected
    where: dict[Any, set[str]] = {}
    for one in decision.assigned:
        where.setdefault(part_of(group, one.pod), set()).add(one.node[0])
    assert all(len(racks) == 1 for racks in where.values())


def test_a_part_grows_where_it_is() -> None:
    world = of_racks({"a": 2, "b": 2})
    world.groups.put(Group(GroupKey("here", "g"), min_count=1, parts=in_parts(2, 1), topology=Topology(highest_tier=2)))
    world.running(pod("x0", group="g", labels={"part": "x"}), "a0")
    assert placed(world.decide(pod("x1", group="g", labels={"part": "x"}))) == {"x1": "a1"}
    assert not world.decide(pod("x2", group="g", labels={"part": "x"})).assigned, "its rack is full"


def test_an_important_member_of_a_lesser_job_is_not_evicted() -> None:
    world = world_of(node("n0", cpu=2))
    shielded = Group(GroupKey("here", "low"), priority=1, shields_important=True)
    world.groups.put(shielded)
    world.running(pod("important", cpu=1, priority=9, group="low"), "n0")
    world.running(pod("common", cpu=1, priority=0, group="low"), "n0")
    world.groups.put(Group(GroupKey("here", "g"), priority=9))
    decision = world.decide(pod("p", cpu=1, priority=9, group="g"))
    assert [victim.key.name for victim in decision.victims] == ["common"]
    assert not world.decide(pod("q", cpu=2, priority=9, group="g")).victims


def test_a_member_that_is_started_anew_does_not_wait_for_those_that_are_done() -> None:
    groups, cluster = PodGroups(), ClusterState()
    engine = Engine({DEFAULT_SCHEDULER: default_profile(Shared(groups))}, cluster, groups)
    engine.take(None, stored(core.NODE, a_node("n0").cpu(4).document()), 0.0)
    engine.take(None, stored(volcano.POD_GROUP, a_pod_group("g").min_member(2).document()), 0.0)
    worker = a_pod("done").in_group("g").cpu(1).on_node("n0")
    engine.take(None, stored(core.POD, worker.phase("Running").document()), 0.0)
    engine.take(
        stored(core.POD, worker.phase("Running").document()),
        stored(core.POD, worker.phase("Succeeded").document()),
        1.0,
    )
    engine.take(None, stored(core.POD, a_pod("again").in_group("g").cpu(1).document()), 2.0)
    decision = engine.step(2.0)
    assert isinstance(decision, Decision)
    assert placed(decision) == {"again": "n0"}


@pytest.mark.parametrize("where", ["annotations", "labels"])
@pytest.mark.parametrize("asks", [{}, {"group": "high"}], ids=["for a pod", "for a gang"])
def test_a_pod_or_group_that_is_not_preemptable_is_never_evicted(where: str, asks: dict[str, str]) -> None:
    groups, cluster = PodGroups(), ClusterState()
    engine = Engine({DEFAULT_SCHEDULER: default_profile(Shared(groups))}, cluster, groups)
    kept = {"volcano.sh/preemptable": "false"}

    def marked(document: dict[str, Any], said: Mapping[str, str]) -> dict[str, Any]:
        document["metadata"].setdefault(where, {}).update(said)
        return document

    for number in range(3):
        engine.take(None, stored(core.NODE, a_node(f"n{number}").cpu(1).document()), 0.0)
    engine.take(None, stored(volcano.POD_GROUP, marked(a_pod_group("low").min_member(1).document(), kept)), 0.0)
    running = [a_pod(f"low{number}").cpu(1).on_node(f"n{number}").phase("Running") for number in range(3)]
    first = stored(core.POD, marked(running[0].document(), kept))
    engine.take(None, first, 0.0)
    engine.take(None, stored(core.POD, running[1].in_group("low").document()), 0.0)
    last = stored(core.POD, marked(running[2].document(), {"volcano.sh/preemptable": "true"}))
    engine.take(None, last, 0.0)
    engine.take(None, stored(volcano.POD_GROUP, a_pod_group("high").min_member(1).document()), 0.0)

    def preempt(name: str) -> list[str]:
        wants = a_pod(name).cpu(1).set(9, "spec", "priority")
        engine.take(None, stored(core.POD, (wants.in_group("high") if asks else wants).document()), 0.0)
        decision = engine.step(0.0)
        assert isinstance(decision, Decision)
        for victim in decision.victims:
            engine.take(last if victim.uid == "low2" else first, None, 0.0)
        return [victim.uid for victim in decision.victims]

    assert preempt("one") == ["low2"]
    assert preempt("two") == []
    engine.take(first, stored(core.POD, running[0].document()), 0.0)
    assert preempt("three") == ["low0"], "it says so no longer"


def stored(kind: Kind, document: dict[str, Any]) -> Object:
    document["metadata"]["uid"] = document["metadata"]["name"]
    return Object(kind, msgspec.json.encode(document))
