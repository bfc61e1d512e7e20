"""Where pods go in a topology: `cache.scheduler.Test*` that are about domains (FORMAT.md 6.1 to 6.3)."""

from typing import Any

import msgspec
import numpy as np

from muster.api import kueue
from muster.quota.gates import Gate
from muster.quota.topology import balancing, choosing, pod_count, truncate
from muster.quota.topology import usage_of as usage_of_assignment
from muster.quota.topology.assignments import amounts_by_domain
from muster.quota.topology.counting import Counts, rolled_up
from muster.quota.topology.explaining import DomainRoom, listed
from muster.quota.topology.requests import Shape, has_levels
from muster.quota.topology.tree import grow
from tests.conformance.adapters.kube.building import without_nulls
from tests.conformance.adapters.kueue import topology_building as building
from tests.conformance.cases import Adapters, Case, Outcome, Passed, compare

# Whole searches


def find(case: Case) -> Outcome:
    inputs, gates = case["inputs"], building.gates_of(case)
    topologies = building.topologies_of(inputs, gates, building.cluster_of(inputs))
    flavor, other = topologies.flavor(building.FLAVOR), topologies.flavor(building.OTHER)
    assert flavor is not None
    assert other is not None
    if Gate.TAS_HANDLE_OVERLAPPING_FLAVORS in gates and flavor.levels[-1] == building.HOSTNAME:
        other.add_usage(building.usage_of(inputs.get("priorFlavorUsage")))
    else:
        flavor.add_usage(building.usage_of(inputs.get("priorOwnUsage")))
    requests = [building.placement_request(pod_set) for pod_set in inputs["podSets"]]
    found = flavor.find(requests, workload=_workload(inputs))
    answers = {name: (building.written(placed.assignment), placed.reason) for name, placed in found.items()}
    wanted = {
        one.get("podSetName") or "": (one.get("wantAssignment"), one.get("wantReason") or "")
        for one in case["want"]["podSets"]
    }
    return compare("pod sets", answers, wanted) or Passed()


def find_replacement(case: Case) -> Outcome:
    inputs, want = case["inputs"], case["want"]
    flavor = building.flavor_of(inputs, building.gates_of(case))
    request = building.placement_request(inputs)
    found = flavor.find([request], workload=_workload(inputs))[request.name]
    if want.get("wantReason"):
        return compare("reason", found.reason, want["wantReason"]) or Passed()
    return compare("assignment", building.written(found.assignment), want.get("wantAssignment")) or Passed()


def _workload(inputs: dict[str, Any]) -> kueue.Workload | None:
    document = inputs.get("workload")
    return None if document is None else msgspec.convert(without_nulls(document), kueue.Workload)


# Order of domains


def sorted_domains(case: Case) -> Outcome:
    return _sorted(case, is_led=False)


def sorted_domains_with_leader(case: Case) -> Outcome:
    return _sorted(case, is_led=True)


def _sorted(case: Case, *, is_led: bool) -> Outcome:
    inputs = case["inputs"]
    domains = building.by_values(inputs["domains"])
    prefers = bool(inputs.get("enableTASPreferredSchedulingAffinity"))
    counts = building.counts_of([one["state"] for one in domains], is_led=is_led, prefers=prefers)
    order = (choosing.in_order_led if is_led else choosing.in_order)(
        counts, ascending=bool(inputs.get("unconstrained"))
    )
    names = [domains[row]["domain"]["id"] for row in order]
    return compare("order", names, case["want"]["wantOrder"]) or Passed()


def compare_level_values(case: Case) -> Outcome:
    """Domains of a tree are in the order of their level values: they compare as their rows do."""
    one, other = case["inputs"]["a"]["levelValues"] or [], case["inputs"]["b"]["levelValues"] or []
    levels = tuple(case["inputs"]["levels"])[: max(len(one), len(other))]
    nodes = [
        {"metadata": {"name": f"n{number}", "labels": dict(zip(levels, values, strict=True))}, "status": {}}
        for number, values in enumerate((one, other))
    ]
    cluster = building.cluster_of({"nodes": nodes})
    position = grow(levels, cluster, cluster.mask(True)).position
    rows = [position[tuple(values[-1:] if levels[-1] == building.HOSTNAME else values)] for values in (one, other)]
    return compare("sign", int(np.sign(rows[0] - rows[1])), case["want"]["want"]) or Passed()


