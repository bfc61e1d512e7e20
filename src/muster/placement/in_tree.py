"""The plugins that come with Muster: how each is made from its arguments, and which are on when nobody says otherwise.

Names, order and weights are kube-scheduler's, with ours put in. Plugins of kube-scheduler for something that does not
exist here (kinds of volumes, dynamic resources) are known by name, so that users' configurations can be read, and do
nothing.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple, TypeAlias, TypeVar

from muster.api import fields
from muster.api.errors import FieldError
from muster.api.raw import Document
from muster.cluster.groups import PodGroups
from muster.placement import framework
from muster.placement.framework import Plugin
from muster.placement.plugins.balanced_allocation import NodeResourcesBalancedAllocation
from muster.placement.plugins.bin_packing import BinPacking, BinPackingArgs
from muster.placement.plugins.default_preemption import DefaultPreemption, DefaultPreemptionArgs, Evictions
from muster.placement.plugins.deferred_pod_scheduling import DeferredPodScheduling
from muster.placement.plugins.gang_scheduling import GangScheduling
from muster.placement.plugins.gpu_packing import GpuPacking, GpuPackingArgs
from muster.placement.plugins.gpu_shares import GpuShares
from muster.placement.plugins.image_locality import ImageLocality
from muster.placement.plugins.inter_pod_affinity import InterPodAffinity, InterPodAffinityArgs
from muster.placement.plugins.node_affinity import NodeAffinity, NodeAffinityArgs
from muster.placement.plugins.node_groups import NodeGroups, NodeGroupsArgs
from muster.placement.plugins.node_name import NodeName
from muster.placement.plugins.node_ports import NodePorts
from muster.placement.plugins.node_unschedulable import NodeUnschedulable
from muster.placement.plugins.pod_group_pods_count import PodGroupPodsCount
from muster.placement.plugins.priority_sort import PrioritySort
from muster.placement.plugins.proportional_reserve import ProportionalReserve, ProportionalReserveArgs
from muster.placement.plugins.resource_args import NodeResourcesBalancedAllocationArgs, NodeResourcesFitArgs
from muster.placement.plugins.resource_strategies import ResourceStrategyFitArgs
from muster.placement.plugins.resource_strategy_fit import ResourceStrategyFit
from muster.placement.plugins.resources_fit import NodeResourcesFit, ResourceGates
from muster.placement.plugins.scheduling_gates import SchedulingGates
from muster.placement.plugins.taint_toleration import TaintToleration
from muster.placement.plugins.topology_placement import TopologyPlacementGenerator
from muster.placement.plugins.topology_spread import PodTopologySpread, PodTopologySpreadArgs
from muster.placement.plugins.volume_binding import VolumeBinding, check_arguments
from muster.placement.preempting import PreemptionExtender
from muster.placement.profiles import DEFAULT_BINDER, DEFAULT_SCHEDULER, Profile

A = TypeVar("A")


@dataclass(frozen=True, slots=True)
class Shared:
    """What plugins of all profiles look at together."""

    groups: PodGroups = field(default_factory=PodGroups)
    evictions: Evictions = field(default_factory=Evictions)
    preemption_extenders: Sequence[PreemptionExtender] = ()
    resize_preemption: bool = False
    """Running pods that wait for a resize are judged again on their own nodes: see DeferredPodScheduling."""


Factory: TypeAlias = Callable[[Document, Shared], Plugin | list[FieldError]]
"""(arguments without their `apiVersion` and `kind`, what is shared) → the plugin, or all that is wrong with the
arguments. Paths begin inside the arguments."""


class DefaultBinder:
    """Stands where the platform's own way to bind a pod stands among bind plugins. The shell does it, many at once."""

    name: ClassVar[str] = DEFAULT_BINDER


def _plain(make: Callable[[Shared], Plugin]) -> Factory:
    def factory(document: Document, shared: Shared) -> Plugin | list[FieldError]:
        errors = [fields.forbidden(name, "unknown field; the plugin has no arguments") for name in document]
        return errors or make(shared)

    return factory


def _with(read: Callable[[Document], A | list[FieldError]], make: Callable[[A, Shared], Plugin]) -> Factory:
    def factory(document: Document, shared: Shared) -> Plugin | list[FieldError]:
        args = read(document)
        return args if isinstance(args, list) else make(args, shared)

    return factory


