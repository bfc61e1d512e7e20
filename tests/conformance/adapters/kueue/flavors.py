"""flavorassigner.*: which flavors a workload is given, and why not better ones (FORMAT.md §7), and the rule for how
long a scan position may be used (§4.7)."""

from collections.abc import Mapping, Sequence
from typing import Any

from muster.api import kueue
from muster.api.kueue.topology_assignments import Domain
from muster.quota import flavor_fitting
from muster.quota.amounts import CPU, FlavorResource
from muster.quota.assignments import Assignment, Attempt, Degree, Fitness, FlavorChoice, Mode, PodSetAssignment
from muster.quota.flavors import FlavorAssigner, Pins, is_outdated, net_topology_usage, total_requests
from muster.quota.gates import Gate
from muster.quota.partial import CountRange, search_partial
from muster.quota.queues import Preference
from muster.quota.settings import Settings
from muster.quota.state import QueueState, QuotaState
from muster.quota.topology import DomainUsage, TopologyAssignment
from muster.quota.topology_requests import placement_requests
from muster.quota.workloads import ScanPosition, Usage, WorkloadInfo
from tests.conformance.adapters.kueue import building
from tests.conformance.cases import Adapters, Case, Failed, NotApplicable, Outcome, Passed, compare

Nested = Mapping[str, Any]
_MODES = {mode.shown: mode for mode in Mode}
_DEGREES = {
    "noFit": Degree.NO_FIT,
    "noPreemptionCandidates": Degree.NO_CANDIDATES,
    "preempt": Degree.PREEMPT,
    "reclaim": Degree.RECLAIM,
    "fit": Degree.FIT,
}
_ELSEWHERE = "does not provide resource"


class TableOracle:
    """Answers by flavor and resource from a case's table; what is not in it can be preempted."""

    def __init__(self, table: Nested | None) -> None:
        self._table = table or {}

    def simulate(
        self, queue: QueueState, info: WorkloadInfo, what: FlavorResource, amount: int
    ) -> tuple[flavor_fitting.Possibility, int]:
        found = self._table.get(what.flavor, {}).get(what.resource)
        if found is None:
            return flavor_fitting.Possibility.PREEMPT, 0
        return flavor_fitting.Possibility(found["preemptionPossibility"]), found.get("borrowingAfterSimulation") or 0


class Scene:
    """A case's queues and their usage, and the workload that is to be assigned flavors."""

    def __init__(self, case: Case) -> None:
        inputs = case["inputs"]
        self.settings = building.settings(case)
        self.state = building.state(case, self.settings)
        self.queue = self.state.queues[inputs["clusterQueue"]["metadata"]["name"]]
        self.cycle = inputs.get("schedulingCycle") or 0
        self.info = self._workload(inputs)
        replaced = inputs.get("preemptWorkloadSlice") or inputs.get("replaceWl")
        self.replaced = info_of(replaced, self.queue.name, self.settings) if replaced else None
        self._use(inputs)

    def _workload(self, inputs: Nested) -> WorkloadInfo:
        document = inputs.get("workload") or {
            "metadata": {"name": "wl"},
            "spec": {"podSets": inputs.get("wlPods") or []},
            "status": {"reclaimablePods": inputs.get("wlReclaimablePods") or []},
        }
        return building.pending(document, self.queue.name, self.settings)

    def _use(self, inputs: Nested) -> None:
        building.use(self.state, self.queue.name, inputs.get("clusterQueueUsage"))
        second = inputs.get("secondaryClusterQueue")
        if second:
            building.use(self.state, second["metadata"]["name"], inputs.get("secondaryClusterQueueUsage"))
        for name, usage in (inputs.get("siblingCQUsage") or {}).items():
            building.use(self.state, name, usage)
        self.occupy(inputs.get("nodeUsage"))

    def occupy(self, usage: Nested | None) -> None:
        taken = {
            flavor: tuple(DomainUsage(tuple(one["values"]), one["singlePodRequests"], one["count"]) for one in listed)
            for flavor, listed in (usage or {}).items()
        }
        self.state.add_usage(self.queue, Usage({}, taken))

    def assign(self, table: Nested | None = None, pins: Pins | None = None) -> Assignment:
        assigner = FlavorAssigner(self.state, TableOracle(table))
        return assigner.assign(self.info, self.queue, replaced=self.replaced, pinned=pins, cycle=self.cycle)


