"""The Kubernetes API as bytes: what requests say and what answers mean, whoever the server is.

Pure: no connection is made here. What servers do in different ways is with their stores, `store.http` and
`store.kubernetes`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, Literal, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from muster.api import core, errors, fields, raw, status
from muster.api.kinds import Kind
from muster.api.objects import Key, Object
from muster.api.raw import Document
from muster.store.protocol import (
    Apply,
    Bind,
    Change,
    Create,
    Delete,
    Event,
    Options,
    Page,
    Patch,
    Replace,
    Revision,
    Selection,
    Write,
)

T = TypeVar("T")
JSON_TYPE: Final = "application/json"
APPLY_TYPE: Final = "application/apply-patch+yaml"


@dataclass(frozen=True, slots=True)
class Request:
    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
    path: str
    body: bytes = b""
    content_type: str = JSON_TYPE
    query: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    makes_new: bool = True
    """Whether 201 means that the object is new."""

    @property
    def target(self) -> str:
        return f"{self.path}?{self.query}" if self.query else self.path


# Where things are


@lru_cache(maxsize=4096)
def collection(kind: Kind, namespace: str | None) -> str:
    root = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
    if kind.namespaced and namespace is not None:
        return f"{root}/namespaces/{quote(namespace, safe='')}/{kind.plural}"
    return f"{root}/{kind.plural}"


def path_of(kind: Kind, key: Key, subresource: str = "") -> str:
    path = f"{collection(kind, key.namespace)}/{quote(key.name, safe='')}"
    return f"{path}/{subresource}" if subresource else path


def selecting(selection: Selection) -> dict[str, str]:
    query = {}
    if selection.labels.requirements:
        query["labelSelector"] = str(selection.labels)
    if selection.fields.requirements:
        query["fieldSelector"] = str(selection.fields)
    return query


# What requests say


def request(write: Write) -> Request:
    """But for a patch's `based_on`, which each server is told in its own way. Raises Invalid."""
    query = _query(write.options)
    match write:
        case Create():
            return Request("POST", _collection_for(write), raw.encode(write.document), query=query)
        case Replace():
            path = path_of(write.kind, write.key, write.subresource)
            return Request("PUT", path, raw.encode(write.document), query=query)
        case Patch():
            path = path_of(write.kind, write.key, write.subresource)
            return Request("PATCH", path, raw.encode(write.body), write.type.value, query)
        case Apply():
            path = path_of(write.kind, write.key, write.subresource)
            query += "&force=true" if write.force else ""
            return Request("PATCH", path, raw.encode(write.document), APPLY_TYPE, query)
        case Delete() if write.within_budgets:
            path = path_of(write.kind, write.key, "eviction")
            return Request("POST", path, raw.encode(_eviction(write)), query=query, makes_new=False)
        case Delete():
            return Request("DELETE", path_of(write.kind, write.key), raw.encode(_delete_options(write)), query=query)
        case Bind():
            path = path_of(write.kind, write.key, "binding")
            return Request("POST", path, raw.encode(_binding(write)), query=query, makes_new=False)


def _collection_for(write: Create) -> str:
    kind = write.kind
    namespace = raw.dig(write.document, "metadata", "namespace") or ""
    if kind.namespaced and not namespace:
        name = raw.dig(write.document, "metadata", "name") or ""
        raise errors.invalid(kind.name, str(name), [fields.required("metadata.namespace")], group=kind.group)
    return collection(kind, str(namespace))


@lru_cache(maxsize=256)
def _query(given: Options) -> str:
    query = {"fieldManager": given.manager, "fieldValidation": given.unknown_fields}
    if given.dry_run:
        query["dryRun"] = "All"
    return urlencode(query)


