"""Typed views of Workload: what waits for quota, what it was given, and how it fares. v1beta2."""

from collections.abc import Mapping
from typing import Annotated

from muster.api import core
from muster.api.meta import ATOMIC, MERGED_SET, Condition, Resource, View, merge_by
from muster.api.scalars import Int32, ResourceList


class SliceRequiredTopologyConstraint(View, frozen=True):
    """One layer of slicing: every `size` pods stay together in one domain of the level `topology`."""

    topology: str = ""
    size: Int32 | None = None


class PodSetTopologyRequest(View, frozen=True):
    """How close together the pods of a pod set must or should run."""

    required: str | None = None
    preferred: str | None = None
    unconstrained: bool | None = None
    pod_index_label: str | None = None
    sub_group_index_label: str | None = None
    sub_group_count: Int32 | None = None
    pod_set_group_name: str | None = None
    pod_set_slice_required_topology: str | None = None
    pod_set_slice_size: Int32 | None = None
    podset_slice_required_topology_constraints: Annotated[tuple[SliceRequiredTopologyConstraint, ...], ATOMIC] = ()


class PodSet(View, frozen=True):
    """Pods of one template. `min_count` allows the workload to start with fewer than `count`."""

    name: str = ""
    template: core.PodTemplateSpec = core.PodTemplateSpec()
    count: Int32 | None = None
    min_count: Int32 | None = None
    topology_request: PodSetTopologyRequest | None = None


class PriorityClassRef(View, frozen=True):
    """The class that the workload's priority was taken from."""

    group: str = ""
    kind: str = ""
    name: str = ""


class PreemptionGate(View, frozen=True):
    """While any gate is closed, the workload may not preempt others."""

    name: str = ""


class WorkloadSpec(View, frozen=True):
    """What the workload needs, and where and how urgently it waits for it."""

    pod_sets: Annotated[tuple[PodSet, ...], merge_by("name")] = ()
    queue_name: str | None = None
    priority_class_ref: PriorityClassRef | None = None
    priority: Int32 | None = None
    active: bool | None = None
    maximum_execution_time_seconds: Int32 | None = None
    preemption_gates: Annotated[tuple[PreemptionGate, ...], merge_by("name")] = ()


class TopologyAssignmentSliceLevelIndividualValues(View, frozen=True):
    """One value for each domain, with what all of them start and end with written once."""

    prefix: str | None = None
    suffix: str | None = None
    roots: Annotated[tuple[str, ...], ATOMIC] = ()


class TopologyAssignmentSliceLevelValues(View, frozen=True):
    """The values of one level: the same for all domains of the slice, or one for each."""

    universal: str | None = None
    individual: TopologyAssignmentSliceLevelIndividualValues | None = None


class TopologyAssignmentSlicePodCounts(View, frozen=True):
    """How many pods each domain of the slice gets: the same for all, or one number for each."""

    universal: Int32 | None = None
    individual: Annotated[tuple[Int32, ...], ATOMIC] = ()


class TopologyAssignmentSlice(View, frozen=True):
    """A run of domains, written compactly."""

    domain_count: Int32 | None = None
    values_per_level: Annotated[tuple[TopologyAssignmentSliceLevelValues, ...], ATOMIC] = ()
    pod_counts: TopologyAssignmentSlicePodCounts = TopologyAssignmentSlicePodCounts()


class TopologyAssignment(View, frozen=True):
    """Which domains the pods of a pod set were given, and how many pods go into each."""

    levels: Annotated[tuple[str, ...], ATOMIC] = ()
    slices: Annotated[tuple[TopologyAssignmentSlice, ...], ATOMIC] = ()


class PodSetAssignment(View, frozen=True):
    """What one pod set was given: a flavor for each resource, the usage that counts, the domains."""

    name: str = ""
    flavors: Mapping[str, str] | None = None
    resource_usage: ResourceList | None = None
    count: Int32 | None = None
    topology_assignment: TopologyAssignment | None = None
    delayed_topology_request: str | None = None


class Admission(View, frozen=True):
    """The quota that is reserved for the workload."""

    cluster_queue: str = ""
    pod_set_assignments: Annotated[tuple[PodSetAssignment, ...], merge_by("name")] = ()


class RequeueState(View, frozen=True):
    """How often the workload was put back, and when it may try again."""

    count: Int32 | None = None
    requeue_at: str | None = None


class ReclaimablePod(View, frozen=True):
    """Pods of a pod set that are done: their quota may be given to others."""

    name: str = ""
    count: Int32 | None = None


class PodSetUpdate(View, frozen=True):
    """What a check adds to the pods of one pod set when the job starts."""

    name: str = ""
    labels: Mapping[str, str] | None = None
    annotations: Mapping[str, str] | None = None
    node_selector: Mapping[str, str] | None = None
    tolerations: Annotated[tuple[core.Toleration, ...], ATOMIC] = ()


class AdmissionCheckState(View, frozen=True):
    """Where one check stands for this workload."""

    name: str = ""
    state: str = ""
    last_transition_time: str | None = None
    message: str | None = None
    requeue_after_seconds: Int32 | None = None
    retry_count: Int32 | None = None
    pod_set_updates: Annotated[tuple[PodSetUpdate, ...], ATOMIC] = ()


class PodSetRequest(View, frozen=True):
    """What one pod set counts for while it waits, after overheads and transformations."""

    name: str = ""
    resources: ResourceList | None = None


class WorkloadSchedulingStatsEviction(View, frozen=True):
    """How often the workload was evicted for one reason."""

    reason: str = ""
    underlying_cause: str = ""
    count: Int32 | None = None


class SchedulingStats(View, frozen=True):
    """What has happened to the workload so far."""

    evictions: Annotated[tuple[WorkloadSchedulingStatsEviction, ...], merge_by("reason", "underlyingCause")] = ()


class UnhealthyNode(View, frozen=True):
    """A node that failed under the workload."""

    name: str = ""


class PreemptionGateState(View, frozen=True):
    """Whether a gate is open."""

    name: str = ""
    position: str = ""
    last_transition_time: str | None = None


class WorkloadStatus(View, frozen=True):
    """Whether and with what the workload was admitted, and what stands in the way if not."""

    admission: Admission | None = None
    requeue_state: RequeueState | None = None
    conditions: Annotated[tuple[Condition, ...], merge_by("type")] = ()
    reclaimable_pods: Annotated[tuple[ReclaimablePod, ...], merge_by("name")] = ()
    admission_checks: Annotated[tuple[AdmissionCheckState, ...], merge_by("name")] = ()
    resource_requests: Annotated[tuple[PodSetRequest, ...], merge_by("name")] = ()
    accumulated_past_execution_time_seconds: Int32 | None = None
    scheduling_stats: SchedulingStats | None = None
    nominated_cluster_names: Annotated[tuple[str, ...], MERGED_SET] = ()
    cluster_name: str | None = None
    unhealthy_nodes: Annotated[tuple[UnhealthyNode, ...], merge_by("name")] = ()
    preemption_gates: Annotated[tuple[PreemptionGateState, ...], merge_by("name")] = ()


class Workload(Resource, frozen=True):
    """A job as the quota engine sees it: sets of pods that are admitted together or not at all."""

    spec: WorkloadSpec = WorkloadSpec()
    status: WorkloadStatus = WorkloadStatus()
