"""Suites of the plugins that read nodes, host ports and images, of queue order, and of shared helpers."""

from collections.abc import Callable
from typing import Any

import numpy as np

from muster.api import core, timestamps
from muster.api.meta import Resource
from muster.api.objects import Key
from muster.cluster.owners import PodSelectors
from muster.cluster.pods import PodInfo
from muster.cluster.state import ClusterState
from muster.placement.framework import Action, Hint, Permit, Plugin, PreEnqueue, Wake, Wakes
from muster.placement.plugins.deferred_pod_scheduling import DeferredPodScheduling
from muster.placement.plugins.image_locality import ImageLocality, normalized_image_name
from muster.placement.plugins.node_affinity import NodeAffinity, NodeAffinityArgs
from muster.placement.plugins.node_name import NodeName
from muster.placement.plugins.node_ports import NodePorts
from muster.placement.plugins.node_unschedulable import NodeUnschedulable
from muster.placement.plugins.priority_sort import PrioritySort
from muster.placement.plugins.scheduling_gates import SchedulingGates
from muster.placement.plugins.scores import default_normalize_score
from muster.placement.plugins.taint_toleration import TaintToleration
from tests.conformance.adapters.kube import building
from tests.conformance.cases import Adapters, Case, Failed, NotApplicable, Outcome, Passed, compare

SIGNATURES = NotApplicable("we group pods by their whole scheduling-relevant spec, not by per-plugin fragments")
NO_STATE_TO_MISS = NotApplicable(
    "Filter reads the pod's ports from its spec, parsed once for all pods of the spec, not from state that PreFilter "
    "wrote: without PreFilter it gives the same answer, so there is no error to report"
)
_RESOURCES = {"TargetPod": "UnscheduledPod", "AssignedPod": "Pod"}


def _gate(case: Case, name: str) -> bool:
    return bool((case.get("featureGates") or {}).get(name))


def _resizes(case: Case) -> bool:
    return _gate(case, "InPlacePodVerticalScalingSchedulerPreemption")


def _scheduling_gates(_case: Case) -> Plugin:
    return SchedulingGates()


def _node_name(_case: Case) -> Plugin:
    return NodeName()


def _node_unschedulable(case: Case) -> Plugin:
    return NodeUnschedulable(resize_preemption=_resizes(case))


def _taint_toleration(case: Case) -> Plugin:
    return TaintToleration(
        comparison_operators=_gate(case, "TaintTolerationComparisonOperators"), resize_preemption=_resizes(case)
    )


def _node_affinity(case: Case) -> Plugin:
    args = NodeAffinityArgs.from_document(building.without_nulls(case.get("args") or {}))
    assert isinstance(args, NodeAffinityArgs), args
    return NodeAffinity(args, resize_preemption=_resizes(case))


def _node_ports(case: Case) -> Plugin:
    return NodePorts(resize_preemption=_resizes(case))


def _image_locality(_case: Case) -> Plugin:
    return ImageLocality()


def _deferred_pod_scheduling(case: Case) -> Plugin:
    return DeferredPodScheduling(resize_preemption=_resizes(case))


def _suite(make: Callable[[Case], Plugin]) -> Callable[[Case], Outcome]:
    def adapter(case: Case) -> Outcome:
        return _run(case, make(case))

    return adapter


def _run(case: Case, plugin: Plugin) -> Outcome:
    match case["extensionPoint"]:
        case "SignPod":
            return SIGNATURES
        case "PreFilter" | "Filter" if (case.get("knobs") or {}).get("skipPreFilter"):
            return NO_STATE_TO_MISS
        case "PreFilter" | "Filter":
            return _filter(case, plugin)
        case "PreScore" | "Score":
            return _score(case, plugin)
        case "QueueingHint":
            return _hint(case, plugin)
        case "PreEnqueue":
            assert isinstance(plugin, PreEnqueue)
            return _status("PreEnqueue", plugin.pre_enqueue(_subject(case, ClusterState())), case, "preEnqueue")
        case "Permit":
            assert isinstance(plugin, Permit)
            node = case["knobs"].get("nodeName", "")
            return _status("Permit", plugin.permit(_subject(case, ClusterState()), node)[0], case, "permit")
        case "helper:fits":
            return _fits(case, plugin)
        case point:
            if point.startswith("helper:") and isinstance(plugin, ImageLocality):
                return _image_name(case)
            return Failed(f"the adapter knows no {point}")


def _subject(case: Case, cluster: ClusterState) -> PodInfo:
    return cluster.shapes.info(building.view(case.get("pod") or {}))


def _status(what: str, found: Any, case: Case, key: str) -> Outcome:
    expect = case["expect"]
    return building.compare_status(what, found, expect.get(key) or expect["status"]) or Passed()


def _filter(case: Case, plugin: Plugin) -> Outcome:
    """Nodes that only the expectation names are added: a mask cannot hold a node that does not exist."""
    cluster = building.cluster_of(case)
    prepared = case["expect"].get("preFilter") or {}
    for name in prepared.get("nodeNames") or ():
        if name not in cluster.slots:
            cluster.node_changed(building.view({"metadata": {"name": name}}, core.Node))
    failed = building.run_filter(case, plugin, cluster)
    if isinstance(failed, Failed) or not (case.get("knobs") or {}).get("filterEvenIfPreFilterSkips"):
        return failed
    rejections = plugin.filter(_subject(case, cluster), cluster, None)  # type: ignore[attr-defined]
    for entry in case["expect"].get("filter") or ():
        found = building.status_at(list(rejections), cluster.slots[entry["node"]])
        unlike = building.compare_status("Filter after a skip", found, entry["status"])
        if unlike:
            return unlike
    return Passed()


