"""Volcano's nodegroup: which groups of nodes a queue is for, and which of them are better."""

from typing import Any

from muster.cluster.pods import PodInfo
from muster.cluster.queues import NODE_GROUP
from muster.cluster.state import ClusterState
from muster.placement.plugins.node_groups import NodeGroups, NodeGroupsArgs
from tests.conformance.adapters.kube.building import status_at, view
from tests.conformance.adapters.volcano import building, limits
from tests.conformance.cases import Adapters, Case, NotApplicable, Outcome, Passed, compare

LIMITS = (
    "an annotation of the queue limits what it may use of each group of nodes: in Muster such a limit is the quota of "
    "a ClusterQueue for a flavor"
)
_LIMITS_ANNOTATION = "volcano.sh/nodegroup-resource-limits"
_CODES = {"Success": 0, "Unschedulable": 2, "UnschedulableAndUnresolvable": 3}


def _plugin(case: Case) -> NodeGroups:
    (enabled,) = limits.plugins(case)
    arguments = enabled.get("arguments") or {}
    return NodeGroups(
        NodeGroupsArgs(strict=arguments.get("strict", True), ordered=arguments.get("enablePreferredOrder", False))
    )


def _as_trees(case: Case) -> Case:
    """Without `enableHierarchy` a queue has none above it."""
    if any(enabled.get("enableHierarchy") for enabled in limits.plugins(case)):
        return case
    alone = [{**queue, "spec": {**(queue.get("spec") or {}), "parent": ""}} for queue in case["queues"]]
    return case | {"queues": alone}


def _code(plugin: NodeGroups, pod: PodInfo, cluster: ClusterState, node: str) -> int:
    if plugin.pre_filter(pod, cluster).status.code == "Skip":
        return 0
    return _CODES[status_at(list(plugin.filter(pod, cluster, None)), cluster.slots[node]).code]


def _points(plugin: NodeGroups, pod: PodInfo, cluster: ClusterState, node: str) -> float:
    found, rules = cluster.nodes[cluster.slots[node]], cluster.queues.rules_for(pod.group)
    assert found is not None
    group = (found.metadata.labels or {}).get(NODE_GROUP)
    return 0.0 if rules is None else plugin.points(rules, group)


def _run(case: Case) -> Outcome:
    row = case["row"]
    if any(_LIMITS_ANNOTATION in (queue["metadata"].get("annotations") or {}) for queue in case["queues"]):
        return NotApplicable(LIMITS)
    plugin, cluster = _plugin(case), building.world(_as_trees(case)).engine.cluster
    codes: dict[str, Any] = {}
    points: dict[str, Any] = {}
    for document in case["pods"]:
        pod = cluster.shapes.info(view(document))
        codes[str(pod.key)] = {name: _code(plugin, pod, cluster, name) for name in cluster.slots}
        points[str(pod.key)] = {name: _points(plugin, pod, cluster, name) for name in cluster.slots}
    if "targetTaskName" in row:
        codes = next(found for name, found in codes.items() if name.endswith(f"/{row['targetTaskName']}"))
        return compare("codes", codes, row["expectedStatus"]) or Passed()
    return compare("codes", codes, row["expectedStatus"]) or compare("points", points, row["expected"]) or Passed()


ADAPTERS: Adapters = {"nodegroup": _run}
