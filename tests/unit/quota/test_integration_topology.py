"""Where each pod goes: by rank where ranks can decide, else wherever there is room; and what pods ask for."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.api import kueue
from muster.api.kueue.topology_annotations import read_request, validate_request
from muster.api.kueue.topology_assignments import Domain
from muster.quota.integrations import topology
from muster.quota.integrations.topology import Member, Ranks
from muster.quota.topology import TopologyAssignment

HOST = "kubernetes.io/hostname"
INDEX = "index"
BY_INDEX = Ranks(INDEX)
PREFIX = "kueue.x-k8s.io/podset-"


def assignment(*counts: int) -> TopologyAssignment:
    return TopologyAssignment((HOST,), tuple(Domain((f"h{number}",), count) for number, count in enumerate(counts)))


def gated(rank: int, name: str = "") -> Member:
    return Member(name or f"p{rank}", {INDEX: str(rank)}, {}, True)


def gone(rank: int, host: str, name: str = "") -> Member:
    return Member(name or f"p{rank}", {INDEX: str(rank)}, {HOST: host}, False)


def hosts(found: dict[str, dict[str, str]]) -> dict[str, str]:
    return {name: selector[HOST] for name, selector in found.items()}


def test_ranks_fill_domains_in_order():
    members = [gated(rank) for rank in (3, 0, 2, 1)]
    placed = hosts(topology.place(assignment(2, 1, 1), members, BY_INDEX))
    assert placed == {"p0": "h0", "p1": "h0", "p2": "h1", "p3": "h2"}


def test_a_rank_keeps_its_place_when_others_are_not_there_yet():
    assert hosts(topology.place(assignment(1, 1, 1), [gated(2)], BY_INDEX)) == {"p2": "h2"}


def test_a_pod_waits_until_the_one_it_stands_in_for_has_gone():
    members = [gone(0, "h0", "old"), gated(0, "new"), gated(1)]
    assert hosts(topology.place(assignment(1, 1), members, BY_INDEX)) == {"p1": "h1"}


@pytest.mark.parametrize(
    "members",
    [
        [gated(0), gated(0, "twin")],
        [gated(5), gated(0)],
        [Member("p", {}, {}, True), gated(0)],
        [gone(0, "h1"), gated(1)],
    ],
    ids=["two of one rank", "beyond the last", "one without", "one that went elsewhere"],
)
def test_where_ranks_cannot_decide_there_is_still_room_for_all(members):
    placed = hosts(topology.place(assignment(1, 1), members, BY_INDEX))
    used = Counter([*placed.values(), *(member.node_selector[HOST] for member in members if not member.is_gated)])
    assert used == {"h0": 1, "h1": 1}


def test_sub_groups_count_one_after_the_other():
    ranks = Ranks(INDEX, "job", 2)
    members = [
        Member(f"j{job}-{index}", {INDEX: str(index), "job": str(job)}, {}, True) for job in (0, 1) for index in (0, 1)
    ]
    placed = hosts(topology.place(assignment(1, 1, 1, 1), members, ranks))
    assert placed == {"j0-0": "h0", "j0-1": "h1", "j1-0": "h2", "j1-1": "h3"}


def test_an_offset_is_taken_off():
    members = [gated(1), gated(2)]
    assert hosts(topology.place(assignment(1, 1), members, Ranks(INDEX, offset=1))) == {"p1": "h0", "p2": "h1"}


def test_no_pod_is_sent_to_a_broken_host():
    members = [gated(0), gated(1)]
    placed = topology.place(assignment(1, 1), members, BY_INDEX, frozenset({"h0"}))
    assert hosts(placed) == {"p1": "h1"}


def test_ranks_are_told_from_the_pod_set():
    request = kueue.PodSetTopologyRequest(
        required="rack", pod_index_label="i", sub_group_index_label="g", sub_group_count=2
    )
    assert topology.ranks_of(kueue.PodSet(count=6, topology_request=request)) == Ranks("i", "g", 3)
    assert topology.ranks_of(kueue.PodSet(count=6)) == Ranks()


@given(st.lists(st.integers(1, 4), min_size=1, max_size=6), st.data())
def test_whoever_comes_in_whatever_order_no_domain_gets_more_than_its_pods(counts, data):
    given_ = assignment(*counts)
    total = sum(counts)
    ranks = data.draw(st.permutations(range(total)))
    has_ranks = data.draw(st.booleans())
    went: list[Member] = []
    left = list(ranks)
    while left:
        arriving = data.draw(st.integers(1, len(left)))
        fresh = [gated(rank) for rank in left[:arriving]]
        left = left[arriving:]
        placed = hosts(topology.place(given_, [*went, *fresh], BY_INDEX if has_ranks else Ranks()))
        assert placed.keys() == {member.name for member in fresh}
        went += [gone(int(member.labels[INDEX]), placed[member.name]) for member in fresh]
    used = Counter(member.node_selector[HOST] for member in went)
    assert used == {f"h{number}": count for number, count in enumerate(counts)}
    if has_ranks:
        in_order = sorted(went, key=lambda member: int(member.labels[INDEX]))
        assert [member.node_selector[HOST] for member in in_order] == sorted(used.elements())


# What they ask for


def test_annotations_become_a_request():
    assert read_request({}) is None
    assert read_request({PREFIX + "required-topology": "rack"}) == {"required": "rack"}
    assert read_request({PREFIX + "unconstrained-topology": "true"}) == {"unconstrained": True}
    sliced = {PREFIX + "slice-required-topology": "rack", PREFIX + "slice-size": "4"}
    assert read_request(sliced) == {"podSetSliceRequiredTopology": "rack", "podSetSliceSize": 4}
    layers = '[{"topology": "block", "size": 8}, {"topology": "rack", "size": 4}]'
    assert read_request({PREFIX + "slice-required-topology-constraints": layers}) == {
        "podsetSliceRequiredTopologyConstraints": [{"topology": "block", "size": 8}, {"topology": "rack", "size": 4}]
    }


@pytest.mark.parametrize(
    ("annotations", "words"),
    [
        ({"required-topology": "a", "preferred-topology": "b"}, "only one of them"),
        ({"slice-size": "2", "required-topology": "a"}, "given together"),
        ({"slice-size": "none", "slice-required-topology": "a"}, "positive number"),
        ({"slice-size": "9", "slice-required-topology": "a"}, "number of pods, 4"),
        ({"slice-required-topology-constraints": "nonsense"}, "JSON list"),
        (
            {"slice-required-topology-constraints": '[{"topology": "a", "size": 4}, {"topology": "b", "size": 3}]'},
            "must divide",
        ),
        ({"group-name": "7", "required-topology": "a"}, "must not be a number"),
        ({"group-name": "g"}, "needs a required"),
    ],
)
def test_what_cannot_be_meant_is_named(annotations, words):
    found = list(validate_request("x", {PREFIX + name: value for name, value in annotations.items()}, 4))
    assert any(words in problem.message for problem in found), found


def test_other_annotations_are_nobodys_business():
    assert not list(validate_request("x", {"a": "b"}, 1))
