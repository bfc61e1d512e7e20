from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.placement.plugin_views import deferred, names, node, pod, pod_view
from tests.unit.placement.resource_worlds import World, asking, worlds

from muster.api import core
from muster.cluster.groups import Group, GroupKey
from muster.cluster.state import ClusterState
from muster.placement.framework import Hint, Placement, Rejection
from muster.placement.plugins.resource_args import NodeResourcesFitArgs, ResourceSpec, ScoringStrategy
from muster.placement.plugins.resources_fit import NodeResourcesFit, ResourceGates

ORDER = ("cpu", "memory", "ephemeral-storage")


def cluster_of(*nodes: core.Node) -> ClusterState:
    return ClusterState.of(nodes)


def with_room(name: str = "n", **allocatable: str) -> core.Node:
    return node(name, status={"allocatable": {"pods": "10", **allocatable}})


def plainly(world: World, ignored: frozenset[str], slot: int) -> list[tuple[str, bool]]:
    """(reason, evicting cannot help) of one node, worked out from the pods on it."""
    cluster, wanted = world.cluster, world.pod.shape.needs
    on_node = list(cluster.pods_on[slot].values())
    view = cluster.nodes[slot]
    assert view is not None
    has = {name: int(text) * (1000 if name == "cpu" else 1) for name, text in (view.status.allocatable or {}).items()}
    found = []
    if len(on_node) + 1 > has.get("pods", 0):
        found.append(("Too many pods", False))
    for name in (*ORDER, *(name for name in wanted if name not in (*ORDER, "pods"))):
        amount = wanted.get(name, 0)
        used = sum(other.needs.get(name, 0) for other in on_node)
        if amount and name not in ignored and amount > has.get(name, 0) - used:
            found.append((f"Insufficient {name}", amount > has.get(name, 0)))
    return found


def reasons_at(rejections: list[Rejection], slot: int) -> list[tuple[str, bool]]:
    return [(one.reason, one.is_unresolvable) for one in rejections if one.nodes[slot]]


@given(worlds(), st.frozensets(st.sampled_from(("example.com/a", "example.com/b"))))
def test_masks_and_plain_sums_agree(world: World, ignored: frozenset[str]) -> None:
    plugin = NodeResourcesFit(NodeResourcesFitArgs(ignored_resources=tuple(ignored)))
    rejections = list(plugin.filter(world.pod, world.cluster, None))
    for slot in world.slots:
        wanted = plainly(world, ignored, slot)
        assert reasons_at(rejections, slot) == wanted
        assert plugin.fits_at(world.pod, world.cluster, None, slot) == (not wanted)
        shortages = plugin.shortages(world.pod, world.cluster, slot)
        assert [(one.reason, one.is_unresolvable) for one in shortages] == wanted


def test_a_group_of_resources_can_be_ignored_but_not_native_ones() -> None:
    cluster = cluster_of(with_room())
    args = NodeResourcesFitArgs(ignored_resource_groups=("example.com", "kubernetes.io"))
    plugin = NodeResourcesFit(args)
    assert not plugin.filter(pod(cluster, **asking({"example.com/a": 1})), cluster, None)
    assert plugin.filter(pod(cluster, "b", **asking({"kubernetes.io/batch-cpu": 1})), cluster, None)


def test_pod_level_requests_replace_the_sum_of_containers() -> None:
    cluster = cluster_of(with_room(cpu="2"))
    spec = {**asking({"cpu": 1}), "resources": {"requests": {"cpu": "3"}}}
    assert NodeResourcesFit().filter(pod(cluster, **spec), cluster, None)
    gates = ResourceGates(pod_level_resources=False)
    assert not NodeResourcesFit(gates=gates).filter(pod(cluster, "b", **spec), cluster, None)


def test_a_pod_that_waits_to_grow_is_not_counted_twice() -> None:
    cluster = cluster_of(with_room("a", cpu="10"), with_room("b", cpu="10"))
    granted = {"containerStatuses": [{"name": "c", "allocatedResources": {"cpu": "5"}}]}
    cluster.assign(pod(cluster, "p", granted, nodeName="a", **asking({"cpu": 5})), "a")
    cluster.assign(pod(cluster, "other", nodeName="a", **asking({"cpu": 1})), "a")
    grown = pod(cluster, "p", deferred(), nodeName="a", **asking({"cpu": 9}))
    plugin = NodeResourcesFit()
    assert not plugin.filter(grown, cluster, None)
    assert plugin.fits_at(grown, cluster, None, cluster.slots["a"])
    too_much = pod(cluster, "p", deferred(), nodeName="a", **asking({"cpu": 10}))
    assert names(cluster, plugin.filter(too_much, cluster, None)[0].nodes) == {"a"}
    off = NodeResourcesFit(gates=ResourceGates(resize_preemption=False))
    assert names(cluster, off.filter(grown, cluster, None)[0].nodes) == {"a"}


