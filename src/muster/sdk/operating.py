"""What a user does with a job of any dialect: submit, suspend, resume, restart, stop it.

from muster.sdk import Client, submit, wait
client = Client()
[job] = submit(client, Path("job.yaml").read_text())
assert wait(client, job).exit_code == 0

Where a dialect cannot do what is asked the error says what to do instead.
"""

from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias

from muster.api import errors, raw
from muster.api.raw import Document
from muster.sdk import dialects, finding, jobs, reading, remaking, resources, summaries
from muster.sdk.client import Client
from muster.sdk.dialects import Job
from muster.sdk.resources import Resource
from muster.sdk.summaries import OVER, QUEUE_LABEL, QUEUED_ANNOTATION, State, Summary

Manifest: TypeAlias = Document | str | bytes
"""A document, or YAML or JSON text with any number of them."""

_SUSPEND: Mapping[dialects.Dialect, tuple[str, ...]] = {
    dialects.BATCH: ("spec",),
    dialects.PYTORCH: ("spec", "runPolicy"),
    dialects.CRON: ("spec",),
}
"""Where the field `suspend` is."""


def submit(client: Client, manifest: Manifest) -> list[Job]:
    """Creates what the manifest has, in its order, and returns the jobs among it. Raises Invalid, AlreadyExists; what
    was created before that stays."""
    documents = raw.decode_yaml(manifest) if isinstance(manifest, str | bytes) else [manifest]
    made = [as_job(client.create(document)) for document in documents]
    return [job for job in made if job is not None]


def as_job(document: Document) -> Job | None:
    """None for what is no job, and for a pod that belongs to a gang."""
    dialect = dialects.of_document(document)
    if dialect is None or (dialect is dialects.POD and jobs.group_of(document)):
        return None
    return Job(dialect, document)


def suspend(client: Client, job: Job) -> None:
    """Ends its pods and keeps it; one that waits stays out of its queue. `resume` starts it anew. Raises BadRequest
    where this cannot be."""
    now = _now(client, job)
    if job.dialect is dialects.CRON:
        _patch(client, job, _nested(_SUSPEND[job.dialect], {"suspend": True}))
        return
    if job.dialect not in (dialects.BATCH, dialects.PYTORCH, dialects.VOLCANO):
        raise _cannot(client, job, "suspended")
    if now.state in OVER:
        raise errors.BadRequest(
            f"{job.shown} has ended ({now.state}), so there is nothing to suspend; `muster restart` runs it again"
        )
    if job.dialect is dialects.VOLCANO:
        if now.state not in (State.SUSPENDED, State.SUSPENDING):
            command(client, job.dialect.resource, job.document, "AbortJob")
    elif _queues_by_label(job):
        _activate(client, job, active=False)
    else:
        _patch(
            client,
            job,
            {
                **_nested(_SUSPEND[job.dialect], {"suspend": True}),
                # With it, the queue would take the job for one that waits, and start it again.
                "metadata": {"annotations": {QUEUED_ANNOTATION: None}},
            },
        )


def resume(client: Client, job: Job) -> None:
    """Lets a suspended job start, through its queue. One that is not suspended stays as it is. Raises BadRequest where
    this cannot be."""
    now = _now(client, job)
    if job.dialect not in (*_SUSPEND, dialects.VOLCANO):
        raise _cannot(client, job, "resumed")
    if now.state in OVER:
        raise errors.BadRequest(f"{job.shown} has ended ({now.state}); `muster restart` runs it again")
    if now.state not in (State.SUSPENDED, State.SUSPENDING):
        return
    workload = finding.workload_of(client, job)
    if raw.dig(workload, "spec", "active") is False:
        _activate(client, job, active=True)
    elif job.dialect is dialects.VOLCANO:
        command(client, job.dialect.resource, job.document, "ResumeJob")
    else:
        _patch(client, job, _nested(_SUSPEND[job.dialect], {"suspend": False}))


