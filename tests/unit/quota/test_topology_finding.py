"""Finding places: what is asked for, which nodes may be used, and what is said where there is no place."""

from typing import Any

import msgspec
import pytest
from tests.unit.quota.topology_worlds import BLOCK, HOST, RACK, a_host, a_room, asking, pods_by_host

from muster.api import core, kueue
from muster.api.kueue.topology_assignments import Domain
from muster.quota.topology import DomainUsage, PlacementRequest, TopologyAssignment

THREE_RACKS = [
    a_host("h1", "b1", "r1", cpu=4),
    a_host("h2", "b1", "r1", cpu=3),
    a_host("h3", "b1", "r2", cpu=5),
    a_host("h4", "b2", "r3", cpu=4),
]


def of_hosts(*sizes: int) -> list[Any]:
    """One rack of hosts h0, h1, … with so many CPUs."""
    return [a_host(f"h{number}", cpu=size) for number, size in enumerate(sizes)]


@pytest.mark.parametrize(
    ("request_", "wanted"),
    [
        (asking(4, required=RACK), {"h4": 4}),
        (asking(5, required=RACK), {"h3": 5}),
        (asking(7, required=RACK), {"h1": 4, "h2": 3}),
        (asking(8, preferred=RACK), {"h2": 3, "h3": 5}),
        (asking(13, preferred=RACK), {"h1": 4, "h3": 5, "h4": 4}),
        (asking(3, unconstrained=True), {"h2": 3}),
        (asking(8, unconstrained=True), {"h1": 4, "h2": 3, "h4": 1}),
        (asking(3), {"h2": 3}),
    ],
)
def test_one_domain_where_it_fits_and_as_few_as_possible_where_not(
    request_: PlacementRequest, wanted: dict[str, int]
) -> None:
    assert pods_by_host(a_room(THREE_RACKS).find([request_])["main"]) == wanted


@pytest.mark.parametrize(
    ("unconstrained", "count", "wanted"),
    [(False, 12, {"h0": 6, "h2": 4, "h4": 2}), (True, 10, {"h1": 2, "h2": 4, "h3": 2, "h4": 2})],
    ids=["best fit", "least free capacity"],
)
def test_slices_of_two_on_hosts(unconstrained: bool, count: int, wanted: dict[str, int]) -> None:
    slices: dict[str, Any] = {"pod_set_slice_required_topology": HOST, "pod_set_slice_size": 2}
    request = asking(count, **slices, **({"unconstrained": True} if unconstrained else {"required": RACK}))
    assert pods_by_host(a_room(of_hosts(6, 5, 4, 3, 2)).find([request])["main"]) == wanted


def test_without_the_mixed_profile_unconstrained_pods_are_packed_too() -> None:
    room = a_room(THREE_RACKS, gates={"TASProfileMixed": False})
    assert pods_by_host(room.find([asking(8, unconstrained=True)])["main"]) == {"h2": 3, "h3": 5}


def test_slices_within_slices_stay_whole_on_every_level() -> None:
    hosts = [a_host(f"{rack}{number}", "b1", rack, cpu=3) for rack in ("ra", "rb") for number in range(4)]
    layers = (
        kueue.SliceRequiredTopologyConstraint(RACK, 8),
        kueue.SliceRequiredTopologyConstraint(HOST, 2),
    )
    found = pods_by_host(
        a_room(hosts).find([asking(16, required=BLOCK, podset_slice_required_topology_constraints=layers)])["main"]
    )
    assert found == {f"{rack}{number}": 2 for rack in ("ra", "rb") for number in range(4)}


def test_ranks_go_by_all_levels_though_only_hosts_are_named() -> None:
    hosts = [a_host("a", "b2", "r1", cpu=1), a_host("z", "b1", "r1", cpu=1), a_host("m", "b1", "r2", cpu=1)]
    placed = a_room(hosts).find([asking(3, unconstrained=True)])["main"]
    assert placed.assignment == TopologyAssignment((HOST,), (Domain(("z",), 1), Domain(("m",), 1), Domain(("a",), 1)))


