from hypothesis import given
from hypothesis import strategies as st
from tests.unit.placement.plugin_views import names, node, pod

from muster.cluster.state import ClusterState
from muster.placement.framework import Hint
from muster.placement.plugins.node_name import REASON, NodeName

NAMES = st.sampled_from(("a", "b", "c", ""))


@given(st.sets(st.sampled_from(("a", "b", "c"))), NAMES)
def test_a_pod_goes_only_to_the_node_that_it_names(existing: set[str], wanted: str) -> None:
    cluster = ClusterState.of([node(name) for name in sorted(existing)])
    subject = pod(cluster, nodeName=wanted)
    rejections = NodeName().filter(subject, cluster, None)
    rejected = {name for rejection in rejections for name in names(cluster, rejection.nodes)}
    assert rejected == ({name for name in existing if name != wanted} if wanted else set())
    assert all(rejection.reason == REASON and rejection.is_unresolvable for rejection in rejections)
    prepared = NodeName().pre_filter(subject, cluster)
    assert prepared.status.is_success
    assert (None if prepared.nodes is None else names(cluster, prepared.nodes)) == (
        existing & {wanted} if wanted else None
    )


def test_the_node_that_was_named_wakes_the_pod() -> None:
    cluster = ClusterState()
    [wake] = NodeName().wakes()
    assert wake.hint is not None
    assert wake.hint(pod(cluster, nodeName="a"), None, node("a"), cluster) is Hint.QUEUE
    assert wake.hint(pod(cluster, nodeName="a"), None, node("b"), cluster) is Hint.SKIP
