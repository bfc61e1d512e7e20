"""Typed views of what an administrator sets up: flavors, queues, cohorts, checks, priorities, topologies.

The shapes are those of kueue.x-k8s.io/v1beta2, the version that is stored.
"""

from collections.abc import Mapping
from typing import Annotated

from muster.api import core
from muster.api.meta import ATOMIC, Condition, LabelSelector, Resource, View, merge_by
from muster.api.scalars import Int32, Int64, QuantityText, ResourceList


class ResourceFlavorSpec(View, frozen=True):
    """Which nodes a flavor stands for, and what pods need in order to run on them."""

    node_labels: Mapping[str, str] | None = None
    node_taints: Annotated[tuple[core.Taint, ...], ATOMIC] = ()
    tolerations: Annotated[tuple[core.Toleration, ...], ATOMIC] = ()
    topology_name: str | None = None


class ResourceFlavor(Resource, frozen=True):
    """A variety of a resource: a pool of nodes, told apart from others by labels and taints."""

    spec: ResourceFlavorSpec = ResourceFlavorSpec()


class ResourceQuota(View, frozen=True):
    """How much of one resource in one flavor is owned, may be borrowed and may be lent."""

    name: str = ""
    nominal_quota: QuantityText | None = None
    borrowing_limit: QuantityText | None = None
    lending_limit: QuantityText | None = None


class FlavorQuotas(View, frozen=True):
    """The quotas of one flavor, one for each covered resource, in the same order."""

    name: str = ""
    resources: Annotated[tuple[ResourceQuota, ...], merge_by("name")] = ()


class ResourceGroup(View, frozen=True):
    """Resources that are always given from the same flavor, and the flavors in the order to try them."""

    covered_resources: Annotated[tuple[str, ...], ATOMIC] = ()
    flavors: Annotated[tuple[FlavorQuotas, ...], merge_by("name")] = ()


class FlavorFungibility(View, frozen=True):
    """Whether to borrow or preempt in a flavor, or rather to look at the next flavor first."""

    when_can_borrow: str | None = None
    when_can_preempt: str | None = None
    preference: str | None = None


class BorrowWithinCohort(View, frozen=True):
    """Whether a workload that needs to borrow may preempt others for it, and up to which priority."""

    policy: str | None = None
    max_priority_threshold: Int32 | None = None


class ClusterQueuePreemption(View, frozen=True):
    """Whom workloads of this queue may preempt, in the queue itself and in its cohort."""

    reclaim_within_cohort: str | None = None
    borrow_within_cohort: BorrowWithinCohort | None = None
    within_cluster_queue: str | None = None


class AdmissionCheckStrategyRule(View, frozen=True):
    """One admission check, and the flavors it is asked for; no flavors means all of them."""

    name: str = ""
    on_flavors: tuple[str, ...] = ()


class AdmissionChecksStrategy(View, frozen=True):
    """The checks that a workload must pass after its quota is reserved and before it starts."""

    admission_checks: Annotated[tuple[AdmissionCheckStrategyRule, ...], merge_by("name")] = ()


class FairSharing(View, frozen=True):
    """The weight in fair sharing: a queue of weight 2 may use twice what one of weight 1 uses."""

    weight: QuantityText | None = None


class AdmissionScope(View, frozen=True):
    """Whether past usage decides the order in which local queues are served."""

    admission_mode: str | None = None


class ConcurrentAdmissionMigrationConstraints(View, frozen=True):
    """How far down the list of flavors an admitted workload may be left."""

    last_acceptable_flavor_name: str | None = None


class ConcurrentAdmissionMigration(View, frozen=True):
    """What happens to an admitted workload when a better flavor comes free."""

    mode: str | None = None
    constraints: ConcurrentAdmissionMigrationConstraints | None = None


class ConcurrentAdmissionPolicy(View, frozen=True):
    """Tries several flavors for one workload at the same time instead of one after the other."""

    migration: ConcurrentAdmissionMigration | None = None


class ClusterQueueSpec(View, frozen=True):
    """Quotas, and the rules by which workloads are ordered, admitted and preempted."""

    resource_groups: Annotated[tuple[ResourceGroup, ...], ATOMIC] = ()
    cohort_name: str | None = None
    queueing_strategy: str | None = None
    namespace_selector: LabelSelector | None = None
    flavor_fungibility: FlavorFungibility | None = None
    preemption: ClusterQueuePreemption | None = None
    admission_checks_strategy: AdmissionChecksStrategy | None = None
    stop_policy: str | None = None
    fair_sharing: FairSharing | None = None
    admission_scope: AdmissionScope | None = None
    concurrent_admission_policy: ConcurrentAdmissionPolicy | None = None


class ResourceUsage(View, frozen=True):
    """How much of one resource is in use, and how much of that was borrowed from the cohort."""

    name: str = ""
    total: QuantityText | None = None
    borrowed: QuantityText | None = None


class FlavorUsage(View, frozen=True):
    """Usage of one flavor, resource by resource."""

    name: str = ""
    resources: Annotated[tuple[ResourceUsage, ...], merge_by("name")] = ()


