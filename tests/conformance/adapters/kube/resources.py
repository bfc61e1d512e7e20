"""NodeResourcesFit and NodeResourcesBalancedAllocation: FORMAT.md §5."""

from typing import Any

from muster.api import core
from muster.api.meta import Resource
from muster.cluster.groups import Group, GroupKey
from muster.cluster.state import ClusterState
from muster.placement.framework import Hint, Placement
from muster.placement.plugins import resource_hints, resource_scores
from muster.placement.plugins.balanced_allocation import NodeResourcesBalancedAllocation
from muster.placement.plugins.resource_args import (
    NodeResourcesBalancedAllocationArgs,
    NodeResourcesFitArgs,
    ResourceSpec,
    ShapePoint,
)
from muster.placement.plugins.resources_fit import NodeResourcesFit, ResourceGates
from tests.conformance.adapters.kube.building import cluster_of, knows_claimed, run_filter, run_score, subject, view
from tests.conformance.cases import Adapters, Case, Failed, NotApplicable, Outcome, Passed, compare

DRA = NotApplicable(
    "extended resources backed by dynamic resource allocation: Muster serves no DeviceClass, ResourceSlice or "
    "ResourceClaim, so no such object can exist and no resource can be delegated to one"
)
SIGN_POD = NotApplicable("we group pods by their whole scheduling-relevant spec, not by per-plugin fragments")
NO_CYCLE_STATE = NotApplicable(
    "Filter is handed what PreFilter found as an argument: there is no cycle state in which it could be missing"
)
_DRA_KINDS = {"DeviceClass", "ResourceSlice", "ResourceClaim"}


def not_applicable(case: Case) -> NotApplicable | None:
    gates, knobs = case.get("featureGates") or {}, case.get("knobs") or {}
    if "DeviceClass" in str(knobs.get("handler")):
        return DRA
    # With the gate but without such objects, all is as without it, but for the events.
    kinds = {found.get("kind") for found in case.get("objects") or ()}
    if gates.get("DRAExtendedResource") and (kinds & _DRA_KINDS or case["extensionPoint"] == "EventsToRegister"):
        return DRA
    return SIGN_POD if case["extensionPoint"] == "SignPod" else None


def gates_of(case: Case) -> ResourceGates:
    gates = case.get("featureGates") or {}
    return ResourceGates(
        pod_level_resources=bool(gates.get("PodLevelResources")),
        in_place_resize=bool(gates.get("InPlacePodVerticalScaling")),
        resize_preemption=bool(gates.get("InPlacePodVerticalScalingSchedulerPreemption")),
    )


def fit_of(case: Case) -> NodeResourcesFit | list[tuple[str, str]]:
    """The plugin, or the errors of its arguments as (type, field). Arguments of a case have been through defaulting."""
    document = case.get("args")
    args = NodeResourcesFitArgs() if document is None else NodeResourcesFitArgs.from_document(document, defaults=False)
    if isinstance(args, list):
        return [(error.reason, error.path) for error in args]
    return NodeResourcesFit(args, gates_of(case))


def fit(case: Case) -> Outcome:
    skipped = not_applicable(case)
    if skipped:
        return skipped
    return _FIT_TESTS[case["extensionPoint"]](case)


def fit_filter(case: Case) -> Outcome:
    if (case.get("knobs") or {}).get("skipPreFilter"):
        return NO_CYCLE_STATE
    plugin = fit_of(case)
    assert isinstance(plugin, NodeResourcesFit)
    cluster = cluster_of(case)
    outcome = run_filter(case, plugin, cluster)
    pod, expect = subject(case, cluster), case["expect"]
    for entry in expect.get("filter") or ():
        slot = cluster.slots[entry["node"]]
        fits = plugin.fits_at(pod, cluster, None, slot)
        failed = compare("fits_at", fits, entry["status"]["code"] == "Success")
        if failed:
            return failed
    if "insufficientResources" in expect and isinstance(outcome, Passed):
        found = [
            {
                "resourceName": shortage.resource,
                "reason": shortage.reason,
                "requested": shortage.requested,
                "used": shortage.used,
                "capacity": shortage.capacity,
                "unresolvable": shortage.is_unresolvable,
            }
            for shortage in plugin.shortages(pod, cluster, 0)
        ]
        wanted = [
            {key: entry.get(key) for key in found[0]} if found else entry
            for entry in expect["insufficientResources"] or ()
        ]
        return compare("insufficient resources", found, wanted) or outcome
    return outcome


