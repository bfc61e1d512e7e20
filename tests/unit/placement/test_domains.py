"""Which part of the cluster a gang goes to, and the same said in loops."""

from collections.abc import Sequence

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.api import core, volcano
from muster.cluster.groups import Mode, Topology
from muster.cluster.state import ClusterState
from muster.placement.domains import (
    ANYWHERE,
    Demand,
    Domain,
    LabelLevel,
    Level,
    NoDomain,
    Requirement,
    TreeLevel,
    candidates,
    choose_domain,
    fill,
    fill_all,
    pods_per_node,
)
from muster.placement.hypernodes import HyperNodes
from muster.testing.builders import a_node

REQUIRED, SOFT = Requirement(Mode.REQUIRED), Requirement(Mode.SOFT)


def cluster_of(nodes: Sequence[tuple[int, dict[str, str]]]) -> ClusterState:
    """Nodes n0, n1, ... by their GPUs and labels."""
    state = ClusterState()
    for number, (gpus, labels) in enumerate(nodes):
        builder = a_node(f"n{number}").resource("nvidia.com/gpu", gpus)
        for key, value in labels.items():
            builder = builder.label(key, value)
        state.node_changed(msgspec.convert(builder.document(), core.Node))
    return state


def racks(*sizes: Sequence[int]) -> ClusterState:
    """One rack a list of nodes' GPUs, two racks a block."""
    return cluster_of(
        [(gpus, {"rack": f"r{rack}", "block": f"b{rack // 2}"}) for rack, nodes in enumerate(sizes) for gpus in nodes]
    )


def gpus(cluster: ClusterState, each: int, count: int = 1) -> Demand:
    return Demand({"nvidia.com/gpu": each, "pods": 1}, count, cluster.mask(True))


def levels_of(cluster: ClusterState, *keys: str) -> list[Level]:
    return [LabelLevel.of(cluster, key) for key in keys]


def choose(cluster: ClusterState, need: int, requirement: Requirement = REQUIRED, each: int = 1) -> Domain | NoDomain:
    levels = levels_of(cluster, "block", "rack")
    return choose_domain(pods_per_node(cluster, gpus(cluster, each)), levels, need, requirement)


def names(cluster: ClusterState, domain: Domain | NoDomain) -> list[str]:
    assert isinstance(domain, Domain), domain
    return [name for slot, name in enumerate(cluster.names) if domain.nodes[slot]]


def test_the_narrowest_level_that_holds_the_gang_and_in_it_the_tightest_fit() -> None:
    cluster = racks([8, 8], [4, 4], [8], [8, 8, 8])
    found = choose(cluster, 8)
    assert isinstance(found, Domain)
    assert (found.level, found.name, found.capacity) == ("rack", "r1", 8)
    assert names(cluster, choose(cluster, 24)) == ["n5", "n6", "n7"]
    wide = choose(cluster, 30)
    assert isinstance(wide, Domain)
    assert (wide.level, wide.name) == ("block", "b1")


def test_a_required_level_bounds_how_wide_it_may_be() -> None:
    cluster = racks([8, 8], [4, 4])
    found = choose(cluster, 20, Requirement(Mode.REQUIRED, widest=1))
    assert str(found) == "no topology domain holds 20 pods (rack: at most 16 in r0)"
    assert isinstance(choose(cluster, 20, Requirement(Mode.REQUIRED, widest=0)), Domain)


@pytest.mark.parametrize("mode", [Mode.SOFT, Mode.PREFERRED])
def test_without_a_requirement_it_goes_wider_and_at_last_anywhere(mode: Mode) -> None:
    cluster = racks([8], [8], [8], [8])
    assert names(cluster, choose(cluster, 16, Requirement(mode, 1))) == ["n0", "n1"]
    found = choose(cluster, 32, Requirement(mode, 1))
    assert isinstance(found, Domain)
    assert (found.is_whole_cluster, found.level, found.capacity) == (True, ANYWHERE, 32)
    assert str(choose(cluster, 33, Requirement(mode, 1))).endswith("; the cluster: at most 32 in all nodes)")


def test_members_that_run_already_pin_the_domain() -> None:
    cluster = racks([8], [8, 8], [1])
    counts, levels = pods_per_node(cluster, gpus(cluster, 1)), levels_of(cluster, "rack")
    assert names(cluster, choose_domain(counts, levels, 2, REQUIRED, np.array([1]))) == ["n1", "n2"]
    apart = choose_domain(counts, levels, 2, REQUIRED, np.array([0, 1]))
    assert str(apart) == "no topology domain holds 2 pods (rack: no such domain)"


