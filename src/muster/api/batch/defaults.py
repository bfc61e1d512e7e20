"""What the API server fills in for a Job."""

from muster.api.core.pod_defaults import default_pod_template
from muster.api.documents import child, drop_nulls, fill, made_child, objects, text
from muster.api.raw import Document

JOB_NAME_LABEL = "batch.kubernetes.io/job-name"
LEGACY_JOB_NAME_LABEL = "job-name"
CONTROLLER_UID_LABEL = "batch.kubernetes.io/controller-uid"
LEGACY_CONTROLLER_UID_LABEL = "controller-uid"
GENERATED_LABELS = frozenset({JOB_NAME_LABEL, LEGACY_JOB_NAME_LABEL, CONTROLLER_UID_LABEL, LEGACY_CONTROLLER_UID_LABEL})
UNLIMITED = 2**31 - 1


def default_job(document: Document) -> None:
    drop_nulls(document)
    spec = made_child(document, "spec")
    _default_numbers(spec)
    fill(spec, "completionMode", "NonIndexed")
    fill(spec, "suspend", False)
    fill(spec, "manualSelector", False)
    for rule in objects(spec, "podFailurePolicy", "rules"):
        for pattern in objects(rule, "onPodConditions"):
            fill(pattern, "status", "True")
    fill(spec, "podReplacementPolicy", "Failed" if "podFailurePolicy" in spec else "TerminatingOrFailed")
    template = made_child(spec, "template")
    default_pod_template(template)
    _default_labels(document, template)


def _default_numbers(spec: Document) -> None:
    if spec.get("completions") is None and spec.get("parallelism") is None:
        spec["completions"] = 1
    fill(spec, "parallelism", 1)
    fill(spec, "backoffLimit", 6 if spec.get("backoffLimitPerIndex") is None else UNLIMITED)


def _default_labels(document: Document, template: Document) -> None:
    metadata = made_child(document, "metadata")
    written = {
        key: value for key, value in child(template, "metadata", "labels").items() if key not in GENERATED_LABELS
    }
    if written and not metadata.get("labels"):
        metadata["labels"] = written
    name = text(metadata, "name")
    if name and child(document, "spec").get("manualSelector") is not True:
        labels = made_child(made_child(template, "metadata"), "labels")
        fill(labels, JOB_NAME_LABEL, name)
        fill(labels, LEGACY_JOB_NAME_LABEL, name)
