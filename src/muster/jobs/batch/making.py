"""The documents of the pods that a job makes: its template, and what tells them apart."""

from collections.abc import Sequence

from muster.api import raw
from muster.api.batch import names
from muster.api.documents import child, objects
from muster.api.raw import Document
from muster.jobs.batch.managing import NewPod


def make_pods(job: Document, wanted: Sequence[NewPod]) -> list[Document]:
    """`job` as stored. The pods share what they have in common: to be read, not changed."""
    template = child(job, "spec", "template")
    spec = _spec(child(template, "spec"), is_indexed=any(pod.index is not None for pod in wanted))
    return [_pod(job, template, spec, pod) for pod in wanted]


def owner_reference(job: Document) -> Document:
    metadata = child(job, "metadata")
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": metadata.get("name"),
        "uid": metadata.get("uid"),
        "controller": True,
        "blockOwnerDeletion": True,
    }


def _spec(template: Document, *, is_indexed: bool) -> Document:
    if not is_indexed:
        return template
    spec: Document = raw.copy(template)
    source = {"fieldRef": {"apiVersion": "v1", "fieldPath": f"metadata.annotations['{names.COMPLETION_INDEX}']"}}
    for part in ("initContainers", "containers"):
        for container in objects(spec, part):
            listed = container.get("env") or []
            if all(variable.get("name") != names.COMPLETION_INDEX_VARIABLE for variable in listed):
                container["env"] = [*listed, {"name": names.COMPLETION_INDEX_VARIABLE, "valueFrom": source}]
    return spec


def _pod(job: Document, template: Document, spec: Document, wanted: NewPod) -> Document:
    metadata = child(template, "metadata")
    labels, annotations = dict(child(metadata, "labels")), dict(child(metadata, "annotations"))
    if wanted.index is not None:
        labels[names.COMPLETION_INDEX] = annotations[names.COMPLETION_INDEX] = str(wanted.index)
        if not spec.get("hostname"):
            spec = {**spec, "hostname": f"{child(job, 'metadata').get('name')}-{wanted.index}"}
    if wanted.failures is not None:
        annotations[names.INDEX_FAILURES_ANNOTATION] = str(wanted.failures)
    if wanted.ignored_failures:
        annotations[names.INDEX_IGNORED_FAILURES_ANNOTATION] = str(wanted.ignored_failures)
    finalizers = [name for name in metadata.get("finalizers") or () if name != names.TRACKING_FINALIZER]
    return {
        "metadata": {
            "namespace": child(job, "metadata").get("namespace"),
            "name": wanted.name,
            "generateName": wanted.stem,
            "labels": labels,
            "annotations": annotations,
            "finalizers": [*finalizers, names.TRACKING_FINALIZER],
            "ownerReferences": [owner_reference(job)],
        },
        "spec": spec,
    }
