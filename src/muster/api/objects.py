"""`Object`: one version of one stored object, encoded, with views that are decoded when first read."""

import dataclasses
from typing import NamedTuple, TypeVar

import msgspec

from muster.api import errors, misfits, raw
from muster.api.kinds import Kind
from muster.api.meta import ObjectMeta, Resource

V = TypeVar("V", bound=Resource)


class Key(NamedTuple):
    """Where an object lives within its kind. `namespace` is "" for cluster-scoped kinds."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class _Head(msgspec.Struct, frozen=True, gc=False):
    metadata: ObjectMeta = ObjectMeta()


_head_decoder = msgspec.json.Decoder(_Head)
_view_decoders: dict[type[Resource], msgspec.json.Decoder[Resource]] = {}


class Object:
    """Immutable. Keep it, share it, compare revisions; never write a view back (see `meta`)."""

    __slots__ = ("_view", "key", "kind", "meta", "raw", "revision")

    def __init__(self, kind: Kind, encoded: bytes, view: Resource | None = None) -> None:
        self.kind = kind
        self.raw = encoded
        self.meta: ObjectMeta = _head_decoder.decode(encoded).metadata if view is None else view.metadata
        # What Key(...) does, without its way through Python: this is done with every version of every object.
        self.key = tuple.__new__(Key, (self.meta.namespace, self.meta.name))
        self.revision = int(self.meta.resource_version or 0)
        self._view = view

    def read(self, view: type[V]) -> V:
        """The typed view; `view` must be the kind's own. Decoded once."""
        if self._view is None:
            self._view = decode_view(self.kind, self.raw)
        assert isinstance(self._view, view), f"{self.kind} is read as {self.kind.view}, not {view}"
        return self._view

    def forget_view(self) -> None:
        """Nobody is likely to read it again: it takes several times the room of its bytes. Who does decodes anew."""
        self._view = None

    @property
    def view(self) -> Resource:
        """The typed view where the caller does not know the kind."""
        return self.read(Resource)

    def document(self) -> raw.Document:
        """The whole document, decoded afresh: yours to change."""
        return raw.decode_object(self.raw)

    @property
    def uid(self) -> str:
        return self.meta.uid

    @property
    def labels(self) -> dict[str, str]:
        return dict(self.meta.labels or {})

    @property
    def is_terminating(self) -> bool:
        return self.meta.deletion_timestamp is not None

    def __repr__(self) -> str:
        return f"<{self.kind.name} {self.key} @{self.revision}>"


def decode_view(kind: Kind, encoded: bytes) -> Resource:
    """Decode the typed view of a document. Raises Invalid that names the field whose type is wrong."""
    decoder = _view_decoders.get(kind.view)
    if decoder is None:
        decoder = _view_decoders[kind.view] = msgspec.json.Decoder(kind.view)
    try:
        return decoder.decode(encoded)
    except msgspec.ValidationError as error:
        raise _misfit(kind, raw.decode(encoded), error) from error


def view_of(kind: Kind, document: raw.Document) -> Resource:
    """The typed view of a decoded document; raises as `decode_view` does."""
    try:
        return msgspec.convert(document, kind.view)
    except msgspec.ValidationError as error:
        raise _misfit(kind, document, error) from error


def _misfit(kind: Kind, document: raw.JSON, error: msgspec.ValidationError) -> errors.Invalid:
    found = misfits.field_error(error, document)
    name = str(raw.dig(document, "metadata", "name", default=""))
    where = dataclasses.replace(found, path=found.path or "<document>")
    return errors.invalid(kind.name, name, [where], group=kind.group)