def test_a_topology_that_ends_above_hosts_names_all_its_levels() -> None:
    placed = a_room(THREE_RACKS, BLOCK, RACK).find([asking(7, required=RACK)])["main"]
    assert placed.assignment == TopologyAssignment((BLOCK, RACK), (Domain(("b1", "r1"), 7),))


# Which nodes


@pytest.mark.parametrize(
    "unusable",
    [
        a_host("h9", cpu=9).ready("False"),
        a_host("h9", cpu=9).ready("Unknown"),
        a_host("h9", cpu=9).set([], "status", "conditions"),
        a_host("h9", cpu=9).cordoned(),
        a_host("h9", cpu=9).set({"kubernetes.io/hostname": "h9"}, "metadata", "labels"),
        a_host("h9", cpu=9).label("pool", "other"),
    ],
    ids=["not ready", "unknown", "says nothing", "cordoned", "no rack", "of another flavor"],
)
def test_nodes_that_cannot_be_used_are_not_in_the_topology(unusable: Any) -> None:
    room = a_room([a_host("h1").label("pool", "mine"), unusable], nodeLabels={"pool": "mine"})
    refused = room.find([asking(5, required=BLOCK)])["main"]
    assert refused.reason == 'topology "t" allows to fit only 4 out of 5 pod(s)'


def toleration(**fields: Any) -> core.Toleration:
    return msgspec.convert(fields, core.Toleration)


def affinity(key: str, operator: str, *values: str) -> core.NodeAffinity:
    term = {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}
    return msgspec.convert(
        {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}, core.NodeAffinity
    )


@pytest.mark.parametrize(
    ("more", "excluded"),
    [
        ({}, 'taint "gpu=yes:NoSchedule": 1'),
        ({"tolerations": (toleration(key="gpu", value="no"),)}, 'taint "gpu=yes:NoSchedule": 1'),
        ({"tolerations": (toleration(key="gpu", value="yes"),)}, None),
        ({"tolerations": (toleration(operator="Exists"),)}, None),
        ({"node_selector": {"disk": "fast"}}, 'nodeSelector: 1, taint "gpu=yes:NoSchedule": 1'),
        (
            {"node_selector": {"disk": "fast"}, "tolerations": (toleration(operator="Exists"),)},
            "nodeSelector: 2",
        ),
        ({"affinity": affinity("zone", "In", "z1")}, 'taint "gpu=yes:NoSchedule": 1'),
        ({"affinity": affinity("zone", "NotIn", "z1")}, 'affinity: 1, taint "gpu=yes:NoSchedule": 1'),
        ({"affinity": affinity("zone", "Exists")}, 'taint "gpu=yes:NoSchedule": 1'),
        ({"affinity": affinity("zone", "DoesNotExist")}, 'affinity: 1, taint "gpu=yes:NoSchedule": 1'),
        ({"affinity": affinity("cores", "Gt", "3")}, 'taint "gpu=yes:NoSchedule": 1'),
        ({"affinity": affinity("cores", "Lt", "3")}, 'affinity: 1, taint "gpu=yes:NoSchedule": 1'),
        ({"affinity": affinity("nobody", "Exists")}, 'affinity: 1, taint "gpu=yes:NoSchedule": 1'),
    ],
)
def test_hosts_are_left_out_by_taint_selector_and_affinity(more: dict[str, Any], excluded: str | None) -> None:
    hosts = [a_host("h1").taint("gpu", "yes"), a_host("h2").label("zone", "z1").label("cores", "4")]
    refused = a_room(hosts).find([asking(9, preferred=BLOCK, **more)])["main"]
    told = f". Total nodes: 2; excluded: {excluded}" if excluded else ""
    assert refused.reason.partition(" pod(s)")[2] == told


def test_the_flavors_own_tolerations_count_for_every_pod() -> None:
    room = a_room([a_host("h1").taint("gpu", "yes")], tolerations=[{"key": "gpu", "operator": "Exists"}])
    assert pods_by_host(room.find([asking(1)])["main"]) == {"h1": 1}


