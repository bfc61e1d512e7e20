import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.placement.plugin_views import node, pod
from tests.unit.placement.resource_worlds import RESOURCES, World, asking, worlds

from muster.cluster.state import ClusterState
from muster.placement.framework import Code
from muster.placement.plugins.resource_args import (
    STRATEGIES,
    NodeResourcesFitArgs,
    ResourceSpec,
    ScoringStrategy,
    ShapePoint,
)
from muster.placement.plugins.resource_scores import broken_linear
from muster.placement.plugins.resources_fit import NodeResourcesFit

UNSAID = {"cpu": 100, "memory": 200 * 2**20}


@st.composite
def strategies(draw: st.DrawFn) -> ScoringStrategy:
    type_ = draw(st.sampled_from(STRATEGIES))
    weighed = st.builds(ResourceSpec, st.sampled_from((*RESOURCES, "pods")), st.integers(1, 100))
    resources = tuple(draw(st.lists(weighed, min_size=1, max_size=4)))
    if type_ != "RequestedToCapacityRatio":
        return ScoringStrategy(type_, resources)
    steps = sorted(draw(st.sets(st.integers(0, 100), min_size=1, max_size=4)))
    return ScoringStrategy(type_, resources, tuple(ShapePoint(step, draw(st.integers(0, 10))) for step in steps))


def through(shape: tuple[ShapePoint, ...], used: int) -> int:
    """The function of the points at a whole percentage, rounded towards zero from the left point's value."""
    points = [(point.utilization, point.score * 10) for point in shape]
    if used <= points[0][0]:
        return points[0][1]
    for (left, low), (right, high) in itertools.pairwise(points):
        if used <= right:
            return low + int((high - low) * (used - left) / (right - left))
    return points[-1][1]


def plainly(world: World, strategy: ScoringStrategy, slot: int) -> int:
    """One node's score from the pods on it, resource by resource."""
    view = world.cluster.nodes[slot]
    assert view is not None
    total = weights = 0
    for name, weight in strategy.resources:
        unit = 1000 if name == "cpu" else 1
        capacity = int((view.status.allocatable or {}).get(name, 0)) * unit
        others = [other.shape.needs.get(name, UNSAID.get(name, 0)) for other in world.cluster.pods_on[slot].values()]
        own = world.pod.shape.needs.get(name, UNSAID.get(name, 0))
        if capacity == 0 or name == "pods" or (own == 0 and name not in ("cpu", "memory", "ephemeral-storage")):
            continue
        used = min(sum(others) + own, capacity)
        match strategy.type:
            case "LeastAllocated":
                rated = (capacity - used) * 100 // capacity
            case "MostAllocated":
                rated = used * 100 // capacity
            case _:
                assert strategy.shape is not None
                rated = through(strategy.shape, used * 100 // capacity)
                if rated == 0:
                    continue
        total += rated * weight
        weights += weight
    if not weights:
        return 0
    return int(total / weights + 0.5) if strategy.type == "RequestedToCapacityRatio" else total // weights


@given(worlds(), strategies())
def test_vectors_single_nodes_and_plain_sums_agree(world: World, strategy: ScoringStrategy) -> None:
    plugin = NodeResourcesFit(NodeResourcesFitArgs(scoring_strategy=strategy))
    scores = plugin.score(world.pod, world.cluster, None)
    for slot in world.slots:
        wanted = plainly(world, strategy, slot)
        assert int(scores[slot]) == wanted
        assert plugin.score_at(world.pod, world.cluster, None, slot) == wanted
        assert 0 <= wanted <= 100


def test_absurd_amounts_do_not_overflow() -> None:
    huge = {"memory": "8Ei", "pods": "10"}
    cluster = ClusterState.of([node("n", status={"allocatable": huge})])
    for number in range(5):
        cluster.assign(pod(cluster, f"p{number}", **asking({"memory": 2**62})), "n")
    for type_ in ("LeastAllocated", "MostAllocated"):
        plugin = NodeResourcesFit(NodeResourcesFitArgs(scoring_strategy=ScoringStrategy(type_)))
        assert int(plugin.score(pod(cluster, "new", **asking({})), cluster, None)[0]) in (0, 100)


def test_a_falling_line_is_rounded_towards_zero() -> None:
    points = [ShapePoint(0, 10), ShapePoint(3, 0)]
    assert [broken_linear(points, at) for at in (-1, 0, 1, 2, 3, 4)] == [10, 10, 7, 4, 0, 0]


def test_a_plugin_without_resources_says_so() -> None:
    cluster = ClusterState.of([node("n")])
    plugin = NodeResourcesFit(NodeResourcesFitArgs(scoring_strategy=ScoringStrategy(resources=())))
    prepared = plugin.pre_score(pod(cluster), cluster, cluster.mask(True))
    assert prepared.status.code is Code.ERROR
    assert prepared.status.reasons == ("resources not found",)


@pytest.mark.parametrize(("requests", "cpu"), [({}, 100), ({"cpu": 0}, 0), ({"cpu": 2}, 2000)])
def test_only_what_is_not_said_is_made_up(requests: dict[str, int], cpu: int) -> None:
    cluster = ClusterState()
    assert NodeResourcesFit().scored_requests(pod(cluster, **asking(requests)))["cpu"] == cpu
