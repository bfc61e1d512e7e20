"""Which workload of a job is the one that stands for it as it is now."""

from collections.abc import Iterable, Sequence

from muster.api import conditions, kueue
from muster.api.documents import child, objects
from muster.api.kueue import names
from muster.api.objects import Object
from muster.api.raw import Document
from muster.quota.integrations.subjects import Subject
from muster.quota.workloads import ADMITTED, FINISHED, QUOTA_RESERVED


def is_true(found: Object, condition: str) -> bool:
    return conditions.is_true(found.read(kueue.Workload).status.conditions, condition)


def is_finished(found: Object) -> bool:
    return is_true(found, FINISHED)


def is_reserved(found: Object) -> bool:
    return is_true(found, QUOTA_RESERVED)


def in_order(workloads: Iterable[Object]) -> list[Object]:
    """Those that are not over first, and of those the oldest."""
    return sorted(
        workloads, key=lambda found: (is_finished(found), found.meta.creation_timestamp or "", found.key.name)
    )


def matching(subject: Subject, workloads: Sequence[Object]) -> Object | None:
    """The first one that says what the job says."""
    return next((found for found in in_order(workloads) if is_equivalent(subject, found)), None)


def is_equivalent(subject: Subject, found: Object) -> bool:
    """The same pods, for the same time. What admission adds to them makes no difference."""
    view = found.read(kueue.Workload)
    if view.spec.maximum_execution_time_seconds != maximum_time(subject):
        return False
    document = found.document()
    kept = list(objects(document, "spec", "podSets"))
    if len(kept) != len(subject.pod_sets):
        return False
    is_admitted = is_true(found, ADMITTED)
    for own, other in zip(subject.pod_sets, kept, strict=True):
        if not _are_same_containers(own, other):
            return False
        own_spec, other_spec = child(own, "template", "spec"), child(other, "template", "spec")
        may_differ = is_admitted or subject.is_injected
        if not may_differ and (own_spec.get("tolerations") or []) != (other_spec.get("tolerations") or []):
            return False
    if subject.is_elastic:
        return True
    return _counts(subject.pod_sets) == _counts(kept) or (is_reserved(found) and _is_as_given(subject, view))


def _are_same_containers(own: Document, other: Document) -> bool:
    return all(
        (child(own, "template", "spec").get(part) or []) == (child(other, "template", "spec").get(part) or [])
        for part in ("containers", "initContainers")
    )


def _counts(pod_sets: Sequence[Document]) -> list[tuple[int | None, int | None]]:
    return [(pods.get("count"), pods.get("minCount")) for pods in pod_sets]


def _is_as_given(subject: Subject, view: kueue.Workload) -> bool:
    """It runs with as many pods as were admitted, where that is not all of them."""
    if view.status.admission is None:
        return False
    given = {pods.name: pods.count for pods in view.status.admission.pod_set_assignments}
    return all(pods.get("count") == given.get(pods["name"], pods.get("count")) for pods in subject.pod_sets)


def maximum_time(subject: Subject) -> int | None:
    text = subject.labels.get(names.MAX_TIME_LABEL, "")
    return int(text) or None if text.isascii() and text.isdigit() else None
