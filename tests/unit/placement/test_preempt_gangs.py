"""Preemption for gangs: all of it has a place, or nobody is evicted."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.placement.preempt_worlds import World, names, node, pod

from muster.cluster.groups import Group, GroupKey
from muster.cluster.pods import PodInfo
from muster.cluster.trial import Trial
from muster.placement.framework import Code, Status
from muster.placement.judging import Judgement
from muster.placement.preempting import (
    Budgets,
    Candidate,
    ExtenderFailed,
    GangPreemption,
    GangPreemptor,
    NoPreemption,
    Ongoing,
    Options,
    PreemptionExtender,
    Protected,
    find_for_gang,
)


def gang_of(world: World, count: int, cpu: int = 1, priority: int = 5) -> list[PodInfo]:
    return [world.info(pod(f"member{number}", cpu=cpu, priority=priority)) for number in range(count)]


def first_fit(world: World, members: Sequence[PodInfo], least: int) -> Callable[[Trial], Status]:
    def place(trial: Trial) -> Status:
        placed = 0
        for member in members:
            slots = np.flatnonzero(world.judge(member).feasible)
            if slots.size:
                trial.assign(member, world.cluster.names[int(slots[0])])
                placed += 1
        return Status() if placed >= least else Status(Code.UNSCHEDULABLE, ("too few",))

    return place


def search(world: World, members: list[PodInfo], least: int | None = None, domain=None, **rules: Any):
    judgements: dict[int, Judgement] = {}

    def judge(member: PodInfo) -> Judgement:
        return judgements.setdefault(id(member.shape), world.judge(member))

    before = {uid: where for uid, (_, where) in world.cluster.pods.items()}
    preemptor = GangPreemptor.of(members)
    place = first_fit(world, members, len(members) if least is None else least)
    found = find_for_gang(
        preemptor, place, judge, world.cluster, Budgets(), Options(groups=world.groups, **rules), domain
    )
    assert {uid: where for uid, (_, where) in world.cluster.pods.items()} == before
    return found


def test_victims_for_all_members_are_found_at_once() -> None:
    world = World(node("n", cpu=2), node("m", cpu=2))
    for where in "nm":
        world.put(where, pod(f"low-{where}", priority=1))
        world.put(where, pod(f"lower-{where}"))
    found = search(world, gang_of(world, 2, cpu=1))
    assert isinstance(found, GangPreemption)
    assert sorted(found.nodes.values()) == ["n", "n"]  # both fit on the first node once it is empty
    assert sorted(names(found.victims)) == ["low-n", "lower-n"]


def test_nobody_is_evicted_for_a_gang_that_still_has_no_place() -> None:
    world = World(node("n", cpu=2))
    world.put("n", pod("low", cpu=2))
    found = search(world, gang_of(world, 3))
    assert found == NoPreemption(Status(Code.UNSCHEDULABLE, ("too few",)))


def test_only_the_domain_is_cleared() -> None:
    world = World(node("n", cpu=1), node("m", cpu=1))
    world.put("n", pod("a"))
    world.put("m", pod("b"))
    domain = world.cluster.mask()
    domain[world.cluster.slots["m"]] = True
    found = search(world, gang_of(world, 1), domain=domain)
    assert isinstance(found, GangPreemption)
    assert names(found.victims) == ["b"]


def test_members_beyond_the_minimum_may_be_left_out() -> None:
    world = World(node("n", cpu=2))
    world.put("n", pod("low", cpu=2))
    found = search(world, gang_of(world, 3), least=2)
    assert isinstance(found, GangPreemption)
    assert len(found.nodes) == 2


def test_a_group_says_for_itself_whether_it_preempts() -> None:
    world = World()
    members = [world.info(pod("member", priority=3, preemptionPolicy="Never"))]
    group = Group(GroupKey("here", "gang"))
    assert not GangPreemptor.of(members, group).preempts
    assert GangPreemptor.of(members, replace(group, preempts=True, priority=8)) == GangPreemptor(members, 8)
    found = search(world, members)
    assert found == NoPreemption(Status(Code.UNSCHEDULABLE, ("not eligible due to preemptionPolicy=Never.",)))


def test_a_gang_waits_for_the_victims_it_has() -> None:
    world = World(node("n", cpu=1))
    leaving = world.put("n", pod("leaving"))
    world.cluster.assign(replace(leaving, is_terminating=True, is_preempted=True), "n")
    member = replace(gang_of(world, 1)[0], nominated="n")
    found = search(world, [member])
    assert found == Ongoing({member.uid: "n"})


def test_pods_that_are_not_to_be_evicted_stay() -> None:
    world = World(node("a", cpu=1), node("b", cpu=1), node("c", cpu=1))
    for name in "ab":
        world.put(name, pod(f"low-{name}"))
    world.put("c", pod("member-c", group="kept"))
    protected = Protected()
    protected.tell_pod("uid of low-a", is_protected=True, is_placed=True)
    protected.tell_group(GroupKey("here", "kept"), is_protected=True)
    found = search(world, gang_of(world, 1), protected=protected)
    assert isinstance(found, GangPreemption)
    assert names(found.victims) == ["low-b"]
    assert isinstance(search(world, gang_of(world, 2), protected=protected), NoPreemption)
    adds = Says(lambda shown: {n: [*v, "member-c"] for n, v in shown.items()})
    adds.known["member-c"] = world.cluster.pods["uid of member-c"][0]
    refused = search(world, gang_of(world, 1), extenders=[adds], protected=protected)
    assert isinstance(refused, NoPreemption), "not even if an extender wants it"


# Extenders


class Says:
    """An extender that answers as told, and notes what it is asked: the kind of pod, and victims by node."""

    name = "says"
    is_ignorable = False

    def __init__(self, say: Callable[[dict[str, list[str]]], dict[str, list[str]]], **fields: Any) -> None:
        self.say = say
        self.asked: list[tuple[str, dict[str, list[str]]]] = []
        self.known: dict[str, PodInfo] = {}
        self.interest: Callable[[PodInfo], bool] = lambda _: True
        vars(self).update(fields)

    def is_interested(self, pod: PodInfo) -> bool:
        return self.interest(pod)

    def process_preemption(self, pod: PodInfo, candidates: Mapping[str, Candidate]) -> Mapping[str, Candidate]:
        shown = {node: names(candidate.victims) for node, candidate in candidates.items()}
        self.asked.append((pod.key.name, shown))
        self.known |= {victim.key.name: victim for one in candidates.values() for victim in one.victims}
        answer = self.say(shown)
        return {node: Candidate(node, tuple(self.known[name] for name in found)) for node, found in answer.items()}


_: PreemptionExtender = Says(lambda shown: shown)


def three_full_nodes() -> World:
    world = World(*(node(name, cpu=2) for name in "abc"))
    for name in "abc":
        world.put(name, pod(f"low-{name}", cpu=2))
    return world


def test_extenders_are_asked_about_all_nodes_that_a_gang_empties() -> None:
    world, agrees = three_full_nodes(), Says(lambda shown: shown)
    found = search(world, gang_of(world, 2, cpu=2), extenders=[agrees])
    assert isinstance(found, GangPreemption)
    assert agrees.asked == [("member0", {"a": ["low-a"], "b": ["low-b"]})]
    assert names(found.victims) == ["low-a", "low-b"]


def test_nobody_is_evicted_on_a_node_that_an_extender_leaves_out() -> None:
    world, without_a = three_full_nodes(), Says(lambda shown: {n: v for n, v in shown.items() if n != "a"})
    found = search(world, gang_of(world, 2, cpu=2), extenders=[without_a])
    assert isinstance(found, GangPreemption)
    assert sorted(names(found.victims)) == ["low-b", "low-c"]
    assert sorted(found.nodes.values()) == ["b", "c"]
    assert [sorted(shown) for _, shown in without_a.asked] == [["a", "b"], ["b", "c"]]


def test_a_victim_that_an_extender_leaves_out_stays_and_one_that_it_adds_goes() -> None:
    world = World(node("a", cpu=2), node("b", cpu=1))
    for name in ("kept", "other"):
        world.put("a", pod(name))
    extra = world.put("b", pod("extra", priority=3))
    without = Says(lambda shown: {n: [name for name in v if name != "kept"] or ["other"] for n, v in shown.items()})
    without.known["other"] = world.cluster.pods["uid of other"][0]
    found = search(world, gang_of(world, 1), extenders=[without])
    assert isinstance(found, GangPreemption)
    assert names(found.victims) == ["other"]
    assert without.asked[-1] == ("member0", {"a": ["other"]})
    adds = Says(lambda shown: {n: [*v, "extra"] for n, v in shown.items()})
    adds.known["extra"] = extra
    found = search(world, gang_of(world, 1), extenders=[adds])
    assert isinstance(found, GangPreemption)
    assert names(found.victims)[-1] == "extra"


def test_where_extenders_agree_to_too_few_nobody_is_evicted() -> None:
    world, only_a = three_full_nodes(), Says(lambda shown: {n: v for n, v in shown.items() if n == "a"})
    found = search(world, gang_of(world, 2, cpu=2), extenders=[only_a])
    assert isinstance(found, NoPreemption)
    assert found.status == Status(Code.UNSCHEDULABLE, ("extenders agree to no victims whose room would be enough",))


def test_each_kind_of_member_is_asked_about_and_only_those_that_concern_the_extender() -> None:
    world = three_full_nodes()
    members = [*gang_of(world, 2, cpu=2), world.info(pod("small", cpu=1, priority=5))]
    agrees = Says(lambda shown: shown)
    search(world, members, extenders=[agrees])
    assert agrees.asked == [("member0", {"a": ["low-a"], "b": ["low-b"]}), ("small", {"c": ["low-c"]})]
    small = Says(lambda shown: shown, interest=lambda pod: pod.key.name == "small")
    search(world, members, extenders=[small])
    assert small.asked == [("small", {"c": ["low-c"]})]


def test_an_extender_that_fails_stops_the_preemption_or_is_ignored() -> None:
    def fail(_: object) -> Any:
        raise ExtenderFailed("away")

    world = three_full_nodes()
    found = search(world, gang_of(world, 2, cpu=2), extenders=[Says(fail)])
    assert found == NoPreemption(Status(Code.ERROR, ("away",)))
    ignored = search(world, gang_of(world, 2, cpu=2), extenders=[Says(fail, is_ignorable=True)])
    assert isinstance(ignored, GangPreemption)


def test_a_group_that_goes_as_a_whole_is_spared_as_a_whole() -> None:
    world = World(*(node(name, cpu=1) for name in "abc"))
    world.groups.put(Group(GroupKey("here", "whole"), is_evicted_whole=True))
    for name in "ab":
        world.put(name, pod(f"whole-{name}", group="whole"))
    world.put("c", pod("low-c", priority=1))
    without_b = Says(lambda shown: {n: [name for name in v if name != "whole-b"] for n, v in shown.items()})
    found = search(world, gang_of(world, 1), extenders=[without_b])
    assert isinstance(found, GangPreemption)
    assert names(found.victims) == ["low-c"]


@settings(deadline=None, max_examples=60)
@given(st.sets(st.sampled_from("abcd")), st.sets(st.sampled_from([f"{n}{i}" for n in "abcd" for i in range(2)])))
def test_extenders_have_their_way(closed: set[str], kept: set[str]) -> None:
    world = World(*(node(name, cpu=2) for name in "abcd"))
    for name in "abcd":
        for number in range(2):
            world.put(name, pod(f"{name}{number}"))

    def say(shown: dict[str, list[str]]) -> dict[str, list[str]]:
        left = {n: [name for name in v if name not in kept] for n, v in shown.items() if n not in closed}
        return {n: v for n, v in left.items() if v}

    found = search(world, gang_of(world, 3), extenders=[Says(say)])
    open_ = [f"{n}{i}" for n in "abcd" for i in range(2) if n not in closed and f"{n}{i}" not in kept]
    if not kept:  # one that keeps the only victim of a node leaves the node out, and so keeps all of it
        assert isinstance(found, GangPreemption) == (len(open_) >= 3)
    if isinstance(found, GangPreemption):
        assert set(names(found.victims)) <= set(open_)
        assert len(found.victims) == 3


@settings(deadline=None, max_examples=60)
@given(
    capacities=st.lists(st.integers(1, 4), min_size=1, max_size=4),
    low=st.lists(st.tuples(st.integers(0, 3), st.integers(1, 3), st.integers(0, 6)), max_size=10),
    count=st.integers(1, 4),
    whole=st.booleans(),
)
def test_after_the_evictions_the_gang_fits_and_no_victim_could_have_stayed(capacities, low, count, whole) -> None:
    world = World(*(node(f"n{number}", cpu=cpu) for number, cpu in enumerate(capacities)))
    world.groups.put(Group(GroupKey("here", "gang"), is_evicted_whole=whole))
    free = list(capacities)
    for number, (where, cpu, priority) in enumerate(low):
        slot = where % len(capacities)
        if free[slot] >= cpu:
            free[slot] -= cpu
            group = "gang" if number % 3 == 0 else ""
            world.put(f"n{slot}", pod(f"p{number}", cpu=cpu, priority=priority, group=group))
    members = gang_of(world, count)
    found = search(world, members)
    if not isinstance(found, GangPreemption):
        return
    for victim in found.victims:
        world.remove(victim)
        assert victim.priority < 5 or victim.group is not None
    for member in members:
        world.cluster.assign(member, found.nodes[member.uid])
    used = world.cluster.used[world.cluster.resources["cpu"], : len(capacities)]
    assert (used <= world.cluster.allocatable[world.cluster.resources["cpu"], : len(capacities)]).all()
    single = [victim for victim in found.victims if victim.group is None]
    for victim in single:
        slot = next(slot for slot in range(len(capacities)) if f"n{slot}" == homes(low, victim, capacities))
        spare = capacities[slot] - int(used[slot]) // 1000
        assert spare < victim.needs["cpu"] // 1000


def homes(low, victim: PodInfo, capacities: list[int]) -> str:
    where, _, _ = low[int(victim.key.name.removeprefix("p"))]
    return f"n{where % len(capacities)}"