def capacity_and_entropy(case: Case) -> Outcome:
    trees = building.by_values(case["inputs"]["domainTrees"])
    children = [child["state"] for tree in trees for child in tree["children"]]
    starts = np.append(0, np.cumsum([len(tree["children"]) for tree in trees]))
    below = building.counts_of(children, is_led=False)
    counts = building.counts_of([tree["state"] for tree in trees], is_led=True)
    order = balancing.by_capacity_and_entropy(counts, balancing.entropies(below, starts))
    return compare("order", [trees[row]["id"] for row in order], case["want"]["want"]) or Passed()


# Balanced placement


def optimal_set(case: Case) -> Outcome:
    inputs = case["inputs"]
    domains, is_led = building.by_values(inputs["domains"]), bool(inputs.get("leaderCount"))
    counts = building.counts_of([one["state"] for one in domains], is_led=is_led)
    chosen = balancing.fewest_domains(counts, inputs["workerCount"], np.zeros(len(counts)), is_led=is_led)
    names = sorted(domains[row]["domain"]["id"] for row in (() if chosen is None else chosen))
    return compare("domains", names, sorted(case["want"]["want"] or ())) or Passed()


def slices_balanced(case: Case) -> Outcome:
    inputs = case["inputs"]
    domains, is_led = building.by_values(inputs["domains"]), bool(inputs.get("leaderCount"))
    counts = building.counts_of([one["state"] for one in domains], is_led=is_led)
    share = balancing.dealt_evenly(counts, inputs["sliceCount"], inputs["threshold"], is_led=is_led)
    found: dict[str, Any] = {}
    for place, (row, slices) in enumerate(zip(share.rows, share.slices, strict=True) if share is not None else ()):
        pods = int(slices) * inputs["sliceSize"]
        found[domains[row]["domain"]["id"]] = {
            "affinityScore": domains[row]["state"]["affinityScore"],
            "leaderCount": int(is_led and place == 0),
            "podCount": pods,
            "podCountWithLeader": pods,
            "sliceCount": int(slices),
            "sliceCountWithLeader": int(slices),
        }
    return compare("states", found, case["want"]["want"] or {}) or Passed()


