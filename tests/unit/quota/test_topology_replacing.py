"""A node fails under a workload: only its pods move, and to where what was asked for still holds."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from tests.unit.quota.topology_worlds import BLOCK, HOST, RACK, a_host, a_room, asking, pods_by_host

from muster.api import kueue
from muster.quota.topology import DomainUsage, Placed

HOSTS = [
    a_host("a1", "b1", "ra", cpu=4),
    a_host("a2", "b1", "ra", cpu=4),
    a_host("b1", "b1", "rb", cpu=4),
    a_host("b2", "b1", "rb", cpu=4),
    a_host("c1", "b2", "rc", cpu=4),
]


def a_workload(failed: str, pods: Mapping[str, int], owners: list[dict[str, str]] | None = None) -> kueue.Workload:
    """One that was given so many pods on each host, `failed` among them."""
    assigned = {
        "levels": [HOST],
        "slices": [
            {
                "domainCount": len(pods),
                "valuesPerLevel": [{"individual": {"roots": list(pods)}}],
                "podCounts": {"individual": list(pods.values())},
            }
        ],
    }
    return msgspec.convert(
        {
            "metadata": {"name": "wl", "ownerReferences": owners or []},
            "status": {
                "admission": {"podSetAssignments": [{"name": "main", "topologyAssignment": assigned}]},
                "unhealthyNodes": [{"name": failed}],
            },
        },
        kueue.Workload,
    )


def replaced(workload: kueue.Workload, gates: dict[str, bool] | None = None, **topology: Any) -> Placed:
    room = a_room(HOSTS, gates=gates)
    for pod_set in workload.status.admission.pod_set_assignments if workload.status.admission else ():
        assert pod_set.topology_assignment is not None
        level, counts = pod_set.topology_assignment.slices[0].values_per_level[0], pod_set.topology_assignment.slices[0]
        assert level.individual is not None
        for host, pods in zip(level.individual.roots, counts.pod_counts.individual, strict=True):
            room.add_usage([DomainUsage((host,), {"cpu": 1000}, pods)])
    return room.find([asking(99, **topology)], workload=workload)["main"]


LAYERS = (kueue.SliceRequiredTopologyConstraint(BLOCK, 8), kueue.SliceRequiredTopologyConstraint(RACK, 4))


@pytest.mark.parametrize(
    ("topology", "before", "after"),
    [
        ({"preferred": RACK}, {"gone": 2, "a1": 2}, {"a1": 2, "c1": 2}),
        ({"preferred": RACK}, {"gone": 4, "a1": 2, "c1": 1}, {"a1": 2, "a2": 4, "c1": 1}),
        ({"required": RACK}, {"b1": 4, "gone": 4}, {"b1": 4, "b2": 4}),
        ({"required": RACK}, {"gone": 4}, {"c1": 4}),
        (
            {"required": BLOCK, "pod_set_slice_required_topology": RACK, "pod_set_slice_size": 4},
            {"a1": 2, "gone": 2, "b1": 4},
            {"a1": 4, "b1": 4},
        ),
        (
            {"required": BLOCK, "pod_set_slice_required_topology": RACK, "pod_set_slice_size": 4},
            {"a1": 4, "gone": 4},
            {"a1": 4, "a2": 4},
        ),
        (
            {"preferred": BLOCK, "podset_slice_required_topology_constraints": LAYERS},
            {"a1": 2, "gone": 2, "b1": 4},
            {"a1": 4, "b1": 4},
        ),
        (
            {"preferred": BLOCK, "podset_slice_required_topology_constraints": LAYERS},
            {"gone": 4, "b1": 4},
            {"b1": 4, "b2": 4},
        ),
    ],
    ids=[
        "anywhere, the tightest",
        "anywhere, near is not asked for",
        "in the rack of the others",
        "in any rack, when none is left",
        "in the rack of the broken slice",
        "a whole slice, in the block of the others",
        "the inner slice is broken",
        "the outer slice is broken, the inner one whole",
    ],
)
def test_the_lost_pods_find_a_new_place(
    topology: dict[str, Any], before: dict[str, int], after: dict[str, int]
) -> None:
    assert pods_by_host(replaced(a_workload("gone", before), **topology)) == after


def test_without_room_where_they_must_go_there_is_no_replacement() -> None:
    placed = replaced(a_workload("gone", {"a1": 4, "a2": 4, "gone": 1}), required=RACK)
    assert placed.reason == (
        'topology "t" doesn\'t allow to fit any of 1 pod(s).'
        ' Total nodes: 5; excluded: resource "cpu": 2, topologyDomain: 3'
    )


def test_an_assignment_with_another_lost_node_cannot_be_mended() -> None:
    placed = replaced(a_workload("gone", {"gone": 1, "lost": 1}), required=RACK)
    assert placed.reason == (
        "Cannot replace the node, because the existing topologyAssignment is invalid,"
        " as it contains the stale domain lost"
    )


def test_a_pod_set_that_was_not_there_keeps_its_assignment() -> None:
    assert pods_by_host(replaced(a_workload("other", {"a1": 3}), required=RACK)) == {"a1": 3}


POD = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"}
JOB = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u"}


@pytest.mark.parametrize(
    ("owners", "gates", "host"),
    [
        ([POD], None, "gone"),
        ([POD, POD], None, "c1"),
        ([JOB], None, "c1"),
        ([POD], {"SkipReassignmentForPodOwnedWorkloads": False}, "c1"),
    ],
)
def test_a_bare_pod_is_not_given_a_place_that_it_can_never_use(
    owners: list[dict[str, str]], gates: dict[str, bool] | None, host: str
) -> None:
    assert pods_by_host(replaced(a_workload("gone", {"gone": 1}, owners), gates, required=RACK)) == {host: 1}
