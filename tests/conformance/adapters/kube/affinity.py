"""InterPodAffinity: its filter with the counts behind it, its scores, and its hints."""

from typing import Any

from muster.api import core
from muster.api.meta import Resource
from muster.cluster.pods import PodInfo
from muster.cluster.state import ClusterState
from muster.placement.framework import Action, Code, Status, Wake
from muster.placement.plugins.inter_pod_affinity import FilterState, InterPodAffinity, InterPodAffinityArgs
from muster.placement.plugins.inter_pod_affinity.filtering import DomainCounts
from tests.conformance.adapters.kube import building
from tests.conformance.cases import Adapters, Case, Failed, NotApplicable, Outcome, Passed, compare

RESOURCES = {"AssignedPod": "Pod", "TargetPod": "UnscheduledPod"}


def plugin_of(case: Case) -> InterPodAffinity:
    args = InterPodAffinityArgs.from_document(case.get("args") or {})
    assert isinstance(args, InterPodAffinityArgs), args
    gates = case.get("featureGates") or {}
    # The gate InterPodAffinityHostnameFastPath changes how Kubernetes counts, never what it answers.
    return InterPodAffinity(args, resize_preemption=bool(gates.get("InPlacePodVerticalScalingSchedulerPreemption")))


def filtering(case: Case) -> Outcome:
    knobs, expect = case.get("knobs") or {}, case["expect"]
    if knobs.get("skipPreFilter"):
        return NotApplicable(
            "Filter is handed what PreFilter found as an argument: there is no cycle state in which it could be missing"
        )
    if "steps" in knobs:
        return in_steps(case)
    if "addedPod" in knobs:
        return adding_and_removing(case)
    if "affinityCounts" in expect:
        return counting(case)
    return building.run_filter(case, plugin_of(case))


def counting(case: Case) -> Outcome:
    cluster = building.cluster_of(case)
    state = state_of(case, cluster)
    return compare_counts(case, cluster, state, "affinityCounts", "antiAffinityCounts") or Passed()


def adding_and_removing(case: Case) -> Outcome:
    plugin, cluster = plugin_of(case), building.cluster_of(case)
    pod = building.subject(case, cluster)
    prepared = plugin.pre_filter(pod, cluster)
    if not isinstance(prepared.state, FilterState):
        return Failed(f"PreFilter: found {prepared.status}, wanted a state")
    before = everything(prepared.state, cluster)
    document = case["knobs"]["addedPod"]
    added = building.assign(cluster, document, None, len(case.get("existingPods") or ()))
    slot = cluster.slots[document["spec"]["nodeName"]]
    plugin.pod_added(prepared.state, pod, added, slot, cluster)
    after = everything(prepared.state, cluster)
    failed = compare_counts(
        case, cluster, prepared.state, "affinityCountsAfterAdd", "antiAffinityCountsAfterAdd"
    ) or compare("with the pod from the start", everything(state_of(case, cluster), cluster), after)
    plugin.pod_removed(prepared.state, pod, added, slot, cluster)
    return failed or compare("after removal", everything(prepared.state, cluster), before) or Passed()


def state_of(case: Case, cluster: ClusterState) -> FilterState | None:
    state = plugin_of(case).pre_filter(building.subject(case, cluster), cluster).state
    assert state is None or isinstance(state, FilterState)
    return state


def compare_counts(
    case: Case, cluster: ClusterState, state: FilterState | None, affinity: str, anti_affinity: str
) -> Failed | None:
    expect = case["expect"]
    return compare(affinity, by_pair(state.near if state else {}, cluster), wanted(expect[affinity])) or compare(
        anti_affinity, by_pair(state.hated if state else {}, cluster), wanted(expect[anti_affinity])
    )


def wanted(listed: list[dict[str, Any]] | None) -> dict[tuple[str, str], int]:
    return {(entry["key"]["key"], entry["key"]["value"]): entry["value"] for entry in listed or ()}


def by_pair(counts: dict[str, DomainCounts], cluster: ClusterState) -> dict[tuple[str, str], int]:
    """Counts by topology key and value, as Kubernetes keeps them."""
    found = {}
    for key, of_key in counts.items():
        for slot in range(cluster.width):
            node = cluster.nodes[slot]
            value = (node.metadata.labels or {}).get(key) if node is not None else None
            number = int(of_key.counts[of_key.domains.of[slot]])
            if value is not None and number:
                found[key, value] = number
    return found


def everything(state: FilterState | None, cluster: ClusterState) -> list[dict[tuple[str, str], int]]:
    assert state is not None
    return [by_pair(counts, cluster) for counts in (state.near, state.hated, state.hating)]


def in_steps(case: Case) -> Outcome:
    run = Steps(case)
    for number, step in enumerate(case["knobs"]["steps"]):
        status = run.take(step)
        expected = step.get("expect")
        if expected is None:
            continue
        is_met = not status.is_success if expected == "not Success" else status.code in expected.split(" or ")
        if not is_met:
            return Failed(f"step {number} ({step}): found {status}")
    return Passed()


