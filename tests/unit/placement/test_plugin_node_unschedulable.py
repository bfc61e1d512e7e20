from typing import Any

import pytest
from tests.unit.placement.plugin_views import deferred, names, node, pod, pod_view

from muster.cluster.state import ClusterState
from muster.placement.framework import Code, Hint
from muster.placement.plugins.node_unschedulable import REASON, NodeUnschedulable

KEY = "node.kubernetes.io/unschedulable"


@pytest.mark.parametrize(
    ("tolerations", "rejected"),
    [
        ([], {"cordoned"}),
        ([{"key": KEY, "effect": "NoSchedule"}], set()),
        ([{"key": KEY, "operator": "Exists"}], set()),
        ([{"operator": "Exists"}], set()),
        ([{"key": KEY, "effect": "NoExecute", "operator": "Exists"}], {"cordoned"}),
        ([{"key": "other", "operator": "Exists"}], {"cordoned"}),
        ([{"key": KEY, "value": "x"}], {"cordoned"}),
    ],
)
def test_a_cordon_is_a_taint_that_can_be_tolerated(tolerations: list[dict[str, Any]], rejected: set[str]) -> None:
    cluster = ClusterState.of([node("open"), node("cordoned", unschedulable=True)])
    rejections = NodeUnschedulable().filter(pod(cluster, tolerations=tolerations), cluster, None)
    assert {name for rejection in rejections for name in names(cluster, rejection.nodes)} == rejected
    assert all(rejection.reason == REASON and rejection.is_unresolvable for rejection in rejections)


def test_masks_do_not_change_when_a_node_does() -> None:
    cluster = ClusterState.of([node("a", unschedulable=True)])
    [rejection] = NodeUnschedulable().filter(pod(cluster), cluster, None)
    cluster.node_changed(node("a"))
    assert rejection.nodes.tolist() == [True]


def test_a_deferred_resize_is_not_judged_where_resizes_preempt() -> None:
    cluster = ClusterState.of([node("a", unschedulable=True)])
    plugin, subject = NodeUnschedulable(resize_preemption=True), pod(cluster, status=deferred())
    assert plugin.pre_filter(subject, cluster).status.code is Code.SKIP
    assert not plugin.filter(subject, cluster, None)
    assert plugin.pre_filter(pod(cluster), cluster).status.is_success


def test_what_wakes_a_pod() -> None:
    cluster = ClusterState()
    on_node, on_pod = (wake.hint for wake in NodeUnschedulable().wakes())
    assert on_node is not None
    assert on_pod is not None
    open_node, closed = node("a"), node("a", unschedulable=True)
    cases: list[tuple[Any, Any, Hint]] = [
        (None, open_node, Hint.QUEUE),
        (None, closed, Hint.SKIP),
        (closed, open_node, Hint.QUEUE),
        (open_node, open_node, Hint.SKIP),
    ]
    for old, new, wanted in cases:
        assert on_node(pod(cluster), old, new, cluster) is wanted
    tolerant = pod_view(tolerations=[{"key": KEY, "operator": "Exists"}])
    assert on_pod(pod(cluster), pod_view(), tolerant, cluster) is Hint.QUEUE
    assert on_pod(pod(cluster), pod_view(), pod_view(), cluster) is Hint.SKIP
