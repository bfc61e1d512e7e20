"""What is filled in for Volcano's kinds when a user leaves it out."""

from muster.api.documents import child, drop_nulls, fill, fill_number, made_child, objects, text
from muster.api.raw import JSON, Document

DEFAULT_QUEUE = "default"
ROOT_QUEUE = "root"
SCHEDULER = "volcano"
MAX_RETRY = 3
HIERARCHY = "volcano.sh/hierarchy"
HIERARCHY_WEIGHTS = "volcano.sh/hierarchy-weights"
_NEEDS_SERVICE = ("tensorflow", "mpi", "pytorch", "ray", "jax")
_NEEDS_SSH = ("mpi",)


def default_nothing(document: Document) -> None:
    """For kinds without defaults: a null still means absent."""
    drop_nulls(document)


def default_job(document: Document) -> None:
    drop_nulls(document)
    spec = made_child(document, "spec")
    fill(spec, "queue", DEFAULT_QUEUE)
    fill(spec, "schedulerName", SCHEDULER)
    fill_number(spec, "maxRetry", MAX_RETRY)
    tasks = list(objects(spec, "tasks"))
    for index, task in enumerate(tasks):
        _task(task, index)
    fill_number(spec, "minAvailable", sum(_number(task.get("minAvailable")) for task in tasks))
    _network_topology(spec)
    plugins = spec.get("plugins")
    if isinstance(plugins, dict):
        if any(name in plugins for name in _NEEDS_SERVICE):
            plugins.setdefault("svc", [])
        if any(name in plugins for name in _NEEDS_SSH):
            plugins.setdefault("ssh", [])


def _task(task: Document, index: int) -> None:
    fill(task, "name", f"default{index}")
    pod = child(task, "template", "spec")
    if pod.get("hostNetwork") is True:
        # Otherwise a pod on the host's network could not resolve the names of its peers.
        fill(pod, "dnsPolicy", "ClusterFirstWithHostNet")
    partitions = child(task, "partitionPolicy")
    _network_topology(partitions)
    least = _number(partitions.get("minPartitions")) * _number(partitions.get("partitionSize"))
    fill(task, "minAvailable", least or _number(task.get("replicas")))
    fill_number(task, "maxRetry", MAX_RETRY)


def _number(value: JSON) -> int:
    return value if isinstance(value, int) else 0


def _network_topology(owner: Document) -> None:
    if isinstance(owner.get("networkTopology"), dict):
        fill(owner["networkTopology"], "mode", "hard")


def default_cron_job(document: Document) -> None:
    """The job template is filled in when a job is made of it."""
    drop_nulls(document)
    spec = made_child(document, "spec")
    fill(spec, "concurrencyPolicy", "Allow")
    fill(spec, "suspend", False)
    fill(spec, "successfulJobsHistoryLimit", 3)
    fill(spec, "failedJobsHistoryLimit", 1)


def default_pod_group(document: Document) -> None:
    drop_nulls(document)
    spec = made_child(document, "spec")
    fill(spec, "queue", DEFAULT_QUEUE)
    _network_topology(spec)
    for policy in objects(spec, "subGroupPolicy"):
        fill(policy, "subGroupSize", 1)
        fill(policy, "minSubGroups", 0)
        _network_topology(policy)


def default_queue(document: Document) -> None:
    drop_nulls(document)
    spec = made_child(document, "spec")
    fill_number(spec, "weight", 1)
    fill(spec, "reclaimable", True)
    annotations = child(document, "metadata", "annotations")
    path, weights = text(annotations, HIERARCHY), text(annotations, HIERARCHY_WEIGHTS)
    if path and path != ROOT_QUEUE and not path.startswith(f"{ROOT_QUEUE}/"):
        annotations[HIERARCHY] = f"{ROOT_QUEUE}/{path}"
        if weights:
            annotations[HIERARCHY_WEIGHTS] = f"1/{weights}"


def default_job_flow(document: Document) -> None:
    drop_nulls(document)
    fill(made_child(document, "spec"), "jobRetainPolicy", "retain")
