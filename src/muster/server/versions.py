"""Versions at the edge: one version of a kind is stored, others are converted as documents come and go."""

from muster.api import errors, raw
from muster.api.kinds import Conversion
from muster.api.objects import Object
from muster.api.raw import Document
from muster.server.paths import Target


def encoded(found: Object, target: Target) -> bytes:
    """The object as the client's version has it; the stored bytes themselves where that is the stored one."""
    return found.raw if target.is_stored_version else raw.encode(document(found, target))


def document(found: Object, target: Target) -> Document:
    return from_stored(found.document(), target)


def from_stored(stored: Document, target: Target) -> Document:
    if target.is_stored_version:
        return stored
    converted = _conversion(target).from_stored(stored)
    converted["apiVersion"] = target.api_version
    return converted


def to_stored(sent: Document, target: Target) -> Document:
    """The stored form of a document that a client sent. It may leave out apiVersion and kind, not contradict the
    path. Raises BadRequest."""
    claimed = sent.get("apiVersion") or target.api_version
    if claimed != target.api_version:
        raise errors.BadRequest(
            f"the API version in the data ({claimed}) does not match the expected API version ({target.api_version})"
        )
    name = sent.get("kind") or target.kind.name
    if name != target.kind.name:
        raise errors.BadRequest(
            f'the kind in the data ({name}) does not match the resource of the path: "{target.kind.plural}" takes '
            f"{target.kind.name}"
        )
    if "metadata" in sent and not isinstance(sent["metadata"], dict | None):
        raise errors.BadRequest(f"metadata: expected an object, found {raw.type_name(sent['metadata'])}")
    if not target.is_stored_version:
        sent = _conversion(target).to_stored(sent)
    sent["apiVersion"], sent["kind"] = target.kind.api_version, target.kind.name
    return sent


def _conversion(target: Target) -> Conversion:
    kind = target.kind
    for conversion in kind.conversions:
        group = kind.group if conversion.group is None else conversion.group
        if (group, conversion.version) == (target.group, target.version):
            return conversion
    raise AssertionError(f"{kind} was found at {target.api_version}, which it is not served in")