def assigned(case: Case) -> tuple[Scene, Assignment]:
    scene = Scene(case)
    return scene, scene.assign(case["inputs"].get("simulationResult"))


def info_of(document: Nested, queue: str, settings: Settings) -> WorkloadInfo:
    """A workload, or a `workload.Info`: what its workload says, or where there is none its totals, as what it holds."""
    workload = document if document.get("kind") == "Workload" else document.get("workload") or {}
    totals = document.get("totalRequests") or []
    if (workload.get("spec") or {}).get("podSets"):
        return WorkloadInfo(building.view(kueue.Workload, workload), queue, settings)
    given = [
        {
            "name": pods["name"],
            "count": pods.get("count") or 0,
            "flavors": pods.get("flavors") or {},
            "resourceUsage": {name: _quantity(name, value) for name, value in (pods.get("requests") or {}).items()},
        }
        for pods in totals
    ]
    made = {
        "metadata": workload.get("metadata") or {"name": "held"},
        "spec": {"podSets": [{"name": pods["name"], "count": pods["count"]} for pods in given]},
        "status": {"admission": {"clusterQueue": queue, "podSetAssignments": given}, "conditions": [_RESERVED]},
    }
    return WorkloadInfo(building.view(kueue.Workload, made), queue, settings)


_RESERVED = {"type": "QuotaReserved", "status": "True", "reason": "QuotaReserved"}


def _quantity(resource: str, value: int) -> str:
    return f"{value}m" if resource == CPU else str(value)


# TestAssignFlavors, TestDeletedFlavors


def assign_flavors(case: Case) -> Outcome:
    return _compared(case, is_exact=False)


def deleted_flavors(case: Case) -> Outcome:
    return _compared(case, is_exact=True)


def _compared(case: Case, *, is_exact: bool) -> Outcome:
    scene, found = assigned(case)
    want, whole = case["want"], case["want"]["wantAssignment"] or {}
    wanted = whole.get("podSets") or []
    failed = (
        compare("mode", found.mode.shown, want["wantRepMode"])
        or compare("borrowing", found.borrowing, whole.get("borrowing") or 0)
        or compare("usage", building.nested_amounts(found.usage.quota), whole["usage"]["quota"]["assigned"] or {})
        or compare("pod sets", [pods.name for pods in found.pod_sets], [pods["name"] for pods in wanted])
    )
    if failed is None and Gate.UNADMITTED_WORKLOADS_OBSERVABILITY in scene.settings.gates:
        failed = compare("no fit reason", str(found.no_fit_reason), whole.get("noFitReason") or "")
    for mine, theirs in zip(found.pod_sets, wanted, strict=False):
        failed = failed or _compared_pod_set(mine, theirs, is_exact=is_exact)
    return failed or Passed()


def _compared_pod_set(mine: PodSetAssignment, theirs: Nested, *, is_exact: bool) -> Failed | None:
    status = theirs.get("status") or {}
    attempts = theirs.get("flavorAssignmentAttempts") or []
    return (
        compare(f"{mine.name}: flavors", _flavors(mine), theirs.get("flavors") or {})
        or compare(f"{mine.name}: count", mine.count, theirs.get("count") or 0)
        or compare(f"{mine.name}: requests", dict(mine.requests), building.requests(theirs.get("requests")))
        or compare(f"{mine.name}: reasons", set(mine.reasons), set(status.get("reasons") or ()))
        or compare(f"{mine.name}: error", mine.error, _error_text(status.get("err")))
        or compare(f"{mine.name}: topology", _topology(mine.topology), theirs.get("topologyAssignment"))
        or compare(f"{mine.name}: delayed", mine.delayed_topology, theirs.get("delayedTopologyRequest"))
        or _compared_attempts(mine, attempts, is_exact=is_exact)
    )


def _flavors(pods: PodSetAssignment) -> dict[str, dict[str, Any]]:
    return {
        resource: {"name": choice.flavor, "mode": choice.mode.shown, "triedFlavorIdx": choice.tried_index}
        for resource, choice in pods.flavors.items()
    }


def _topology(found: TopologyAssignment | None) -> dict[str, Any] | None:
    if found is None:
        return None
    domains = [{"values": list(domain.values), "count": domain.pods} for domain in found.domains]
    return {"levels": list(found.levels), "domains": domains}


def _error_text(error: Nested | str | None) -> str | None:
    return error["error"] if isinstance(error, Mapping) else error