def test_racks_have_no_taints() -> None:
    room = a_room([a_host("h1").taint("gpu")], BLOCK, RACK)
    assert room.find([asking(1, node_selector={"disk": "fast"})])["main"].reason == ""


def test_the_scarcest_resource_is_named() -> None:
    hosts = [a_host("h1", cpu=1), a_host("h2", cpu=9).pods(0), a_host("h3", cpu=9)]
    refused = a_room(hosts).find([asking(8, cpu=2, preferred=HOST)])["main"]
    assert refused.reason == (
        'topology "t" allows to fit only 4 out of 8 pod(s).'
        ' Total nodes: 3; excluded: resource "cpu": 1, resource "pods": 1'
    )


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        (asking(1, required="row"), "no requested topology level: row"),
        (
            asking(2, required=BLOCK, pod_set_slice_required_topology="row", pod_set_slice_size=2),
            "no requested topology level for slices: row",
        ),
        (
            asking(2, required=HOST, pod_set_slice_required_topology=RACK, pod_set_slice_size=2),
            f"podset slice topology {RACK} is above the podset topology {HOST}",
        ),
        (
            asking(2, required=BLOCK, pod_set_slice_required_topology=RACK),
            "slice topology requested, but slice size not provided",
        ),
        (
            asking(40, required=BLOCK, pod_set_slice_required_topology=RACK, pod_set_slice_size=5),
            'topology "t" allows to fit only 2 out of 8 slice(s)',
        ),
    ],
)
def test_a_request_that_cannot_be_met_is_refused_with_the_reason(request_: PlacementRequest, reason: str) -> None:
    placed = a_room(THREE_RACKS).find([request_])["main"]
    assert (placed.assignment, placed.reason) == (None, reason)


def test_a_topology_without_nodes_says_so() -> None:
    assert a_room([]).find([asking(1, required=RACK)])["main"].reason == f"no topology domains at level: {RACK}"


def test_a_resource_that_no_node_has_excludes_all() -> None:
    request = PlacementRequest("main", 1, {"nvidia.com/gpu": 1})
    assert a_room(of_hosts(4)).find([request])["main"].reason == (
        'topology "t" doesn\'t allow to fit any of 1 pod(s). Total nodes: 1; excluded: resource "nvidia.com/gpu": 1'
    )


def test_fewer_pods_than_one_slice_get_no_domain() -> None:
    request = asking(1, pod_set_slice_required_topology=RACK, pod_set_slice_size=2)
    placed = a_room(THREE_RACKS).find([request])["main"]
    assert placed.assignment == TopologyAssignment((HOST,), ())


# Several pod sets


def test_each_pod_set_sees_those_before_it() -> None:
    found = a_room(of_hosts(3, 4)).find([asking(3, name="a", required=HOST), asking(3, name="b", required=HOST)])
    assert (pods_by_host(found["a"]), pods_by_host(found["b"])) == ({"h0": 3}, {"h1": 3})


def test_the_first_pod_set_without_a_place_ends_the_search() -> None:
    room = a_room(of_hosts(3))
    found = room.find([asking(2, name="a"), asking(2, name="b"), asking(1, name="c")])
    assert [bool(placed.reason) for placed in found.values()] == [False, True]


def test_a_leader_goes_where_it_costs_its_workers_least() -> None:
    requests = [
        asking(1, name="leader", group="g", required=RACK),
        asking(4, cpu=2, name="workers", group="g", required=RACK),
    ]
    found = a_room(of_hosts(2, 4, 3)).find(requests)
    assert pods_by_host(found["leader"]) == {"h2": 1}
    assert pods_by_host(found["workers"]) == {"h0": 1, "h1": 2, "h2": 1}


