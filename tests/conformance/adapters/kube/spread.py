"""PodTopologySpread: filtering with the state behind it, scoring, and what wakes a rejected pod."""

from math import isclose
from typing import Any

import msgspec

from muster.api import core, selectors
from muster.api.meta import LabelSelector as LabelSelectorView
from muster.api.objects import Key
from muster.cluster.pods import Controller, PodInfo
from muster.cluster.state import ClusterState
from muster.placement.framework import Hint
from muster.placement.plugins.topology_spread import PodTopologySpread, PodTopologySpreadArgs
from muster.placement.plugins.topology_spread.constraints import Constraint
from muster.placement.plugins.topology_spread.filtering import NO_DOMAIN, HardState
from muster.placement.plugins.topology_spread.scoring import SoftState
from tests.conformance.adapters.kube import building
from tests.conformance.cases import Adapters, Case, Failed, NotApplicable, Outcome, Passed, compare

UNSIGNED = "we group pods by their whole scheduling-relevant spec, not by per-plugin fragments"
NO_CYCLE_STATE = (
    "Filter is handed what PreFilter found as an argument: there is no cycle state in which it could be missing"
)


def plugin(case: Case) -> PodTopologySpread | list[Any]:
    args = PodTopologySpreadArgs.from_document(case.get("args") or {})
    if isinstance(args, list):
        return args
    gates = case.get("featureGates") or {}
    return PodTopologySpread(
        args,
        node_policies=gates.get("NodeInclusionPolicyInPodTopologySpread", False),
        match_label_keys=gates.get("MatchLabelKeysInPodTopologySpread", False),
        comparison_operators=gates.get("TaintTolerationComparisonOperators", False),
        resize_preemption=gates.get("InPlacePodVerticalScalingSchedulerPreemption", False),
    )


def cluster_of(case: Case) -> ClusterState:
    knobs = case.get("knobs") or {}
    others = [*(knobs.get("failedNodes") or ()), *(knobs.get("otherNodes") or ())]
    cluster = building.cluster_of(case | {"nodes": [*(case.get("nodes") or ()), *others]})
    for found in case.get("objects") or ():
        _add_selector(cluster, found)
    return cluster


def _add_selector(cluster: ClusterState, found: dict[str, Any]) -> None:
    namespace, name = found["metadata"].get("namespace", ""), found["metadata"].get("name", "")
    kind, selector = found["kind"], (found.get("spec") or {}).get("selector")
    known = cluster.pod_selectors
    if kind == "Service":
        known.service_changed(Key(namespace, name), selector)
    elif kind == "ReplicationController":
        labels = msgspec.convert({"matchLabels": selector or {}}, LabelSelectorView)
        known.controller_changed(namespace, Controller("v1", kind, name), selectors.from_view(labels))
    elif kind in ("ReplicaSet", "StatefulSet"):
        view = msgspec.convert(building.without_nulls(selector), LabelSelectorView) if selector else None
        known.controller_changed(namespace, Controller("apps/v1", kind, name), selectors.from_view(view))


def filtering(case: Case) -> Outcome:
    expect, knobs = case["expect"], case.get("knobs") or {}
    if case["extensionPoint"] == "SignPod":
        return NotApplicable(UNSIGNED)
    if knobs.get("skipPreFilter"):
        return NotApplicable(NO_CYCLE_STATE)
    made = plugin(case)
    if isinstance(made, list) or expect.get("pluginCreationErrors"):
        return _creation(made, expect)
    cluster = cluster_of(case)
    if "preFilterState" not in expect:
        return building.run_filter(case, made, cluster)
    pod = building.subject(case, cluster)
    prepared = made.pre_filter(pod, cluster)
    if expect.get("preFilter") is not None:
        failed = building.compare_status("PreFilter", prepared.status, expect["preFilter"]["status"])
        if failed:
            return failed
    wanted = expect["preFilterState"]
    if wanted is None:
        return compare("state", prepared.state, None) or Passed()
    assert isinstance(prepared.state, HardState)
    _move(made, prepared.state, pod, cluster, knobs)
    return _compare_hard(prepared.state, wanted, cluster)


def _move(
    made: PodTopologySpread, state: HardState, pod: PodInfo, cluster: ClusterState, knobs: dict[str, Any]
) -> None:
    """AddPod or RemovePod of the one pod that the case names."""
    for knob, step in (("addedPod", made.pod_added), ("removedPod", made.pod_removed)):
        if knobs.get(knob):
            other = cluster.shapes.info(building.view(knobs[knob]))
            step(state, pod, other, cluster.slots[knobs["onNode"]], cluster)


