import pytest
from tests.unit.placement.plugin_views import deferred, names, node, pod

from muster.cluster.state import ClusterState
from muster.placement.framework import Code, Hint
from muster.placement.plugins.deferred_pod_scheduling import (
    REASON_DISABLED,
    REASON_ELSEWHERE,
    REASON_FITS,
    DeferredPodScheduling,
)

ON = DeferredPodScheduling(resize_preemption=True)
REFUSES = {"disableResizePreemption": ["owner"]}


def test_only_the_pods_own_node_is_left_and_only_if_it_lets_others_be_evicted() -> None:
    cluster = ClusterState.of([node("a"), node("b", podPreemptionPolicy=REFUSES), node("c", podPreemptionPolicy={})])
    for home, wanted in {
        "a": [(REASON_ELSEWHERE, {"b", "c"})],
        "b": [(REASON_ELSEWHERE, {"a", "c"}), (REASON_DISABLED, {"b"})],
        "c": [(REASON_ELSEWHERE, {"a", "b"})],
        "gone": [(REASON_ELSEWHERE, {"a", "b", "c"})],
    }.items():
        rejections = ON.filter(pod(cluster, status=deferred(), nodeName=home), cluster, None)
        assert [(r.reason, names(cluster, r.nodes)) for r in rejections] == wanted
        assert all(rejection.is_unresolvable for rejection in rejections)


def test_a_resize_that_fits_is_left_to_the_nodes_agent() -> None:
    cluster = ClusterState()
    status, _ = ON.permit(pod(cluster, status=deferred(), nodeName="a"), "a")
    assert (status.code, status.reasons) == (Code.UNRESOLVABLE, (REASON_FITS,))


def test_other_pods_and_a_plugin_that_is_off_are_left_alone() -> None:
    cluster = ClusterState.of([node("a", podPreemptionPolicy=REFUSES)])
    resized, plain = pod(cluster, status=deferred(), nodeName="a"), pod(cluster, nodeName="a")
    for plugin, subject in ((DeferredPodScheduling(), resized), (ON, plain)):
        assert plugin.pre_filter(subject, cluster).status.code is Code.SKIP
        assert not plugin.filter(subject, cluster, None)
        assert plugin.permit(subject, "a")[0].is_success
        for wake in plugin.wakes():
            assert wake.hint is not None
            assert wake.hint(subject, node("a", podPreemptionPolicy=REFUSES), node("a"), cluster) is Hint.SKIP


def test_what_wakes_a_resize() -> None:
    cluster = ClusterState()
    changed, added = (wake.hint for wake in ON.wakes())
    assert changed is not None
    assert added is not None
    subject = pod(cluster, status=deferred(), nodeName="a")
    refusing = node("a", podPreemptionPolicy=REFUSES)
    assert changed(subject, refusing, node("a"), cluster) is Hint.QUEUE
    assert changed(subject, node("a"), node("a"), cluster) is Hint.SKIP
    assert changed(subject, node("a"), refusing, cluster) is Hint.SKIP
    assert changed(subject, node("b", podPreemptionPolicy=REFUSES), node("b"), cluster) is Hint.SKIP
    assert added(subject, None, node("a"), cluster) is Hint.QUEUE
    assert added(subject, None, refusing, cluster) is Hint.SKIP
    assert added(subject, None, node("b"), cluster) is Hint.SKIP
    with pytest.raises(TypeError):
        changed(subject, None, node("a"), cluster)