def test_a_leader_goes_only_where_it_is_allowed_itself() -> None:
    requests = [
        asking(1, name="leader", group="g", required=RACK, node_selector={"disk": "fast"}),
        asking(2, name="workers", group="g", required=RACK),
    ]
    found = a_room([a_host("h1"), a_host("h2").label("disk", "fast")]).find(requests)
    assert pods_by_host(found["leader"]) == {"h2": 1}


def test_a_group_has_one_reason() -> None:
    requests = [asking(1, name="leader", group="g", required=HOST), asking(4, name="workers", group="g", required=HOST)]
    found = a_room(of_hosts(4)).find(requests)
    reason = 'topology "t" allows to fit only 4 out of 4 pod(s)'
    assert [placed.reason for placed in found.values()] == [reason, reason]


# What is taken already


def test_usage_is_in_the_way_unless_the_topology_is_taken_as_empty() -> None:
    room = a_room(of_hosts(4))
    room.add_usage([DomainUsage(("h0",), {"cpu": 1000}, 2)])
    assert room.find([asking(3)])["main"].reason == 'topology "t" allows to fit only 2 out of 3 pod(s)'
    assert pods_by_host(room.find([asking(3)], empty=True)["main"]) == {"h0": 3}


def test_what_is_assumed_is_in_the_way_for_this_search_only() -> None:
    room = a_room(of_hosts(4, 5))
    assumed = [DomainUsage(("h0",), {"cpu": 1000}, 4)]
    assert pods_by_host(room.find([asking(4)], assumed=assumed)["main"]) == {"h1": 4}
    assert pods_by_host(room.find([asking(4)])["main"]) == {"h0": 4}


ELASTIC = {"ElasticJobsViaWorkloadSlicesWithTAS": True}


def previous(**pods: int) -> TopologyAssignment:
    return TopologyAssignment((HOST,), tuple(Domain((host,), count) for host, count in pods.items()))


def test_a_slice_that_grows_keeps_its_places() -> None:
    placed = a_room(of_hosts(4, 4), gates=ELASTIC).find([asking(5, previous=previous(h1=3))])["main"]
    assert pods_by_host(placed) == {"h0": 2, "h1": 3}


def test_a_slice_that_shrinks_gives_up_its_last_places() -> None:
    placed = a_room(of_hosts(4, 4), gates=ELASTIC).find([asking(3, previous=previous(h0=2, h1=3))])["main"]
    assert pods_by_host(placed) == {"h0": 2, "h1": 1}


def test_places_on_a_node_that_is_gone_are_not_kept() -> None:
    placed = a_room(of_hosts(4), gates=ELASTIC).find([asking(3, previous=previous(gone=2))])["main"]
    assert pods_by_host(placed) == {"h0": 3}


def test_a_slice_that_cannot_grow_is_refused_for_what_it_has_more() -> None:
    placed = a_room(of_hosts(4), gates=ELASTIC).find([asking(6, previous=previous(h0=3))])["main"]
    assert placed.reason == 'topology "t" allows to fit only 1 out of 3 pod(s)'


def preferring(key: str, *values: str) -> core.NodeAffinity:
    term = {"matchExpressions": [{"key": key, "operator": "In", "values": list(values)}]}
    return msgspec.convert(
        {"preferredDuringSchedulingIgnoredDuringExecution": [{"preference": term, "weight": 5}]}, core.NodeAffinity
    )


def test_preferred_hosts_come_first_where_the_gate_is_on() -> None:
    hosts = [a_host("h1", cpu=1), a_host("h2", cpu=4).label("zone", "z1"), a_host("h3", cpu=2).label("zone", "z1")]
    request = asking(1, preferred=HOST, affinity=preferring("zone", "z1"))
    assert pods_by_host(a_room(hosts).find([request])["main"]) == {"h1": 1}
    room = a_room(hosts, gates={"TASRespectNodeAffinityPreferred": True})
    assert pods_by_host(room.find([request])["main"]) == {"h3": 1}
    wide = asking(7, preferred=HOST, affinity=preferring("zone", "z1"))
    assert pods_by_host(room.find([wide])["main"]) == {"h1": 1, "h2": 4, "h3": 2}