def restart(client: Client, job: Job) -> Literal["in place", "anew"]:
    """Runs it again from the start. A Volcano job that is under way restarts in place; everything else is deleted with
    its pods and their logs, and made again, so that all counts begin anew. Raises BadRequest where this cannot be."""
    now = _now(client, job)
    if job.dialect not in (dialects.BATCH, dialects.PYTORCH, dialects.VOLCANO, dialects.FLOW):
        raise _cannot(client, job, "restarted")
    if now.state in (State.SUSPENDED, State.SUSPENDING):
        raise errors.BadRequest(f"{job.shown} is suspended; `muster resume {job.name}` starts it from the beginning")
    if job.dialect is dialects.VOLCANO and now.state not in OVER:
        command(client, job.dialect.resource, job.document, "RestartJob")
        return "in place"
    remaking.remake(client, finding.refresh(client, job), finding.workload_of(client, job))
    return "anew"


def stop(client: Client, job: Job, *, grace_seconds: int | None = None) -> Sequence[str]:
    """Deletes it and all that it made; returns the pods that were told to end. Raises NotFound."""
    if job.dialect in (dialects.GANG, dialects.POD):
        return jobs.stop(client, job.name, job.namespace, grace_seconds=grace_seconds)
    pods = [reading.text(pod, "metadata", "name") for pod in finding.pods_of(client, job)]
    client.delete(job.dialect.resource, job.name, job.namespace)
    if grace_seconds is not None:
        jobs.stop_pods(client, pods, job.namespace, grace_seconds=grace_seconds)
    return pods


def command(client: Client, resource: Resource, target: Document, action: str, namespace: str = "") -> Document:
    """An order to a Volcano job or queue, as `vcctl` gives it: the controller deletes it and carries it out."""
    name, uid = reading.text(target, "metadata", "name"), reading.text(target, "metadata", "uid")
    reference: Document = {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "name": name,
        "uid": uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
    order: Document = {
        "apiVersion": resources.COMMANDS.api_version,
        "kind": resources.COMMANDS.kind,
        "metadata": {
            "generateName": f"{name}-{action.lower()}-",
            "namespace": namespace or reading.text(target, "metadata", "namespace") or client.namespace,
            "ownerReferences": [reference],
        },
        "action": action,
        "target": reference,
    }
    return client.create(order, resources.COMMANDS)


# Below


def _now(client: Client, job: Job) -> Summary:
    fresh = finding.refresh(client, job)
    return summaries.observe(fresh, summaries.Surroundings(workload=finding.workload_of(client, fresh)))


def _cannot(client: Client, job: Job, done: str) -> errors.BadRequest:
    if job.dialect is dialects.FLOW:
        names = " ".join(child.shown for child in finding.children(client, job)) or "once there are some"
        return errors.BadRequest(f"a JobFlow itself cannot be {done}, its jobs can: {names}")
    if job.dialect is dialects.CRON:
        return errors.BadRequest(f"a CronJob itself cannot be {done}, the jobs that it makes can; `muster ps` has them")
    return errors.BadRequest(
        f"{job.shown} was made by hand or by `muster run` and cannot be {done}; `muster stop {job.name}` ends it"
    )


def _queues_by_label(job: Job) -> bool:
    """Such a job is started by its queue whenever it is suspended: it has to leave the queue itself."""
    return bool(reading.text(job.document, "metadata", "labels", QUEUE_LABEL))


def _activate(client: Client, job: Job, *, active: bool) -> None:
    name = reading.text(finding.workload_of(client, job), "metadata", "name")
    if not name:
        raise errors.Unavailable(f"{job.shown} has no workload in its queue yet; try again in a moment")
    client.patch(resources.WORKLOADS, name, {"spec": {"active": active}}, job.namespace)


def _patch(client: Client, job: Job, body: Document) -> None:
    client.patch(job.dialect.resource, job.name, body, job.namespace)


def _nested(path: Sequence[str], body: Document) -> Document:
    for name in reversed(path):
        body = {name: body}
    return body
