import pytest
from tests.unit.placement.gpu_worlds import gpu_pod
from tests.unit.placement.plugin_views import node, pod

from muster.api import core
from muster.cluster.amounts import GPU
from muster.cluster.groups import PodGroups
from muster.cluster.state import ClusterState
from muster.placement import framework
from muster.placement.in_tree import ALWAYS, DEFAULTS, IN_TREE, INERT, POINTS, Shared, default_profile, extends
from muster.placement.judging import Judgement
from muster.placement.plugins.gang_scheduling import GangScheduling
from muster.placement.plugins.node_affinity import NodeAffinity
from muster.placement.profiles import name_of


@pytest.mark.parametrize("name", IN_TREE)
def test_every_plugin_is_made_without_arguments_and_has_the_name_it_is_known_by(name: str) -> None:
    plugin = IN_TREE[name]({}, Shared())
    assert not isinstance(plugin, list)
    assert plugin.name == name
    assert any(extends(plugin, point) for point in POINTS)


@pytest.mark.parametrize("name", IN_TREE)
def test_an_unknown_argument_is_named(name: str) -> None:
    errors = IN_TREE[name]({"surprise": 1}, Shared())
    assert isinstance(errors, list)
    assert [error.path for error in errors] == ["surprise"]


def test_defaults_are_kube_schedulers_with_ours_put_in() -> None:
    ours = {"GpuShares", "GpuPacking", "NodeGroups"}
    weights = {default.name: default.weight for default in DEFAULTS if default.weight != 1 and default.name not in ours}
    assert weights == {"TaintToleration": 3, "NodeAffinity": 2, "PodTopologySpread": 2, "InterPodAffinity": 2}
    filters = [name_of(plugin) for plugin in default_profile().filter if name_of(plugin) not in ours]
    assert filters == [
        "NodeName",
        "NodeUnschedulable",
        "TaintToleration",
        "NodeAffinity",
        "NodePorts",
        "NodeResourcesFit",
        "VolumeBinding",
        "PodTopologySpread",
        "InterPodAffinity",
    ]
    scores = {name_of(weighted.plugin): weighted.weight for weighted in default_profile().score}
    assert scores["NodeResourcesFit"] == scores["NodeResourcesBalancedAllocation"] == scores["ImageLocality"] == 1
    assert ALWAYS <= {default.name for default in DEFAULTS} <= IN_TREE.keys()
    assert not IN_TREE.keys() & INERT.keys()


def test_plugins_of_one_start_look_at_the_same_groups() -> None:
    shared = Shared(groups=PodGroups())
    gangs = [plugin for plugin in default_profile(shared).plugins if isinstance(plugin, GangScheduling)]
    assert gangs[0]._groups is shared.groups


def test_a_plugin_may_be_named_where_kube_schedulers_has_something_to_do_and_ours_has_not() -> None:
    plugin = IN_TREE["NodeResourcesBalancedAllocation"]({}, Shared())
    assert not isinstance(plugin, list)
    assert not isinstance(plugin, framework.Filter)
    assert extends(plugin, "score")
    assert not extends(plugin, "filter")
    affinity = NodeAffinity()
    assert extends(affinity, "preScore")


def machine(name: str, gpus: int = 0) -> core.Node:
    allocatable = {"pods": "100", "cpu": "64", "memory": "256Gi", **({GPU: str(gpus)} if gpus else {})}
    return node(name, status={"allocatable": allocatable})


def test_gpus_are_packed_although_everything_else_spreads_pods() -> None:
    """The node in use is worse for free CPU and memory, for balance and for the image, and is chosen all the same."""
    image = {"images": [{"names": ["big:1"], "sizeBytes": 4_000_000_000}]}
    allocatable = {"pods": "100", "cpu": "64", "memory": "256Gi", GPU: "8"}
    cluster = ClusterState.of(
        [
            node("used", status={"allocatable": allocatable}),
            node("unused", status={"allocatable": allocatable, **image}),
        ]
    )
    worker = {"requests": {"cpu": "8", "memory": "4Gi", GPU: "1"}}
    containers = [{"name": "c", "image": "big:1", "resources": worker}]
    for number in range(7):
        cluster.assign(pod(cluster, f"p{number}", containers=containers), "used")
    subject = pod(cluster, "next", containers=containers)
    best = Judgement(default_profile(), subject, cluster).best(0)
    assert best is not None
    assert cluster.names[best] == "used"


def test_a_pod_without_gpus_leaves_nodes_with_gpus_alone() -> None:
    cluster = ClusterState.of([machine("gpu", 8), machine("plain")])
    for number in range(6):
        resources = {"requests": {"cpu": "10", "memory": "40Gi"}}
        cluster.assign(pod(cluster, f"p{number}", containers=[{"name": "c", "resources": resources}]), "plain")
    best = Judgement(default_profile(), pod(cluster, "next", containers=[{"name": "c"}]), cluster).best(0)
    assert best is not None
    assert cluster.names[best] == "plain"


def test_two_pods_never_share_a_gpu_in_the_default_profile() -> None:
    cluster = ClusterState.of([machine("n", 1)])
    cluster.assign(gpu_pod(cluster, "half", share=500), "n")
    assert not Judgement(default_profile(), gpu_pod(cluster, "whole", whole=1), cluster).feasible.any()
    assert Judgement(default_profile(), gpu_pod(cluster, "other", share=500), cluster).feasible.all()


class Nameless:
    pass


class Odd:
    name = 7


@pytest.mark.parametrize(("plugin", "name"), [(Nameless(), "Nameless"), (Odd(), "7"), (object(), "object")])
def test_whatever_is_called_as_a_plugin_has_a_name_to_report(plugin: object, name: str) -> None:
    assert name_of(plugin) == name
