"""Groups of pods: GangScheduling, PodGroupPodsCount and TopologyPlacementGenerator."""

from dataclasses import replace
from typing import Any

from muster.api import core
from muster.api.scheduling.groups import CompositePodGroup, PodGroup
from muster.cluster.groups import Group, GroupKey, PodGroups, from_kubernetes
from muster.cluster.pods import GROUP_ANNOTATION, PodInfo
from muster.cluster.state import ClusterState
from muster.placement.framework import Placement, Progress
from muster.placement.plugins.gang_scheduling import GangScheduling
from muster.placement.plugins.pod_group_pods_count import PodGroupPodsCount
from muster.placement.plugins.topology_placement import TopologyPlacementGenerator
from tests.conformance.adapters.kube.building import cluster_of, compare_status, view
from tests.conformance.cases import Adapters, Case, Failed, Outcome, Passed, compare

SHAPES = ClusterState().shapes
GROUP_KINDS = {"PodGroup": PodGroup, "CompositePodGroup": CompositePodGroup}
NO_OBJECT = core.ConfigMap()


def annotated(document: dict[str, Any]) -> dict[str, Any]:
    """Membership is an annotation here, and a field of the spec there."""
    name = ((document.get("spec") or {}).get("schedulingGroup") or {}).get("podGroupName")
    if name is None:
        return document
    metadata = document.get("metadata") or {}
    notes = {**(metadata.get("annotations") or {}), GROUP_ANNOTATION: name}
    return {**document, "metadata": {**metadata, "annotations": notes}}


def info(document: dict[str, Any]) -> PodInfo:
    return SHAPES.info(view(annotated(document)))


def knows_trees(case: Case) -> bool:
    """Whether the case knows groups of groups."""
    return bool((case.get("featureGates") or {}).get("CompositePodGroup"))


def group_of(document: dict[str, Any]) -> Group:
    return from_kubernetes(view(document, GROUP_KINDS[document["kind"]]))


def groups_of(case: Case) -> PodGroups:
    groups = PodGroups()
    for document in case.get("objects") or ():
        if document.get("kind") in GROUP_KINDS:
            group = group_of(document)
            groups.put(group if knows_trees(case) else replace(group, parent=None))
    for document in case.get("existingPods") or ():
        groups.bound(info(document), document["spec"]["nodeName"])
    return groups


def plugin_of(case: Case, groups: PodGroups) -> GangScheduling:
    return GangScheduling(groups, hierarchies=knows_trees(case))


def hint(case: Case) -> Outcome:
    """The caches of the scheduler have seen the object of an event before its queue is told."""
    groups, event = groups_of(case), case["event"]
    for document in (event.get("new"),):
        if isinstance(document, dict) and document.get("kind") in GROUP_KINDS:
            groups.put(group_of(document))
    plugin = plugin_of(case, groups)
    handler = {
        "isSchedulableAfterPodAdded": plugin.after_pod_added,
        "isSchedulableAfterPodGroupAdded": plugin.after_group_added,
        "isSchedulableAfterPodGroupUpdated": plugin.after_group_updated,
        "isSchedulableAfterCompositePodGroupAdded": plugin.after_composite_added,
    }[case["knobs"]["handler"]]
    try:
        found = handler(info(case["pod"]), changed(event.get("old")), changed(event.get("new")), ClusterState())
    except TypeError as error:
        return Passed() if case["expect"].get("error") else Failed(str(error))
    if case["expect"].get("error"):
        return Failed(f"no error, but {found}")
    return compare("hint", found.value, case["expect"]["hint"]) or Passed()


def changed(document: Any) -> Any:
    if document is None:
        return None
    if not isinstance(document, dict):
        return NO_OBJECT
    if document["kind"] in GROUP_KINDS:
        return view(document, GROUP_KINDS[document["kind"]])
    return view(annotated(document), core.Pod if document["kind"] == "Pod" else core.Node)