def test_nodes_without_the_label_are_in_no_domain() -> None:
    cluster = cluster_of([(8, {}), (2, {"rack": "a"})])
    counts = pods_per_node(cluster, gpus(cluster, 1))
    assert isinstance(choose_domain(counts, levels_of(cluster, "rack"), 3, REQUIRED), NoDomain)
    assert isinstance(choose_domain(counts, levels_of(cluster, "nobody"), 1, REQUIRED), NoDomain)


def test_what_no_node_has_fits_nowhere_and_what_nobody_needs_limits_nothing() -> None:
    cluster = racks([8])
    assert pods_per_node(cluster, Demand({"fpga": 1}, 1, cluster.mask(True))).tolist() == [0]
    assert pods_per_node(cluster, Demand({"fpga": 0, "pods": 1}, 1, cluster.mask(True))).tolist() == [110]
    assert pods_per_node(cluster, Demand({"pods": 1}, 1, cluster.mask(False))).tolist() == [0]


def test_shapes_that_fit_alone_but_not_together_do_not_count() -> None:
    cluster = racks([4, 4], [6, 6])
    demands = [gpus(cluster, 4, count=2), gpus(cluster, 1, count=1)]
    found = next(candidates(cluster, demands, levels_of(cluster, "rack"), REQUIRED))
    assert names(cluster, found) == ["n2", "n3"]
    demands = [gpus(cluster, 4, count=2), gpus(cluster, 1, count=5)]
    assert isinstance(next(candidates(cluster, demands, levels_of(cluster, "rack"), REQUIRED)), NoDomain)
    assert isinstance(next(candidates(cluster, demands, levels_of(cluster, "rack"), SOFT)), Domain)


def test_large_pods_are_filled_before_small_ones() -> None:
    cluster = racks([4, 4])
    demands = [gpus(cluster, 1, count=4), gpus(cluster, 4, count=1)]
    filled = fill_all(cluster, demands, cluster.mask(True))
    assert filled is not None
    assert [counts.tolist() for counts in filled] == [[0, 4], [1, 0]]


# Against loops

LABELS = st.fixed_dictionaries(
    {}, optional={"block": st.sampled_from("ab"), "rack": st.sampled_from("wxyz"), "host": st.sampled_from("1234567")}
)
NODES = st.lists(st.tuples(st.integers(0, 6), LABELS), min_size=1, max_size=12)


def plain_counts(cluster: ClusterState, demand: Demand) -> list[int]:
    found = []
    for slot in range(cluster.width):
        fits = [
            (cluster.allocatable[cluster.resources[r], slot] - cluster.used[cluster.resources[r], slot]) // need
            for r, need in demand.needs.items()
        ]
        found.append(max(0, int(min(fits))) if demand.feasible[slot] and cluster.exists[slot] else 0)
    return found


def plain_choice(
    cluster: ClusterState, counts: list[int], keys: list[str], need: int, requirement: Requirement, pinned: list[int]
) -> tuple[str, int] | None:
    """(level, capacity) of the choice."""
    last = requirement.widest if requirement.mode is Mode.REQUIRED else 0
    for key in reversed(keys[last:]):
        domains: dict[str, list[int]] = {}
        for slot, node in enumerate(cluster.nodes):
            value = (node.metadata.labels or {}).get(key) if node else None
            if value is not None:
                domains.setdefault(value, []).append(slot)
        fitting = [
            sum(counts[slot] for slot in slots)
            for slots in domains.values()
            if set(pinned) <= set(slots) and sum(counts[slot] for slot in slots) >= need
        ]
        if fitting:
            return key, min(fitting)
    if requirement.mode is not Mode.REQUIRED and sum(counts) >= need:
        return ANYWHERE, sum(counts)
    return None


