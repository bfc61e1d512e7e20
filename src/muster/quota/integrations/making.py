"""The Workload of a job: made, and kept in step with what the job says."""

from collections.abc import Mapping

from muster.api import raw
from muster.api.documents import child, objects
from muster.api.kueue import names
from muster.api.raw import Document
from muster.api.volcano.preemptable import PREEMPTABLE
from muster.quota.gates import Gate
from muster.quota.integrations.matching import maximum_time
from muster.quota.integrations.naming import workload_name
from muster.quota.integrations.ranking import Priority, priority
from muster.quota.integrations.steps import World
from muster.quota.integrations.subjects import Subject
from muster.quota.marks import NEVER, PREEMPTION_ANNOTATION


def make(subject: Subject, world: World, *, annotations: Mapping[str, str] | None = None) -> Document:
    """Raises MissingClass."""
    metadata: Document = {
        "name": name_of(subject, world),
        "namespace": subject.namespace,
        "finalizers": [names.IN_USE_FINALIZER],
        "ownerReferences": list(subject.owners),
        "labels": _labels(subject, world),
    }
    found = resolved(subject, world)
    kept = {**_annotations(subject, world), **subject.workload_annotations, **(annotations or {})}
    if found.never_preempts:
        kept[PREEMPTION_ANNOTATION] = NEVER
    if kept:
        metadata["annotations"] = kept
    spec = spec_of(subject)
    if subject.queue:
        spec["queueName"] = subject.queue
    set_priority(spec, found)
    return {"metadata": metadata, "spec": spec}


def name_of(subject: Subject, world: World) -> str:
    if subject.workload_name:
        return subject.workload_name
    extra = str(subject.generation) if is_elastic(subject, world) else ""
    return workload_name(subject.kind, subject.name, subject.uid, world.settings.gates, extra)


def is_elastic(subject: Subject, world: World) -> bool:
    """Those that are told their size are always."""
    if subject.span is not None:
        return True
    return subject.is_elastic and Gate.ELASTIC_JOBS_VIA_WORKLOAD_SLICES in world.settings.gates


def resolved(subject: Subject, world: World) -> Priority:
    """Raises MissingClass."""
    label = subject.labels.get(names.PRIORITY_CLASS_LABEL, "")
    return priority(label, subject.own_class, subject.pod_sets, world.classes)


def spec_of(subject: Subject) -> Document:
    """What follows from the pods and their time alone."""
    spec: Document = {"active": True, "podSets": raw.copy(list(subject.pod_sets))}
    for pods in spec["podSets"]:
        # Where nobody remembers what the template was before, at least it does not say that it was changed.
        child(pods, "template", "metadata", "annotations").pop(names.WORKLOAD_ANNOTATION, None)
    seconds = maximum_time(subject)
    if seconds is not None:
        spec["maximumExecutionTimeSeconds"] = seconds
    return spec


def set_priority(spec: Document, found: Priority) -> None:
    spec["priority"] = found.value
    if found.reference is not None:
        spec["priorityClassRef"] = dict(found.reference)
    else:
        spec.pop("priorityClassRef", None)


def renewed(document: Document, subject: Subject) -> Document:
    """A workload that holds nothing yet, with the pods that its job has now."""
    spec = {**child(document, "spec"), **spec_of(subject)}
    spec["active"] = child(document, "spec").get("active", True)
    if maximum_time(subject) is None:
        spec.pop("maximumExecutionTimeSeconds", None)
    return {**document, "spec": spec}


def requeued(document: Document, queue: str) -> Document:
    """In another queue."""
    spec = {**child(document, "spec")}
    if queue:
        spec["queueName"] = queue
    else:
        spec.pop("queueName", None)
    return {**document, "spec": spec}


def resized(document: Document, counts: Mapping[str, int]) -> Document:
    """With so many pods of each set."""
    spec = raw.copy(child(document, "spec"))
    for pods in objects(spec, "podSets"):
        pods["count"] = counts.get(pods.get("name", ""), pods.get("count"))
    return {**document, "spec": spec}


def adopted(document: Document, subject: Subject) -> Document:
    """A workload that was made beforehand belongs to its job from now on."""
    metadata = {**child(document, "metadata")}
    present = [owner for owner in objects(metadata, "ownerReferences") if owner.get("uid") != subject.uid]
    metadata["ownerReferences"] = [*present, *subject.owners]
    metadata["labels"] = {**child(metadata, "labels"), names.JOB_UID_LABEL: subject.uid}
    finalizers = metadata.get("finalizers") or []
    if names.IN_USE_FINALIZER not in finalizers:
        metadata["finalizers"] = [*finalizers, names.IN_USE_FINALIZER]
    return {**document, "metadata": metadata}


def owned(document: Document, subject: Subject) -> Document:
    """By all that it stands for, and by whom it was before."""
    metadata = {**child(document, "metadata")}
    present = list(objects(metadata, "ownerReferences"))
    known = {owner.get("uid") for owner in present}
    metadata["ownerReferences"] = [*present, *(owner for owner in subject.owners if owner["uid"] not in known)]
    return {**document, "metadata": metadata}


def with_gates(document: Document, gates: str | None) -> Document:
    """Held back by what holds back its job."""
    metadata = {**child(document, "metadata")}
    annotations = {**child(metadata, "annotations")}
    if gates:
        annotations[names.ADMISSION_GATES_ANNOTATION] = gates
    else:
        annotations.pop(names.ADMISSION_GATES_ANNOTATION, None)
    return {**document, "metadata": {**metadata, "annotations": annotations}}


def _labels(subject: Subject, world: World) -> dict[str, str]:
    labels = {key: subject.labels[key] for key in world.settings.copied_labels if key in subject.labels}
    if not subject.workload_name:
        labels[names.JOB_UID_LABEL] = subject.uid
    return labels


def _annotations(subject: Subject, world: World) -> dict[str, str]:
    kept = {name: value for name, value in subject.annotations.items() if name.startswith(names.PROVISIONING_PREFIX)}
    preemptable = subject.annotations.get(PREEMPTABLE) or subject.labels.get(PREEMPTABLE)
    if preemptable:
        kept[PREEMPTABLE] = preemptable
    gates = subject.annotations.get(names.ADMISSION_GATES_ANNOTATION)
    if gates and Gate.ADMISSION_GATED_BY in world.settings.gates:
        kept[names.ADMISSION_GATES_ANNOTATION] = gates
    if is_elastic(subject, world):
        kept[names.ELASTIC_ANNOTATION] = "true"
    return kept