def _compared_attempts(mine: PodSetAssignment, wanted: Sequence[Nested], *, is_exact: bool) -> Failed | None:
    """Loosely, as the test does: where a flavor fits, it may not matter which were looked at before."""
    found = [_attempt(attempt) for attempt in mine.attempts]
    expected = [{**one, "reasons": set(one.get("reasons") or ())} for one in wanted]
    if is_exact:
        return compare(f"{mine.name}: attempts", found, expected)
    if not expected:
        return None
    if any(attempt.mode is Mode.FIT for attempt in mine.attempts):
        elsewhere = {one["flavor"] for one in expected if any(_ELSEWHERE in text for text in one["reasons"])}
        extra = [one for one in found if one not in expected and one["flavor"] not in elsewhere]
        return compare(f"{mine.name}: attempts not expected (of {expected})", extra, [])
    missing = [one for one in expected if one not in found]
    return compare(f"{mine.name}: attempts missing (in {found})", missing, [])


def _attempt(attempt: Attempt) -> dict[str, Any]:
    return {
        "flavor": attempt.flavor,
        "mode": attempt.mode.shown,
        "borrow": attempt.borrow,
        "preemptionPossibility": str(attempt.possibility) or None,
        "noFitReason": str(attempt.no_fit_reason),
        "reasons": set(attempt.reasons),
    }


# Others that assign flavors


def mode_and_flavors(case: Case) -> Outcome:
    _, found = assigned(case)
    flavors = {resource: choice.flavor for resource, choice in found.pod_sets[0].flavors.items()}
    return (
        compare("mode", found.mode.shown, case["want"]["wantMode"])
        or compare("flavors", flavors, case["want"]["wantAssignedFlavors"] or {})
        or Passed()
    )


def allowed_flavors(case: Case) -> Outcome:
    _, found = assigned(case)
    failed = compare("mode", found.mode.shown, case["want"]["wantRepMode"])
    if failed is None and found.mode is Mode.FIT:
        failed = compare("flavor", found.pod_sets[0].flavors[CPU].flavor, case["want"]["wantFlavor"])
    return failed or Passed()


def no_fit_reasons(case: Case) -> Outcome:
    _, found = assigned(case)
    failed = compare("reason", str(found.no_fit_reason), case["want"]["wantNoFitReason"])
    wanted = case["want"].get("wantFlavorAttempts") or {}
    for pods in found.pod_sets:
        for attempt in pods.attempts:
            if attempt.flavor in wanted:
                failed = failed or compare(attempt.flavor, str(attempt.no_fit_reason), wanted[attempt.flavor])
    return failed or Passed()


def leader_and_workers(case: Case) -> Outcome:
    _, found = assigned(case)
    flavors = {
        pods.name: {
            resource: {**_flavors(pods)[resource], "borrow": choice.borrow} for resource, choice in pods.flavors.items()
        }
        for pods in found.pod_sets
    }
    errors = {pods.name: pods.error for pods in found.pod_sets if pods.error is not None}
    wanted = {name: _error_text(error) for name, error in (case["want"]["wantPodSetErrors"] or {}).items()}
    return (
        compare("flavors", flavors, case["want"]["wantPodSetFlavors"]) or compare("errors", errors, wanted) or Passed()
    )


def _tried_index(found: Assignment) -> int | None:
    assert found.scan is not None
    return found.scan.tried[0].get(CPU)


def scan_position(case: Case) -> Outcome:
    _, found = assigned(case)
    want = case["want"]
    return (
        compare("mode", found.mode.shown, want["wantMode"])
        or compare("tried", _tried_index(found), want["wantTriedFlavorIdx"])
        or compare("has a place", found.pod_sets[0].topology is not None, want["wantPlan"])
        or Passed()
    )


def recomputed_position(case: Case) -> Outcome:
    inputs, want = case["inputs"], case["want"]
    scene = Scene(case)
    first = scene.assign()
    failed = (
        compare("first mode", first.mode.shown, want["wantNominatedMode"])
        or compare("first tried", _tried_index(first), want["wantNominatedIdx"])
        or compare("first has a place", first.pod_sets[0].topology is not None, True)
    )
    scene.occupy(inputs.get("nodeUsageAtRecompute"))
    building.use(scene.state, scene.queue.name, inputs.get("quotaUsageAtRecompute"))
    second = scene.assign(inputs.get("simulationResult"), Pins.of(first))
    return (
        failed
        or compare("second mode", second.mode.shown, want["wantRecomputedMode"])
        or compare("second tried", _tried_index(second), want["wantRecomputedIdx"])
        or Passed()
    )


