"""Labels, annotations, gates and finalizers by which jobs, pods and their workloads know each other: Kueue's own, and
ours."""

from typing import Final

_KUEUE: Final = "kueue.x-k8s.io/"

QUEUE_LABEL: Final = _KUEUE + "queue-name"
PRIORITY_CLASS_LABEL: Final = _KUEUE + "priority-class"
MAX_TIME_LABEL: Final = _KUEUE + "max-exec-time-seconds"
PREBUILT: Final = _KUEUE + "prebuilt-workload-name"
"""An annotation or a label: the annotation counts."""
JOB_UID_LABEL: Final = _KUEUE + "job-uid"
MANAGED: Final = _KUEUE + "managed"
"""Label and finalizer of pods that have a workload of their own."""
IN_USE_FINALIZER: Final = _KUEUE + "resource-in-use"

# On pods and their templates
POD_SET_LABEL: Final = _KUEUE + "podset"
LOCAL_QUEUE_LABEL: Final = _KUEUE + "local-queue-name"
CLUSTER_QUEUE_LABEL: Final = _KUEUE + "cluster-queue-name"
WORKLOAD_ANNOTATION: Final = _KUEUE + "workload"
ROLE_HASH_ANNOTATION: Final = _KUEUE + "role-hash"
ADMISSION_GATE: Final = _KUEUE + "admission"
TOPOLOGY_GATE: Final = _KUEUE + "topology"
ELASTIC_GATE: Final = _KUEUE + "elastic-job"

# Pod groups
GROUP_NAME: Final = _KUEUE + "pod-group-name"
"""An annotation or a label: the annotation counts."""
GROUP_TOTAL_ANNOTATION: Final = _KUEUE + "pod-group-total-count"
GROUP_FAST_ANNOTATION: Final = _KUEUE + "pod-group-fast-admission"
GROUP_SERVING_ANNOTATION: Final = _KUEUE + "pod-group-serving"
GROUP_INDEX_LABEL: Final = _KUEUE + "pod-group-pod-index"
RETRIABLE_ANNOTATION: Final = _KUEUE + "retriable-in-group"
IS_GROUP_ANNOTATION: Final = _KUEUE + "is-group-workload"

# Jobs
MIN_PARALLELISM_ANNOTATION: Final = _KUEUE + "job-min-parallelism"
EQUAL_COMPLETIONS_ANNOTATION: Final = _KUEUE + "job-completions-equal-parallelism"
ELASTIC_ANNOTATION: Final = _KUEUE + "elastic-job"
ADMISSION_GATES_ANNOTATION: Final = _KUEUE + "admission-gated-by"
SLICE_OF_ANNOTATION: Final = _KUEUE + "workload-slice-replacement-for"
SLICE_NAME_ANNOTATION: Final = _KUEUE + "workload-slice-name"
PROVISIONING_PREFIX: Final = "provreq.kueue.x-k8s.io/"

# Topology
REQUIRED_TOPOLOGY: Final = _KUEUE + "podset-required-topology"
PREFERRED_TOPOLOGY: Final = _KUEUE + "podset-preferred-topology"
UNCONSTRAINED_TOPOLOGY: Final = _KUEUE + "podset-unconstrained-topology"
SLICE_TOPOLOGY: Final = _KUEUE + "podset-slice-required-topology"
SLICE_SIZE: Final = _KUEUE + "podset-slice-size"
SLICE_CONSTRAINTS: Final = _KUEUE + "podset-slice-required-topology-constraints"
INDEX_OFFSET_ANNOTATION: Final = _KUEUE + "pod-index-offset"
GROUP_TOPOLOGY: Final = _KUEUE + "podset-group-name"
TOPOLOGY_ANNOTATIONS: Final = frozenset(
    {REQUIRED_TOPOLOGY, PREFERRED_TOPOLOGY, UNCONSTRAINED_TOPOLOGY, SLICE_TOPOLOGY, SLICE_CONSTRAINTS}
)
"""Each says by itself that its pods are to be placed in a topology."""

DEFAULT: Final = "default"
"""Of a LocalQueue, and of a WorkloadPriorityClass: what is meant where nothing is said."""
QUEUED_ANNOTATION: Final = "muster.dev/queued"
"""Of a job that names no queue: it is quota that suspended it, and quota will start it. Without it, a user did."""
HELD_ANNOTATION: Final = "muster.dev/held"
"""Of a job whose kind has no field for it: "true" until its workload is admitted."""
PART_OF_ANNOTATION: Final = "muster.dev/part-of"
"""Of a workload: the one that it adds a pod to."""
ADMITTED_REPLICAS_ANNOTATION: Final = "muster.dev/admitted-replicas"
"""Of an elastic job: how many pods of each set may be there now, as JSON."""
RECLAIMABLE_ANNOTATION: Final = "muster.dev/reclaimable"
"""Of a ClusterQueue: "false" where other queues may not take back what it has borrowed."""
QUEUE_PRIORITY_ANNOTATION: Final = "muster.dev/queue-priority"
"""Of a ClusterQueue: a whole number; higher comes first."""