def fit_score(case: Case) -> Outcome:
    skipped = not_applicable(case)
    if skipped:
        return skipped
    if case["extensionPoint"] == "PlacementScore":
        return placement_score(case)
    if case["extensionPoint"] == "helper:brokenLinearFunction":
        return broken_linear(case)
    plugin, expect = fit_of(case), case["expect"]
    wanted = expect.get("pluginCreationErrors")
    if wanted:
        return compare("errors", plugin, [(error["type"], error["field"]) for error in wanted]) or Passed()
    if isinstance(plugin, list):
        return Failed(f"the arguments were refused: {plugin}")
    cluster = cluster_of(case)
    pod = subject(case, cluster)
    prepared = plugin.pre_score(pod, cluster, cluster.mask(True))
    if expect.get("scoreCode", "Success") != "Success":
        return compare("code", prepared.status.code, expect["scoreCode"]) or Passed()
    return run_score(case, plugin, cluster) if _agree(plugin, case, cluster) else Failed("score_at differs from score")


def _agree(plugin: Any, case: Case, cluster: ClusterState) -> bool:
    pod = subject(case, cluster)
    scores = plugin.score(pod, cluster, None)
    return all(int(scores[slot]) == plugin.score_at(pod, cluster, None, slot) for slot in range(cluster.width))


def placement_score(case: Case) -> Outcome:
    plugin = fit_of(case)
    assert isinstance(plugin, NodeResourcesFit)
    cluster, knobs = cluster_of(case), case["knobs"]
    nodes = cluster.mask()
    for name in knobs["placementNodeNames"] or ():
        nodes[cluster.slots[name]] = True
    members = {pod["metadata"]["uid"]: cluster.shapes.info(view(pod)) for pod in knobs.get("podGroupPods") or ()}
    proposed = [(members[uid], node) for uid, node in (knobs.get("podGroupAssignments") or {}).items()]
    group = Group(GroupKey("", "group"))
    score = plugin.score_placement(group, cluster, Placement("", nodes), proposed)
    return compare("score", score, case["expect"]["placementScore"]) or Passed()


def broken_linear(case: Case) -> Outcome:
    points = [ShapePoint(point["utilization"], point["score"]) for point in case["knobs"]["points"]]
    for assertion in case["expect"]["assertions"]:
        found = resource_scores.broken_linear(points, assertion["p"])
        if abs(found - assertion["expected"]) > 0.1:
            return Failed(f"at {assertion['p']}: found {found}, wanted {assertion['expected']}")
    return Passed()


def resource_allocation(case: Case) -> Outcome:
    skipped = not_applicable(case)
    if skipped:
        return skipped
    plugin, cluster, expect = NodeResourcesFit(gates=gates_of(case)), cluster_of(case), case["expect"]
    if case["extensionPoint"] == "helper:calculatePodResourceRequest":
        found = plugin.scored_requests(subject(case, cluster))
        return (
            compare("requests", {name: found.get(name, 0) for name in expect["requests"]}, expect["requests"])
            or Passed()
        )
    asked = resource_scores.asking(
        {case["knobs"]["resource"]: 1}, [ResourceSpec(case["knobs"]["resource"])], nonzero=True
    )
    columns = resource_scores.usage(cluster, asked[0]) if asked else None
    found_pair = (int(columns.allocatable[0]), int(columns.allocated[0])) if columns else (0, 0)
    return compare("(allocatable, allocated)", found_pair, (expect["allocatable"], expect["allocated"])) or Passed()


def balanced(case: Case) -> Outcome:
    skipped = not_applicable(case)
    if skipped:
        return skipped
    args = NodeResourcesBalancedAllocationArgs.from_document(case["args"], defaults=False)
    if isinstance(args, list):
        return Failed(f"the arguments were refused: {args}")
    plugin = NodeResourcesBalancedAllocation(args, pod_level_resources=gates_of(case).pod_level_resources)
    cluster = cluster_of(case)
    if not _agree(plugin, case, cluster):
        return Failed("score_at differs from score")
    return run_score(case, plugin, cluster)