def _creation(made: PodTopologySpread | list[Any], expect: dict[str, Any]) -> Outcome:
    wanted = sorted((error["type"], error["field"]) for error in expect.get("pluginCreationErrors") or ())
    found = sorted((error.reason, error.path) for error in made) if isinstance(made, list) else []
    return compare("errors of the arguments", found, wanted) or Passed()


def _compare_hard(state: HardState, wanted: dict[str, Any], cluster: ClusterState) -> Outcome:
    failed = _compare_constraints(state.constraints, wanted["constraints"])
    if failed:
        return failed
    matches = state.matches(cluster)
    failed = compare("matching pods", matches, wanted["tpValueToMatchNum"])
    if failed:
        return failed
    for found, paths, counts in zip(state.critical_paths(cluster), wanted["criticalPaths"], matches, strict=True):
        least, other = [(path["topologyValue"], path["matchNum"]) for path in paths]
        # Among equals any may be named, and the second need not be the second least: what is named must be true.
        if found[0][1] != least[1] or other[1] < least[1]:
            return Failed(f"critical paths: found {found}, wanted {paths}")
        for value, number in (least, other):
            if counts.get(value, NO_DOMAIN) != number:
                return Failed(f"critical paths: found {found}, wanted {paths}")
    return Passed()


def _compare_constraints(found: Any, wanted: list[dict[str, Any]]) -> Failed | None:
    return compare("constraints", [_shown(constraint) for constraint in found], [_wanted(entry) for entry in wanted])


def _shown(constraint: Constraint) -> tuple[Any, ...]:
    return (
        constraint.max_skew,
        constraint.topology_key,
        frozenset(constraint.selector.requirements),
        constraint.min_domains,
        "Honor" if constraint.honors_affinity else "Ignore",
        "Honor" if constraint.honors_taints else "Ignore",
    )


def _wanted(entry: dict[str, Any]) -> tuple[Any, ...]:
    return (
        entry["maxSkew"],
        entry["topologyKey"],
        frozenset(selectors.parse_labels(entry["selector"]).requirements),
        entry["minDomains"],
        entry["nodeAffinityPolicy"],
        entry["nodeTaintsPolicy"],
    )


def scoring(case: Case) -> Outcome:
    expect = case["expect"]
    made = plugin(case)
    if isinstance(made, list) or expect.get("pluginCreationErrors"):
        return _creation(made, expect)
    cluster = cluster_of(case)
    outcome = building.run_score(case, made, cluster)
    if not isinstance(outcome, Passed) or expect.get("preScoreState") is None:
        return outcome
    feasible = cluster.mask()
    feasible[[cluster.slots[node["metadata"]["name"]] for node in case["nodes"]]] = True
    state = made.pre_score(building.subject(case, cluster), cluster, feasible).state
    assert isinstance(state, SoftState)
    return _compare_soft(state, expect["preScoreState"], cluster)


def _compare_soft(state: SoftState, wanted: dict[str, Any], cluster: ClusterState) -> Outcome:
    failed = _compare_constraints(state.constraints, wanted["constraints"])
    if failed:
        return failed
    ignored = [] if state.ignored is None else [cluster.names[slot] for slot in state.ignored.nonzero()[0]]
    weights = wanted["topologyNormalizingWeight"]
    if len(weights) != len(state.weights) or not all(map(isclose, state.weights, weights)):
        return Failed(f"weights: found {state.weights}, wanted {weights}")
    return (
        compare("ignored nodes", sorted(ignored), sorted(wanted["ignoredNodes"] or ()))
        or compare("pods", state.pod_counts(cluster), wanted["topologyValueToPodCounts"])
        or Passed()
    )


def hints(case: Case) -> Outcome:
    made = plugin(case)
    assert not isinstance(made, list)
    cluster = cluster_of(case)
    pod = building.subject(case, cluster)
    handler, kind = {
        "isSchedulableAfterNodeChange": (made.after_node, core.Node),
        "isSchedulableAfterAssignedPodChange": (made.after_assigned_pod, core.Pod),
        "isSchedulableAfterTargetPodChange": (made.after_own_update, core.Pod),
    }[case["knobs"]["handler"]]
    old, new = (_event_object(case["event"][side], kind) for side in ("old", "new"))
    try:
        found: Hint | None = handler(pod, old, new, cluster)
    except TypeError:
        found = None
    if case["expect"].get("error"):
        return compare("error", found, None) or Passed()
    return compare("hint", found, case["expect"]["hint"]) or Passed()


def _event_object(value: Any, kind: Any) -> Any:
    """A plain string stands for an object of a wrong type."""
    return building.view(value, kind) if isinstance(value, dict) else value


ADAPTERS: Adapters = {
    "podtopologyspread_filtering": filtering,
    "podtopologyspread_scoring": scoring,
    "podtopologyspread_hints": hints,
}