def best_for_balanced(case: Case) -> Outcome:
    inputs = case["inputs"]
    roots = sorted((one for one in inputs["domains"] if not one["parentID"]), key=lambda one: one["levelValues"])
    leaves = sorted((one for one in inputs["domains"] if one["parentID"]), key=lambda one: one["levelValues"])
    tree = building.small_tree([sum(leaf["parentID"] == root["id"] for leaf in leaves) for root in roots])
    shape, is_led = building.shape_of(inputs["params"]), bool(inputs["params"]["leaderCount"])
    counts = Counts(tree, shape, building.counts_of(leaves or roots, is_led=is_led))
    best = balancing.best_siblings(counts, inputs["params"]["count"] // shape.slice_size, is_led=is_led)
    return (
        compare("threshold", best.threshold if best else 0, case["want"]["wantThreshold"])
        or compare("domains", len(best.counts) if best else 0, case["want"]["wantDomainsCount"])
        or Passed()
    )


def prune(case: Case) -> Outcome:
    inputs = case["inputs"]
    is_led, level = bool(inputs.get("leaderRequired")), inputs["level"]
    shape = Shape(level, False, False, inputs["sliceLevelIdx"], inputs["sliceSize"])
    roots = inputs["domainTrees"]
    # Pruned are the domains one level below, or the level itself where the slices are on it; what is below follows.
    is_same_level = level == inputs["sliceLevelIdx"]
    targets = roots if is_same_level else [child for root in roots for child in root["children"]]
    pruned = balancing.pruned(building.counts_of([one["state"] for one in targets], is_led=is_led), inputs["threshold"])
    found: dict[str, list[int]] = {}
    for row, target in enumerate(targets):
        state = _listed(pruned, row)
        found[target["id"]] = state
        for below in target["children"]:
            found[below["id"]] = [min(own, limit) for own, limit in zip(_own(below["state"]), state, strict=True)]
    if not is_same_level:
        starts = np.append(0, np.cumsum([len(root["children"]) for root in roots]))
        above = rolled_up(pruned, starts[:-1], level, shape)
        found |= {root["id"]: _listed(above, row) for row, root in enumerate(roots)}
    names = inputs["domainIdByName"]
    return (
        compare("states", {name: found[names[name]] for name in case["want"]["want"]}, case["want"]["want"]) or Passed()
    )


def _own(state: dict[str, Any]) -> list[int]:
    keys = ("podCount", "sliceCount", "podCountWithLeader", "sliceCountWithLeader", "leaderCount")
    return [state[key] for key in keys]


def _listed(counts: Any, row: int) -> list[int]:
    leads = counts.leaders is not None and bool(counts.leaders[row])
    columns = (counts.pods, counts.slices, counts.pods_led, counts.slices_led)
    return [*(int(column[row]) for column in columns), int(leads)]


# Arithmetic of assignments


def merged(case: Case) -> Outcome:
    inputs = case["inputs"]
    flavor = building.flavor_of(inputs, all_ready=True)
    found = flavor.merge(building.assignment(inputs["a"]), building.assignment(inputs["b"]))
    return compare("assignment", building.written(found), case["want"]["want"]) or Passed()


def truncated(case: Case) -> Outcome:
    found = truncate(building.assignment(case["inputs"]["assignment"]), case["inputs"]["newCount"])
    want = case["want"]["want"]
    return compare("assignment", building.written(found), want | {"domains": want["domains"] or []}) or Passed()


def counted(case: Case) -> Outcome:
    found = pod_count(building.assignment(case["inputs"]["assignment"]))
    return compare("pods", found, case["want"]["want"]) or Passed()


def usage_from_assignment(case: Case) -> Outcome:
    inputs = case["inputs"]
    used = usage_of_assignment(building.assignment(inputs["assignment"]), inputs["singlePodRequests"])
    return compare("usage", _by_id(used), case["want"]["want"] or {}) or Passed()


def usage_added(case: Case) -> Outcome:
    inputs = case["inputs"]
    requests = inputs["tasRequests"]["singlePodRequests"]
    used = _by_id(usage_of_assignment(building.assignment(inputs["assignment"]), requests))
    total = {key: dict(amounts) for key, amounts in (inputs["assumedUsage"] or {}).items()}
    for key, amounts in used.items():
        there = total.setdefault(key, {})
        for resource, amount in amounts.items():
            there[resource] = there.get(resource, 0) + amount
    return compare("usage", total, case["want"]["want"]) or Passed()


def _by_id(used: Any) -> dict[str, dict[str, int]]:
    return {",".join(values): amounts for values, amounts in amounts_by_domain(used).items()}


# Questions to a topology


def level_is_there(case: Case) -> Outcome:
    inputs = case["inputs"]
    request = building.topology_request(inputs.get("podSetTopologyRequest"))
    return compare("has level", has_levels(inputs["levels"], request), case["want"]["want"]) or Passed()


def stale(case: Case) -> Outcome:
    inputs, want = case["inputs"], case["want"]
    found = building.flavor_of(inputs, all_ready=True).is_stale(building.assignment(inputs["assignment"]))
    return compare("stale domain", found or "", want["wantStaleDomain"] if want["wantStale"] else "") or Passed()


def free_capacity(case: Case) -> Outcome:
    rooms = {
        name: DomainRoom(room.get("freeCapacity") or {}, room.get("tasUsage") or {})
        for name, room in case["inputs"]["domains"].items()
    }
    return compare("text", listed(rooms), case["want"]["expected"]) or Passed()


ADAPTERS: Adapters = {
    f"cache.scheduler.{name}": adapter
    for name, adapter in {
        "TestFindTopologyAssignments": find,
        "TestFindTopologyAssignmentsMultiLayerReplacement": find_replacement,
        "TestSortedDomains": sorted_domains,
        "TestSortedDomainsWithLeader": sorted_domains_with_leader,
        "TestCompareDomainLevelValues": compare_level_values,
        "TestCompareDomainCapacityAndEntropy": capacity_and_entropy,
        "TestSelectOptimalDomainSetToFit": optimal_set,
        "TestPlaceSlicesOnDomainsBalanced": slices_balanced,
        "TestFindBestDomainsForBalancedPlacement": best_for_balanced,
        "TestPruneDomainsBelowThreshold": prune,
        "TestMergeTopologyAssignments": merged,
        "TestTruncateAssignment": truncated,
        "TestCountPodsInAssignment": counted,
        "TestComputeAssumedUsageFromAssignment": usage_from_assignment,
        "TestAddAssumedUsage": usage_added,
        "TestHasLevel": level_is_there,
        "TestIsTopologyAssignmentStale": stale,
        "TestFreeCapacityPerDomain": free_capacity,
    }.items()
}
