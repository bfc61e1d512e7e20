"""From a case's documents to our state, and from a plugin's answers to what the case expects (FORMAT.md §1 to §3)."""

from typing import Any

import msgspec
import numpy as np

from muster.api import core
from muster.api.meta import Resource
from muster.cluster.pods import PodInfo
from muster.cluster.state import ClusterState
from muster.placement.framework import (
    Code,
    Filter,
    Normalize,
    Plugin,
    PreFilter,
    Prepared,
    PreScore,
    Rejection,
    Score,
    Status,
)
from tests.conformance.cases import Case, Failed, Outcome, Passed, compare


def view(document: dict[str, Any], kind: type[Resource] = core.Pod) -> Any:
    """A typed view of a case's object. Go writes null for empty lists, which views do not take."""
    return msgspec.convert(without_nulls(document), kind)


def as_served(document: dict[str, Any], case: Case) -> dict[str, Any]:
    """A server without the gate knows no field in which claims say what they take of a node."""
    status = document.get("status") or {}
    if "nodeAllocatableResourceClaimStatuses" not in status or knows_claimed(case):
        return document
    return {**document, "status": {**status, "nodeAllocatableResourceClaimStatuses": None}}


def knows_claimed(case: Case) -> bool:
    return bool((case.get("featureGates") or {}).get("DRANodeAllocatableResources"))


def without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [without_nulls(item) for item in value]
    return value


def cluster_of(case: Case) -> ClusterState:
    """All nodes in their order, the existing pods where they are, and the labels of namespaces."""
    nodes = [view(node, core.Node) for node in case.get("nodes") or ()]
    state = ClusterState.of(nodes)
    first = bool((case.get("knobs") or {}).get("existingPodsOnFirstNode"))
    for number, document in enumerate(case.get("existingPods") or ()):
        assign(state, as_served(document, case), nodes[0].metadata.name if first else None, number)
    for found in case.get("objects") or ():
        if found.get("kind") == "Namespace":
            state.namespaces[found["metadata"]["name"]] = found["metadata"].get("labels") or {}
    return state


def assign(state: ClusterState, document: dict[str, Any], node: str | None = None, number: int = 0) -> PodInfo:
    """Puts an existing pod on its node. Cases may leave out names and uids: the number tells such pods apart."""
    pod = view(document)
    info = state.shapes.info(pod)
    if not pod.metadata.uid:
        info = _with_uid(info, f"{info.uid}#{number}")
    state.assign(info, node if node is not None else pod.spec.node_name or "")
    return info


def _with_uid(info: PodInfo, uid: str) -> PodInfo:
    fields = {name: getattr(info, name) for name in PodInfo.__dataclass_fields__}
    return PodInfo(**{**fields, "uid": uid})


def subject(case: Case, state: ClusterState) -> PodInfo:
    """The pod to be scheduled."""
    return state.shapes.info(view(case["pod"]))


def status_at(rejections: list[Rejection] | tuple[Rejection, ...], slot: int) -> Status:
    """The status that one node gets from a filter's answer."""
    named = [rejection for rejection in rejections if rejection.nodes[slot]]
    if not named:
        return Status()
    code = Code.UNRESOLVABLE if any(rejection.is_unresolvable for rejection in named) else Code.UNSCHEDULABLE
    return Status(code, tuple(rejection.reason for rejection in named))


def compare_status(what: str, found: Status, wanted: dict[str, Any]) -> Failed | None:
    """Codes always; reasons where the case states them; `message` is the reasons joined."""
    if found.code != wanted["code"]:
        return Failed(f"{what}: found {found}, wanted {wanted}")
    if "message" in wanted and ", ".join(found.reasons) != wanted["message"]:
        return Failed(f"{what}: found {found}, wanted {wanted}")
    if wanted.get("reasons") is not None and list(found.reasons) != list(wanted["reasons"]):
        return Failed(f"{what}: found {found}, wanted {wanted}")
    return None


def run_filter(case: Case, plugin: Plugin, state: ClusterState | None = None) -> Outcome:
    """PreFilter, then Filter at the nodes that the case names (FORMAT.md §3)."""
    cluster = state or cluster_of(case)
    pod = subject(case, cluster)
    expect, knobs = case["expect"], case.get("knobs") or {}
    prepared = Prepared()
    if isinstance(plugin, PreFilter) and knobs.get("runPreFilter", True) and expect.get("preFilter") is not None:
        prepared = plugin.pre_filter(pod, cluster)
        wanted = expect["preFilter"]
        failed = compare_status("PreFilter", prepared.status, wanted["status"])
        if failed:
            return failed
        if wanted.get("nodeNames") is not None:
            names = {
                cluster.names[slot]
                for slot in range(cluster.width)
                if prepared.nodes is not None and prepared.nodes[slot]
            }
            failed = compare("PreFilter's nodes", names, set(wanted["nodeNames"]))
            if failed:
                return failed
        if not prepared.status.is_success and not knobs.get("filterEvenIfPreFilterSkips"):
            return Passed()
    elif isinstance(plugin, PreFilter):
        prepared = plugin.pre_filter(pod, cluster)
    assert isinstance(plugin, Filter)
    skipped = prepared.status.code is Code.SKIP
    rejections = [] if skipped else list(plugin.filter(pod, cluster, prepared.state))
    for entry in expect.get("filter") or ():
        found = status_at(rejections, cluster.slots[entry["node"]])
        failed = compare_status(f"Filter at {entry['node']}", found, entry["status"])
        if failed:
            return failed
    return Passed()


def run_score(case: Case, plugin: Plugin, state: ClusterState | None = None) -> Outcome:
    """PreScore over all nodes of the case, Score, and NormalizeScore where the case says so."""
    cluster = state or cluster_of(case)
    pod = subject(case, cluster)
    expect = case["expect"]
    slots = [cluster.slots[node["metadata"]["name"]] for node in case["nodes"]]
    feasible = cluster.mask()
    feasible[slots] = True
    prepared = Prepared()
    if isinstance(plugin, PreScore):
        prepared = plugin.pre_score(pod, cluster, feasible)
        if expect.get("preScore") is not None:
            failed = compare_status("PreScore", prepared.status, expect["preScore"]["status"])
            if failed:
                return failed
        if not prepared.status.is_success:
            return Passed()
    assert isinstance(plugin, Score)

    positions = np.flatnonzero(feasible)
    scores = plugin.score(pod, cluster, prepared.state)[positions]
    if expect.get("scoresNormalized") and isinstance(plugin, Normalize):
        scores = plugin.normalize(scores, positions, prepared.state)
    found = {cluster.names[position]: int(score) for position, score in zip(positions, scores, strict=True)}
    wanted = {entry["node"]: entry["score"] for entry in expect.get("scores") or ()}
    return compare("scores", {name: found.get(name) for name in wanted}, wanted) or Passed()
