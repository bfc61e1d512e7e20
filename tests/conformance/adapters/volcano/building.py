"""From a session's documents to an engine that has them all, with a profile made of what its tiers enable."""

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import msgspec

from muster.api import core, volcano
from muster.api.kinds import Kind
from muster.api.objects import Key, Object
from muster.cluster.groups import Group, PodGroups, from_volcano
from muster.cluster.pods import PodInfo
from muster.cluster.state import FINISHED, ClusterState
from muster.placement.engine import Engine
from muster.placement.framework import Plugin
from muster.placement.plugins.balanced_allocation import NodeResourcesBalancedAllocation
from muster.placement.plugins.bin_packing import BinPacking, BinPackingArgs
from muster.placement.plugins.default_preemption import DefaultPreemption
from muster.placement.plugins.gang_scheduling import GangScheduling
from muster.placement.plugins.image_locality import ImageLocality
from muster.placement.plugins.inter_pod_affinity import InterPodAffinity
from muster.placement.plugins.node_affinity import NodeAffinity
from muster.placement.plugins.node_ports import NodePorts
from muster.placement.plugins.node_unschedulable import NodeUnschedulable
from muster.placement.plugins.resource_args import MOST_ALLOCATED, NodeResourcesFitArgs, ScoringStrategy
from muster.placement.plugins.resource_strategies import ResourceStrategyFitArgs
from muster.placement.plugins.resource_strategy_fit import ResourceStrategyFit
from muster.placement.plugins.resources_fit import NodeResourcesFit
from muster.placement.plugins.scheduling_gates import SchedulingGates
from muster.placement.plugins.taint_toleration import TaintToleration
from muster.placement.plugins.topology_spread import PodTopologySpread
from muster.placement.profiles import DEFAULT_SCHEDULER, Profile
from tests.conformance.adapters.kube.building import view, without_nulls
from tests.conformance.adapters.volcano import limits
from tests.conformance.cases import Case


@dataclass(frozen=True, slots=True)
class World:
    engine: Engine
    pending: list[PodInfo]
    jobs: dict[str, str]
    """The job of each pod, both as `namespace/name`."""


class _MostRequested(NodeResourcesFit):
    """Volcano scores by what is used and by what is free at once, with two weights."""

    name: ClassVar[str] = "MostRequested"


_NODE_ORDER = {
    "leastrequested.weight": ("NodeResourcesFit", 1),
    "mostrequested.weight": ("MostRequested", 0),
    "nodeaffinity.weight": ("NodeAffinity", 2),
    "podaffinity.weight": ("InterPodAffinity", 2),
    "balancedresource.weight": ("NodeResourcesBalancedAllocation", 1),
    "tainttoleration.weight": ("TaintToleration", 3),
    "imagelocality.weight": ("ImageLocality", 1),
    "podtopologyspread.weight": ("PodTopologySpread", 2),
}
NODE_ORDER_FIELDS = {
    "leastReqWeight": "leastrequested.weight",
    "mostReqWeight": "mostrequested.weight",
    "nodeAffinityWeight": "nodeaffinity.weight",
    "podAffinityWeight": "podaffinity.weight",
    "balancedResourceWeight": "balancedresource.weight",
    "taintTolerationWeight": "tainttoleration.weight",
    "imageLocalityWeight": "imagelocality.weight",
    "podTopologySpreadWeight": "podtopologyspread.weight",
}
_PREDICATES = {
    "NodeAffinity": "predicate.NodeAffinityEnable",
    "NodePorts": "predicate.NodePortsEnable",
    "TaintToleration": "predicate.TaintTolerationEnable",
    "InterPodAffinity": "predicate.PodAffinityEnable",
    "PodTopologySpread": "predicate.PodTopologySpreadEnable",
}


def world(case: Case, admitted: Collection[str] | None = None) -> World:
    """`admitted`: of the pods that are pending, only these are to be placed, by `namespace/name`; None: all."""
    cluster, groups = ClusterState(), PodGroups()
    profile = profile_of(case, groups)
    engine = Engine({DEFAULT_SCHEDULER: profile}, cluster, groups, reserve_after=None)
    for document in case.get("nodes") or ():
        engine.take(None, _object(core.NODE, document), 0.0)
    for document in _hypernodes(case):
        engine.take(None, _object(volcano.HYPER_NODE, document), 0.0)
    for document in case.get("queues") or ():
        engine.take(None, _object(volcano.QUEUE, document), 0.0)
    for document in case.get("podGroups") or ():
        cluster.queues.set_group(_key(document), (document.get("spec") or {}).get("queue"))
    for group in _groups(case):
        groups.put(group)
    waiting = [pod["metadata"] for pod in limits.pending(case)]
    pending, jobs = [], {}
    for document in case.get("pods") or ():
        pod = view(document)
        info = cluster.shapes.info(pod)
        jobs[str(info.key)] = f"{info.namespace}/{info.group.name if info.group else ''}"
        if pod.spec.node_name and pod.status.phase not in FINISHED:
            engine.take(None, _object(core.POD, document), 0.0)
        elif document["metadata"] in waiting and (admitted is None or str(info.key) in admitted):
            pending.append(info)
    for info in pending:
        groups.pending(info)
    for info in pending:
        engine.queue.add(info, 0.0)
    return World(engine, pending, jobs)


