"""Balanced placement, against the examples of its design and against trying out every set of domains."""

from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.quota.topology_worlds import HOST, RACK, a_host, a_room, asking, pods_by_host

from muster.quota.topology.balancing import dealt_evenly, fewest_domains
from muster.quota.topology.counting import LevelCounts
from muster.testing.builders import NodeBuilder

BALANCED = {"TASBalancedPlacement": True}


@pytest.mark.parametrize(
    ("blocks", "count", "slice_size", "wanted"),
    [
        ([[[15], [15]]], 25, 1, [13, 12]),
        ([[[15, 13, 10]]], 23, 1, [12, 11, 0]),
        ([[[20, 10], [15, 15]]], 22, 1, [0, 0, 11, 11]),
        ([[[20, 10], [15, 15]]], 20, 1, [20, 0, 0, 0]),
        ([[[10, 5], [5, 5, 5]]], 15, 1, [0, 0, 5, 5, 5]),
        ([[[15], [15]], [[15, 15]]], 25, 1, [0, 0, 13, 12]),
        ([[[15], [15], [15, 15]]], 25, 5, [0, 0, 15, 10]),
    ],
)
def test_pods_are_spread_evenly_over_as_few_domains_as_can_be(
    blocks: list[list[list[int]]], count: int, slice_size: int, wanted: list[int]
) -> None:
    hosts: list[NodeBuilder] = []
    names: list[str] = []
    for block, racks in enumerate(blocks):
        for rack, sizes in enumerate(racks):
            for size in sizes:
                names.append(f"h{len(names):02}")
                hosts.append(a_host(names[-1], f"b{block}", f"b{block}r{rack}", cpu=size))
    slices: dict[str, Any] = (
        {"pod_set_slice_required_topology": HOST, "pod_set_slice_size": slice_size} if slice_size > 1 else {}
    )
    found = pods_by_host(a_room(hosts, gates=BALANCED).find([asking(count, preferred=RACK, **slices)])["main"])
    assert [found.get(name, 0) for name in names] == wanted


def test_what_cannot_be_balanced_is_packed() -> None:
    hosts = [a_host("h1", rack="r1", cpu=3), a_host("h2", rack="r2", cpu=3), a_host("h3", rack="r3", cpu=8)]
    hosts.append(a_host("h4", "b2", "r4", cpu=11))
    leader = asking(1, cpu=5, name="leader", group="g", preferred="block")
    workers = asking(7, name="workers", group="g", preferred="block")
    found = a_room(hosts, gates=BALANCED).find([leader, workers])
    assert pods_by_host(found["leader"]) == {"h3": 1}
    assert pods_by_host(found["workers"]) == {"h1": 3, "h2": 1, "h3": 3}


@st.composite
def levels(draw: st.DrawFn) -> LevelCounts:
    size = draw(st.integers(1, 6))
    slices = np.array(draw(st.lists(st.integers(0, 8), min_size=size, max_size=size)), dtype=np.int64)
    cost = np.array(draw(st.lists(st.integers(0, 3), min_size=size, max_size=size)), dtype=np.int64)
    leaders = np.array(draw(st.lists(st.integers(0, 1), min_size=size, max_size=size)), dtype=np.int64)
    led = np.where(leaders > 0, np.maximum(slices - cost, 0), slices)
    return LevelCounts(slices, slices, led, led, leaders)


def holdings(counts: LevelCounts, rows: tuple[int, ...], is_led: bool) -> list[int]:
    """What the set can hold: for each domain that may take the leader, or without one."""
    total = sum(int(counts.slices[row]) for row in rows)
    if not is_led:
        return [total]
    assert counts.leaders is not None
    return [total - int(counts.slices[row] - counts.slices_led[row]) for row in rows if counts.leaders[row]]


@given(levels(), st.integers(1, 20), st.booleans())
@settings(max_examples=60, deadline=None)
def test_the_set_holds_all_and_no_smaller_surplus_is_possible(counts: LevelCounts, wanted: int, is_led: bool) -> None:
    found = fewest_domains(counts, wanted, is_led=is_led)
    if found is None:
        return
    own = [held for held in holdings(counts, tuple(found.tolist()), is_led) if held >= wanted]
    assert own
    others = [
        held
        for rows in combinations(range(len(counts)), len(found))
        for held in holdings(counts, rows, is_led)
        if held >= wanted
    ]
    assert min(own) == min(others)


@given(levels(), st.integers(1, 20), st.integers(1, 5), st.booleans())
@settings(max_examples=60, deadline=None)
def test_each_domain_gets_the_threshold_and_no_more_than_it_holds(
    counts: LevelCounts, wanted: int, threshold: int, is_led: bool
) -> None:
    share = dealt_evenly(counts, wanted, threshold, is_led=is_led)
    if share is None:
        return
    assert share.slices.sum() == wanted
    assert (share.slices >= threshold).all()
    room = counts.slices[share.rows].copy()
    if is_led:
        assert counts.leaders is not None
        assert counts.leaders[share.rows[0]]
        room[0] = counts.slices_led[share.rows[0]]
    assert (share.slices <= room).all()
