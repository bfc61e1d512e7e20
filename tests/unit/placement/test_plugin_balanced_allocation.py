import math

from hypothesis import given
from hypothesis import strategies as st
from tests.unit.placement.plugin_views import node, pod
from tests.unit.placement.resource_worlds import RESOURCES, World, asking, worlds

from muster.cluster.state import ClusterState
from muster.placement.framework import Code
from muster.placement.plugins.balanced_allocation import NodeResourcesBalancedAllocation
from muster.placement.plugins.resource_args import NodeResourcesBalancedAllocationArgs, ResourceSpec

CHOICES = st.lists(st.sampled_from(RESOURCES), min_size=1, max_size=5, unique=True).map(
    lambda names: NodeResourcesBalancedAllocationArgs(tuple(ResourceSpec(name) for name in names))
)


def balance(shares: list[float]) -> int:
    if len(shares) < 2:
        return 100
    if len(shares) == 2:
        return int((1 - abs((shares[0] - shares[1]) / 2)) * 100)
    total = 0.0
    for share in shares:
        total += share
    mean, squares = total / len(shares), 0.0
    for share in shares:
        squares += (share - mean) * (share - mean)
    return int((1 - math.sqrt(squares / len(shares))) * 100)


def plainly(world: World, args: NodeResourcesBalancedAllocationArgs, slot: int) -> int:
    view = world.cluster.nodes[slot]
    assert view is not None
    before, after = [], []
    for name, _ in args.resources:
        capacity = int((view.status.allocatable or {}).get(name, 0)) * (1000 if name == "cpu" else 1)
        own = world.pod.shape.needs.get(name, 0)
        if capacity == 0 or (own == 0 and name not in ("cpu", "memory", "ephemeral-storage")):
            continue
        used = sum(other.needs.get(name, 0) for other in world.cluster.pods_on[slot].values())
        before.append(min(used / capacity, 1.0))
        after.append(min((used + own) / capacity, 1.0))
    return 50 + (50 + balance(after) - balance(before)) // 2


@given(worlds(), CHOICES)
def test_vectors_single_nodes_and_plain_sums_agree(world: World, args: NodeResourcesBalancedAllocationArgs) -> None:
    plugin = NodeResourcesBalancedAllocation(args)
    scores = plugin.score(world.pod, world.cluster, None)
    for slot in world.slots:
        wanted = plainly(world, args, slot)
        assert int(scores[slot]) == wanted
        assert plugin.score_at(world.pod, world.cluster, None, slot) == wanted


def test_a_pod_that_asks_for_nothing_is_not_scored() -> None:
    cluster = ClusterState.of([node("n", status={"allocatable": {"cpu": "4", "memory": "8"}})])
    plugin = NodeResourcesBalancedAllocation()
    assert plugin.pre_score(pod(cluster, **asking({})), cluster, cluster.mask(True)).status.code is Code.SKIP
    assert plugin.pre_score(pod(cluster, "b", **asking({"cpu": 1})), cluster, cluster.mask(True)).status.is_success


def test_the_node_that_becomes_more_even_is_better() -> None:
    nodes = [node(name, status={"allocatable": {"cpu": "4", "memory": "8"}}) for name in ("even", "uneven")]
    cluster = ClusterState.of(nodes)
    cluster.assign(pod(cluster, "other", **asking({"cpu": 2})), "uneven")
    scores = NodeResourcesBalancedAllocation().score(pod(cluster, **asking({"memory": 4})), cluster, None)
    assert scores[cluster.slots["uneven"]] > scores[cluster.slots["even"]]
