"""ProportionalReserve: what is kept for devices that are free, and for whom."""

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.placement.plugin_views import node, pod, pod_view
from tests.unit.placement.resource_worlds import World, asking, worlds

from muster.cluster.state import ClusterState
from muster.placement.framework import Code, Hint
from muster.placement.plugins.proportional_reserve import Companions, ProportionalReserve, ProportionalReserveArgs

GPUS = ProportionalReserve(ProportionalReserveArgs((Companions("nvidia.com/gpu", 4000, 0),)))


def a_node(used_gpus: int = 0) -> ClusterState:
    amounts = {"cpu": "16", "memory": "64", "nvidia.com/gpu": "4", "pods": "10"}
    cluster = ClusterState.of([node("n", status={"allocatable": amounts})])
    cluster.assign(pod(cluster, "there", **asking({"nvidia.com/gpu": used_gpus})), "n")
    return cluster


def is_kept_off(cluster: ClusterState, requests: dict[str, int]) -> bool:
    asked = pod(cluster, "new", **asking(requests))
    if GPUS.pre_filter(asked, cluster).status.code is Code.SKIP:
        return False
    return any(rejection.nodes[0] for rejection in GPUS.filter(asked, cluster, None))


def test_pods_without_devices_leave_what_goes_with_the_free_ones() -> None:
    assert is_kept_off(a_node(), {"cpu": 1})
    assert not is_kept_off(a_node(used_gpus=1), {"cpu": 4})
    assert is_kept_off(a_node(used_gpus=1), {"cpu": 5})
    assert not is_kept_off(a_node(used_gpus=4), {"cpu": 16})


def test_pods_with_devices_may_use_all() -> None:
    assert not is_kept_off(a_node(), {"cpu": 16, "nvidia.com/gpu": 1})


def test_without_options_nobody_is_kept_off() -> None:
    cluster = a_node()
    plugin = ProportionalReserve()
    assert plugin.pre_filter(pod(cluster, "new", **asking({"cpu": 16})), cluster).status.code is Code.SKIP


@settings(max_examples=40, deadline=None)
@given(world=worlds(), cpu=st.integers(0, 3), memory=st.integers(0, 3))
def test_one_node_is_judged_as_all_are(world: World, cpu: int, memory: int) -> None:
    plugin = ProportionalReserve(ProportionalReserveArgs((Companions("example.com/a", cpu * 1000, memory),)))
    rejections = plugin.filter(world.pod, world.cluster, None)
    for slot in world.slots:
        is_rejected = any(rejection.nodes[slot] for rejection in rejections)
        assert plugin.fits_at(world.pod, world.cluster, None, slot) is not is_rejected


def test_a_pod_that_takes_a_device_leaves_more_for_others() -> None:
    cluster = a_node()
    waiting = pod(cluster, "waiting", **asking({"cpu": 1}))
    for requests, expected in (({"nvidia.com/gpu": 1}, Hint.QUEUE), ({"cpu": 1}, Hint.SKIP)):
        other = pod_view("other", **asking(requests))
        assert GPUS.after_pod_added(waiting, None, other, cluster) is expected


def test_options() -> None:
    entries = [{"name": "nvidia.com/gpu", "cpu": "4", "memory": "16G"}, {"name": "amd.com/gpu"}]
    expected = (Companions("nvidia.com/gpu", 4000, 16 * 10**9), Companions("amd.com/gpu", 0, 0))
    assert ProportionalReserveArgs.from_document({"resources": entries}) == ProportionalReserveArgs(expected)
    assert ProportionalReserveArgs.from_volcano({"nvidia.com/gpu": {"CPU": 4, "Memory": 16}}).resources == expected[:1]
    errors = ProportionalReserveArgs.from_document({"resources": [{"name": "a b", "cpu": "-1", "memory": "much"}]})
    assert isinstance(errors, list)
    assert [error.path for error in errors] == ["resources[0].name", "resources[0].cpu", "resources[0].memory"]
