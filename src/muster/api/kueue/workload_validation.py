"""What a workload must look like, and what may no longer change once quota is reserved for it."""

from collections.abc import Iterator, Mapping

from muster.api import conditions, core, fields
from muster.api.errors import FieldError
from muster.api.kueue.assignment_validation import validate_admission
from muster.api.kueue.workload_views import (
    AdmissionCheckState,
    PodSet,
    PodSetTopologyRequest,
    PriorityClassRef,
    SliceRequiredTopologyConstraint,
    Workload,
    WorkloadSpec,
    WorkloadStatus,
)
from muster.api.scalars import ResourceList

MAX_POD_SETS = 256  # Kueue allows 18; a Volcano Job may have more tasks than that
MAX_GATES = 8
MAX_CHECKS = 8
MAX_NOMINATED = 20
MAX_UNHEALTHY_NODES = 8
MAX_SLICE_LAYERS = 3
ELASTIC_ANNOTATION = "kueue.x-k8s.io/elastic-job"
PRIORITY_BOOST_ANNOTATION = "kueue.x-k8s.io/priority-boost"
CHECK_STATES = ("Pending", "Ready", "Retry", "Rejected")
GATE_POSITIONS = ("Open", "Closed")
PRIORITY_KINDS: Mapping[str, str] = {"kueue.x-k8s.io": "WorkloadPriorityClass", "scheduling.k8s.io": "PriorityClass"}
_ANY_CASE_RULE = "must be a DNS label; upper case letters are allowed too"


def is_elastic(workload: Workload) -> bool:
    return (workload.metadata.annotations or {}).get(ELASTIC_ANNOTATION) == "true"


def is_quota_reserved(workload: Workload) -> bool:
    return conditions.is_true(workload.status.conditions, "QuotaReserved")


def validate_workload(workload: Workload) -> list[FieldError]:
    return list(_workload(workload))


def _workload(workload: Workload) -> Iterator[FieldError]:
    boost = (workload.metadata.annotations or {}).get(PRIORITY_BOOST_ANNOTATION)
    if boost is not None and not _is_int32(boost):
        yield fields.invalid(f"metadata.annotations[{PRIORITY_BOOST_ANNOTATION}]", boost, "must be a 32-bit integer")
    yield from _spec(workload.spec, is_elastic(workload))
    yield from _status(workload.status, workload.spec, is_elastic(workload))


def _is_int32(text: str) -> bool:
    digits = text.removeprefix("-").removeprefix("+")
    return digits.isascii() and digits.isdigit() and len(digits) <= 10 and -(2**31) <= int(text) < 2**31


def _spec(spec: WorkloadSpec, is_elastic: bool) -> Iterator[FieldError]:
    if not spec.pod_sets:
        yield fields.required("spec.podSets")
    yield from fields.at_most("spec.podSets", spec.pod_sets, MAX_POD_SETS)
    yield from fields.unique("spec.podSets", [pod_set.name for pod_set in spec.pod_sets], "name")
    for index, pod_set in enumerate(spec.pod_sets):
        yield from _pod_set(f"spec.podSets[{index}]", pod_set)
    variable = [index for index, pod_set in enumerate(spec.pod_sets) if pod_set.min_count is not None]
    for index in variable if is_elastic else ():
        yield fields.forbidden(f"spec.podSets[{index}].minCount", "an elastic workload cannot be admitted in part")
    if len(variable) > 1:
        yield fields.invalid("spec.podSets", len(variable), "at most one podSet can use minCount")
    if spec.queue_name:
        yield from fields.dns_subdomain("spec.queueName", spec.queue_name)
    if spec.priority_class_ref is not None:
        yield from _priority_class("spec.priorityClassRef", spec.priority_class_ref)
        if spec.priority is None:
            yield fields.required("spec.priority", "Required value: priority must be set when priorityClassRef is set")
    yield from fields.positive("spec.maximumExecutionTimeSeconds", spec.maximum_execution_time_seconds)
    yield from fields.at_most("spec.preemptionGates", spec.preemption_gates, MAX_GATES)
    yield from fields.unique("spec.preemptionGates", [gate.name for gate in spec.preemption_gates], "name")
    for index, gate in enumerate(spec.preemption_gates):
        yield from fields.qualified_name(f"spec.preemptionGates[{index}].name", gate.name)


