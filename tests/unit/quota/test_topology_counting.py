"""Counting and dealing out over columns, against the same done domain by domain."""

from collections.abc import Mapping

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.quota.topology_worlds import LEVELS, PlainTree

from muster.api import core
from muster.api.meta import ObjectMeta
from muster.cluster.state import ClusterState
from muster.quota.topology.choosing import Missing, choose
from muster.quota.topology.counting import Counts, leaf_counts, pods_that_fit
from muster.quota.topology.descending import descend
from muster.quota.topology.requests import Layer, Shape
from muster.quota.topology.tree import Tree, grow

Leaf = tuple[str, ...]
Rooms = Mapping[Leaf, tuple[int, int, bool]]


@st.composite
def rooms(draw: st.DrawFn) -> Rooms:
    """Hosts in up to three blocks of up to three racks, and what fits on each, without the leader and with it."""
    found: dict[Leaf, tuple[int, int, bool]] = {}
    most = draw(st.sampled_from([2, 9]))  # with little room there are many ties
    for number in range(draw(st.integers(1, 14))):
        block, rack = draw(st.integers(1, 3)), draw(st.integers(1, 3))
        pods, cost, leads = draw(st.integers(0, most)), draw(st.integers(0, 4)), draw(st.booleans())
        found[f"b{block}", f"r{rack}", f"h{number}"] = pods, max(0, pods - cost) if leads else pods, leads
    return found


@st.composite
def shapes(draw: st.DrawFn) -> Shape:
    slice_level = draw(st.integers(0, 2))
    sizes = draw(st.sampled_from([(1,), (2,), (3,), (4, 2), (6, 3), (8, 4, 2)]))
    levels = range(slice_level, 3)
    layers = [Layer(level, size) for level, size in zip(levels, sizes, strict=False)]
    kind = draw(st.sampled_from(["required", "preferred", "unconstrained"]))
    return Shape(
        level=0 if kind == "unconstrained" and layers[0].size > 1 else draw(st.integers(0, slice_level)),
        is_required=kind == "required",
        is_unconstrained=kind == "unconstrained",
        slice_level=slice_level,
        slice_size=layers[0].size,
        inner=tuple(layers[1:]),
    )


def columns(room: Rooms, shape: Shape, *, is_led: bool) -> tuple[Tree, Counts, list[Leaf]]:
    named = [ObjectMeta(name=leaf[-1], labels=dict(zip(LEVELS, leaf, strict=True))) for leaf in room]
    cluster = ClusterState.of(core.Node(metadata=metadata) for metadata in named)
    tree = grow(LEVELS, cluster, cluster.mask(True))
    leaves = sorted(room)
    pods, led, leads = (np.array(column) for column in zip(*(room[leaf] for leaf in leaves), strict=True))
    counts = leaf_counts(tree, shape, pods, (led, leads) if is_led else None, None)
    return tree, Counts(tree, shape, counts), leaves


@given(rooms(), shapes(), st.booleans())
@settings(max_examples=60, deadline=None)
def test_every_domain_counts_as_domain_by_domain(room: Rooms, shape: Shape, is_led: bool) -> None:
    _, counts, _ = columns(room, shape, is_led=is_led)
    if not is_led:
        room = {leaf: (pods, pods, False) for leaf, (pods, _, _) in room.items()}
    plain = PlainTree(room, shape, is_led=is_led)
    for level, domains in enumerate(plain.levels):
        here = counts.at(level)
        assert here.pods.tolist() == [domain.pods for domain in domains]
        assert here.slices.tolist() == [domain.slices for domain in domains]
        assert here.pods_led.tolist() == [domain.pods_led for domain in domains]
        assert here.slices_led.tolist() == [domain.slices_led for domain in domains]
        if here.leaders is not None:
            assert here.leaders.tolist() == [domain.leaders for domain in domains]


@given(rooms(), shapes(), st.integers(1, 40), st.booleans())
@settings(max_examples=60, deadline=None)
def test_pods_are_dealt_out_as_domain_by_domain(room: Rooms, shape: Shape, count: int, ascending: bool) -> None:
    ascending = ascending and shape.is_unconstrained
    count = max(count - count % shape.slice_size, shape.slice_size)
    _, counts, leaves = columns(room, shape, is_led=False)
    chosen = choose(counts, count // shape.slice_size, is_led=False, ascending=ascending)
    plain = PlainTree(room, shape, is_led=False).place(count, ascending=ascending)
    if isinstance(chosen, Missing):
        assert plain is None
        return
    share = descend(counts, *chosen, ascending=ascending)
    found = {leaves[row]: pods for row, pods in zip(share.rows.tolist(), share.slices.tolist(), strict=True) if pods}
    assert found == plain


@given(rooms(), shapes(), st.integers(1, 40))
@settings(max_examples=60, deadline=None)
def test_a_leader_and_its_workers_fit_where_they_are_put(room: Rooms, shape: Shape, count: int) -> None:
    count -= count % shape.slice_size
    ascending = shape.is_unconstrained
    tree, counts, leaves = columns(room, shape, is_led=True)
    chosen = choose(counts, count // shape.slice_size, is_led=True, ascending=ascending)
    if isinstance(chosen, Missing):
        return
    share = descend(counts, *chosen, ascending=ascending)
    assert share.slices.sum() == count
    assert len(set(share.rows.tolist())) == len(share.rows)
    for place, (row, pods) in enumerate(zip(share.rows.tolist(), share.slices.tolist(), strict=True)):
        alone, beside, leads = room[leaves[row]]
        assert leads or place > 0
        assert pods <= (beside if place == 0 else alone)
    for layer in (Layer(shape.slice_level, shape.slice_size), *shape.inner):
        held: dict[int, int] = {}
        for row, pods in zip(share.rows.tolist(), share.slices.tolist(), strict=True):
            domain = tree.ancestor(row, layer.level)
            held[domain] = held.get(domain, 0) + pods
        assert all(pods % layer.size == 0 for pods in held.values())
    if shape.is_required:
        assert len({tree.ancestor(row, shape.level) for row in share.rows.tolist()}) == 1


@given(st.lists(st.tuples(st.integers(-9, 99), st.integers(-9, 99)), min_size=1), st.integers(1, 9), st.integers(1, 9))
def test_the_scarcest_resource_decides_how_many_pods_fit(free: list[tuple[int, int]], cpu: int, memory: int) -> None:
    there = np.array(free).T
    found = pods_that_fit([(there[0], cpu), (there[1], memory)])
    assert found.tolist() == [max(0, min(one // cpu, other // memory)) for one, other in free]
