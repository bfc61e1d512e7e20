from hypothesis import given
from hypothesis import strategies as st
from tests.unit.placement.plugin_views import pod

from muster.api.meta import Instant
from muster.cluster.state import ClusterState
from muster.placement.plugins.priority_sort import PrioritySort


@given(st.lists(st.tuples(st.sampled_from((None, -5, 0, 10)), st.floats(0, 1e9)), min_size=2, max_size=2))
def test_priority_first_then_who_came_first(pods: list[tuple[int | None, float]]) -> None:
    (one, first), (other, second) = pods
    cluster = ClusterState()
    keys = [PrioritySort().sort_key(pod(cluster, priority=p), Instant(at)) for p, at in pods]
    high, low = one or 0, other or 0
    assert (keys[0] < keys[1]) is (high > low or (high == low and first < second))