def _preemption(args: DefaultPreemptionArgs, shared: Shared) -> Plugin:
    return DefaultPreemption(args, shared.groups, shared.evictions, extenders=shared.preemption_extenders)


def _fit(args: NodeResourcesFitArgs, shared: Shared) -> Plugin:
    return NodeResourcesFit(args, ResourceGates(resize_preemption=shared.resize_preemption))


IN_TREE: Mapping[str, Factory] = {
    "SchedulingGates": _plain(lambda _: SchedulingGates()),
    "PrioritySort": _plain(lambda _: PrioritySort()),
    "NodeName": _plain(lambda _: NodeName()),
    "NodeUnschedulable": _plain(lambda shared: NodeUnschedulable(resize_preemption=shared.resize_preemption)),
    "TaintToleration": _plain(lambda shared: TaintToleration(resize_preemption=shared.resize_preemption)),
    "NodeAffinity": _with(
        NodeAffinityArgs.from_document,
        lambda args, shared: NodeAffinity(args, resize_preemption=shared.resize_preemption),
    ),
    "NodeGroups": _with(NodeGroupsArgs.from_document, lambda args, _: NodeGroups(args)),
    "NodePorts": _plain(lambda shared: NodePorts(resize_preemption=shared.resize_preemption)),
    "NodeResourcesFit": _with(NodeResourcesFitArgs.from_document, _fit),
    "GpuShares": _plain(lambda _: GpuShares()),
    "ProportionalReserve": _with(ProportionalReserveArgs.from_document, lambda args, _: ProportionalReserve(args)),
    "VolumeBinding": lambda document, _: check_arguments(document) or VolumeBinding(),
    "PodTopologySpread": _with(
        PodTopologySpreadArgs.from_document,
        lambda args, shared: PodTopologySpread(args, resize_preemption=shared.resize_preemption),
    ),
    "InterPodAffinity": _with(
        InterPodAffinityArgs.from_document,
        lambda args, shared: InterPodAffinity(args, resize_preemption=shared.resize_preemption),
    ),
    "DefaultPreemption": _with(DefaultPreemptionArgs.from_document, _preemption),
    "NodeResourcesBalancedAllocation": _with(
        NodeResourcesBalancedAllocationArgs.from_document, lambda args, _: NodeResourcesBalancedAllocation(args)
    ),
    "ImageLocality": _plain(lambda _: ImageLocality()),
    "GpuPacking": _with(GpuPackingArgs.from_document, lambda args, _: GpuPacking(args)),
    "BinPacking": _with(BinPackingArgs.from_document, lambda args, _: BinPacking(args)),
    "ResourceStrategyFit": _with(ResourceStrategyFitArgs.from_document, lambda args, _: ResourceStrategyFit(args)),
    DEFAULT_BINDER: _plain(lambda _: DefaultBinder()),
    "GangScheduling": _plain(lambda shared: GangScheduling(shared.groups)),
    "TopologyPlacementGenerator": _plain(lambda shared: TopologyPlacementGenerator(shared.groups)),
    "PodGroupPodsCount": _plain(lambda shared: PodGroupPodsCount(shared.groups)),
    "DeferredPodScheduling": _plain(lambda shared: DeferredPodScheduling(shared.resize_preemption)),
}
"""In the order in which they are called."""


class Default(NamedTuple):
    name: str
    weight: int = 1
    """Of its scores, where it gives any."""


# GPUs are packed against the pull of what spreads pods by default. On nodes of eight, a node in use is better for
# GpuPacking than an unused one by 56 to 93; free CPU, balance and images together may say the contrary by some 240.
# Three times the former wins, and still yields to what a user prefers (affinity counts 200) as soon as that agrees
# with any of the others.
_PACKING_WEIGHT = 3

