"""The documents of the pods that a job makes: a task's template, and what tells the pods apart."""

from collections.abc import Iterator, Mapping, Sequence

from muster.api import raw, volcano
from muster.api.documents import child, objects
from muster.api.raw import Document
from muster.jobs.volcano import claiming, names
from muster.jobs.volcano.owning import owner_reference
from muster.jobs.volcano.plugins import Plugin
from muster.jobs.volcano.syncing import NewPod

_FROM_JOB_ANNOTATIONS = (names.PREEMPTABLE, names.COOLDOWN, names.REVOCABLE_ZONE)
_FROM_JOB_LABELS = (names.PREEMPTABLE, names.COOLDOWN)


def make_pods(
    job: volcano.Job,
    document: Document,
    wanted: Sequence[NewPod],
    plugins: Sequence[Plugin] = (),
    *,
    is_forwarded: bool = False,
) -> Iterator[Document]:
    """`document`: the job as stored, for what its view does not show of the templates. Without plugins the pods share
    what they have in common: to be read, not changed."""
    tasks = list(objects(document, "spec", "tasks"))
    specs: dict[int, Document] = {}
    for pod in wanted:
        if pod.task not in specs:
            specs[pod.task] = _spec(job, child(tasks[pod.task], "template", "spec"))
        task = job.spec.tasks[pod.task]
        made = _pod(job, task, child(tasks[pod.task], "template", "metadata"), pod.number, is_forwarded=is_forwarded)
        made["spec"] = raw.copy(specs[pod.task]) if plugins else specs[pod.task]
        for plugin in plugins:
            plugin.change_pod(made, job)
        yield made


def _pod(job: volcano.Job, task: volcano.TaskSpec, template: Document, index: int, *, is_forwarded: bool) -> Document:
    name, meta = names.task_name(task), job.metadata
    both = {names.TASK_INDEX: str(index), names.TASK: name, names.JOB: meta.name}
    if job.spec.queue:
        both[names.QUEUE] = job.spec.queue
    if is_forwarded:
        both[names.JOB_FORWARDING] = "true"
    annotations = {
        **child(template, "annotations"),
        **both,
        names.GROUP: names.group_name(job),
        names.JOB_VERSION: str(job.status.version or 0),
        names.JOB_RETRIES: str(job.status.retry_count or 0),
        names.TEMPLATE: f"{meta.name}-{name}",
        **_picked(meta.annotations, _FROM_JOB_ANNOTATIONS),
        **_budget(meta.annotations or {}),
    }
    if task.topology_policy:
        annotations[names.NUMA_POLICY] = task.topology_policy
    labels = {
        **child(template, "labels"),
        **both,
        names.JOB_NAMESPACE: meta.namespace,
        **_picked(meta.labels, _FROM_JOB_LABELS),
    }
    if task.partition_policy is not None:
        labels[names.PARTITION] = str(partition_of(task.partition_policy, index))
    return {
        "metadata": {
            "name": names.pod_name(meta.name, name, index),
            "namespace": meta.namespace,
            "labels": labels,
            "annotations": annotations,
            "ownerReferences": [owner_reference(job)],
        },
        "spec": {},
    }


def partition_of(policy: volcano.PartitionPolicySpec, index: int) -> int:
    size = policy.partition_size or 0
    return index // size if size > 0 else 0


def _picked(found: Mapping[str, str] | None, keys: Sequence[str]) -> dict[str, str]:
    return {key: found[key] for key in keys if key in found} if found else {}


def _budget(annotations: Mapping[str, str]) -> dict[str, str]:
    """How many of its pods may be disrupted: one of the two, the minimum first."""
    for key in (names.BUDGET_MIN_AVAILABLE, names.BUDGET_MAX_UNAVAILABLE):
        if key in annotations:
            return {key: annotations[key]}
    return {}


def _spec(job: volcano.Job, template: Document) -> Document:
    spec: Document = raw.copy(template)
    if not spec.get("schedulerName") and job.spec.scheduler_name:
        spec["schedulerName"] = job.spec.scheduler_name
    if not spec.get("priorityClassName") and job.spec.priority_class_name:
        spec["priorityClassName"] = job.spec.priority_class_name
    _mount(job, spec)
    return spec


def _mount(job: volcano.Job, spec: Document) -> None:
    """The job's volumes, in every container that is not an init container. A claim that is named twice counts once."""
    seen: set[str] = set()
    for number, volume in enumerate(job.spec.volumes):
        claim = claiming.name_of(job, number)
        if claim in seen:
            continue
        seen.add(claim)
        name = f"{job.metadata.name}-{claiming.suffix(job, 'volume', number)}"
        spec.setdefault("volumes", []).append({"name": name, "persistentVolumeClaim": {"claimName": claim}})
        for container in objects(spec, "containers"):
            container.setdefault("volumeMounts", []).append({"name": name, "mountPath": volume.mount_path})