def _eviction(write: Delete) -> Document:
    meta = {"name": write.key.name, "namespace": write.key.namespace}
    options = _delete_options(write)
    return {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": meta, "deleteOptions": options}


def _delete_options(write: Delete) -> Document:
    wanted: Document = {"kind": "DeleteOptions", "apiVersion": "v1"}
    if write.propagation is not None:
        wanted["propagationPolicy"] = write.propagation
    if write.grace_seconds is not None:
        wanted["gracePeriodSeconds"] = write.grace_seconds
    preconditions: Document = {}
    if write.uid is not None:
        preconditions["uid"] = write.uid
    if write.based_on is not None:
        preconditions["resourceVersion"] = str(write.based_on)
    if preconditions:
        wanted["preconditions"] = preconditions
    return wanted


def _binding(write: Bind) -> Document:
    meta: Document = {"name": write.key.name, "namespace": write.key.namespace}
    if write.annotations:
        meta["annotations"] = dict(write.annotations)
    if write.uid:
        meta["uid"] = write.uid
    return {"apiVersion": "v1", "kind": "Binding", "metadata": meta, "target": {"kind": "Node", "name": write.node}}


def stages(writes: Sequence[Write]) -> Iterator[list[list[int]]]:
    """Which writes may go at the same time. Those on one object keep their order, and what comes after the write of a
    namespace in a batch may be meant to live in it."""
    chains: dict[tuple[Kind, Key], list[int]] = {}
    for index, write in enumerate(writes):
        chains.setdefault((write.kind, _key(write, index)), []).append(index)
        if write.kind is core.NAMESPACE:
            yield list(chains.values())
            chains = {}
    yield list(chains.values())


def _key(write: Write, index: int) -> Key:
    if not isinstance(write, Create):
        return write.key
    meta = write.document.get("metadata") or {}
    # A generated name meets no other write of the batch.
    return Key(str(meta.get("namespace") or ""), str(meta.get("name") or f"\0{index}"))


# What answers mean


class _ListMeta(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = "0"
    continue_: str = msgspec.field(default="", name="continue")
    remaining_item_count: int = 0


class _List(msgspec.Struct, frozen=True):
    """A list whose items stay encoded."""

    metadata: _ListMeta
    items: list[msgspec.Raw] | None = None


class _Line(msgspec.Struct, frozen=True):
    """One event of a watch."""

    type: str
    object: msgspec.Raw


class _Managed(msgspec.Struct, frozen=True, rename="camel"):
    managed_fields: msgspec.Raw = msgspec.Raw()


class _WithManaged(msgspec.Struct, frozen=True):
    metadata: _Managed = _Managed()


_managed_decoder = msgspec.json.Decoder(_WithManaged)
_list_decoder = msgspec.json.Decoder(_List)
_line_decoder = msgspec.json.Decoder(_Line)


def page(kind: Kind, body: bytes) -> Page:
    found = decode(_list_decoder, body)
    # Kubernetes says what its own kinds are once for the whole list; an object alone must say it again.
    untold = b'{"metadata":'
    told = f'{{"kind":"{kind.name}","apiVersion":"{kind.api_version}",'.encode()
    items = [_lean(bytes(item)) for item in found.items or ()]
    return Page(
        [object_of(kind, told + item[1:] if item.startswith(untold) else item) for item in items],
        Revision(int(found.metadata.resource_version)),
        found.metadata.continue_,
        found.metadata.remaining_item_count,
    )


def event(kind: Kind, line: bytes) -> Event:
    """Raises what an ERROR among the events says."""
    found = decode(_line_decoder, line)
    encoded = bytes(found.object)
    if found.type == "ERROR":
        raise error(kind, encoded, 500)
    made = object_of(kind, _lean(encoded))
    revision = Revision(made.revision)
    if found.type == Change.BOOKMARK.value:
        return Event(Change.BOOKMARK, None, revision)
    return Event(Change(found.type), made, revision)


def _lean(encoded: bytes) -> bytes:
    """Without `metadata.managedFields`: half of what a cluster's objects are, kept in copies of whole kinds, and nobody
    here reads it. Cut out of the text, for to encode the rest again would cost more than all else."""
    value = bytes(decode(_managed_decoder, encoded).metadata.managed_fields)
    if not value:
        return encoded
    field = b'"managedFields":' + value
    start = encoded.find(field)
    if start < 0:  # written with spaces, as no server does
        return encoded
    end = start + len(field)
    if encoded[end : end + 1] == b",":
        end += 1
    elif encoded[start - 1 : start] == b",":
        start -= 1
    return encoded[:start] + encoded[end:]


def object_of(kind: Kind, body: bytes) -> Object:
    try:
        return Object(kind, body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _strange(error) from error


def decode(decoder: msgspec.json.Decoder[T], data: bytes) -> T:
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _strange(error) from error


def _strange(error: Exception) -> errors.Unavailable:
    """Something between us and the server answers in its place."""
    return errors.Unavailable(f"the server's answer is not what was asked for: {error}")


def warnings(headers: Sequence[str]) -> tuple[str, ...]:
    return tuple(map(_warning, headers))


def _warning(header: str) -> str:
    """The text of `299 - "text"`."""
    text = header.partition('"')[2].removesuffix('"')
    return text.replace('\\"', '"').replace("\\\\", "\\")


def error(kind: Kind, body: bytes, code: int) -> errors.ApiError:
    """What a server's answer of 400 and above stands for. `kind`: what was asked for."""
    try:
        return status.to_error(raw.decode_object(body), code)
    except errors.BadRequest:
        if code == 404:
            # Of an object that is missing a server says so in its own format: here the whole path is unknown to it.
            message = f"the server does not serve {kind.resource} in {kind.api_version}"
            return errors.NotFound(message, kind=kind.name, group=kind.group)
        return status.to_error({"message": f"the server answered {code}: {body[:200].decode(errors='replace')}"}, code)
