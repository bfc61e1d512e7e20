"""The kueue.x-k8s.io kinds as the platform stores and serves them: v1beta2 stored, v1beta1 by conversion."""

from muster.api.kinds import Conversion, Kind
from muster.api.kueue import queue_views, workload_views

GROUP = "kueue.x-k8s.io"
VERSION = "v1beta2"

RESOURCE_FLAVOR = Kind(
    group=GROUP,
    version=VERSION,
    name="ResourceFlavor",
    plural="resourceflavors",
    view=queue_views.ResourceFlavor,
    namespaced=False,
    short_names=("flavor", "flavors", "rf"),
    subresources=frozenset(),
    conversions=(Conversion("v1beta1"),),
)

CLUSTER_QUEUE = Kind(
    group=GROUP,
    version=VERSION,
    name="ClusterQueue",
    plural="clusterqueues",
    view=queue_views.ClusterQueue,
    namespaced=False,
    short_names=("cq",),
    conversions=(Conversion("v1beta1"),),
)

LOCAL_QUEUE = Kind(
    group=GROUP,
    version=VERSION,
    name="LocalQueue",
    plural="localqueues",
    view=queue_views.LocalQueue,
    short_names=("queue", "queues", "lq"),
    conversions=(Conversion("v1beta1"),),
)

COHORT = Kind(
    group=GROUP,
    version=VERSION,
    name="Cohort",
    plural="cohorts",
    view=queue_views.Cohort,
    namespaced=False,
    conversions=(Conversion("v1beta1"),),
)

WORKLOAD = Kind(
    group=GROUP,
    version=VERSION,
    name="Workload",
    plural="workloads",
    view=workload_views.Workload,
    short_names=("wl",),
    conversions=(Conversion("v1beta1"),),
)

WORKLOAD_PRIORITY_CLASS = Kind(
    group=GROUP,
    version=VERSION,
    name="WorkloadPriorityClass",
    plural="workloadpriorityclasses",
    view=queue_views.WorkloadPriorityClass,
    namespaced=False,
    subresources=frozenset(),
    conversions=(Conversion("v1beta1"),),
)

ADMISSION_CHECK = Kind(
    group=GROUP,
    version=VERSION,
    name="AdmissionCheck",
    plural="admissionchecks",
    view=queue_views.AdmissionCheck,
    namespaced=False,
    conversions=(Conversion("v1beta1"),),
)

TOPOLOGY = Kind(
    group=GROUP,
    version=VERSION,
    name="Topology",
    plural="topologies",
    view=queue_views.Topology,
    namespaced=False,
    subresources=frozenset(),
    conversions=(Conversion("v1beta1"),),
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
