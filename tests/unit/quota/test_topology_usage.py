"""What is taken of a topology: counted exactly, shared between flavors, and kept up with the cluster."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.quota.topology_worlds import (
    BLOCK,
    RACK,
    a_cluster,
    a_flavor,
    a_host,
    a_room,
    a_topology,
    asking,
    pods_by_host,
)

from muster.api import core
from muster.cluster.state import ClusterState
from muster.quota.gates import Gates
from muster.quota.topology import DomainUsage, FlavorTopology, Topologies, usage_of
from muster.quota.topology.explaining import listed
from muster.testing.builders import NodeBuilder, a_pod

CPU = {"cpu": 1000}


def two_flavors(cluster: ClusterState, *levels: str, share: bool = True) -> tuple[Topologies, list[FlavorTopology]]:
    topologies = Topologies(cluster, Gates.default().changed({"TASHandleOverlappingFlavors": share}))
    found = []
    for name in ("one", "other"):
        topologies.set_flavor(a_flavor(name), a_topology(*levels))
        flavor = topologies.flavor(name)
        assert flavor is not None
        found.append(flavor)
    return topologies, found


def fitting(flavor: FlavorTopology) -> int:
    """How many pods of one CPU fit in the largest domain on top."""
    for count in range(50, 0, -1):
        if not flavor.find([asking(count, required=flavor.levels[0])])["main"].reason:
            return count
    return 0


def put(cluster: ClusterState, host: NodeBuilder) -> None:
    cluster.node_changed(msgspec.convert(host.document(), core.Node))


usages = st.lists(
    st.builds(
        DomainUsage,
        st.sampled_from([("h1",), ("h2",), ("gone",)]),
        st.sampled_from([CPU, {"cpu": 500, "memory": 1}, {"nvidia.com/gpu": 0}, {}]),
        st.integers(0, 5),
    ),
    max_size=8,
)


@given(usages, usages)
def test_taking_and_giving_back_leaves_everything_as_it_was(kept: list[DomainUsage], tried: list[DomainUsage]) -> None:
    room = a_room([a_host("h1"), a_host("h2")])
    room.add_usage(kept)
    before = room.capacities()
    room.add_usage(tried)
    room.remove_usage(tried[::-1])
    assert room.capacities() == before


def test_fits_asks_for_room_in_the_very_domains() -> None:
    room = a_room([a_host("h1", cpu=2), a_host("h2", cpu=9)])
    assert room.fits([DomainUsage(("h1",), CPU, 2)])
    assert not room.fits([DomainUsage(("h1",), CPU, 3)])
    assert not room.fits([DomainUsage(("h1",), CPU, 1), DomainUsage(("h1",), CPU, 2)])
    assert not room.fits([DomainUsage(("gone",), {}, 1)])
    room.add_usage([DomainUsage(("h1",), CPU, 3)])
    assert room.fits([DomainUsage(("h1",), {}, 1)])  # asks for nothing of what is overdrawn
    assert not room.fits([DomainUsage(("h1",), CPU, 1)])


def test_an_assignment_that_was_found_fits_until_it_is_taken() -> None:
    room = a_room([a_host("h1"), a_host("h2")])
    placed = room.find([asking(8, required=BLOCK)])["main"]
    assert placed.assignment is not None
    usage = usage_of(placed.assignment, CPU)
    assert room.fits(usage)
    room.add_usage(usage)
    assert not room.fits(usage)


@pytest.mark.parametrize(
    ("levels", "share", "left"),
    [
        ((RACK, "kubernetes.io/hostname"), True, 1),
        ((RACK, "kubernetes.io/hostname"), False, 4),
        ((BLOCK, RACK), True, 4),
    ],
    ids=["hosts", "hosts, gate off", "racks"],
)
def test_flavors_that_share_hosts_count_each_others_usage(levels: tuple[str, ...], share: bool, left: int) -> None:
    _, (one, other) = two_flavors(a_cluster([a_host("h1")]), *levels, share=share)
    values = ("h1",) if levels[-1] != RACK else ("b1", "r1")
    one.add_usage([DomainUsage(values, CPU, 3)])
    assert (fitting(one), fitting(other)) == (1, left)


def test_a_flavor_that_goes_gives_back_what_was_taken_through_it() -> None:
    topologies, (one, other) = two_flavors(a_cluster([a_host("h1")]), RACK, "kubernetes.io/hostname")
    one.add_usage([DomainUsage(("h1",), CPU, 3)])
    other.add_usage([DomainUsage(("h1",), CPU, 1)])
    topologies.remove_flavor("one")
    assert fitting(other) == 3
    assert topologies.flavor("one") is None


def test_usage_on_a_node_that_is_gone_waits_for_it() -> None:
    cluster = a_cluster([a_host("h1"), a_host("h2")])
    _, (room, _) = two_flavors(cluster, RACK, "kubernetes.io/hostname")
    usage = [DomainUsage(("h1",), CPU, 3)]
    room.add_usage(usage)
    cluster.node_removed("h1")
    assert fitting(room) == 4
    put(cluster, a_host("h1"))
    assert fitting(room) == 5
    room.remove_usage(usage)
    assert fitting(room) == 8


def test_pods_without_an_assignment_come_and_go() -> None:
    cluster = a_cluster([a_host("h1"), a_host("h2", rack="r2")])
    _, (hosts, _) = two_flavors(cluster, "kubernetes.io/hostname")
    _, (racks, _) = two_flavors(cluster, BLOCK, RACK)
    assert (fitting(hosts), fitting(racks)) == (4, 8)
    pod = cluster.shapes.info(msgspec.convert(a_pod("p").cpu(3).set("u", "metadata", "uid").document(), core.Pod))
    cluster.assign(pod, "h1")
    assert (fitting(hosts), fitting(racks)) == (4, 5)
    assert pods_by_host(hosts.find([asking(1)])["main"]) == {"h1": 1}
    cluster.release("u")
    assert (fitting(hosts), fitting(racks)) == (4, 8)


def test_nodes_that_change_are_seen() -> None:
    cluster = a_cluster([a_host("h1"), a_host("h2", rack="r2")])
    _, (room, _) = two_flavors(cluster, RACK, "kubernetes.io/hostname")
    assert fitting(room) == 4
    put(cluster, a_host("h2", rack="r2", cpu=7))
    assert fitting(room) == 7
    put(cluster, a_host("h2", rack="r1", cpu=7))
    assert fitting(room) == 11
    put(cluster, a_host("h2", rack="r1", cpu=7).ready("False"))
    assert fitting(room) == 4
    put(cluster, a_host("h2", rack="r1", cpu=7).taint("gpu"))
    assert fitting(room) == 4


def test_a_domain_without_nodes_is_stale() -> None:
    room = a_room([a_host("h1"), a_host("h2")])
    placed = room.find([asking(8, required=BLOCK)])["main"]
    assert placed.assignment is not None
    assert room.is_stale(placed.assignment) is None
    assert a_room([a_host("h1")]).is_stale(placed.assignment) == "h2"


def test_capacities_are_told_as_kubernetes_writes_them() -> None:
    room = a_room([a_host("h1", cpu="1500m").memory("2Gi").pods(10)])
    room.add_usage([DomainUsage(("h1",), {"cpu": 500, "memory": 2**20}, 2)])
    assert listed(room.capacities()) == (
        '{"h1":{"freeCapacity":{"cpu":"1500m","memory":"2Gi","pods":"10"},'
        '"tasUsage":{"cpu":"1","memory":"2Mi","pods":"2"}}}'
    )


def test_absurd_amounts_do_not_overflow() -> None:
    room = a_room([a_host("h1")])
    for _ in range(20):
        room.add_usage([DomainUsage(("h1",), {"memory": 2**62}, 1000)])
    assert not room.fits([DomainUsage(("h1",), {"memory": 1}, 1)])
