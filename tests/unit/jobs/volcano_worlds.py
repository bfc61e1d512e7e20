"""Volcano Jobs and their pods for tests of the pure core: short to write, with what the store would have filled in."""

from collections.abc import Sequence

from muster.api import core, patching, raw, timestamps, volcano
from muster.api.meta import Instant
from muster.api.objects import view_of
from muster.api.raw import JSON, Document
from muster.jobs.volcano import Plan, Request, Seen, names, plan

NOW = Instant(1_767_225_600.0)


def at(seconds: float) -> str:
    """The text of the instant so many seconds after NOW."""
    return timestamps.to_text(Instant(NOW + seconds))


def a_task(name: str = "w", replicas: int = 1, **fields: JSON) -> Document:
    pod = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "host"}]}
    return {"name": name, "replicas": replicas, "template": {"spec": pod}, **fields}


def job_document(*tasks: Document, status: Document | None = None, **spec: JSON) -> Document:
    document: Document = {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {
            "name": "j", "namespace": "default", "uid": "job-uid", "resourceVersion": "7", "creationTimestamp": at(-60),
        },
        "spec": {"tasks": list(tasks) or [a_task()], **spec},
        "status": status or {},
    }  # fmt: skip
    document = raw.copy(document)
    volcano.JOB.default(document)
    return document


def as_job(document: Document) -> volcano.Job:
    found = view_of(volcano.JOB, document)
    assert isinstance(found, volcano.Job)
    return found


def a_job(*tasks: Document, status: Document | None = None, **spec: JSON) -> volcano.Job:
    return as_job(job_document(*tasks, status=status, **spec))


def in_phase(phase: str, **status: JSON) -> Document:
    return {"state": {"phase": phase, "lastTransitionTime": at(-30)}, **status}


def a_pod(
    name: str,
    phase: str = "Running",
    *,
    version: int = 0,
    exit_code: int = 0,
    ended: float = -10,
    made: float = -20,
    restarts: int = 0,
    ready: bool = True,
    deleted: bool = False,
    partition: str = "",
    out_of_sync: bool = False,
) -> core.Pod:
    """`name`: of a job `j`; its task is in it. `ended`, `made`: seconds after NOW."""
    _, task, _ = name.rsplit("-", 2)
    annotations = {names.JOB: "j", names.TASK: task, names.JOB_VERSION: str(version)}
    if out_of_sync:
        annotations[names.OUT_OF_SYNC] = "true"
    metadata: Document = {
        "name": name, "namespace": "default", "uid": f"uid-{name}", "creationTimestamp": at(made),
        "annotations": annotations, "labels": {names.PARTITION: partition} if partition else {},
    }  # fmt: skip
    if deleted:
        metadata["deletionTimestamp"] = at(0)
    container: Document = {"name": "main", "restartCount": restarts, "ready": ready}
    if phase in ("Succeeded", "Failed"):
        container["state"] = {"terminated": {"exitCode": exit_code, "finishedAt": at(ended)}}
    found = view_of(core.POD, {"metadata": metadata, "status": {"phase": phase, "containerStatuses": [container]}})
    assert isinstance(found, core.Pod)
    return found


def a_group(phase: str | None = "Inqueue", **fields: JSON) -> volcano.PodGroup:
    found = view_of(
        volcano.POD_GROUP, {"metadata": {"name": "j-job-uid", "uid": "g"}, "status": {"phase": phase}, **fields}
    )
    assert isinstance(found, volcano.PodGroup)
    return found


INQUEUE = a_group()


def decide(
    job: volcano.Job,
    pods: Sequence[core.Pod] = (),
    group: volcano.PodGroup | None = INQUEUE,
    requests: Sequence[Request] = (),
    after: float = 0.0,
) -> Plan:
    return plan(Seen(job, pods, group), requests, Instant(NOW + after))


def settle(job: Document, pods: Sequence[core.Pod] = (), **seen: JSON) -> tuple[Plan, Document]:
    """A plan, and the job with its status written."""
    decided = decide(as_job(job), pods, **seen)
    return decided, patching.merge(job, {"status": decided.status or {}})


def phase_after(job: volcano.Job, decided: Plan) -> str | None:
    changed: str | None = raw.dig(decided.status or {}, "state", "phase")
    return changed or job.status.state.phase


def created(job: volcano.Job, decided: Plan) -> list[str]:
    return [names.pod_name("j", job.spec.tasks[pod.task].name or "", pod.number) for pod in decided.created]


def ended(decided: Plan) -> list[str]:
    return [member.name for member in decided.ended]