class FairSharingStatus(View, frozen=True):
    """How much is borrowed beyond the nominal quota, relative to the weight; the larger, the later served."""

    weighted_share: Int64 | None = None


class ClusterQueueStatus(View, frozen=True):
    """What a queue holds and uses now."""

    conditions: Annotated[tuple[Condition, ...], merge_by("type")] = ()
    flavors_reservation: Annotated[tuple[FlavorUsage, ...], merge_by("name")] = ()
    flavors_usage: Annotated[tuple[FlavorUsage, ...], merge_by("name")] = ()
    pending_workloads: Int32 | None = None
    reserving_workloads: Int32 | None = None
    admitted_workloads: Int32 | None = None
    fair_sharing: FairSharingStatus | None = None


class ClusterQueue(Resource, frozen=True):
    """A pool of quota for the whole cluster. Workloads reach it through local queues of their namespaces."""

    spec: ClusterQueueSpec = ClusterQueueSpec()
    status: ClusterQueueStatus = ClusterQueueStatus()


class LocalQueueSpec(View, frozen=True):
    """Where workloads of this queue go."""

    cluster_queue: str = ""
    stop_policy: str | None = None
    fair_sharing: FairSharing | None = None


class LocalQueueResourceUsage(View, frozen=True):
    """How much of one resource the workloads of a local queue use."""

    name: str = ""
    total: QuantityText | None = None


class LocalQueueFlavorUsage(View, frozen=True):
    """Usage of one flavor by the workloads of a local queue."""

    name: str = ""
    resources: Annotated[tuple[LocalQueueResourceUsage, ...], merge_by("name")] = ()


class AdmissionFairSharingStatus(View, frozen=True):
    """Past usage of a local queue, faded with time, and when it was last counted."""

    consumed_resources: ResourceList | None = None
    last_update: str | None = None


class LocalQueueFairSharingStatus(View, frozen=True):
    """The local queue's standing against its siblings."""

    weighted_share: Int64 | None = None
    admission_fair_sharing_status: AdmissionFairSharingStatus | None = None


class LocalQueueStatus(View, frozen=True):
    """What the local queue's workloads hold and use now."""

    conditions: Annotated[tuple[Condition, ...], merge_by("type")] = ()
    pending_workloads: Int32 | None = None
    reserving_workloads: Int32 | None = None
    admitted_workloads: Int32 | None = None
    flavors_reservation: Annotated[tuple[LocalQueueFlavorUsage, ...], merge_by("name")] = ()
    flavors_usage: Annotated[tuple[LocalQueueFlavorUsage, ...], merge_by("name")] = ()
    fair_sharing: LocalQueueFairSharingStatus | None = None


class LocalQueue(Resource, frozen=True):
    """The door of a namespace to a cluster queue: jobs name a local queue, never a cluster queue."""

    spec: LocalQueueSpec = LocalQueueSpec()
    status: LocalQueueStatus = LocalQueueStatus()


class CohortSpec(View, frozen=True):
    """Where the cohort hangs in the tree, and the quota that all below it share."""

    parent_name: str | None = None
    resource_groups: Annotated[tuple[ResourceGroup, ...], ATOMIC] = ()
    fair_sharing: FairSharing | None = None


class CohortStatus(View, frozen=True):
    """The cohort's share among its siblings."""

    fair_sharing: FairSharingStatus | None = None


class Cohort(Resource, frozen=True):
    """A group of cluster queues and cohorts that lend each other what they do not use."""

    spec: CohortSpec = CohortSpec()
    status: CohortStatus = CohortStatus()


class WorkloadPriorityClass(Resource, frozen=True):
    """A named priority for queueing that leaves the priority of the pods alone."""

    value: Int32 | None = None
    description: str | None = None


class AdmissionCheckParametersReference(View, frozen=True):
    """The object that configures the check."""

    api_group: str = ""
    kind: str = ""
    name: str = ""


class AdmissionCheckSpec(View, frozen=True):
    """Who decides the check, and with which parameters."""

    controller_name: str = ""
    parameters: AdmissionCheckParametersReference | None = None


class AdmissionCheckStatus(View, frozen=True):
    """Whether the check's controller is ready to decide."""

    conditions: Annotated[tuple[Condition, ...], merge_by("type")] = ()


class AdmissionCheck(Resource, frozen=True):
    """Something outside the quota that must agree before a workload starts."""

    spec: AdmissionCheckSpec = AdmissionCheckSpec()
    status: AdmissionCheckStatus = AdmissionCheckStatus()


class TopologyLevel(View, frozen=True):
    """One level of the hierarchy: nodes with the same value of the label are in the same domain."""

    node_label: str = ""


class TopologySpec(View, frozen=True):
    """The levels from the coarsest to the finest."""

    levels: Annotated[tuple[TopologyLevel, ...], ATOMIC] = ()


class Topology(Resource, frozen=True):
    """How the nodes of a data centre hang together: blocks, racks, hosts."""

    spec: TopologySpec = TopologySpec()