def test_what_is_under_way_counts_until_the_node_has_done_it() -> None:
    cluster = cluster_of(with_room(cpu="10", memory="100"))
    status = {
        "containerStatuses": [
            {"name": "c", "allocatedResources": {"cpu": "4"}, "resources": {"requests": {"cpu": "6", "memory": "7"}}}
        ]
    }
    assert pod(cluster, "p", status, **asking({"cpu": 2, "memory": 5})).needs == {"cpu": 6000, "memory": 7, "pods": 1}
    infeasible = {**status, "conditions": [{"type": "PodResizePending", "reason": "Infeasible", "status": "True"}]}
    assert pod(cluster, "q", infeasible, **asking({"cpu": 50})).needs["cpu"] == 6000
    nonsense = {"containerStatuses": [{"name": "c", "allocatedResources": {"cpu": "many"}}]}
    assert pod(cluster, "r", nonsense, **asking({"cpu": 2})).needs["cpu"] == 2000


def test_what_the_node_says_of_the_pod_as_a_whole_counts() -> None:
    cluster = cluster_of(with_room())
    spec: dict[str, Any] = {**asking({"cpu": 1}), "resources": {"requests": {"cpu": "2"}}}
    status = {"allocatedResources": {"cpu": "3"}, "resources": {"requests": {"cpu": "4", "memory": "9"}}}
    found = pod(cluster, "p", status, **spec)
    assert found.needs == {"cpu": 4000, "memory": 9, "pods": 1}


def test_a_pod_that_speaks_as_a_whole_has_stand_ins_only_for_what_nobody_names() -> None:
    cluster = cluster_of(with_room())
    assert pod(cluster, "p", **asking({})).nonzero == (100, 200 * 2**20)
    said = pod(cluster, "q", **asking({"cpu": 1}), resources={"requests": {"memory": "5"}})
    assert said.nonzero == (1000, 5)
    half: dict[str, Any] = {"containers": [{"name": "a"}, {"name": "b"}], "resources": {"requests": {"memory": "5"}}}
    assert pod(cluster, "r", **half).nonzero == (200, 5)


def test_shares_of_a_gpu_are_for_another_plugin_to_judge() -> None:
    cluster = cluster_of(with_room())
    assert not NodeResourcesFit().filter(pod(cluster, **asking({"muster.dev/gpu-milli": 500})), cluster, None)


def test_a_placement_is_rated_by_how_full_it_becomes_whether_or_not_its_pods_count_yet() -> None:
    cluster = cluster_of(with_room("a", cpu="10"), with_room("b", cpu="10"), with_room("c", cpu="10"))
    strategy = ScoringStrategy(resources=(ResourceSpec("cpu"), ResourceSpec("example.com/a")))
    plugin = NodeResourcesFit(NodeResourcesFitArgs(scoring_strategy=strategy))
    members = [pod(cluster, name, **asking({"cpu": 4})) for name in ("x", "y")]
    nodes = cluster.mask()
    nodes[[cluster.slots["a"], cluster.slots["b"]]] = True
    proposed = [(members[0], "a"), (members[1], "b")]
    group, placement = Group(GroupKey("ns", "g")), Placement("rack", nodes)
    assert plugin.score_placement(group, cluster, placement, proposed) == 40
    cluster.assign(members[0], "a")
    assert plugin.score_placement(group, cluster, placement, proposed) == 40


@pytest.mark.parametrize(
    ("before", "after", "hint"),
    [
        (None, {"cpu": "2", "pods": "1"}, Hint.QUEUE),
        (None, {"cpu": "1", "pods": "1"}, Hint.SKIP),
        (None, {"cpu": "2"}, Hint.SKIP),
        ({"cpu": "1", "pods": "1"}, {"cpu": "2", "pods": "1"}, Hint.QUEUE),
        ({"cpu": "2", "pods": "1"}, {"cpu": "2", "pods": "2"}, Hint.QUEUE),
        ({"cpu": "3", "memory": "1", "pods": "1"}, {"cpu": "2", "memory": "5", "pods": "1"}, Hint.SKIP),
    ],
)
def test_a_node_wakes_only_pods_that_it_now_has_more_for(
    before: dict[str, str] | None, after: dict[str, str], hint: Hint
) -> None:
    cluster = cluster_of()
    wake = next(one for one in NodeResourcesFit().wakes() if one.resource == "Node")
    assert wake.hint is not None
    old = node("n", status={"allocatable": before}) if before is not None else None
    new = node("n", status={"allocatable": after})
    assert wake.hint(pod(cluster, **asking({"cpu": 2})), old, new, cluster) is hint


def test_a_hint_refuses_an_object_of_another_kind() -> None:
    cluster = cluster_of()
    for wake in NodeResourcesFit().wakes():
        wrong = node("n") if wake.resource == "Pod" else pod_view("p")
        if wake.resource != "UnscheduledPod":
            assert wake.hint is not None
            with pytest.raises(TypeError, match="expected a"):
                wake.hint(pod(cluster), wrong, wrong, cluster)