def _hypernodes(case: Case) -> list[dict[str, Any]]:
    """By the key of the map, which the other fields use too; or, where a case says only which nodes each tier has, made
    of that."""
    stated = case.get("hyperNodes") or {}
    if stated:
        known = {name: found["hyperNode"] for name, found in stated.items()}
        return [{**found, "metadata": {**found["metadata"], "name": name}} for name, found in known.items()]
    nodes = case.get("realNodesByHyperNode") or {}
    return [
        {
            "metadata": {"name": name},
            "spec": {
                "tier": int(tier),
                "members": [{"type": "Node", "selector": {"exactMatch": {"name": node}}} for node in nodes[name]],
            },
        }
        for tier, names in (case.get("hyperNodesSetByTier") or {}).items()
        for name in names
    ]


def _object(kind: Kind, document: dict[str, Any]) -> Object:
    clean = without_nulls(document)
    meta = clean["metadata"]
    meta.setdefault("uid", f"{meta.get('namespace', '')}-{meta['name']}")
    return Object(kind, msgspec.json.encode(clean))


def _key(document: dict[str, Any]) -> Key:
    return Key(document["metadata"].get("namespace", ""), document["metadata"]["name"])


def _groups(case: Case) -> list[Group]:
    classes = {found["metadata"]["name"]: found.get("value", 0) for found in case.get("priorityClasses") or ()}
    enabled = {name: plugin for plugin in limits.plugins(case) for name in [plugin["name"]]}
    is_ordered = enabled.get("priority", {}).get("enableJobOrder") or "preempt" in case["actions"]
    found = []
    for document in case.get("podGroups") or ():
        group = view(document, volcano.PodGroup)
        priority = classes.get(group.spec.priority_class_name or "") if is_ordered else None
        known = from_volcano(group, priority)
        if not enabled.get("gang", {}).get("enableJobReady") and not enabled.get("gang", {}).get("enableJobPipelined"):
            known = replace(known, min_count=1, min_per_task={})
        found.append(known)
    return found


def profile_of(case: Case, groups: PodGroups) -> Profile:
    enabled = {plugin["name"]: plugin for plugin in limits.plugins(case)}
    plugins: list[Plugin] = [
        SchedulingGates(),
        NodeResourcesFit(),
        NodeUnschedulable(),
        NodeAffinity(),
        NodePorts(),
        TaintToleration(),
        InterPodAffinity(),
        PodTopologySpread(),
        GangScheduling(groups),
        DefaultPreemption(groups=groups),
        _MostRequested(NodeResourcesFitArgs(scoring_strategy=ScoringStrategy(MOST_ALLOCATED))),
        NodeResourcesBalancedAllocation(),
        ImageLocality(),
    ]
    weights: dict[str, int] = {}
    if enabled.get("nodeorder", {}).get("enableNodeOrder"):
        weights = node_order(enabled["nodeorder"].get("arguments") or {})
    if enabled.get("binpack", {}).get("enableNodeOrder"):
        args = BinPackingArgs.from_volcano(enabled["binpack"].get("arguments") or {})
        plugins.append(BinPacking(args))
        weights[BinPacking.name] = args.weight
    if enabled.get("resource-strategy-fit", {}).get("enableNodeOrder"):
        strategies = ResourceStrategyFitArgs.from_volcano(enabled["resource-strategy-fit"].get("arguments") or {})
        plugins.append(ResourceStrategyFit(strategies))
        weights[ResourceStrategyFit.name] = strategies.weight + strategies.scarce_weight
    scoring = [plugin for plugin in plugins if weights.get(plugin.name)]
    return Profile.of(plugins, weights, points=_points(case, enabled, plugins, scoring))


def node_order(arguments: dict[str, Any]) -> dict[str, int]:
    """By plugin, what Volcano's nodeorder multiplies its scores by."""
    return {name: int(arguments.get(key, usual)) for key, (name, usual) in _NODE_ORDER.items()}


def _points(
    case: Case, enabled: dict[str, dict[str, Any]], plugins: list[Plugin], scoring: list[Plugin]
) -> dict[str, list[Plugin]]:
    by_name = {plugin.name: plugin for plugin in plugins}
    filters = [by_name["NodeResourcesFit"]]
    if enabled.get("predicates", {}).get("enablePredicate"):
        arguments = enabled["predicates"].get("arguments") or {}
        filters.append(by_name["NodeUnschedulable"])
        filters += [by_name[name] for name, key in _PREDICATES.items() if arguments.get(key, True)]
    preempting = [by_name["DefaultPreemption"]] if "preempt" in case["actions"] else []
    return {
        "preEnqueue": [by_name["SchedulingGates"], by_name["GangScheduling"]],
        "preFilter": filters,
        "filter": filters,
        "preScore": scoring,
        "score": scoring,
        "postFilter": preempting,
        "podGroupPostFilter": preempting,
    }
