"""Preemption for one pod, through every filter of a profile."""

from dataclasses import replace

from tests.unit.placement.preempt_worlds import World, names, node, pod

from muster.api.selectors import parse_labels
from muster.cluster.groups import Group, GroupKey
from muster.placement.framework import Code
from muster.placement.preempting import (
    Budget,
    Budgets,
    Candidate,
    ExtenderFailed,
    NoPreemption,
    Options,
    Preemption,
    Rank,
    find,
    ineligibility,
)
from muster.placement.preempting.candidates import best
from muster.placement.preempting.victims import gather, priority_of

NO_BUDGETS = Budgets()


def search(world: World, wanted, budgets: Budgets = NO_BUDGETS, **options) -> Preemption | NoPreemption:
    preemptor = world.info(wanted)
    before = {uid: where for uid, (_, where) in world.cluster.pods.items()}
    found = find(preemptor, world.judge(preemptor), world.cluster, budgets, Options(groups=world.groups, **options))
    assert {uid: where for uid, (_, where) in world.cluster.pods.items()} == before
    return found


def test_as_many_as_possible_stay_the_most_important_first() -> None:
    world = World(node("n", cpu=4))
    world.put("n", pod("old", started=1))
    world.put("n", pod("new", started=9))
    world.put("n", pod("low", priority=-1))
    world.put("n", pod("same", priority=5))
    found = search(world, pod("preemptor", cpu=2, priority=5))
    assert isinstance(found, Preemption)
    assert names(found.victims) == ["new", "low"]


def test_obstacles_other_than_resources_are_removed_too() -> None:
    world = World(node("n", labels={"name": "n"}))
    term = {"topologyKey": "name", "labelSelector": {"matchLabels": {"app": "loud"}}}
    anti = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    world.put("n", pod("quiet"))
    world.put("n", pod("loud", labels={"app": "loud"}, priority=3))
    found = search(world, pod("preemptor", priority=5, affinity=anti))
    assert isinstance(found, Preemption)
    assert names(found.victims) == ["loud"]


def test_a_budget_moves_the_eviction_to_another_pod_and_then_to_another_node() -> None:
    world = World(node("n", cpu=2), node("m", cpu=1))
    world.put("n", pod("covered", labels={"app": "a"}))
    world.put("n", pod("free", priority=3))
    world.put("m", pod("dear", priority=4))
    budgets = Budgets([Budget("here", parse_labels("app=a"), 0)])
    found = search(world, pod("preemptor", priority=5), budgets)
    assert isinstance(found, Preemption)
    assert (found.node, names(found.victims)) == ("n", ["free"])
    both = search(world, pod("preemptor", cpu=2, priority=5), budgets)
    assert isinstance(both, Preemption)
    assert (both.node, names(both.victims), both.violations) == ("n", ["free", "covered"], 1)


def test_it_says_why_nobody_can_be_evicted() -> None:
    world = World(node("full", cpu=1), node("small", cpu=1), node("away", cordoned=True), node("short", cpu=3))
    world.put("full", pod("high", priority=9))
    world.put("short", pod("higher", cpu=2, priority=9))
    world.put("short", pod("lower", cpu=1))
    found = search(world, pod("preemptor", cpu=2, priority=5))
    assert isinstance(found, NoPreemption)
    assert found.status.reasons == (
        "0/4 nodes are available: 1 Insufficient cpu, 3 Preemption is not helpful for scheduling.",
    )
    assert found.clears_nomination


def test_who_must_not_or_need_not_preempt() -> None:
    world = World(node("n", cpu=1))
    leaving = world.put("n", pod("leaving"))
    world.cluster.assign(replace(leaving, is_terminating=True, is_preempted=True), "n")
    promised = replace(world.info(pod("p", priority=5)), nominated="n")
    assert ineligibility(promised, world.cluster) == "not eligible due to a terminating pod on the nominated node."
    assert ineligibility(promised, world.cluster, is_hopeless=True) is None
    assert ineligibility(replace(promised, nominated="gone"), world.cluster) is None
    never = world.info(pod("p", priority=5, preemptionPolicy="Never"))
    assert ineligibility(never, world.cluster) == "not eligible due to preemptionPolicy=Never."