# Parts


def is_preferred(case: Case) -> Outcome:
    inputs = case["inputs"]
    preference = Preference(inputs["config"].get("preference") or Preference.BORROWING)
    one, other = (
        Fitness(_DEGREES[inputs[name]["preemptionMode"]], inputs[name].get("borrowingLevel") or 0) for name in "ab"
    )
    return compare("preferred", flavor_fitting.is_better(one, other, preference), case["want"]["wantPreferred"]) or (
        Passed()
    )


def partial_search(case: Case) -> Outcome:
    inputs, want = case["inputs"], case["want"]
    ranges = []
    for pods in inputs.get("podSets") or ():
        count = pods.get("count") or 0
        least = pods.get("minCount")
        ranges.append(CountRange(count, count if least is None else least))

    def attempt(counts: Sequence[int]) -> int | None:
        return sum(counts) if sum(counts) <= (inputs.get("countLimit") or 0) else None

    found = search_partial(ranges, attempt)
    return (
        compare("found", found is not None, want["wantFound"])
        or compare("count", found or 0, want["wantCount"])
        or (Passed())
    )


def requires_borrowing(case: Case) -> Outcome:
    found = Assignment(borrowing=case["inputs"].get("borrowing") or 0)
    return compare("borrows", found.borrows, case["want"]["want"]) or Passed()


def totals(case: Case) -> Outcome:
    settings, fields = building.settings(case), case["inputs"]["fields"]
    info = info_of(case["inputs"]["args"]["wl"], "", settings)
    replaced = fields.get("replaceWorkloadSlice")
    held = info_of(replaced, "", settings) if replaced else None
    found = total_requests(_assignment(fields), info, held)
    return compare("requests", building.nested_amounts(found), case["want"]["want"] or {}) or Passed()


def net_usage(case: Case) -> Outcome:
    inputs = case["inputs"]
    document = dict(inputs["wl"]["workload"])
    if inputs.get("prevAdmission"):
        document["status"] = {"admission": inputs["prevAdmission"], "conditions": [_RESERVED]}
    info = building.pending(document, "", building.settings(case))
    found = {
        flavor: [
            {"values": list(one.values), "singlePodRequests": dict(one.requests), "count": one.count} for one in taken
        ]
        for flavor, taken in net_topology_usage(info, _assignment(inputs["assignment"])).items()
        if flavor in (inputs.get("snapshotTASFlavors") or ())
    }
    return compare("usage", found, case["want"]["want"] or {}) or Passed()


def outdated_position(case: Case) -> Outcome:
    given = case["inputs"]["args"]
    last = given["last"]
    tried = [dict(indexes) for indexes in last.get("lastTriedFlavorIdx") or ()]
    scan = ScanPosition(
        tried, last["clusterQueueGeneration"] or 0, last["schedulingCycle"] or 0, last.get("schedulingHash") or ""
    )
    found = is_outdated(
        scan,
        generation=given["currentCQGeneration"] or 0,
        cycle=given["currentSchedulingCycle"] or 0,
        shape=given.get("currentSchedulingHash") or "",
        gates=building.gates(case),
    )
    return compare("outdated", found, case["want"]["want"]) or Passed()


# Requests to topologies


def topology_errors(case: Case) -> Outcome:
    inputs = case["inputs"]
    document, flavors = inputs["assignment"], inputs.get("snapshotTASFlavors") or []
    wanted = _error_text(case["want"].get("wantErr"))
    assignment = _assignment(document)
    given = {choice.flavor for pods in assignment.pod_sets for choice in pods.flavors.values()}
    if wanted == "no TAS flavor assigned" and given & set(flavors):
        return NotApplicable(
            "the row lists the assigned flavor among those with a topology and still expects that there is none: in the"
            " Go test its snapshot is nil, which the data does not carry"
        )
    state, queue = _with_topologies(case, flavors, assignment)
    info = info_of(inputs["workload"], queue.name, state.settings)
    replaced = document.get("replaceWorkloadSlice")
    held = info_of(replaced, queue.name, state.settings) if replaced else None
    requests = placement_requests(state, queue, info, assignment, held)
    return (
        compare("error", assignment.pod_sets[0].error, wanted)
        or compare("has requests", bool(requests), wanted is None)
        or compare("mode", assignment.mode, Mode.FIT if wanted is None else Mode.NO_FIT)
        or Passed()
    )


