"""The job of one step, made from its template, and how it is known to belong to the flow."""

from muster.api import fields, patching, raw, volcano
from muster.api.documents import child
from muster.api.meta import ObjectMeta
from muster.api.raw import Document

CREATED_BY_TEMPLATE = "volcano.sh/createdByJobTemplate"
CREATED_BY_FLOW = "volcano.sh/createdByJobFlow"


def job_name(flow: str, step: str) -> str:
    return f"{flow}-{step}"


def connection(namespace: str, name: str) -> str:
    """How labels and annotations name an object."""
    return f"{namespace}.{name}"


def flow_of(job: ObjectMeta) -> str | None:
    """The name of the flow that the job belongs to."""
    return next((owner.name for owner in job.owner_references if _is_flow(owner.api_version, owner.kind)), None)


def template_of(job: ObjectMeta) -> str | None:
    """The template that the job was made from, as `namespace.name`."""
    return (job.annotations or {}).get(CREATED_BY_TEMPLATE)


def belongs(job: ObjectMeta, flow: ObjectMeta) -> bool:
    return job.namespace == flow.namespace and any(
        owner.kind == volcano.JOB_FLOW.name and (owner.name, owner.uid) == (flow.name, flow.uid)
        for owner in job.owner_references
    )


def _is_flow(api_version: str, kind: str) -> bool:
    return kind == volcano.JOB_FLOW.name and api_version.startswith(f"{volcano.JOB_FLOW.group}/")


def make_job(flow: Document, step: Document, template: Document) -> Document:
    """All as stored. `step`: the entry of the flow, whose patch is merged into the template's spec."""
    owner, name = flow["metadata"], template["metadata"]["name"]
    namespace = owner["namespace"]
    marks = {CREATED_BY_TEMPLATE: connection(namespace, name), CREATED_BY_FLOW: connection(namespace, owner["name"])}
    spec = raw.copy(child(template, "spec"))
    patch = child(step, "patch", "jobSpec")
    reference: Document = {
        "apiVersion": volcano.JOB_FLOW.api_version,
        "kind": volcano.JOB_FLOW.name,
        "name": owner["name"],
        "uid": owner.get("uid", ""),
        "controller": True,
        "blockOwnerDeletion": True,
    }
    return {
        "apiVersion": volcano.JOB.api_version,
        "kind": volcano.JOB.name,
        "metadata": {
            "name": job_name(owner["name"], name),
            "namespace": namespace,
            # A name that is too long for a label is still in the annotation.
            "labels": {key: value for key, value in marks.items() if fields.is_label_value(value)},
            "annotations": marks,
            "ownerReferences": [reference],
        },
        "spec": patching.merge(spec, patch) if patch else spec,
    }
