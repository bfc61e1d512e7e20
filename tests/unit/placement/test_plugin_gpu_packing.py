from hypothesis import given
from hypothesis import strategies as st
from tests.unit.placement.gpu_worlds import PODS, gpu_clusters, gpu_node, gpu_pod
from tests.unit.placement.plugin_views import node, pod
from tests.unit.placement.resource_worlds import asking

from muster.cluster.amounts import WHOLE_GPU
from muster.cluster.devices import choose, wants
from muster.cluster.pods import PodInfo
from muster.cluster.state import ClusterState
from muster.placement.framework import Code
from muster.placement.plugins.gpu_packing import GpuPacking, GpuPackingArgs

AMD = "amd.com/gpu"


def best(cluster: ClusterState, subject: PodInfo, plugin: GpuPacking | None = None) -> str:
    scores = (plugin or GpuPacking()).score(subject, cluster, None)
    return max(cluster.slots, key=lambda name: scores[cluster.slots[name]])


@given(gpu_clusters(), PODS)
def test_vectors_and_single_nodes_agree_and_order_nodes_as_promised(
    cluster: ClusterState, asked: tuple[int, int, int]
) -> None:
    subject, plugin = gpu_pod(cluster, "new", asked[0], asked[1]), GpuPacking()
    wanted = wants(subject)
    scores = plugin.score(subject, cluster, None)
    fitting = []
    for slot in range(cluster.width):
        assert plugin.score_at(subject, cluster, None, slot) == int(scores[slot])
        assert 0 <= scores[slot] <= 100
        free = cluster.devices.free_at(slot)
        if choose(free, wanted) is not None:
            fitting.append((slot, all(milli == WHOLE_GPU for milli in free), sum(free)))
    if wanted == (0, 0):
        return
    for slot, is_unused, left in fitting:
        for other, other_unused, other_left in fitting:
            if is_unused and not other_unused:
                assert scores[slot] < scores[other], "no unused node is opened where a used one fits"
            elif is_unused == other_unused and not wanted.share and left > other_left:
                assert scores[slot] <= scores[other]


def test_the_node_with_the_fewest_left_over_wins() -> None:
    cluster = ClusterState.of([gpu_node("unused", 8), gpu_node("half", 8), gpu_node("nearly", 8)])
    cluster.assign(gpu_pod(cluster, "a", whole=4), "half")
    cluster.assign(gpu_pod(cluster, "b", whole=6), "nearly")
    assert best(cluster, gpu_pod(cluster, "two", whole=2)) == "nearly"
    assert (
        best(cluster, gpu_pod(cluster, "three", whole=3)) == "nearly"
    )  # it does not fit there: not a score's business
    assert GpuPacking().score(gpu_pod(cluster, "x", whole=4), cluster, None)[cluster.slots["half"]] == 100


def test_a_share_goes_to_the_shared_gpu_that_it_fills_best() -> None:
    cluster = ClusterState.of([gpu_node(name, 4) for name in ("unused", "used", "wide", "narrow")])
    cluster.assign(gpu_pod(cluster, "a", whole=3), "used")
    cluster.assign(gpu_pod(cluster, "b", share=300), "wide")
    cluster.assign(gpu_pod(cluster, "c", share=500), "narrow")
    assert best(cluster, gpu_pod(cluster, "half", share=500)) == "narrow"
    assert best(cluster, gpu_pod(cluster, "more", share=600)) == "wide"
    assert best(cluster, gpu_pod(cluster, "most", share=900)) == "used"


def test_pods_without_gpus_keep_away_from_them() -> None:
    cluster = ClusterState.of([gpu_node("unused", 4), gpu_node("taken", 4), node("plain")])
    cluster.assign(gpu_pod(cluster, "a", whole=4), "taken")
    subject, plugin = gpu_pod(cluster, "plain"), GpuPacking()
    scores = plugin.score(subject, cluster, None)
    assert [int(scores[cluster.slots[name]]) for name in ("plain", "taken", "unused")] == [100, 50, 0]
    assert [plugin.score_at(subject, cluster, None, slot) for slot in range(3)] == scores.tolist()


def test_there_is_nothing_to_say_where_no_feasible_node_has_gpus() -> None:
    cluster = ClusterState.of([gpu_node("gpus", 4), node("plain")])
    feasible = cluster.mask()
    feasible[cluster.slots["plain"]] = True
    plugin = GpuPacking()
    assert plugin.pre_score(gpu_pod(cluster, "p"), cluster, feasible).status.code is Code.SKIP
    assert plugin.pre_score(gpu_pod(cluster, "p"), cluster, cluster.mask(True)).status.is_success


@given(st.lists(st.tuples(st.integers(0, 8), st.integers(0, 9)), min_size=1, max_size=4), st.integers(0, 4))
def test_other_resources_are_packed_by_number(nodes: list[tuple[int, int]], asked: int) -> None:
    plugin = GpuPacking(GpuPackingArgs((AMD,)))
    cluster = ClusterState.of(
        [node(f"n{number}", status={"allocatable": {AMD: str(count)}}) for number, (count, _) in enumerate(nodes)]
    )
    for number, (_, used) in enumerate(nodes):
        cluster.assign(pod(cluster, f"p{number}", **asking({AMD: used})), f"n{number}")
    subject = pod(cluster, "new", **asking({AMD: asked}))
    scores = plugin.score(subject, cluster, None)
    for slot, (count, used) in enumerate(nodes):
        assert plugin.score_at(subject, cluster, None, slot) == int(scores[slot])
        if asked and count:
            assert (scores[slot] > 50) == (used > 0)
