"""Assignments as objects have them: read back as they were, and no longer than need be."""

import json

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from muster.api import kueue
from muster.api.kueue import topology_assignments
from muster.api.kueue.topology_assignments import Domain
from muster.quota.topology import TopologyAssignment, from_view, merge, pod_count, to_document, truncate

HOST = "kubernetes.io/hostname"
names = st.text("ab1-", min_size=1, max_size=8)
assignments = st.builds(
    TopologyAssignment,
    st.just((HOST,)),
    st.lists(st.builds(lambda name, pods: Domain((name,), pods), names, st.integers(1, 3)), max_size=12).map(tuple),
)


def on_hosts(*hosts: str, pods: int = 1) -> TopologyAssignment:
    return TopologyAssignment((HOST,), tuple(Domain((host,), pods) for host in hosts))


def length(document: object) -> int:
    return len(json.dumps(document, separators=(",", ":")))


@given(assignments, st.booleans())
def test_what_is_written_reads_back_in_order(assignment: TopologyAssignment, by_prefix: bool) -> None:
    document = to_document(assignment, by_prefix=by_prefix)
    assert from_view(msgspec.convert(document, kueue.TopologyAssignment)) == assignment
    assert topology_assignments.list_out(document) == list(assignment.domains)


@given(assignments)
def test_by_prefix_is_never_longer(assignment: TopologyAssignment) -> None:
    assert length(to_document(assignment)) <= length(to_document(assignment, by_prefix=False))


def test_pools_of_hosts_are_written_pool_by_pool() -> None:
    pools = [
        f"gke-cluster-with-a-long-name-{pool}-{number:02}" for pool in ("pool-a", "pool-b") for number in range(40)
    ]
    document = to_document(on_hosts(*pools))
    prefixes = [piece["valuesPerLevel"][0]["individual"]["prefix"] for piece in document["slices"]]
    assert [prefix[-7:] for prefix in prefixes] == ["pool-a-", "pool-b-"] or len(prefixes) == 1
    assert sum(piece["domainCount"] for piece in document["slices"]) == 80


def test_a_few_pools_with_nothing_in_common_are_split() -> None:
    hosts = [f"{pool}-{number:03}" for pool in ("alpha-of-the-north", "omega-of-the-south") for number in range(50)]
    pieces = to_document(on_hosts(*hosts))["slices"]
    assert [piece["valuesPerLevel"][0]["individual"]["prefix"] for piece in pieces] == [
        "alpha-of-the-north-0",
        "omega-of-the-south-0",
    ]


def test_there_are_never_more_slices_than_an_object_may_have() -> None:
    hosts = [f"p{pool:04}-x-{number}" for pool in range(1500) for number in range(2)]
    pieces = to_document(on_hosts(*hosts))["slices"]
    assert len(pieces) <= topology_assignments.MAX_SLICES


def test_racks_are_not_split_by_name() -> None:
    domains = tuple(Domain(("b", f"{pool}-{number}"), 1) for pool in ("long-name-a", "other-b") for number in range(9))
    assert len(to_document(TopologyAssignment(("block", "rack"), domains))["slices"]) == 1


def test_nothing_assigned_has_no_slices() -> None:
    assert to_document(on_hosts()) == {"levels": [HOST], "slices": []}


@given(assignments, st.integers(0, 40))
def test_truncated_is_a_beginning(assignment: TopologyAssignment, count: int) -> None:
    kept = truncate(assignment, count)
    assert pod_count(kept) == min(count, pod_count(assignment))
    ranks = [domain.values for domain in assignment.domains for _ in range(domain.pods)]
    assert [domain.values for domain in kept.domains for _ in range(domain.pods)] == ranks[:count]


@given(assignments, assignments)
def test_merged_has_the_pods_of_both(one: TopologyAssignment, other: TopologyAssignment) -> None:
    both = merge(one, other)
    assert pod_count(both) == pod_count(one) + pod_count(other)
    values = [domain.values for domain in both.domains]
    assert values == sorted(set(values))
