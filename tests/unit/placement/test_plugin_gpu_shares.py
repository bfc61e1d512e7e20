from hypothesis import given
from tests.unit.placement.gpu_worlds import PODS, gpu_clusters, gpu_node, gpu_pod
from tests.unit.placement.plugin_views import names, pod_view
from tests.unit.placement.resource_worlds import asking

from muster.api import core, objects
from muster.cluster.amounts import GPU, GPU_MILLI
from muster.cluster.devices import choose, wants
from muster.cluster.state import ClusterState
from muster.placement.framework import Code, Hint
from muster.placement.plugins.gpu_shares import GpuShares
from muster.placement.plugins.resources_fit import NodeResourcesFit


@given(gpu_clusters(), PODS)
def test_with_the_count_of_whole_gpus_it_passes_just_the_nodes_with_devices(
    cluster: ClusterState, asked: tuple[int, int, int]
) -> None:
    pod, plugin, fit = gpu_pod(cluster, "new", asked[0], asked[1]), GpuShares(), NodeResourcesFit()
    masks = [one.nodes for one in (*plugin.filter(pod, cluster, None), *fit.filter(pod, cluster, None))]
    own = [one.nodes for one in plugin.filter(pod, cluster, None)]
    for slot in range(cluster.width):
        assert plugin.fits_at(pod, cluster, None, slot) == (not any(mask[slot] for mask in own))
        possible = choose(cluster.devices.free_at(slot), wants(pod)) is not None
        assert possible == (not any(mask[slot] for mask in masks))


def test_reasons_name_what_is_short_and_whether_evicting_could_help() -> None:
    cluster = ClusterState.of([gpu_node("none", 0), gpu_node("full", 1), gpu_node("open", 2)])
    cluster.assign(gpu_pod(cluster, "a", whole=1), "full")
    cluster.assign(gpu_pod(cluster, "b", share=600), "open")
    cluster.assign(gpu_pod(cluster, "c", share=600), "open")
    found = GpuShares().filter(gpu_pod(cluster, "new", share=500), cluster, None)
    assert [(one.reason, one.is_unresolvable, names(cluster, one.nodes)) for one in found] == [
        (f"Insufficient {GPU_MILLI}", False, {"full", "open"}),
        (f"Insufficient {GPU_MILLI}", True, {"none"}),
    ]
    whole = GpuShares().filter(gpu_pod(cluster, "other", whole=1), cluster, None)
    assert [(one.reason, one.is_unresolvable, names(cluster, one.nodes)) for one in whole] == [
        (f"Insufficient {GPU}", False, {"open"}),
    ]


def test_a_pod_without_gpus_is_not_its_business_and_a_senseless_share_is_refused() -> None:
    cluster = ClusterState.of([gpu_node("n", 2)])
    plugin = GpuShares()
    assert plugin.pre_filter(gpu_pod(cluster, "plain"), cluster).status.code is Code.SKIP
    assert plugin.pre_filter(gpu_pod(cluster, "half", share=500), cluster).status.is_success
    document = {"metadata": {"name": "p", "annotations": {GPU_MILLI: "half"}}}
    view = objects.view_of(core.POD, document)
    assert isinstance(view, core.Pod)
    refused = plugin.pre_filter(cluster.shapes.info(view), cluster).status
    assert refused.code is Code.UNRESOLVABLE
    assert '"half" is not a number of thousandths' in refused.reasons[0]
    much = cluster.shapes.info(pod_view("much", **asking({GPU_MILLI: 1500})))
    assert "more than one GPU" in plugin.pre_filter(much, cluster).status.reasons[0]


def test_only_a_pod_that_had_gpus_wakes_those_that_want_some() -> None:
    cluster = ClusterState()
    wake = GpuShares().wakes()[0]
    assert wake.hint is not None
    pod = gpu_pod(cluster, "new", share=500)
    had = pod_view("had", nodeName="n", **asking({GPU: 1}))
    assert wake.hint(pod, had, None, cluster) is Hint.QUEUE
    assert wake.hint(pod, pod_view("plain", nodeName="n"), None, cluster) is Hint.SKIP
    assert wake.hint(pod, pod_view("pending", **asking({GPU: 1})), None, cluster) is Hint.SKIP
