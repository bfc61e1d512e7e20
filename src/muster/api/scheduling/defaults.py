"""What the API server fills in for a PriorityClass."""

from muster.api.documents import drop_nulls, fill
from muster.api.raw import Document


def default_priority_class(document: Document) -> None:
    drop_nulls(document)
    fill(document, "preemptionPolicy", "PreemptLowerPriority")
