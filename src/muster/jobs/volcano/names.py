"""The labels and annotations by which Volcano's pods are known, and names that are made of others."""

from muster.api import volcano

TASK = "volcano.sh/task-spec"
TASK_INDEX = "volcano.sh/task-index"
JOB = "volcano.sh/job-name"
JOB_NAMESPACE = "volcano.sh/job-namespace"
JOB_VERSION = "volcano.sh/job-version"
JOB_RETRIES = "volcano.sh/job-retry-count"
JOB_FORWARDING = "volcano.sh/job-forwarding"
QUEUE = "volcano.sh/queue-name"
TEMPLATE = "volcano.sh/template-uid"
PARTITION = "volcano.sh/partition-id"
GROUP = "scheduling.k8s.io/group-name"
OUT_OF_SYNC = "volcano.sh/controller-out-of-sync"
"""On a pod that we are about to delete: what becomes of it is nobody's failure."""
NUMA_POLICY = "volcano.sh/numa-topology-policy"
PREEMPTABLE = "volcano.sh/preemptable"
COOLDOWN = "volcano.sh/cooldown-time"
REVOCABLE_ZONE = "volcano.sh/revocable-zone"
BUDGET_MIN_AVAILABLE = "volcano.sh/jdb-min-available"
BUDGET_MAX_UNAVAILABLE = "volcano.sh/jdb-max-unavailable"

DEFAULT_TASK = "default"


def pod_name(job: str, task: str, index: int) -> str:
    return f"{job}-{task}-{index}"


def group_name(job: volcano.Job) -> str:
    """With the uid: a job that is made anew under the same name has a group of its own."""
    return f"{job.metadata.name}-{job.metadata.uid}"


def task_name(task: volcano.TaskSpec) -> str:
    return task.name or DEFAULT_TASK