@settings(max_examples=75)
@given(data=st.data(), nodes=NODES, need=st.integers(1, 20), each=st.integers(1, 3))
def test_choice_agrees_with_loops(
    data: st.DataObject, nodes: list[tuple[int, dict[str, str]]], need: int, each: int
) -> None:
    cluster = cluster_of(nodes)
    for number in data.draw(st.sets(st.integers(0, len(nodes) - 1), max_size=2)):
        cluster.node_removed(f"n{number}")
    demand = gpus(cluster, each)
    demand.feasible[data.draw(st.integers(0, cluster.width - 1))] = False
    requirement = Requirement(data.draw(st.sampled_from(Mode)), data.draw(st.integers(0, 2)))
    pinned = data.draw(st.lists(st.integers(0, cluster.width - 1), max_size=2))
    counts = pods_per_node(cluster, demand)
    assert counts.tolist() == plain_counts(cluster, demand)
    keys = ["block", "rack", "host"]
    label_levels = levels_of(cluster, *keys)
    slots = np.array(pinned, dtype=np.intp)
    wanted = plain_choice(cluster, counts.tolist(), keys, need, requirement, pinned)
    for levels in (label_levels, [as_tree(level, cluster) for level in label_levels]):
        found = choose_domain(counts, levels, need, requirement, slots)
        assert ((found.level, found.capacity) if isinstance(found, Domain) else None) == wanted
        if isinstance(found, Domain):
            assert int(counts[found.nodes].sum()) == found.capacity
            assert found.is_whole_cluster or found.nodes[slots].all()
        else:
            assert all(count < need for _, _, count in found.best)


def as_tree(level: Level, cluster: ClusterState) -> TreeLevel:
    members = {level.domain(number): np.flatnonzero(level.nodes(number)) for number in range(level.size)}
    return TreeLevel.of(level.name, members, cluster.width)


@given(counts=st.lists(st.integers(0, 9), max_size=10), need=st.integers(0, 60), seed=st.randoms(use_true_random=False))
def test_filling_takes_nodes_in_order_and_all_or_nothing(counts: list[int], need: int, seed: object) -> None:
    order = list(range(len(counts)))
    seed.shuffle(order)  # type: ignore[attr-defined]
    found = fill(np.array(counts, dtype=np.int64), need, np.array(order, dtype=np.intp))
    wanted, left = [0] * len(counts), need
    for slot in order:
        wanted[slot] = min(left, counts[slot])
        left -= wanted[slot]
    assert (found.tolist() if found is not None else None) == (wanted if left == 0 else None)


@given(nodes=NODES, shapes=st.lists(st.tuples(st.integers(1, 4), st.integers(1, 4)), min_size=1, max_size=3))
def test_filling_several_shapes_never_overfills(
    nodes: list[tuple[int, dict[str, str]]], shapes: list[tuple[int, int]]
) -> None:
    cluster = cluster_of(nodes)
    demands = [gpus(cluster, each, count) for each, count in shapes]
    filled = fill_all(cluster, demands, cluster.mask(True))
    if filled is None:
        return
    assert [int(counts.sum()) for counts in filled] == [demand.count for demand in demands]
    used = sum(counts * demand.needs["nvidia.com/gpu"] for counts, demand in zip(filled, demands, strict=True))
    assert all(used[slot] <= nodes[slot][0] for slot in range(len(nodes)))  # type: ignore[index]


@given(nodes=NODES, shapes=st.lists(st.tuples(st.integers(1, 4), st.integers(1, 4)), min_size=2, max_size=3))
def test_a_domain_chosen_for_several_shapes_holds_them(
    nodes: list[tuple[int, dict[str, str]]], shapes: list[tuple[int, int]]
) -> None:
    cluster = cluster_of(nodes)
    demands, levels = [gpus(cluster, each, count) for each, count in shapes], levels_of(cluster, "block", "rack")
    found = next(candidates(cluster, demands, levels, REQUIRED))
    if isinstance(found, Domain):
        assert fill_all(cluster, demands, found.nodes) is not None
        return
    for level in levels:
        for number in range(level.size):
            assert fill_all(cluster, demands, level.nodes(number)) is None


# HyperNodes


def hypernode(name: str, tier: int, *members: dict[str, object], **more: object) -> volcano.HyperNode:
    document = {"metadata": {"name": name, **more}, "spec": {"tier": tier, "members": list(members)}}
    return msgspec.convert(document, volcano.HyperNode)


def member(kind: str, how: str, what: object) -> dict[str, object]:
    word = {"exactMatch": "name", "regexMatch": "pattern"}
    return {"type": kind, "selector": {how: {word[how]: what} if how in word else what}}


