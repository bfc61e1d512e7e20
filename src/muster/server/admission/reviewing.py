"""AdmissionReview in, AdmissionReview out. Pure: nothing is asked of the outside but other objects, by `find`."""

import base64
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from muster.api import batch, errors, objects, raw, status, volcano
from muster.api import ownership as owning
from muster.api.documents import child, fill, made_child
from muster.api.errors import ApiError, FieldError
from muster.api.everything import REGISTRY
from muster.api.kinds import Kind
from muster.api.managing import Find, TakeIn, queue_of
from muster.api.objects import Object
from muster.api.ownership import Ownership, Unlabelled
from muster.api.raw import JSON, Document

API_VERSION: Final = "admission.k8s.io/v1"
SCHEDULER: Final = "muster"
"""What pods name as their scheduler to be placed by us, beside another one."""
Operation: TypeAlias = Literal["CREATE", "UPDATE", "DELETE"]


@dataclass(frozen=True, slots=True)
class Asked:
    """`document`: as it shall be; of a DELETE, as it is. `old`: as it is, of an UPDATE."""

    uid: str
    kind: Kind
    operation: Operation
    document: Document
    old: Document | None = None


def read(review: Document) -> Asked:
    """Raises BadRequest that names what is missing."""
    if review.get("apiVersion") != API_VERSION or review.get("kind") != "AdmissionReview":
        raise errors.BadRequest(f"expected an AdmissionReview of {API_VERSION}, found kind {review.get('kind')!r}")
    request = child(review, "request")
    uid, sent = request.get("uid"), child(request, "kind")
    if not isinstance(uid, str) or not uid:
        raise errors.BadRequest("request.uid: required")
    operation = _operation(request.get("operation"))
    group, version = sent.get("group") or "", sent.get("version") or ""
    kind = REGISTRY.by_document(f"{group}/{version}" if group else str(version), str(sent.get("kind")))
    old = request.get("oldObject")
    document = raw.as_object(old if operation == "DELETE" else request.get("object"))
    namespace = request.get("namespace")
    if kind.namespaced and isinstance(namespace, str):
        made_child(document, "metadata").setdefault("namespace", namespace)
    return Asked(uid, kind, operation, document, raw.as_object(old) if operation == "UPDATE" else None)


def _operation(found: object) -> Operation:
    match found:
        case "CREATE" | "UPDATE" | "DELETE":
            return found
    raise errors.BadRequest(f"request.operation: expected CREATE, UPDATE or DELETE, found {found!r}")


@dataclass(frozen=True, slots=True)
class Completing:
    """Fills in new objects. `take_in`: what follows from other objects."""

    take_in: TakeIn
    ownership: Ownership

    def __call__(self, asked: Asked, find: Find) -> Document:
        """The object as it should be. Raises ApiError for one that may not be."""
        made: Document = raw.copy(asked.document)
        if asked.operation == "DELETE" or not self.ownership.claims(child(made, "metadata", "labels")):
            return made
        if asked.kind is volcano.JOB and self.ownership.unlabelled is Unlabelled.THEIRS:
            # By default it would name Volcano's own scheduler, which is there as well.
            fill(made_child(made, "spec"), "schedulerName", SCHEDULER)
        if not asked.kind.built_in:
            asked.kind.default(made)
        if asked.operation == "CREATE":
            completed: Document = raw.copy(made)
            self.take_in(asked.kind, completed, find)
            if _is_meant(asked.kind, completed):
                made = completed
        return made


def _is_meant(kind: Kind, completed: Document) -> bool:
    """A cluster has jobs of its own. Only those that are in a queue wait for quota."""
    return kind is not batch.JOB or bool(queue_of(child(completed, "metadata")))


def own_problems(asked: Asked) -> Sequence[FieldError]:
    """What is wrong with the object by itself. Of Kubernetes' own kinds its server knows that better."""
    found = list(owning.problems(asked.document))
    if asked.kind.built_in:
        return found
    view = objects.view_of(asked.kind, asked.document)
    found += asked.kind.validate(view)
    if asked.old is None:
        found += asked.kind.validate_new(view)
    elif not found:
        found += asked.kind.validate_update(objects.view_of(asked.kind, asked.old), view)
    return found


def as_object(kind: Kind, document: Document) -> Object:
    return Object(kind, raw.encode(document))


def allowed(asked: Asked, made: Document | None = None) -> Document:
    """`made`: what it should be instead of what was sent."""
    response: Document = {"uid": asked.uid, "allowed": True}
    changes = [] if made is None else list(_difference("", asked.document, made))
    if changes:
        response["patchType"] = "JSONPatch"
        response["patch"] = base64.b64encode(raw.encode(changes)).decode()
    return _review(response)


def refused(uid: str, error: ApiError) -> Document:
    return _review({"uid": uid, "allowed": False, "status": status.from_error(error)})


def invalid(asked: Asked, found: Sequence[FieldError]) -> ApiError:
    metadata = child(asked.document, "metadata")
    name = str(metadata.get("name") or metadata.get("generateName") or "")
    return errors.invalid(asked.kind.name, name, found, group=asked.kind.group)


def _review(response: Document) -> Document:
    return {"apiVersion": API_VERSION, "kind": "AdmissionReview", "response": response}


def _difference(path: str, before: Document, after: Document) -> Iterator[JSON]:
    """As a JSON patch. Lists that differ are replaced whole."""
    for name in before.keys() - after.keys():
        yield {"op": "remove", "path": _below(path, name)}
    for name, value in after.items():
        if name not in before:
            yield {"op": "add", "path": _below(path, name), "value": value}
        elif isinstance(value, dict) and isinstance(before[name], dict):
            yield from _difference(_below(path, name), before[name], value)
        elif before[name] != value:
            yield {"op": "replace", "path": _below(path, name), "value": value}


def _below(path: str, name: str) -> str:
    return f"{path}/{name.replace('~', '~0').replace('/', '~1')}"
