"""What the API server fills in for a Job."""

from muster.api.batch.names import (
    CONTROLLER_UID_LABEL,
    GENERATED_LABELS,
    JOB_NAME_LABEL,
    LEGACY_CONTROLLER_UID_LABEL,
    LEGACY_JOB_NAME_LABEL,
)
from muster.api.core.pod_defaults import default_pod_template
from muster.api.documents import child, drop_nulls, fill, made_child, objects, text
from muster.api.raw import Document

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
    spec = child(document, "spec")
    name, uid = text(metadata, "name"), text(metadata, "uid")
    if spec.get("manualSelector") is True:
        return
    labels = made_child(made_child(template, "metadata"), "labels")
    if name:
        fill(labels, JOB_NAME_LABEL, name)
        fill(labels, LEGACY_JOB_NAME_LABEL, name)
    if uid:  # the store has taken the job in: no pods but its own carry this label
        fill(labels, CONTROLLER_UID_LABEL, uid)
        fill(labels, LEGACY_CONTROLLER_UID_LABEL, uid)
        fill(spec, "selector", {"matchLabels": {CONTROLLER_UID_LABEL: uid}})
