import pytest
from tests.unit.placement.plugin_views import node, pod, pod_view

from muster.cluster.state import ClusterState
from muster.placement.framework import Code, Hint
from muster.placement.plugins.scheduling_gates import SchedulingGates


def test_a_gated_pod_waits_and_says_for_what() -> None:
    cluster = ClusterState()
    gated = SchedulingGates().pre_enqueue(pod(cluster, schedulingGates=[{"name": "quota"}, {"name": "data"}]))
    assert gated.code is Code.UNRESOLVABLE
    assert gated.reasons == ("waiting for scheduling gates: [quota data]",)
    assert SchedulingGates().pre_enqueue(pod(cluster)).is_success


def test_the_last_gate_that_goes_wakes_the_pod() -> None:
    cluster = ClusterState()
    [wake] = SchedulingGates().wakes()
    assert wake.hint is not None
    one, none = pod_view(schedulingGates=[{"name": "quota"}]), pod_view()
    assert wake.hint(pod(cluster), one, none, cluster) is Hint.QUEUE
    assert wake.hint(pod(cluster), one, one, cluster) is Hint.SKIP
    with pytest.raises(TypeError):
        wake.hint(pod(cluster), None, node("a"), cluster)