class Steps:
    """Runs steps in order, with one cycle for each pod."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.plugin = plugin_of(case)
        documents = [case["pod"], *(case["knobs"].get("morePods") or ())]
        self.pods = {document["metadata"]["name"]: document for document in documents}
        self.first = documents[0]["metadata"]["name"]
        self.restart(None)

    def restart(self, names: list[str] | None) -> None:
        existing = [
            pod for pod in self.case.get("existingPods") or () if names is None or pod["metadata"]["name"] in names
        ]
        self.cluster = building.cluster_of(self.case | {"existingPods": existing})
        self.existing = {info.key.name: info for info, _ in self.cluster.pods.values()}
        self.cycles: dict[str, tuple[PodInfo, object]] = {}

    def take(self, step: dict[str, Any]) -> Status:
        match step["op"]:
            case "restart":
                if step.get("podLabels") is not None:
                    self.pods[self.first]["metadata"]["labels"] = step["podLabels"]
                self.restart(step.get("existingPods"))
                return Status()
            case "PreFilter":
                name = step.get("pod") or self.first
                pod = building.subject({"pod": self.pods[name]}, self.cluster)
                prepared = self.plugin.pre_filter(pod, self.cluster)
                self.cycles[name] = pod, prepared.state
                return prepared.status
            case "Filter":
                pod, state = self.cycles[step.get("pod") or self.first]
                if state is None:  # skipped
                    return Status()
                rejections = list(self.plugin.filter(pod, self.cluster, state))
                return building.status_at(rejections, self.cluster.slots[step["node"]])
            case "RemovePod" | "AddPod" as op:
                return self.move(step, is_added=op == "AddPod")
        raise ValueError(f"a step that is not known: {step}")

    def move(self, step: dict[str, Any], *, is_added: bool) -> Status:
        """Every cycle under way follows the moved pod."""
        name = step["pod"]
        other = self.existing.get(name) or building.subject({"pod": self.pods[name]}, self.cluster)
        change = self.plugin.pod_added if is_added else self.plugin.pod_removed
        for pod, state in self.cycles.values():
            if state is not None:
                change(state, pod, other, self.cluster.slots[step["node"]], self.cluster)
        return Status()


def scoring(case: Case) -> Outcome:
    plugin, cluster = plugin_of(case), building.cluster_of(case)
    wanted_status = (case["expect"].get("preScore") or {}).get("status") or {}
    if wanted_status.get("code") != Code.ERROR or (case.get("knobs") or {}).get("preScoreReasonMatch") != "substring":
        return building.run_score(case, plugin, cluster)
    found = plugin.pre_score(building.subject(case, cluster), cluster, cluster.mask(True)).status
    if found.code != wanted_status["code"]:
        return Failed(f"PreScore: found {found}, wanted {wanted_status}")
    said = ", ".join(found.reasons)
    missing = [reason for reason in wanted_status.get("reasons") or () if reason not in said]
    return compare("reasons that PreScore does not give", missing, []) or Passed()


def hinting(case: Case) -> Outcome:
    if case["extensionPoint"] == "SignPod":
        return NotApplicable(
            "we group pods by their whole scheduling-relevant spec and their labels, not by per-plugin fragments"
        )
    event, expect = case["event"], case["expect"]
    wake = wake_for(event["kind"])
    if wake is None or wake.hint is None:
        return Failed(f"no hint for {event['kind']}")
    cluster = building.cluster_of(case)
    pod = building.subject(case, cluster)
    kind = core.Node if wake.resource == "Node" else core.Pod
    try:
        found = wake.hint(pod, resource(event["old"], kind), resource(event["new"], kind), cluster)
    except TypeError as error:
        return Passed() if expect["error"] else Failed(f"error: {error}")
    if expect["error"]:
        return Failed(f"found {found}, wanted an error")
    return compare("hint", found, expect["hint"]) or Passed()


def wake_for(kind: str) -> Wake | None:
    """What the plugin registers for the case's change, if it does."""
    name, _, actions = kind.partition("/")
    wanted = {Action(action) for action in actions.split("|")}
    for wake in InterPodAffinity().wakes():
        if wake.resource == RESOURCES.get(name, name) and wanted <= wake.actions:
            return wake
    return None


def resource(document: Any, kind: type[Resource]) -> Resource | None:
    """A text stands for an object of a kind that the hint cannot read."""
    if isinstance(document, str):
        return core.ConfigMap()
    return None if document is None else building.view(document, kind)


ADAPTERS: Adapters = {
    "interpodaffinity_filtering": filtering,
    "interpodaffinity_scoring": scoring,
    "interpodaffinity_hints": hinting,
}