def events(case: Case) -> Outcome:
    plugin = fit_of(case)
    assert isinstance(plugin, NodeResourcesFit)
    named = {"Pod": "AssignedPod", "UnscheduledPod": "TargetPod"}
    found = [(named.get(wake.resource, wake.resource), set(wake.actions)) for wake in plugin.wakes()]
    wanted = [(event["resource"], set(event["actions"])) for event in case["expect"]["events"]]
    return compare("events", found, wanted) or Passed()


def hint(case: Case) -> Outcome:
    plugin, gates = NodeResourcesFit(gates=gates_of(case)), gates_of(case)
    hints = resource_hints.ResourceHints(
        plugin.requests, resizes=gates.in_place_resize, deferred=gates.resize_preemption
    )
    handler = {
        "isSchedulableAfterAssignedPodDelete": hints.after_pod_deleted,
        "isSchedulableAfterNodeChange": hints.after_node_changed,
        "isSchedulableAfterAssignedPodScaleDown": hints.after_other_shrank,
        "isSchedulableAfterTargetPodScaleDown": hints.after_pod_shrank,
        "isSchedulableAfterAssignedPodScaleUp": hints.after_other_grew,
        "isSchedulableAfterTargetPodScaleUp": hints.after_pod_grew,
    }[case["knobs"]["handler"]]
    kind: type[Resource] = core.Node if "Node" in case["knobs"]["handler"] else core.Pod
    cluster = cluster_of(case)
    event, wanted = case.get("event") or {}, case["expect"]
    old, new = (_object(event.get(which), kind) for which in ("old", "new"))
    try:
        found = handler(subject(case, cluster), old, new, cluster)
    except TypeError:
        return compare("error", True, wanted["error"]) or Passed()
    return compare("error", False, wanted["error"]) or compare("hint", found, Hint(wanted["hint"])) or Passed()


def _object(document: Any, kind: Any) -> Any:
    return view(document, kind) if isinstance(document, dict) else document


def is_fit(case: Case) -> Outcome:
    plugin, cluster = NodeResourcesFit(gates=gates_of(case)), cluster_of(case)
    pod, nodes = subject(case, cluster), case.get("nodes") or []
    fits = bool(nodes) and resource_hints.fits_alone(plugin.requests(pod), view(nodes[0], core.Node))
    return compare("fits", fits, case["expect"]["fits"]) or Passed()


def have_increased(case: Case) -> Outcome:
    plugin, cluster = NodeResourcesFit(gates=gates_of(case)), cluster_of(case)
    before, after = (view(case["event"][which], core.Node) for which in ("old", "new"))
    found = resource_hints.has_more(plugin.requests(subject(case, cluster)), before, after)
    return compare("increased", found, case["expect"]["increased"]) or Passed()


def compute_request(case: Case) -> Outcome:
    plugin, cluster = NodeResourcesFit(gates=gates_of(case)), cluster_of(case)
    pod = subject(case, cluster)
    # What claims take is known of pods that have a node: it counts there, and no scheduler of ours allocates any.
    found = pod.needs if knows_claimed(case) else plugin.requests(pod)
    named = {
        "milliCPU": found.get("cpu", 0),
        "memory": found.get("memory", 0),
        "ephemeralStorage": found.get("ephemeral-storage", 0),
        "allowedPodNumber": 0,
    }
    return compare("request", named, {key: case["expect"]["request"].get(key, 0) for key in named}) or Passed()


_FIT_TESTS = {
    "Filter": fit_filter,
    "EventsToRegister": events,
    "QueueingHint": hint,
    "helper:isFit": is_fit,
    "helper:haveAnyRequestedResourcesIncreased": have_increased,
    "helper:computePodResourceRequest": compute_request,
}

ADAPTERS: Adapters = {
    "noderesources_fit": fit,
    "noderesources_fit_score": fit_score,
    "noderesources_least_allocated": fit_score,
    "noderesources_most_allocated": fit_score,
    "noderesources_requested_to_capacity_ratio": fit_score,
    "noderesources_resource_allocation": resource_allocation,
    "noderesources_balanced_allocation": balanced,
}