DEFAULTS: Sequence[Default] = (
    Default("SchedulingGates"),
    Default("PrioritySort"),
    Default("NodeName"),
    Default("NodeUnschedulable"),
    Default("TaintToleration", 3),
    Default("NodeAffinity", 2),
    Default("NodeGroups", 2),
    Default("NodePorts"),
    Default("NodeResourcesFit"),
    Default("GpuShares"),
    Default("VolumeBinding"),
    Default("PodTopologySpread", 2),
    Default("InterPodAffinity", 2),
    Default("DefaultPreemption"),
    Default("NodeResourcesBalancedAllocation"),
    Default("ImageLocality"),
    Default("GpuPacking", _PACKING_WEIGHT),
    Default(DEFAULT_BINDER),
    Default("GangScheduling"),
    Default("TopologyPlacementGenerator"),
    Default("PodGroupPodsCount"),
)
ALWAYS = frozenset({"GpuShares"})
"""On whatever a profile switches off: without it two pods could be given one GPU."""

_NO_VOLUMES = "volumes are directories, of which a node has as many as it likes"
INERT: Mapping[str, str] = {
    "VolumeRestrictions": _NO_VOLUMES,
    "VolumeZone": _NO_VOLUMES,
    "NodeVolumeLimits": _NO_VOLUMES,
    "EBSLimits": _NO_VOLUMES,
    "GCEPDLimits": _NO_VOLUMES,
    "AzureDiskLimits": _NO_VOLUMES,
    "CinderLimits": _NO_VOLUMES,
    "DynamicResources": "there are no resource claims; ask for GPUs as a resource",
    "NodeDeclaredFeatures": "nodes declare no features",
    "SelectorSpread": "PodTopologySpread spreads the pods of services and controllers",
}
"""Plugins of kube-scheduler that have nothing to do here, and why."""

POINTS: Mapping[str, type | None] = {
    "preEnqueue": framework.PreEnqueue,
    "queueSort": framework.QueueSort,
    "preFilter": framework.PreFilter,
    "filter": framework.Filter,
    "postFilter": None,
    "preScore": framework.PreScore,
    "score": framework.Score,
    "reserve": framework.Reserve,
    "permit": framework.Permit,
    "preBind": framework.PreBind,
    "bind": framework.BindPlugin,
    "postBind": framework.PostBind,
    "placementGenerate": framework.PlacementGenerate,
    "placementScore": framework.PlacementScore,
    "placementFeasible": framework.PlacementFeasible,
    "podGroupPostFilter": None,
}
"""The extension points by the names that configurations use, and what a plugin must be to be called there. None: only
DefaultPreemption can."""

_FILTERS = frozenset({"preFilter", "filter"})
_SCORES = frozenset({"preScore", "score"})
_EXTENDS: Mapping[str, frozenset[str]] = {
    "NodeName": _FILTERS,
    "NodeUnschedulable": _FILTERS,
    "TaintToleration": _FILTERS | _SCORES,
    "NodeAffinity": _FILTERS | _SCORES,
    "NodePorts": _FILTERS,
    "NodeResourcesFit": _FILTERS | _SCORES,
    "VolumeBinding": _FILTERS | {"preScore", "score", "reserve", "preBind"},
    "PodTopologySpread": _FILTERS | _SCORES,
    "InterPodAffinity": _FILTERS | _SCORES,
    "DefaultPreemption": frozenset({"preEnqueue", "postFilter", "podGroupPostFilter"}),
    "NodeResourcesBalancedAllocation": _SCORES,
    "ImageLocality": frozenset({"score"}),
    DEFAULT_BINDER: frozenset({"bind"}),
}
"""Where kube-scheduler's own can be named in a configuration, also where ours have nothing to do."""


def extends(plugin: Plugin, point: str) -> bool:
    """Whether a configuration may name the plugin at the extension point."""
    protocol = POINTS[point]
    if point in _EXTENDS.get(plugin.name, ()):
        return True
    return isinstance(plugin, protocol) if protocol is not None else hasattr(plugin, "post_filter")


def default_profile(shared: Shared | None = None, scheduler_name: str = DEFAULT_SCHEDULER) -> Profile:
    """What is used where nobody has configured anything."""
    together, plugins = shared or Shared(), []
    for default in DEFAULTS:
        plugin = IN_TREE[default.name]({}, together)
        assert not isinstance(plugin, list), f"{default.name} needs no arguments"
        plugins.append(plugin)
    weights = {default.name: default.weight for default in DEFAULTS}
    return Profile.of(plugins, weights, scheduler_name, placement_weights=weights)


_sorts: framework.QueueSort = PrioritySort()