def flow(case: Case) -> Outcome:
    groups, knobs, expect = groups_of(case), case["knobs"], case["expect"]
    plugin, pod = plugin_of(case, groups), info(case["pod"])
    known = {found.uid: found for found in map(info, knobs.get("initialPods") or ())}
    for found in (*known.values(), pod):
        groups.pending(found)
    entered = plugin.pre_enqueue(pod)
    failed = compare_status("PreEnqueue", entered, expect["preEnqueue"])
    if failed or not entered.is_success:
        return failed or Passed()
    for uid in knobs.get("podsWaitingOnPermit") or ():
        groups.assumed(known[uid], "node")
        status, _ = plugin.permit(known[uid], "node")
        if status.code != "Wait":
            return Failed(f"Permit of {uid}: found {status}, wanted Wait")
    if not knobs.get("isDuringPodGroupSchedulingCycle"):
        groups.assumed(pod, "node")
    status, _ = plugin.permit(pod, "node")
    failed = compare_status("Permit", status, expect["permit"])
    activated = {found.key.name for found in plugin.activated_by(pod)}
    wanted = set(expect.get("activatedPods") or ())
    if failed or status.code == "Wait":  # the test compares no further there; what it names must be woken all the same
        return failed or compare("not activated", wanted - activated, set()) or Passed()
    failed = compare("activated", activated, wanted)
    if not failed and expect.get("allowedPods") is not None:
        failed = compare("allowed", sorted(plugin.allowed_by(pod)), sorted(expect["allowedPods"]))
    return failed or Passed()


def feasible(case: Case) -> Outcome:
    knobs = case["knobs"]
    group, scheduled = group_of(knobs["group"]), int(knobs.get("initialScheduledCount") or 0)
    plugin, found = plugin_of(case, PodGroups()), []
    for number, status in enumerate(knobs["podStatuses"]):
        scheduled += status == "Success"
        progress = Progress(scheduled, remaining=knobs["childrenCount"] - number - 1)
        found.append(plugin.placement_feasible(group, progress).code.value)
    return compare("codes", found, case["expect"]["codes"]) or Passed()


def gang_scheduling(case: Case) -> Outcome:
    if case["extensionPoint"] == "QueueingHint":
        return hint(case)
    return feasible(case) if case["extensionPoint"] == "PlacementFeasible" else flow(case)


def named_group(groups: PodGroups, named: dict[str, Any]) -> Group:
    key = GroupKey(named["namespace"], named["name"], named["type"] == "compositepodgroup")
    found = groups.get(key)
    assert found is not None
    return found


def pods_count(case: Case) -> Outcome:
    knobs, expect = case["knobs"], case["expect"]
    if case["extensionPoint"] == "PlacementScore.Normalize":
        status, scores = PodGroupPodsCount(PodGroups()).normalize_placements([one["score"] for one in knobs["scores"]])
        failed = compare("error", "".join(status.reasons), expect.get("errorMessage") or "")
        return failed or compare("scores", list(scores), [one["score"] for one in expect["scores"]]) or Passed()
    groups, cluster = groups_of(case), cluster_of(case)
    group = named_group(groups, knobs["scoredGroup"])
    proposed = [(info({"metadata": {"name": one["pod"]}}), one["node"]) for one in knobs["proposedAssignments"]]
    score = PodGroupPodsCount(groups).score_placement(group, cluster, Placement("all", cluster.mask(True)), proposed)
    return compare("score", score, expect["placementScore"]) or Passed()


def topology(case: Case) -> Outcome:
    groups, knobs, expect = groups_of(case), case["knobs"], case["expect"]
    nodes = [view(node, core.Node) for node in case["nodes"]]
    cluster = ClusterState.of([*nodes, *(view(node, core.Node) for node in knobs.get("otherNodes") or ())])
    parent = cluster.mask()
    parent[[cluster.slots[node.metadata.name] for node in nodes]] = True
    group = named_group(groups, knobs["group"])
    made = TopologyPlacementGenerator(groups).generate_placements(
        group, cluster, Placement(knobs["parentPlacement"], parent)
    )
    found = {
        placement.name: [cluster.names[slot] for slot in range(cluster.width) if placement.nodes[slot]]
        for placement in made.placements
    }
    failed = compare("code", made.status.code.value, expect["code"])
    if failed or not made.status.is_success:
        return failed or Passed()
    return compare("placements", found, expect.get("placements") or {}) or Passed()


ADAPTERS: Adapters = {
    "gangscheduling": gang_scheduling,
    "podgrouppodscount": pods_count,
    "topologyaware": topology,
}
