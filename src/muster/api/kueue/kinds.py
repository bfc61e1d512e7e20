"""The kueue.x-k8s.io kinds as the platform stores and serves them: v1beta2 stored, v1beta1 by conversion."""

from muster.api.kinds import Kind
from muster.api.kueue import (
    conversion,
    defaults,
    flavor_validation,
    queue_validation,
    queue_views,
    workload_updates,
    workload_validation,
    workload_views,
)

GROUP = conversion.GROUP
VERSION = conversion.STORED

RESOURCE_FLAVOR = Kind(
    group=GROUP,
    version=VERSION,
    name="ResourceFlavor",
    plural="resourceflavors",
    view=queue_views.ResourceFlavor,
    namespaced=False,
    short_names=("flavor", "flavors", "rf"),
    subresources=frozenset(),
    default=defaults.default_nothing,
    validate=flavor_validation.validate_resource_flavor,
    validate_update=flavor_validation.validate_resource_flavor_update,
    conversions=(conversion.v1beta1(),),
)

CLUSTER_QUEUE = Kind(
    group=GROUP,
    version=VERSION,
    name="ClusterQueue",
    plural="clusterqueues",
    view=queue_views.ClusterQueue,
    namespaced=False,
    short_names=("cq",),
    default=defaults.default_cluster_queue,
    validate=queue_validation.validate_cluster_queue,
    validate_new=queue_validation.validate_new_cluster_queue,
    validate_update=queue_validation.validate_cluster_queue_update,
    conversions=(conversion.v1beta1(conversion.cluster_queue_to_v1beta2, conversion.cluster_queue_to_v1beta1),),
)

LOCAL_QUEUE = Kind(
    group=GROUP,
    version=VERSION,
    name="LocalQueue",
    plural="localqueues",
    view=queue_views.LocalQueue,
    short_names=("queue", "queues", "lq"),
    default=defaults.default_local_queue,
    validate=queue_validation.validate_local_queue,
    validate_update=queue_validation.validate_local_queue_update,
    conversions=(conversion.v1beta1(conversion.local_queue_to_v1beta2, conversion.local_queue_to_v1beta1),),
)

COHORT = Kind(
    group=GROUP,
    version=VERSION,
    name="Cohort",
    plural="cohorts",
    view=queue_views.Cohort,
    namespaced=False,
    default=defaults.default_cohort,
    validate=queue_validation.validate_cohort,
    conversions=(conversion.v1beta1(conversion.cohort_to_v1beta2),),
)

WORKLOAD = Kind(
    group=GROUP,
    version=VERSION,
    name="Workload",
    plural="workloads",
    view=workload_views.Workload,
    short_names=("wl",),
    default=defaults.default_workload,
    validate=workload_validation.validate_workload,
    validate_update=workload_updates.validate_workload_update,
    conversions=(conversion.v1beta1(conversion.workload_to_v1beta2, conversion.workload_to_v1beta1),),
)

WORKLOAD_PRIORITY_CLASS = Kind(
    group=GROUP,
    version=VERSION,
    name="WorkloadPriorityClass",
    plural="workloadpriorityclasses",
    view=queue_views.WorkloadPriorityClass,
    namespaced=False,
    subresources=frozenset(),
    default=defaults.default_nothing,
    validate=flavor_validation.validate_workload_priority_class,
    conversions=(conversion.v1beta1(),),
)

ADMISSION_CHECK = Kind(
    group=GROUP,
    version=VERSION,
    name="AdmissionCheck",
    plural="admissionchecks",
    view=queue_views.AdmissionCheck,
    namespaced=False,
    default=defaults.default_nothing,
    validate=flavor_validation.validate_admission_check,
    validate_update=flavor_validation.validate_admission_check_update,
    conversions=(conversion.v1beta1(conversion.admission_check_to_v1beta2),),
)

TOPOLOGY = Kind(
    group=GROUP,
    version=VERSION,
    name="Topology",
    plural="topologies",
    view=queue_views.Topology,
    namespaced=False,
    subresources=frozenset(),
    default=defaults.default_nothing,
    validate=flavor_validation.validate_topology,
    validate_update=flavor_validation.validate_topology_update,
    conversions=(conversion.v1beta1(),),
)

KINDS: tuple[Kind, ...] = (
    RESOURCE_FLAVOR,
    CLUSTER_QUEUE,
    LOCAL_QUEUE,
    COHORT,
    WORKLOAD,
    WORKLOAD_PRIORITY_CLASS,
    ADMISSION_CHECK,
    TOPOLOGY,
)
