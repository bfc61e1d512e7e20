"""Feature gates by Kueue's names: what may be switched on or off, and what that switches along with it."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Self


class UnknownGate(ValueError):
    pass


class Gate(StrEnum):
    """Gates that make a difference here."""

    ADMISSION_FAIR_SHARING = "AdmissionFairSharing"
    ADMISSION_GATED_BY = "AdmissionGatedBy"
    ASSIGN_QUEUE_LABELS_FOR_PODS = "AssignQueueLabelsForPods"
    CONCURRENT_ADMISSION = "ConcurrentAdmission"
    DISABLE_WAIT_FOR_PODS_READY = "DisableWaitForPodsReady"
    ELASTIC_JOBS_VIA_WORKLOAD_SLICES = "ElasticJobsViaWorkloadSlices"
    ELASTIC_JOBS_VIA_WORKLOAD_SLICES_WITH_TAS = "ElasticJobsViaWorkloadSlicesWithTAS"
    FAIR_SHARING_PREEMPT_WITHIN_NOMINAL = "FairSharingPreemptWithinNominal"
    FAIR_SHARING_PRIORITIZE_NON_BORROWING = "FairSharingPrioritizeNonBorrowing"
    FAST_QUOTA_RELEASE_IN_POD_INTEGRATION = "FastQuotaReleaseInPodIntegration"
    FINISH_ORPHANED_WORKLOADS = "FinishOrphanedWorkloads"
    FLAVOR_FUNGIBILITY = "FlavorFungibility"
    FLAVOR_FUNGIBILITY_PRESERVE_SCAN_PROGRESS = "FlavorFungibilityPreserveScanProgress"
    LOCAL_QUEUE_METRICS = "LocalQueueMetrics"
    METRICS_FOR_COHORTS = "MetricsForCohorts"
    METRIC_FOR_WORKLOAD_CREATION_LATENCY = "MetricForWorkloadCreationLatency"
    MULTIKUEUE_ORCHESTRATED_PREEMPTION = "MultiKueueOrchestratedPreemption"
    PARTIAL_ADMISSION = "PartialAdmission"
    PRIORITIZE_PREEMPTOR_WORKLOADS = "PrioritizePreemptorWorkloads"
    PRIORITY_BOOST = "PriorityBoost"
    PRIORITY_SORTING_WITHIN_COHORT = "PrioritySortingWithinCohort"
    QUOTA_CHECK_STRATEGY = "QuotaCheckStrategy"
    RECLAIMABLE_PODS = "ReclaimablePods"
    RECOMPUTE_ASSIGNMENT_UPON_PREEMPTION_TARGETS_OVERLAP = "RecomputeAssignmentUponPreemptionTargetsOverlap"
    SCHEDULER_LIBRARY_INTEGRATION = "SchedulerLibraryIntegration"
    SCHEDULING_EQUIVALENCE_HASHING = "SchedulingEquivalenceHashing"
    SHORT_WORKLOAD_NAMES = "ShortWorkloadNames"
    SKIP_REASSIGNMENT_FOR_POD_OWNED_WORKLOADS = "SkipReassignmentForPodOwnedWorkloads"
    TAS_ASSIGNMENTS_ENCODING_BY_HOSTNAME_PREFIX = "TASAssignmentsEncodingByHostnamePrefix"
    TAS_BALANCED_PLACEMENT = "TASBalancedPlacement"
    TAS_FAILED_NODE_REPLACEMENT = "TASFailedNodeReplacement"
    TAS_FAILED_NODE_REPLACEMENT_FAIL_FAST = "TASFailedNodeReplacementFailFast"
    TAS_HANDLE_OVERLAPPING_FLAVORS = "TASHandleOverlappingFlavors"
    TAS_MULTI_LAYER_TOPOLOGY = "TASMultiLayerTopology"
    TAS_PROFILE_MIXED = "TASProfileMixed"
    TAS_RECOMPUTE_ASSIGNMENT_WITHIN_SCHEDULING_CYCLE = "TASRecomputeAssignmentWithinSchedulingCycle"
    TAS_REPLACE_NODE_DUE_TO_NOT_READY_OVER_FIXED_TIME = "TASReplaceNodeDueToNotReadyOverFixedTime"
    TAS_REPLACE_NODE_ON_NODE_TAINTS = "TASReplaceNodeOnNodeTaints"
    TAS_REPLACE_NODE_ON_POD_TERMINATION = "TASReplaceNodeOnPodTermination"
    TAS_RESPECT_NODE_AFFINITY_PREFERRED = "TASRespectNodeAffinityPreferred"
    TOPOLOGY_AWARE_SCHEDULING = "TopologyAwareScheduling"
    UNADMITTED_WORKLOADS_EXPLICIT_STATUS = "UnadmittedWorkloadsExplicitStatus"
    UNADMITTED_WORKLOADS_OBSERVABILITY = "UnadmittedWorkloadsObservability"
    VISIBILITY_ON_DEMAND = "VisibilityOnDemand"
    WORKLOAD_PRIORITY_CLASS_DEFAULTING = "WorkloadPriorityClassDefaulting"


_OFF: Final = frozenset(
    {
        Gate.CONCURRENT_ADMISSION,
        Gate.DISABLE_WAIT_FOR_PODS_READY,
        Gate.ELASTIC_JOBS_VIA_WORKLOAD_SLICES_WITH_TAS,
        Gate.FAST_QUOTA_RELEASE_IN_POD_INTEGRATION,
        Gate.MULTIKUEUE_ORCHESTRATED_PREEMPTION,
        Gate.PRIORITIZE_PREEMPTOR_WORKLOADS,
        Gate.PRIORITY_BOOST,
        Gate.SCHEDULER_LIBRARY_INTEGRATION,
        Gate.SHORT_WORKLOAD_NAMES,
        Gate.TAS_BALANCED_PLACEMENT,
        Gate.TAS_REPLACE_NODE_DUE_TO_NOT_READY_OVER_FIXED_TIME,
        Gate.TAS_RESPECT_NODE_AFFINITY_PREFERRED,
        Gate.UNADMITTED_WORKLOADS_EXPLICIT_STATUS,
    }
)
_NEEDS: Final[Mapping[Gate, tuple[Gate, ...]]] = {
    Gate.ELASTIC_JOBS_VIA_WORKLOAD_SLICES_WITH_TAS: (
        Gate.ELASTIC_JOBS_VIA_WORKLOAD_SLICES,
        Gate.TOPOLOGY_AWARE_SCHEDULING,
    ),
    Gate.FLAVOR_FUNGIBILITY_PRESERVE_SCAN_PROGRESS: (Gate.FLAVOR_FUNGIBILITY,),
    Gate.TAS_BALANCED_PLACEMENT: (Gate.TOPOLOGY_AWARE_SCHEDULING,),
    Gate.TAS_FAILED_NODE_REPLACEMENT: (Gate.TOPOLOGY_AWARE_SCHEDULING,),
    Gate.TAS_FAILED_NODE_REPLACEMENT_FAIL_FAST: (
        Gate.TOPOLOGY_AWARE_SCHEDULING,
        Gate.TAS_FAILED_NODE_REPLACEMENT,
    ),
    Gate.TAS_HANDLE_OVERLAPPING_FLAVORS: (Gate.TOPOLOGY_AWARE_SCHEDULING,),
    Gate.TAS_MULTI_LAYER_TOPOLOGY: (Gate.TOPOLOGY_AWARE_SCHEDULING,),
    Gate.TAS_PROFILE_MIXED: (Gate.TOPOLOGY_AWARE_SCHEDULING,),
    Gate.TAS_RECOMPUTE_ASSIGNMENT_WITHIN_SCHEDULING_CYCLE: (Gate.TOPOLOGY_AWARE_SCHEDULING,),
    Gate.TAS_REPLACE_NODE_DUE_TO_NOT_READY_OVER_FIXED_TIME: (
        Gate.TOPOLOGY_AWARE_SCHEDULING,
        Gate.TAS_FAILED_NODE_REPLACEMENT,
    ),
    Gate.TAS_REPLACE_NODE_ON_NODE_TAINTS: (Gate.TOPOLOGY_AWARE_SCHEDULING,),
    Gate.TAS_REPLACE_NODE_ON_POD_TERMINATION: (
        Gate.TOPOLOGY_AWARE_SCHEDULING,
        Gate.TAS_FAILED_NODE_REPLACEMENT,
    ),
    Gate.TAS_RESPECT_NODE_AFFINITY_PREFERRED: (Gate.TOPOLOGY_AWARE_SCHEDULING,),
    Gate.UNADMITTED_WORKLOADS_EXPLICIT_STATUS: (Gate.UNADMITTED_WORKLOADS_OBSERVABILITY,),
}
WITHOUT_EFFECT: Final = frozenset(
    {
        "CleanupProvisioningRequestsOnEviction",
        "CustomMetricLabels",
        "DeferRayServiceFinalizationForRedisCleanup",
        "FailureRecoveryPolicy",
        "KueueDRAIntegration",
        "KueueDRAIntegrationConsumableCapacity",
        "KueueDRAIntegrationExtendedResource",
        "KueueDRAIntegrationPartitionableDevices",
        "KueueDRARejectWorkloadsWhenDRADisabled",
        "LWSImmutableGroupSize",
        "ManagedJobsNamespaceSelectorAlwaysRespected",
        "MultiKueue",
        "MultiKueueAdaptersForCustomJobs",
        "MultiKueueClusterProfile",
        "MultiKueueIncrementalDispatcherConfig",
        "MultiKueueIncrementalDispatcherRespectConfigOrder",
        "MultiKueueKubeConfigPathValidation",
        "MultiKueueManagerQuotaAutomation",
        "MultiKueueRemoteSpecSync",
        "PodIntegrationValidateGroupOwner",
        "RejectUpdatesToCQWithInvalidOnFlavors",
        "RemoveFinalizersWithStrictPatch",
        "SkipAncestorCheckForDeletedWorkloads",
        "SparkApplicationIntegration",
        "TASCacheNodeMatchResults",
        "TASCacheTopologyTree",
        "TASCachingRemainingResources",
        "TASValidateWorkloadSliceSize",
        "TLSOptions",
        "ValidateRayAndSparkJobUpdates",
        "VectorizedResourceRequests",
        "WorkloadIdentifierAnnotations",
        "WorkloadRequestUseMergePatch",
        "WorkloadValidateResourcesAreNonNegative",
        "WorkloadValidationForPodSetMetadata",
    }
)
"""Gates of Kueue that may be set and change nothing: other clusters, other job kinds, how Kueue works inside."""


@dataclass(frozen=True, slots=True)
class Gates:
    """Those that are on."""

    on: frozenset[Gate]

    @classmethod
    def default(cls) -> Self:
        return cls(frozenset(Gate) - _OFF)

    def __contains__(self, gate: Gate) -> bool:
        return gate in self.on

    def changed(self, overrides: Mapping[str, bool]) -> "Gates":
        """With these switched. Switching on switches on what the gate needs; switching off, what needs it. Raises
        UnknownGate."""
        on = set(self.on)
        for name, wanted in overrides.items():
            if name in WITHOUT_EFFECT:
                continue
            try:
                gate = Gate(name)
            except ValueError:
                raise UnknownGate(f"{name}: no such feature gate") from None
            _switch(gate, wanted, on)
        return Gates(frozenset(on))


def _switch(gate: Gate, wanted: bool, on: set[Gate]) -> None:
    if wanted:
        on.add(gate)
        along: tuple[Gate, ...] = _NEEDS.get(gate, ())
    else:
        on.discard(gate)
        along = tuple(other for other, needs in _NEEDS.items() if gate in needs)
    for other in along:
        _switch(other, wanted, on)
