"""Preemption for gangs: all of it has a place, or nobody is evicted."""

from collections.abc import Callable, Sequence
from dataclasses import replace

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
    GangPreemption,
    GangPreemptor,
    NoPreemption,
    Ongoing,
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


def search(world: World, members: list[PodInfo], least: int | None = None, domain=None):
    judgements: dict[int, Judgement] = {}

    def judge(member: PodInfo) -> Judgement:
        return judgements.setdefault(id(member.shape), world.judge(member))

    before = {uid: where for uid, (_, where) in world.cluster.pods.items()}
    preemptor = GangPreemptor.of(members)
    place = first_fit(world, members, len(members) if least is None else least)
    found = find_for_gang(preemptor, place, judge, world.cluster, Budgets(), world.groups, domain)
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
