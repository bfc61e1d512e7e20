"""A job deleted and made again from what its user wrote: nothing of its first life stays, neither counts nor places."""

import contextlib
import time
from collections.abc import Iterator, Sequence

from muster.api import errors, raw
from muster.api.raw import Document
from muster.sdk import dialects, reading
from muster.sdk.client import Client
from muster.sdk.dialects import Job

_GIVEN_LABELS = (
    "controller-uid",
    "job-name",
    "batch.kubernetes.io/controller-uid",
    "batch.kubernetes.io/job-name",
)
"""Labels that the server writes into a batch Job's template and selector; they name the first job's uid."""
_GIVEN_ANNOTATIONS = ("muster.dev/queued", "muster.dev/held", "muster.dev/restarts", "muster.dev/admitted-replicas")
_PLACED = ("nodeSelector", "tolerations", "schedulingGates")
_NAMED = ("labels", "annotations")
_RETRY_SECONDS = (0.1, 0.2, 0.5, 1.0, 2.0)


class Lost(errors.Unavailable):
    """The job is deleted and could not be made again. `document` makes it."""

    def __init__(self, job: Job, document: Document, cause: errors.ApiError) -> None:
        super().__init__(f"{job.shown} was deleted, but could not be made again: {cause.message}")
        self.document = document


def remake(client: Client, job: Job, workload: Document, *, timeout: float = 120.0) -> Document:
    """Raises Invalid before anything is deleted where the server would refuse it now, Lost where it is too late."""
    document = clean(job, workload)  # as the server has it, with whatever fields it once took
    trial = {**document, "metadata": {**document["metadata"], "name": _trial_name(job.name)}}
    client.create(trial, job.dialect.resource, dry_run=True, strict=False)
    client.delete(job.dialect.resource, job.name, job.namespace, propagation="Foreground")
    client.wait(job.dialect.resource, job.name, lambda found: _is_other(found, job.uid), job.namespace, timeout=timeout)
    for pause in (*_RETRY_SECONDS, None):
        try:
            return client.create(document, job.dialect.resource, strict=False)
        except errors.ApiError as error:
            if not error.retryable or pause is None:
                raise Lost(job, document, error) from error
            time.sleep(pause)
    raise AssertionError("the last attempt returns or raises")


def _trial_name(name: str) -> str:
    """As long, so that it is checked as the name will be."""
    return f"{name[:-1]}{'y' if name.endswith('x') else 'x'}"


def _is_other(found: Document | None, uid: str) -> bool:
    return found is None or reading.text(found, "metadata", "uid") != uid


def clean(job: Job, workload: Document) -> Document:
    """The document as its user would write it. `workload` remembers the templates as they were before the queue sent
    them to a flavor. Pure."""
    document: Document = raw.copy(job.document)
    metadata = document.pop("metadata")
    kept = {name: metadata[name] for name in ("name", "namespace", "labels", "ownerReferences") if metadata.get(name)}
    annotations = {
        name: value for name, value in (metadata.get("annotations") or {}).items() if name not in _GIVEN_ANNOTATIONS
    }
    document["metadata"] = {**kept, **({"annotations": annotations} if annotations else {})}
    document.pop("status", None)
    for name, template in _templates(job.dialect, document):
        _unplace(template, _pod_set(workload, name))
    if job.dialect is dialects.BATCH:
        _forget_uid(document)
    elif job.dialect is dialects.PYTORCH:
        reading.section(document, "spec", "runPolicy").pop("suspend", None)
    return document


def _templates(dialect: dialects.Dialect, document: Document) -> Iterator[tuple[str, Document]]:
    if dialect is dialects.BATCH:
        yield "main", reading.section(document, "spec", "template")
    elif dialect is dialects.PYTORCH:
        for role, spec in reading.section(document, "spec", "pytorchReplicaSpecs").items():
            yield role.lower(), reading.section(spec, "template")
    elif dialect is dialects.VOLCANO:
        for task in reading.objects(document, "spec", "tasks"):
            yield reading.text(task, "name"), reading.section(task, "template")


def _pod_set(workload: Document, name: str) -> Document:
    found: Sequence[Document] = reading.objects(workload, "spec", "podSets")
    return next((reading.section(entry, "template") for entry in found if entry.get("name") == name), {})


def _unplace(template: Document, original: Document) -> None:
    if not original:
        return
    for part, fields in (("spec", _PLACED), ("metadata", _NAMED)):
        before = reading.section(original, part)
        now = template.setdefault(part, {})
        for field in fields:
            with contextlib.suppress(KeyError):
                del now[field]
            if before.get(field):
                now[field] = raw.copy(before[field])


def _forget_uid(document: Document) -> None:
    spec = reading.section(document, "spec")
    spec.pop("suspend", None)
    if spec.get("manualSelector") is True:
        return
    spec.pop("selector", None)
    for holder in (document, reading.section(spec, "template")):
        labels = reading.section(holder, "metadata", "labels")
        for label in _GIVEN_LABELS:
            labels.pop(label, None)