def test_a_group_that_is_evicted_whole_costs_all_its_pods() -> None:
    world = World(node("n", cpu=1), node("m", cpu=2))
    world.groups.put(Group(GroupKey("here", "gang"), is_evicted_whole=True))
    world.put("n", pod("g0", group="gang"))
    world.put("m", pod("g1", cpu=2, group="gang"))
    found = search(world, pod("preemptor", priority=5))
    assert isinstance(found, Preemption)
    assert sorted(names(found.victims)) == ["g0", "g1"]
    world.put("n", pod("single"))
    world.cluster.node_changed(node("n", cpu=2))
    cheaper = search(world, pod("preemptor", priority=5))
    assert isinstance(cheaper, Preemption)
    assert names(cheaper.victims) == ["single"]


def test_groups_decide_the_priority_and_the_extent_of_a_victim() -> None:
    world = World(node("n", cpu=9))
    top = GroupKey("here", "top", is_composite=True)
    world.groups.put(Group(top, priority=7, is_evicted_whole=True))
    world.groups.put(Group(GroupKey("here", "leaf"), priority=1, parent=top))
    inside = [world.put("n", pod(f"leaf{number}", group="leaf", started=number)) for number in range(2)]
    outside = world.put("n", pod("stray", group="not known", priority=2))
    one, other = gather(world.cluster.pods_on[0].values(), world.cluster, world.groups)
    assert (one.priority, one.rank, len(one.pods), one.started) == (7, Rank.COMPOSITE, 2, inside[0].started)
    assert (other.priority, other.rank, other.pods) == (2, Rank.GROUP, (outside,))
    assert priority_of(inside[1], world.groups) == 7


def test_the_cheapest_candidate_is_chosen_rule_by_rule() -> None:
    world = World()
    cheap, dear = world.info(pod("cheap", priority=1)), world.info(pod("dear", priority=2))
    negative = world.info(pod("negative", priority=-9))
    early, late = world.info(pod("early", started=1)), world.info(pod("late", started=2))

    def wins(one: Candidate, other: Candidate) -> bool:
        return best([one, other]) is one and best([other, one]) is one

    assert wins(Candidate("a", (dear, dear)), Candidate("b", (cheap,), violations=1))
    assert wins(Candidate("a", (cheap, cheap)), Candidate("b", (dear,)))
    assert wins(Candidate("a", (cheap,)), Candidate("b", (cheap, negative)))
    assert wins(Candidate("a", (late,)), Candidate("b", (early,)))
    assert best([Candidate("first", (late,)), Candidate("second", (late,))]) == Candidate("first", (late,))


class Extender:
    name = "outside"

    def __init__(self, answer, is_ignorable: bool = False) -> None:
        self.is_ignorable, self._answer = is_ignorable, answer

    def is_interested(self, pod) -> bool:
        return True

    def process_preemption(self, pod, candidates):
        return self._answer(candidates)


def fails(_candidates):
    raise ExtenderFailed("no answer within 5 s")


def test_extenders_may_veto_and_liars_are_found_out() -> None:
    world = World(node("n", cpu=1), node("m", cpu=1))
    world.put("n", pod("a"))
    world.put("m", pod("b"))

    def ask(*extenders: Extender) -> Preemption | NoPreemption:
        return search(world, pod("preemptor", priority=5), extenders=extenders)

    only_m = Extender(lambda candidates: {"m": candidates["m"]})
    assert getattr(ask(only_m), "node", None) == "m"
    assert getattr(ask(Extender(fails, is_ignorable=True), only_m), "node", None) == "m"
    for liar, said in (
        (Extender(fails), "no answer within 5 s"),
        (Extender(lambda _candidates: {"x": Candidate("x", ())}), "nodes it was not asked about"),
        (Extender(lambda candidates: {"m": Candidate("m", ())}), "expected at least one victim"),
    ):
        found = ask(liar)
        assert isinstance(found, NoPreemption)
        assert found.status.code is Code.ERROR
        assert said in found.status.reasons[0]
    nobody = ask(Extender(lambda _candidates: {}))
    assert isinstance(nobody, NoPreemption)
    assert nobody.status.reasons == ("no candidate node for preemption",)


def test_without_nodes_there_is_nothing_to_find() -> None:
    found = search(World(), pod("preemptor", priority=5))
    assert isinstance(found, NoPreemption)
    assert found.status.code is Code.ERROR
