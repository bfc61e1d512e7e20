"""What quota asks of jobs and pods when they are created, as Kueue's webhooks do: they are held back until admitted.

Not part of the kinds' defaults: only where quota is at work is there somebody who lets them go. Whoever puts a platform
together hands `take_in` to the store.
"""

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from muster.api import batch, core, errors, kubeflow, kueue, muster, volcano
from muster.api.core.defaults import NAMESPACE_LABEL
from muster.api.documents import child, made_child, objects, text
from muster.api.everything import REGISTRY
from muster.api.kinds import Kind
from muster.api.kueue import names
from muster.api.kueue.roles import role_hash
from muster.api.kueue.topology_annotations import validate_request
from muster.api.objects import Key, Object
from muster.api.raw import Document
from muster.api.selectors import LabelSelector, Operator, Requirement

Find: TypeAlias = Callable[[Kind, Key], Object | None]
TakeIn: TypeAlias = Callable[[Kind, Document, Find], None]
USUAL_NAMESPACES: Final = LabelSelector((Requirement(NAMESPACE_LABEL, Operator.NOT_IN, frozenset({"kube-system"})),))
"""Whose jobs and pods queue, where nothing else is said."""
_MOST_OWNERS: Final = 10


def take_in(kind: Kind, document: Document, find: Find, namespaces: LabelSelector = USUAL_NAMESPACES) -> None:
    """Changes the new object in place, after its defaults. `find` looks up other objects; `namespaces`: those whose
    objects are taken in. Raises Invalid."""
    managed = _BY_KIND.get(kind)
    if managed is not None and _is_in(namespaces, text(child(document, "metadata"), "namespace"), find):
        managed(document, find)


def _is_in(namespaces: LabelSelector, name: str, find: Find) -> bool:
    found = find(core.NAMESPACE, Key("", name))
    labels = found.meta.labels or {} if found is not None else {}
    return namespaces.matches({NAMESPACE_LABEL: name, **labels})


def hold_back(document: Document, spec: Document, find: Find) -> None:
    """A job of any kind, whose `spec` (or part of it) has the field `suspend`."""
    metadata = made_child(document, "metadata")
    if is_controlled(metadata):
        if spec.get("suspend") is not True and is_part_of_held(metadata, find):
            spec["suspend"] = True
            _mark(metadata)
        return  # its owner is admitted, with everything that it makes
    _name_defaults(metadata, find)
    if queue_of(metadata):
        spec["suspend"] = True
    elif spec.get("suspend") is not True:
        spec["suspend"] = True
        _mark(metadata)


def _mark(metadata: Document) -> None:
    """It is quota that suspended it. In a queue nobody else does."""
    if not queue_of(metadata):
        made_child(metadata, "annotations")[names.QUEUED_ANNOTATION] = "true"


def queue_of(metadata: Document) -> str:
    return text(child(metadata, "labels"), names.QUEUE_LABEL)


def is_controlled(metadata: Document) -> bool:
    return any(owner.get("controller") is True for owner in objects(metadata, "ownerReferences"))


def is_part_of_held(metadata: Document, find: Find) -> bool:
    """Whether the topmost job above it is held back. What cannot be found, holds nothing back."""
    namespace, is_held = text(metadata, "namespace"), False
    for _ in range(_MOST_OWNERS):
        owner = next((found for found in objects(metadata, "ownerReferences") if found.get("controller") is True), None)
        above = _owner(owner, namespace, find) if owner is not None else None
        if above is None:
            break
        document = above.document()
        if above.kind in _HELD:
            is_held = _HELD[above.kind](document)
        metadata = child(document, "metadata")
    return is_held


def _owner(owner: Document, namespace: str, find: Find) -> Object | None:
    try:
        kind = REGISTRY.by_document(text(owner, "apiVersion"), text(owner, "kind"))
    except errors.NotFound:
        return None
    found = find(kind, Key(namespace if kind.namespaced else "", text(owner, "name")))
    return found if found is not None and found.uid == owner.get("uid") else None


_HELD: Final[Mapping[Kind, Callable[[Document], bool]]] = {
    batch.JOB: lambda job: child(job, "spec").get("suspend") is True,
    muster.ALLOCATION: lambda allocation: child(allocation, "spec").get("suspend") is True,
    kubeflow.PYTORCH_JOB: lambda job: child(job, "spec", "runPolicy").get("suspend") is True,
    volcano.JOB: lambda job: child(job, "metadata", "annotations").get(names.HELD_ANNOTATION) == "true",
}


def _hold_job(document: Document, find: Find) -> None:
    hold_back(document, made_child(document, "spec"), find)


def _hold_pytorch_job(document: Document, find: Find) -> None:
    hold_back(document, made_child(made_child(document, "spec"), "runPolicy"), find)


def _hold_volcano_job(document: Document, find: Find) -> None:
    """Also one that a CronJob or a JobFlow makes: those are not admitted themselves. Its kind has no field that could
    say so, and a queue of its own where no label names one."""
    metadata = made_child(document, "metadata")
    if queue_of(metadata):
        _name_defaults(metadata, find)
    made_child(metadata, "annotations")[names.HELD_ANNOTATION] = "true"


def _hold_pod(document: Document, find: Find) -> None:
    metadata, spec = made_child(document, "metadata"), made_child(document, "spec")
    if is_controlled(metadata) or spec.get("nodeName"):
        return
    _name_defaults(metadata, find)
    if not queue_of(metadata):
        return
    made_child(metadata, "labels")[names.MANAGED] = "true"
    annotations = made_child(metadata, "annotations")
    _check_places(metadata, annotations)
    annotations.setdefault(names.ROLE_HASH_ANNOTATION, role_hash(spec))
    _add(metadata, "finalizers", names.MANAGED)
    # The second one too: a queue may place by topology what does not ask for it, and gates cannot be added later.
    for gate in (names.ADMISSION_GATE, names.TOPOLOGY_GATE):
        _add(spec, "schedulingGates", {"name": gate})


def _check_places(metadata: Document, annotations: Document) -> None:
    written = {name: value for name, value in annotations.items() if isinstance(value, str)}
    problems = list(validate_request("metadata.annotations", written, None))
    if problems:
        raise errors.invalid(core.POD.name, text(metadata, "name"), problems)


def _name_defaults(metadata: Document, find: Find) -> None:
    """The queue and the priority class that are meant where nothing is said."""
    labels = child(metadata, "labels")
    namespace = text(metadata, "namespace")
    if not queue_of(metadata) and find(kueue.LOCAL_QUEUE, Key(namespace, names.DEFAULT)) is not None:
        made_child(metadata, "labels")[names.QUEUE_LABEL] = names.DEFAULT
    if (
        queue_of(metadata)
        and not text(labels, names.PRIORITY_CLASS_LABEL)
        and find(kueue.WORKLOAD_PRIORITY_CLASS, Key("", names.DEFAULT)) is not None
    ):
        made_child(metadata, "labels")[names.PRIORITY_CLASS_LABEL] = names.DEFAULT


def _add(document: Document, field: str, value: object) -> None:
    listed = document.get(field)
    if listed is None:
        document[field] = [value]
    elif isinstance(listed, list) and value not in listed:
        listed.append(value)


_BY_KIND: Final[Mapping[Kind, Callable[[Document, Find], None]]] = {
    batch.JOB: _hold_job,
    kubeflow.PYTORCH_JOB: _hold_pytorch_job,
    muster.ALLOCATION: _hold_job,
    volcano.JOB: _hold_volcano_job,
    core.POD: _hold_pod,
}