def topology_pod_sets(case: Case) -> Outcome:
    inputs = case["inputs"]
    assignment = _assignment(inputs)
    state, queue = _with_topologies(case, inputs.get("tasFlavors") or [], assignment)
    info = building.pending({"spec": {"podSets": inputs["wlPodSets"]}}, queue.name, state.settings)
    requests = placement_requests(state, queue, info, assignment)
    found = [one.name for asked in requests.values() for one in asked]
    return compare("pod sets", found, case["want"]["wantTASPodSets"] or []) or Passed()


def _with_topologies(case: Case, flavors: Sequence[str], assignment: Assignment) -> tuple[QuotaState, QueueState]:
    """A queue with the flavors that the assignment names, of which those listed have a topology of hosts."""
    state = QuotaState(building.settings(case))
    levels = {"levels": [{"nodeLabel": "kubernetes.io/hostname"}]}
    state.set_topology(building.view(kueue.Topology, {"metadata": {"name": "hosts"}, "spec": levels}))
    chosen = {(resource, choice.flavor) for pods in assignment.pod_sets for resource, choice in pods.flavors.items()}
    for name in {*flavors, *(flavor for _, flavor in chosen)}:
        spec = {"topologyName": "hosts"} if name in flavors else {}
        state.set_flavor(building.view(kueue.ResourceFlavor, {"metadata": {"name": name}, "spec": spec}))
    covered = {*chosen, *((f"unused-{name}", name) for name in flavors)}
    groups = [
        {"coveredResources": [resource], "flavors": [{"name": flavor, "resources": [{"name": resource}]}]}
        for resource, flavor in sorted(covered)
    ]
    document = {"metadata": {"name": "cq"}, "spec": {"resourceGroups": groups}}
    state.set_queue(building.view(kueue.ClusterQueue, document))
    state.settle()
    return state, state.queues["cq"]


def _assignment(document: Nested) -> Assignment:
    made = []
    for pods in document["podSets"]:
        flavors = {
            resource: FlavorChoice(
                choice["name"], _MODES[choice["mode"]], choice.get("borrow") or 0, choice.get("triedFlavorIdx") or 0
            )
            for resource, choice in (pods.get("flavors") or {}).items()
        }
        topology = pods.get("topologyAssignment")
        made.append(
            PodSetAssignment(
                pods["name"],
                pods.get("count") or 0,
                building.requests(pods.get("requests")),
                flavors,
                list((pods.get("status") or {}).get("reasons") or ()),
                topology=None if topology is None else _read_topology(topology),
            )
        )
    return Assignment(made)


def _read_topology(document: Nested) -> TopologyAssignment:
    domains = tuple(Domain(tuple(domain["values"]), domain["count"]) for domain in document.get("domains") or ())
    return TopologyAssignment(tuple(document.get("levels") or ()), domains)


ADAPTERS: Adapters = {
    "flavorassigner.TestAssignFlavors": assign_flavors,
    "flavorassigner.TestDeletedFlavors": deleted_flavors,
    "flavorassigner.TestAssignFlavorsWithAllowedFlavors": allowed_flavors,
    "flavorassigner.TestAssignFlavors_LeaderWorkerSetTASFlavor": leader_and_workers,
    "flavorassigner.TestAssignment_ComputeTASNetUsage": net_usage,
    "flavorassigner.TestAssignment_RequiresBorrowing": requires_borrowing,
    "flavorassigner.TestAssignment_TotalRequestsFor": totals,
    "flavorassigner.TestFlavorScanRecordsLastTriedFlavorIdx": scan_position,
    "flavorassigner.TestHierarchical": mode_and_flavors,
    "flavorassigner.TestIsNoFitDueToCapacityAndLimits": no_fit_reasons,
    "flavorassigner.TestIsPreferred": is_preferred,
    "flavorassigner.TestReclaimBeforePriorityPreemption": mode_and_flavors,
    "flavorassigner.TestRecomputeRecordsLastTriedFlavorIdx": recomputed_position,
    "flavorassigner.TestSearch": partial_search,
    "flavorassigner.TestWorkloadsTopologyRequests_ElasticJobsValidation": topology_errors,
    "flavorassigner.TestWorkloadsTopologyRequests_ErrorBranches": topology_errors,
    "flavorassigner.TestWorkloadsTopologyRequests_ZeroCountPodSetSkipped": topology_pod_sets,
    "scheduler.TestLastAssignmentOutdated": outdated_position,
}