def _priority_class(path: str, reference: PriorityClassRef) -> Iterator[FieldError]:
    if reference.group not in PRIORITY_KINDS:
        yield fields.unsupported(f"{path}.group", reference.group, PRIORITY_KINDS)
    elif reference.kind != PRIORITY_KINDS[reference.group]:
        yield fields.unsupported(f"{path}.kind", reference.kind, [PRIORITY_KINDS[reference.group]])
    yield from fields.dns_subdomain(f"{path}.name", reference.name)


def _pod_set(path: str, pod_set: PodSet) -> Iterator[FieldError]:
    if not fields.is_dns_label(pod_set.name.lower()):
        yield fields.invalid(f"{path}.name", pod_set.name, _ANY_CASE_RULE)
    yield from fields.non_negative(f"{path}.count", pod_set.count)
    yield from fields.positive(f"{path}.minCount", pod_set.min_count)
    if pod_set.min_count is not None and pod_set.min_count > (pod_set.count or 0):
        yield fields.invalid(
            f"{path}.minCount", pod_set.min_count, "minCount should be positive and less or equal to count"
        )
    metadata = pod_set.template.metadata
    yield from fields.labels(f"{path}.template.metadata.labels", metadata.labels)
    yield from fields.annotations(f"{path}.template.metadata.annotations", metadata.annotations)
    yield from _pod_resources(f"{path}.template.spec", pod_set.template.spec)
    if pod_set.topology_request is not None:
        yield from _topology_request(f"{path}.topologyRequest", pod_set.topology_request, pod_set.count or 0)


def _pod_resources(path: str, spec: core.PodSpec) -> Iterator[FieldError]:
    for field, containers in (("initContainers", spec.init_containers), ("containers", spec.containers)):
        for index, container in enumerate(containers):
            if container.resources is not None:
                at = f"{path}.{field}[{index}].resources"
                yield from _resources(f"{at}.requests", container.resources.requests)
                yield from _resources(f"{at}.limits", container.resources.limits)
    if spec.resources is not None:
        yield from _resources(f"{path}.resources.requests", spec.resources.requests)
        yield from _resources(f"{path}.resources.limits", spec.resources.limits)
    yield from _resources(f"{path}.overhead", spec.overhead)


def _resources(path: str, resources: ResourceList | None) -> Iterator[FieldError]:
    yield from core.validate_resource_list(path, resources)
    if "pods" in (resources or {}):
        yield fields.invalid(path, "pods", "the key is reserved for internal kueue use")


def _topology_request(path: str, request: PodSetTopologyRequest, count: int) -> Iterator[FieldError]:
    levels = (
        ("required", request.required),
        ("preferred", request.preferred),
        ("podSetSliceRequiredTopology", request.pod_set_slice_required_topology),
        ("podIndexLabel", request.pod_index_label),
        ("subGroupIndexLabel", request.sub_group_index_label),
    )
    for field, label in levels:
        if label is not None:
            yield from fields.qualified_name(f"{path}.{field}", label)
    if sum(bool(choice) for choice in (request.required, request.preferred, request.unconstrained)) > 1:
        yield fields.invalid(path, "topologyRequest", "only one of required, preferred and unconstrained can be set")
    yield from fields.positive(f"{path}.subGroupCount", request.sub_group_count)
    layers = request.podset_slice_required_topology_constraints
    topology, size = request.pod_set_slice_required_topology, request.pod_set_slice_size
    if size is not None and not topology:
        yield fields.required(f"{path}.podSetSliceRequiredTopology", "Required value: podSetSliceSize is set")
    if topology and size is None:
        yield fields.required(f"{path}.podSetSliceSize", "Required value: podSetSliceRequiredTopology is set")
    yield from fields.positive(f"{path}.podSetSliceSize", size)
    if size is not None and size > count > 0:
        yield fields.invalid(f"{path}.podSetSliceSize", size, f"must not be greater than the podSet's count {count}")
    at = f"{path}.podsetSliceRequiredTopologyConstraints"
    if layers and (topology or size is not None):
        yield fields.forbidden(at, "cannot be combined with podSetSliceRequiredTopology and podSetSliceSize")
    if request.pod_set_group_name and (layers or topology):
        yield fields.forbidden(f"{path}.podSetGroupName", "cannot be combined with slices")
    yield from _slice_layers(at, layers)