def _score(case: Case, plugin: Plugin) -> Outcome:
    if (case.get("knobs") or {}).get("runPreScore", True):
        return building.run_score(case, plugin)
    cluster = building.cluster_of(case)
    slots = np.array([cluster.slots[entry["node"]] for entry in case["expect"]["scores"]], dtype=np.intp)
    scores = plugin.score(_subject(case, cluster), cluster, None)[slots]  # type: ignore[attr-defined]
    if case["expect"].get("scoresNormalized"):
        scores = plugin.normalize(scores, slots, None)  # type: ignore[attr-defined]
    return compare("scores", scores.tolist(), [entry["score"] for entry in case["expect"]["scores"]]) or Passed()


def _hint(case: Case, plugin: Plugin) -> Outcome:
    assert isinstance(plugin, Wakes)
    event, expect = case["event"], case["expect"]
    wake = _wake(plugin, event["kind"])
    if isinstance(wake, Failed):
        return wake
    cluster = building.cluster_of(case)
    kind = core.Node if wake.resource == "Node" else core.Pod
    hint, is_error = Hint.QUEUE, False
    if wake.hint is not None:
        try:
            hint = wake.hint(_subject(case, cluster), _object(event["old"], kind), _object(event["new"], kind), cluster)
        except TypeError:
            is_error = True  # and the pod is queued, as `HintFunction` says
    if expect["error"] and not isinstance(plugin, NodeUnschedulable | TaintToleration):
        return compare("error", is_error, True) or Passed()
    # NodeUnschedulable's tables do not look at the error (FORMAT.md §3).
    failed = None if isinstance(plugin, NodeUnschedulable) else compare("error", is_error, expect["error"])
    return failed or compare("hint", hint, expect["hint"]) or Passed()


def _wake(plugin: Wakes, kind: str) -> Wake | Failed:
    """The registered change that is the case's: also checks that the plugin asks to be told of it."""
    resource, _, actions = kind.partition("/")
    wanted = {Action(action) for action in actions.split("|")}
    for wake in plugin.wakes():
        if wake.resource == _RESOURCES.get(resource, resource) and wanted <= wake.actions:
            return wake
    return Failed(f"{kind}: not among {plugin.wakes()}")


def _object(document: Any, kind: type[Resource]) -> Resource | None:
    """A text stands for an object of a wrong type."""
    if document is None:
        return None
    return core.Namespace() if isinstance(document, str) else building.view(document, kind)


def _fits(case: Case, plugin: Plugin) -> Outcome:
    assert isinstance(plugin, NodePorts)
    cluster = building.cluster_of(case)
    pod = _subject(case, cluster)
    at_node = plugin.fits_at(pod, cluster, None, 0)
    everywhere = not any(rejection.nodes[0] for rejection in plugin.filter(pod, cluster, None))
    wanted = case["expect"]["fits"]
    return compare("fits at the node", at_node, wanted) or compare("fits", everywhere, wanted) or Passed()


def _image_name(case: Case) -> Outcome:
    [given] = [value for value in case["knobs"].values() if isinstance(value, str)]
    [wanted] = [value for value in case["expect"].values() if isinstance(value, str)]
    return compare("image name", normalized_image_name(given), wanted) or Passed()


def _helper(case: Case) -> Outcome:
    knobs, expect = case.get("knobs") or {}, case["expect"]
    if case["extensionPoint"] == "helper:defaultNormalizeScore":
        scores = np.array(knobs["scores"] or (), dtype=np.int64)
        found = default_normalize_score(scores, is_reversed=bool(knobs.get("reverse")))
        return compare("scores", found.tolist(), expect["scores"] or []) or Passed()
    selectors = PodSelectors()
    for service in (found for found in case["objects"] if found["kind"] == "Service"):
        meta, selector = service["metadata"], service["spec"].get("selector")
        selectors.service_changed(Key(meta.get("namespace", ""), meta["name"]), selector)
    pod = case["pod"]["metadata"]
    names = selectors.services_of(pod.get("namespace", ""), pod.get("labels") or {})
    return compare("services", sorted(names), sorted(expect["services"] or ())) or Passed()


def _queue_sort(case: Case) -> Outcome:
    first, second = (
        PrioritySort().sort_key(
            ClusterState().shapes.info(building.view(entry["pod"])), timestamps.parse(entry["timestamp"])
        )
        for entry in (case["knobs"]["p1"], case["knobs"]["p2"])
    )
    return compare("less", first < second, case["expect"]["less"]) or Passed()


ADAPTERS: Adapters = {
    "schedulinggates": _suite(_scheduling_gates),
    "nodename": _suite(_node_name),
    "nodeunschedulable": _suite(_node_unschedulable),
    "tainttoleration": _suite(_taint_toleration),
    "nodeaffinity": _suite(_node_affinity),
    "nodeports": _suite(_node_ports),
    "imagelocality": _suite(_image_locality),
    "deferredpodscheduling": _suite(_deferred_pod_scheduling),
    "helper": _helper,
    "queuesort": _queue_sort,
}
