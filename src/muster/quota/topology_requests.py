"""The topology's part of an assignment: what is asked of the topologies of the flavors that were chosen, and what
their answers make of it (a place for every pod, a need to preempt, or no way at all)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from muster.api import kueue
from muster.quota.assignments import Assignment, Mode, NoFitReason, PodSetAssignment
from muster.quota.gates import Gate
from muster.quota.state import QueueState, QuotaState
from muster.quota.topology import DomainUsage, Placed, PlacementRequest, TopologyAssignment, usage_of
from muster.quota.topology.assignments import HOSTNAME
from muster.quota.workloads import PodSetTotals, WorkloadInfo

PROVISIONING: Final = "kueue.x-k8s.io/provisioning-request"
MULTIKUEUE: Final = "kueue.x-k8s.io/multikueue"
PENDING: Final = "Pending"
READY: Final = "Ready"


def is_explicit(pods: kueue.PodSet) -> bool:
    """It says itself where in the topology it wants to be. A group alone says nothing of that."""
    asked = pods.topology_request
    return asked is not None and bool(
        asked.required is not None
        or asked.preferred is not None
        or asked.unconstrained
        or asked.pod_set_slice_required_topology is not None
        or asked.pod_set_slice_size is not None
        or asked.podset_slice_required_topology_constraints
    )


def has_topology(state: QuotaState, flavor: str) -> bool:
    return state.topologies.flavor(flavor) is not None


def is_implied(state: QuotaState, queue: QueueState) -> bool:
    """Every flavor of the queue has a topology: whoever comes here is placed in one."""
    for group in queue.policy.groups:
        for flavor in group.flavors:
            if state.topologies.flavor(flavor) is None:
                return False
    return bool(queue.policy.groups)


def is_requested(state: QuotaState, queue: QueueState, pods: kueue.PodSet) -> bool:
    return is_explicit(pods) or is_implied(state, queue)


def refusal(
    state: QuotaState, queue: QueueState, flavor: kueue.ResourceFlavor, pods: PodSetTotals, resources: frozenset[str]
) -> str | None:
    """Why the flavor and the pod set do not go together, as far as topologies are concerned. `resources`: those that
    the flavor would be chosen for."""
    name = flavor.metadata.name
    if not is_explicit(pods.spec):
        if flavor.spec.topology_name is not None and not is_implied(state, queue):
            return f'Flavor "{name}" supports only TopologyAwareScheduling'
        return None
    if flavor.spec.topology_name is None:
        # What no pod asks a node for (a resource made by a transformation, the number of pods) has no place.
        if resources.isdisjoint(pods.pod_requests()):
            return None
        return f'Flavor "{name}" does not support TopologyAwareScheduling'
    topology = state.topologies.flavor(name)
    if topology is None:
        return f'Flavor "{name}" information missing in TAS cache'
    if not topology.has_levels(pods.spec.topology_request):
        return f'Flavor "{name}" does not contain the requested level'
    return None


# Requests


def placement_requests(
    state: QuotaState,
    queue: QueueState,
    info: WorkloadInfo,
    assignment: Assignment,
    replaced: WorkloadInfo | None = None,
) -> dict[str, list[PlacementRequest]]:
    """By flavor. A pod set for which no request can be made gets the error instead, and one whose place is decided
    later gets the note that it is."""
    requests: dict[str, list[PlacementRequest]] = {}
    is_for_all = is_implied(state, queue)
    asked = {pods.name: pods for pods in info.pod_sets if is_for_all or is_explicit(pods.spec)}
    for pods in assignment.pod_sets if asked else ():
        totals = asked.get(pods.name)
        if totals is None or pods.error is not None or not pods.count:
            continue
        if pods.topology is not None and not info.view.status.unhealthy_nodes:
            continue
        flavors = sorted({choice.flavor for choice in pods.flavors.values() if has_topology(state, choice.flavor)})
        pods.error = _error(state, queue, flavors) or _elastic_error(state, info, totals.spec)
        if pods.error is not None:
            continue
        flavor = flavors[0]
        if _is_delayed(state, queue, info, flavor):
            pods.delayed_topology = PENDING
        else:
            requests.setdefault(flavor, []).append(_request(state, info, totals, pods.count, replaced))
    return requests


def _error(state: QuotaState, queue: QueueState, flavors: list[str]) -> str | None:
    """`flavors`: those with a topology that the pod set was given. One is right."""
    if not any(has_topology(state, flavor) for flavor in queue.policy.flavors):
        return "workload requires Topology, but there is no TAS cache information"
    if not flavors:
        return "no TAS flavor assigned"
    if len(flavors) > 1:
        return f"more than one TAS flavor assigned: {', '.join(flavors)}"
    return None


def _elastic_error(state: QuotaState, info: WorkloadInfo, pods: kueue.PodSet) -> str | None:
    """The pods of a growing job come one slice after the other: nothing can be promised for all of them together."""
    if not info.is_elastic or Gate.ELASTIC_JOBS_VIA_WORKLOAD_SLICES_WITH_TAS not in state.settings.gates:
        return None
    asked = pods.topology_request or kueue.PodSetTopologyRequest()
    is_sliced = asked.pod_set_slice_required_topology is not None or asked.podset_slice_required_topology_constraints
    if asked.required is not None:
        kind = "required"
    elif asked.preferred is not None:
        kind = "preferred"
    elif is_sliced:
        kind = "slice"
    else:
        return None
    return f"{kind} topology is not supported with ElasticJobsViaWorkloadSlices"


def _is_delayed(state: QuotaState, queue: QueueState, info: WorkloadInfo, flavor: str) -> bool:
    """The nodes come only after the quota: from another cluster, or provisioned for this workload."""
    for name, flavors in queue.policy.checks.items():
        check = state.checks.get(name)
        controller = check.spec.controller_name if check is not None else ""
        if controller == MULTIKUEUE:
            return True
        if controller == PROVISIONING and not info.has_reservation and (flavors is None or flavor in flavors):
            return True
    return False


def _request(
    state: QuotaState, info: WorkloadInfo, totals: PodSetTotals, count: int, replaced: WorkloadInfo | None
) -> PlacementRequest:
    spec = totals.spec.template.spec
    tolerations, selector = spec.tolerations, dict(spec.node_selector or {})
    for check in info.view.status.admission_checks:
        for update in check.pod_set_updates:
            if check.state == READY and update.name == totals.name:
                tolerations = (*tolerations, *update.tolerations)
                selector.update(update.node_selector or {})
    asked = totals.spec.topology_request
    previous = None
    if replaced is not None and Gate.ELASTIC_JOBS_VIA_WORKLOAD_SLICES_WITH_TAS in state.settings.gates:
        previous = _topologies(replaced).get(totals.name)
    return PlacementRequest(
        name=totals.name,
        count=count,
        requests=totals.pod_requests(),
        topology=asked,
        tolerations=tolerations,
        node_selector=selector or None,
        affinity=spec.affinity.node_affinity if spec.affinity is not None else None,
        group=asked.pod_set_group_name if asked is not None else None,
        previous=previous,
    )


# Answers


@dataclass(frozen=True, slots=True)
class _Failure:
    pod_set: PodSetAssignment
    reason: str


def place(
    state: QuotaState,
    queue: QueueState,
    info: WorkloadInfo,
    assignment: Assignment,
    replaced: WorkloadInfo | None = None,
) -> None:
    """Gives every pod a place, if quota fits. Where there is none now, it is a matter of preemption; where there
    would be none in an empty cluster, the workload does not fit."""
    requests = assignment.places = placement_requests(state, queue, info, assignment, replaced)
    if not requests:
        return
    if assignment.mode is Mode.FIT:
        found = _find(state, requests, info, empty=False)
        failure = _failure(assignment, found)
        if failure is None:
            _settle(assignment, found)
        else:
            failure.pod_set.all_in(Mode.PREEMPT)
            _say(failure)
    # A failed node is replaced by a free one or not at all.
    if assignment.mode is Mode.PREEMPT and not info.view.status.unhealthy_nodes:
        found = _find(state, requests, info, empty=True)
        failure = _failure(assignment, found)
        if failure is None:
            for pods in assignment.pod_sets:
                if pods.name in found:
                    pods.all_in(Mode.PREEMPT)
        else:
            failure.pod_set.all_in(Mode.NO_FIT)
            failure.pod_set.no_fit_reason = NoFitReason.TOPOLOGY
            _say(failure)


def _find(
    state: QuotaState, requests: Mapping[str, list[PlacementRequest]], info: WorkloadInfo, *, empty: bool
) -> dict[str, Placed]:
    """A host may be of several flavors: what is placed through one is taken for the next."""
    found: dict[str, Placed] = {}
    assumed: list[DomainUsage] = []
    workload = info.view if info.has_reservation else None
    for name, asked in requests.items():
        flavor = state.topologies.flavor(name)
        assert flavor is not None, "a request is made only for a flavor that has a topology"
        placed = flavor.find(asked, workload=workload, empty=empty, assumed=assumed)
        found.update(placed)
        if len(requests) > 1 and flavor.levels[-1] == HOSTNAME:
            for one in asked:
                assignment = placed[one.name].assignment if one.name in placed else None
                if assignment is not None:
                    assumed += usage_of(assignment, one.requests)
    return found


def _failure(assignment: Assignment, found: Mapping[str, Placed]) -> _Failure | None:
    for pods in assignment.pod_sets:
        placed = found.get(pods.name)
        if placed is not None and placed.reason:
            return _Failure(pods, placed.reason)
    return None


def _settle(assignment: Assignment, found: Mapping[str, Placed]) -> None:
    for pods in assignment.pod_sets:
        placed = found.get(pods.name)
        if placed is not None:
            pods.topology = placed.assignment
            if pods.topology is not None and pods.delayed_topology is not None:
                pods.delayed_topology = READY


def _say(failure: _Failure) -> None:
    if failure.reason not in failure.pod_set.reasons:
        failure.pod_set.reasons.append(failure.reason)


# Usage


def net_topology_usage(
    info: WorkloadInfo, assignment: Assignment, replaced: WorkloadInfo | None = None
) -> dict[str, tuple[DomainUsage, ...]]:
    """By flavor: the pods that are new in their domain. Those that were there before, of this workload or of the slice
    that it replaces, are counted already. All flavors of a pod set are told: one without a topology ignores it."""
    usage: dict[str, tuple[DomainUsage, ...]] = {}
    for number, pods in enumerate(assignment.pod_sets):
        if pods.topology is None:
            continue
        before = _topologies(info if info.has_reservation or replaced is None else replaced).get(pods.name)
        held = {domain.values: domain.pods for domain in before.domains} if before is not None else {}
        requests = info.pod_sets[number].pod_requests()
        taken = tuple(
            DomainUsage(domain.values, requests, more)
            for domain in pods.topology.domains
            if (more := domain.pods - held.get(domain.values, 0)) > 0
        )
        for flavor in dict.fromkeys(choice.flavor for choice in pods.flavors.values()) if taken else ():
            usage[flavor] = (*usage.get(flavor, ()), *taken)
    return usage


def _topologies(info: WorkloadInfo) -> dict[str, TopologyAssignment]:
    return {pods.name: pods.topology for pods in info.pod_sets if pods.topology is not None}