def test_hypernodes_are_levels_from_the_highest_tier_down() -> None:
    cluster = cluster_of([(8, {"leaf": "c"} if number > 3 else {}) for number in range(6)])
    tree = HyperNodes(
        [
            hypernode("top", 3, member("HyperNode", "regexMatch", "^spine-")),
            hypernode(
                "spine-0", 2, member("HyperNode", "exactMatch", "leaf-a"), member("HyperNode", "exactMatch", "leaf-b")
            ),
            hypernode("spine-1", 2, member("HyperNode", "labelMatch", {"matchLabels": {"spine": "1"}})),
            hypernode("leaf-a", 1, member("Node", "exactMatch", "n0"), member("Node", "exactMatch", "n1")),
            hypernode("leaf-b", 1, member("Node", "regexMatch", "^n[23]$")),
            hypernode("leaf-c", 1, member("Node", "labelMatch", {"matchLabels": {"leaf": "c"}}), labels={"spine": "1"}),
        ],
        cluster,
    )
    assert tree.problems == []
    assert tree.tiers == (3, 2, 1)
    assert [sorted(level.names) for level in tree.levels] == [
        ["top"],
        ["spine-0", "spine-1"],
        ["leaf-a", "leaf-b", "leaf-c"],
    ]
    assert {name: tree.slots(name).tolist() for name in ("leaf-b", "spine-0", "spine-1", "top")} == {
        "leaf-b": [2, 3],
        "spine-0": [0, 1, 2, 3],
        "spine-1": [4, 5],
        "top": [0, 1, 2, 3, 4, 5],
    }
    counts = pods_per_node(cluster, gpus(cluster, 8))
    for need, highest, wanted in [(2, 1, "leaf-a"), (3, 2, "spine-0"), (3, 1, None), (5, 3, "top"), (5, None, "top")]:
        requirement = tree.requirement(Topology(Mode.REQUIRED, highest_tier=highest))
        found = choose_domain(counts, tree.levels, need, requirement)
        assert (found.name if isinstance(found, Domain) else None) == wanted


def test_label_expressions_choose_nodes_too() -> None:
    cluster = cluster_of([(1, {"leaf": leaf}) for leaf in "abc"])
    expression = {"matchExpressions": [{"key": "leaf", "operator": "NotIn", "values": ["b"]}]}
    tree = HyperNodes([hypernode("h", 1, member("Node", "labelMatch", expression))], cluster)
    assert tree.slots("h").tolist() == [0, 2]


def test_a_tier_may_be_named() -> None:
    cluster = cluster_of([(1, {})])
    named = msgspec.convert({"metadata": {"name": "h"}, "spec": {"tier": 4, "tierName": "island"}}, volcano.HyperNode)
    tree = HyperNodes([named, hypernode("i", 5)], cluster)
    assert [level.name for level in tree.levels] == ["tier 5", "island"]
    assert tree.requirement(Topology(highest_tier_name="island")) == Requirement(Mode.REQUIRED, 1)
    assert tree.requirement(Topology(highest_tier_name="nobody")) == Requirement(Mode.SOFT)
    assert tree.requirement(Topology()) == Requirement(Mode.SOFT)
    assert tree.requirement(Topology(highest_tier=5)) == Requirement(Mode.REQUIRED, 0)
    assert tree.requirement(Topology(highest_tier=6)) == Requirement(Mode.SOFT)  # above all there is: all nodes
    assert tree.requirement(Topology(highest_tier=3)) == Requirement(Mode.REQUIRED, 2)
    assert tree.requirement(Topology(Mode.SOFT, highest_tier=4)) == Requirement(Mode.SOFT, 0)


def test_a_broken_tree_is_used_as_far_as_it_goes_and_says_what_is_wrong() -> None:
    cluster = cluster_of([(1, {}), (1, {})])
    tree = HyperNodes(
        [
            hypernode("a", 1, member("HyperNode", "exactMatch", "b"), member("Node", "exactMatch", "n0")),
            hypernode("b", 2, member("HyperNode", "exactMatch", "a"), member("Node", "exactMatch", "n1")),
            hypernode("self", 1, member("HyperNode", "exactMatch", "self")),
            hypernode("bad", 1, member("Node", "regexMatch", "(")),
            hypernode("gone", 1, member("Node", "exactMatch", "n9"), member("HyperNode", "exactMatch", "nobody")),
        ],
        cluster,
    )
    assert tree.slots("a").tolist() == [0, 1]
    assert tree.slots("b").tolist() == [0, 1]
    assert [tree.slots(name).tolist() for name in ("self", "bad", "gone")] == [[], [], []]
    assert any("a > b > a" in problem for problem in tree.problems)
    assert "HyperNode self is below itself: self > self" in tree.problems
    assert any("pattern '('" in problem for problem in tree.problems)