def _slice_layers(path: str, layers: tuple[SliceRequiredTopologyConstraint, ...]) -> Iterator[FieldError]:
    yield from fields.at_most(path, layers, MAX_SLICE_LAYERS)
    yield from fields.unique(path, [layer.topology for layer in layers], "topology")
    outer: int | None = None
    for index, layer in enumerate(layers):
        yield from fields.qualified_name(f"{path}[{index}].topology", layer.topology)
        size = layer.size or 0
        if size < 1:
            yield fields.invalid(f"{path}[{index}].size", layer.size, "must be greater than 0")
            continue
        if outer is not None and outer % size:
            yield fields.invalid(f"{path}[{index}].size", size, f"must divide the size of the layer above, {outer}")
        outer = size


def _status(status: WorkloadStatus, spec: WorkloadSpec, is_elastic: bool) -> Iterator[FieldError]:
    counts = {pod_set.name: pod_set.count or 0 for pod_set in spec.pod_sets}
    if status.admission is not None:
        yield from validate_admission("status.admission", status.admission, counts)
    if status.requeue_state is not None:
        yield from fields.non_negative("status.requeueState.count", status.requeue_state.count)
    for index, pods in enumerate(status.reclaimable_pods):
        at = f"status.reclaimablePods[{index}]"
        yield from fields.non_negative(f"{at}.count", pods.count)
        if pods.name not in counts:
            yield fields.unsupported(f"{at}.name", pods.name, counts)
        elif (pods.count or 0) > counts[pods.name] and not is_elastic:  # which may have shrunk since
            yield fields.invalid(f"{at}.count", pods.count, f"should be less or equal to {counts[pods.name]}")
    yield from fields.at_most("status.admissionChecks", status.admission_checks, MAX_CHECKS)
    yield from fields.unique("status.admissionChecks", [check.name for check in status.admission_checks], "name")
    for index, check in enumerate(status.admission_checks):
        yield from _check_state(f"status.admissionChecks[{index}]", check, counts)
    yield from fields.at_most("status.nominatedClusterNames", status.nominated_cluster_names, MAX_NOMINATED)
    if status.cluster_name and status.nominated_cluster_names:
        yield fields.forbidden("status.clusterName", "clusterName and nominatedClusterNames are mutually exclusive")
    yield from fields.at_most("status.unhealthyNodes", status.unhealthy_nodes, MAX_UNHEALTHY_NODES)
    yield from fields.at_most("status.preemptionGates", status.preemption_gates, MAX_GATES)
    for index, gate in enumerate(status.preemption_gates):
        yield from fields.one_of(f"status.preemptionGates[{index}].position", gate.position, GATE_POSITIONS)


def _check_state(path: str, check: AdmissionCheckState, counts: Mapping[str, int]) -> Iterator[FieldError]:
    yield from fields.dns_subdomain(f"{path}.name", check.name)
    yield from fields.one_of(f"{path}.state", check.state, CHECK_STATES)
    yield from fields.non_negative(f"{path}.requeueAfterSeconds", check.requeue_after_seconds)
    yield from fields.non_negative(f"{path}.retryCount", check.retry_count)
    updates = check.pod_set_updates
    if updates and {update.name for update in updates} != set(counts):
        yield fields.invalid(
            f"{path}.podSetUpdates", [update.name for update in updates], "must have one entry for each podSet"
        )
    for index, update in enumerate(updates):
        at = f"{path}.podSetUpdates[{index}]"
        yield from fields.labels(f"{at}.labels", update.labels)
        yield from fields.annotations(f"{at}.annotations", update.annotations)
        yield from fields.labels(f"{at}.nodeSelector", update.node_selector)
        yield from core.validate_tolerations(f"{at}.tolerations", update.tolerations)
