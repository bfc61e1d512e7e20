"""What has to change for an object that stands for a queue to say what it should."""

from typing import Final

from muster.api.documents import child
from muster.api.kueue import names
from muster.api.raw import JSON, Document
from muster.quota.queues import PROBLEM_ANNOTATION, RULES_ANNOTATION, UNDECLARED_ANNOTATION

_ANNOTATIONS: Final = (
    PROBLEM_ANNOTATION,
    RULES_ANNOTATION,
    UNDECLARED_ANNOTATION,
    names.QUEUE_PRIORITY_ANNOTATION,
    names.RECLAIMABLE_ANNOTATION,
)
_PLACE: Final = ("cohortName", "parentName")


def patch(found: Document, wanted: Document) -> Document | None:
    """A merge patch; None where there is nothing to do. What the queue does not decide about is left alone."""
    metadata = _metadata(child(found, "metadata"), child(wanted, "metadata"))
    spec = _spec(child(found, "spec"), child(wanted, "spec"))
    body = {part: changes for part, changes in (("metadata", metadata), ("spec", spec)) if changes}
    return body or None


def _metadata(found: Document, wanted: Document) -> Document:
    labels = {name: value for name, value in wanted["labels"].items() if child(found, "labels").get(name) != value}
    present, meant = child(found, "annotations"), child(wanted, "annotations")
    annotations = {name: meant.get(name) for name in _ANNOTATIONS if meant.get(name) != present.get(name)}
    return {part: changes for part, changes in (("labels", labels), ("annotations", annotations)) if changes}


def _spec(found: Document, wanted: Document) -> Document:
    spec: Document = {name: None for name in _PLACE if name in found and name not in wanted}
    if (wanted.get("resourceGroups") or []) != (found.get("resourceGroups") or []):
        spec["resourceGroups"] = wanted.get("resourceGroups") or None
    for name, value in wanted.items():
        if name != "resourceGroups" and not _says(found.get(name), value):
            present = found.get(name)
            extra = present if isinstance(value, dict) and isinstance(present, dict) else {}
            spec[name] = {**dict.fromkeys(extra), **value} if isinstance(value, dict) else value
    return spec


def _says(found: JSON, wanted: JSON) -> bool:
    """Also where more is said, which was filled in; but for what selects: there more would be less."""
    if not isinstance(wanted, dict):
        return bool(found == wanted)
    if not isinstance(found, dict) or (not wanted and found):
        return False
    return all(_says(found.get(name), value) for name, value in wanted.items())
