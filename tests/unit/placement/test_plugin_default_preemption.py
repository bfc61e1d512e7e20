from dataclasses import replace

import pytest
from tests.unit.placement.preempt_worlds import World, node, pod

from muster.cluster.groups import Group, GroupKey, PodGroups
from muster.placement.framework import Code, Hint
from muster.placement.plugins.default_preemption import (
    DefaultPreemption,
    DefaultPreemptionArgs,
    Evictions,
    worded_for_gang,
)
from muster.placement.preempting import Budgets, GangPreemption, Preemption


def test_arguments_have_kubernetes_names_and_defaults() -> None:
    assert DefaultPreemptionArgs.from_document({}) == DefaultPreemptionArgs(10, 100)
    given = {"kind": "DefaultPreemptionArgs", "minCandidateNodesPercentage": 0, "minCandidateNodesAbsolute": 7}
    assert DefaultPreemptionArgs.from_document(given) == DefaultPreemptionArgs(0, 7)


@pytest.mark.parametrize(
    ("document", "paths"),
    [
        ({"minCandidateNodesPercentage": 101}, ["minCandidateNodesPercentage"]),
        ({"minCandidateNodesAbsolute": -1}, ["minCandidateNodesAbsolute"]),
        (
            {"minCandidateNodesPercentage": 0, "minCandidateNodesAbsolute": 0},
            ["minCandidateNodesPercentage", "minCandidateNodesAbsolute"],
        ),
        ({"minCandidateNodesPercentage": "10"}, ["minCandidateNodesPercentage"]),
        ({"minCandidates": 3}, ["minCandidates"]),
    ],
)
def test_wrong_arguments_are_named(document, paths: list[str]) -> None:
    errors = DefaultPreemptionArgs.from_document(document)
    assert isinstance(errors, list)
    assert [error.path for error in errors] == paths


@pytest.mark.parametrize(
    ("nodes", "percentage", "absolute", "limit"), [(5000, 10, 100, 500), (300, 10, 100, 100), (40, 10, 100, 40)]
)
def test_how_many_candidates_are_enough(nodes: int, percentage: int, absolute: int, limit: int) -> None:
    plugin = DefaultPreemption(DefaultPreemptionArgs(percentage, absolute))
    assert plugin.options().limit(nodes) == limit


def test_pods_that_others_are_evicted_for_stay_out_of_the_queue() -> None:
    world, evictions, groups = World(), Evictions(), PodGroups()
    top = GroupKey("here", "top", is_composite=True)
    groups.put(Group(top))
    groups.put(Group(GroupKey("here", "leaf"), parent=top))
    plugin = DefaultPreemption(groups=groups, evictions=evictions)
    single, member = world.info(pod("single")), world.info(pod("member", group="leaf"))
    stray = world.info(pod("stray", group="unknown"))
    assert {plugin.pre_enqueue(each).code for each in (single, member, stray)} == {Code.SUCCESS}
    evictions.pods |= {single.uid, stray.uid}
    evictions.groups.add(top)
    assert plugin.pre_enqueue(single).reasons == ("waiting for the preemption for this pod to be finished",)
    assert plugin.pre_enqueue(member).reasons == ("waiting for the preemption for this pod group to be finished",)
    assert plugin.pre_enqueue(stray).is_success
    (wake,) = plugin.wakes()
    assert wake.hint is not None
    assert wake.hint(single, None, None, world.cluster) is Hint.SKIP


def test_what_was_found_is_told_in_kubernetes_words() -> None:
    world = World(node("n", cpu=1))
    world.put("n", pod("low"))
    preemptor = world.info(pod("preemptor", priority=5))
    told = DefaultPreemption().post_filter(preemptor, world.judge(preemptor), world.cluster, Budgets())
    assert isinstance(told.outcome, Preemption)
    assert told.status.reasons == ("preemption: found a potential placement for pod on node n, preempting 1 victims",)
    member = replace(preemptor, group=world.info(pod("x", group="gang")).group)
    refused = DefaultPreemption().post_filter(member, world.judge(member), world.cluster, Budgets())
    assert refused.status.reasons == ("preemption: not eligible due to workload aware preemption enabled",)
    assert worded_for_gang(GangPreemption(told.outcome.victims, {})).reasons == (
        "pod group preemption: found a placement for podgroup, preempting 1 victims",
    )
