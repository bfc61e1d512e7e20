"""From numbered fields to the document that the same client would have sent as JSON."""

import base64
import datetime
import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import resources
from typing import TypeAlias

from muster.api import errors, raw
from muster.api.protobuf import wire
from muster.api.protobuf.wire import Value, malformed
from muster.api.raw import JSON, Document

MEDIA_TYPE = "application/vnd.kubernetes.protobuf"

_MAGIC = b"k8s\x00"
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    type: str
    container: str  # "[]" or "{}", else ""
    is_inline: bool
    is_kept: bool  # an explicit zero counts: a pointer in Go, or a field that JSON never leaves out


_Message: TypeAlias = Mapping[int, _Field]


@dataclass(frozen=True, slots=True)
class _Table:
    kinds: Mapping[str, str]
    messages: Mapping[str, _Message]
    lists: Mapping[str, str]  # messages that are just a list in JSON, and the type of its items


def decode(body: bytes) -> Document:
    """The document in a protobuf body. Raises BadRequest for bytes that make no sense and kinds that are unknown."""
    if not body.startswith(_MAGIC):
        raise malformed("it does not begin with the four bytes that mark a Kubernetes object")
    head, content, encoding, media_type = _envelope(body[len(_MAGIC) :])
    if encoding:
        raise errors.BadRequest(f"the body is encoded as {encoding!r}; send it plain")
    if media_type == "application/json":
        return {**head, **raw.decode_object(content)}
    if media_type not in ("", MEDIA_TYPE):
        raise errors.BadRequest(f"the body holds {media_type!r}; send protobuf or JSON")
    version, kind = head.get("apiVersion", ""), head.get("kind", "")
    table = _table()
    message = table.kinds.get(f"{version} {kind}") or table.kinds.get(f"* {kind}")
    if message is None:
        raise errors.BadRequest(f'no protobuf is known for kind "{kind}" in version "{version}"; send JSON')
    return {**head, **_message(message, content)}


def _envelope(data: bytes) -> tuple[Document, bytes, str, str]:
    """What runtime.Unknown says: apiVersion and kind, the object, its encoding and media type."""
    head: Document = {}
    content, encoding, media_type = b"", "", ""
    for number, value in wire.fields(data):
        match number:
            case 1:
                names = {1: "apiVersion", 2: "kind"}
                head = {names[n]: _text(v) for n, v in wire.fields(_bytes(value)) if n in names}
            case 2:
                content = _bytes(value)
            case 3:
                encoding = _text(value)
            case 4:
                media_type = _text(value)
    return head, content, encoding, media_type


@functools.cache
def _table() -> _Table:
    stored = raw.decode_object(resources.files(__package__).joinpath("fields.json").read_bytes())
    messages = {name: found for name, found in stored["messages"].items() if isinstance(found, list)}
    return _Table(
        kinds=stored["kinds"],
        messages={name: {row[0]: _field(*row[1:]) for row in rows} for name, rows in messages.items()},
        lists={name: found[2:] for name, found in stored["messages"].items() if isinstance(found, str)},
    )


def _field(name: str, written: str, rule: str) -> _Field:
    container = written[:2] if written[:2] in ("[]", "{}") else ""
    return _Field(name, written[len(container) :], container, rule == "inline", rule == "keep")


def _message(name: str, data: bytes) -> Document:
    known = _table().messages[name]
    document: Document = {}
    for number, value in wire.fields(data):
        field = known.get(number)
        if field is None:
            continue  # a newer client may know more than we do, and its JSON would be kept; this cannot be
        if field.container == "[]":
            document.setdefault(field.name, []).extend(_items(field.type, value))
        elif field.container == "{}":
            key, item = _entry(field.type, _bytes(value))
            document.setdefault(field.name, {})[key] = item
        else:
            _set(document, field, _value(field.type, value))
    return document


def _set(document: Document, field: _Field, value: JSON) -> None:
    if field.is_inline:
        document.update(value)
    elif isinstance(value, dict) and isinstance(document.get(field.name), dict):
        document[field.name].update(value)  # a message may come in pieces
    elif value is not None and (field.is_kept or not _is_empty(value)):
        document[field.name] = value


def _is_empty(value: JSON) -> bool:
    return value in ("", {}) or (value == 0 and isinstance(value, int))


def _items(kind: str, value: Value) -> list[JSON]:
    if kind in ("int32", "int64"):
        return [_value(kind, number) for number in wire.numbers(value)]
    return [_value(kind, value)]


def _entry(kind: str, data: bytes) -> tuple[str, JSON]:
    """A key and its value; what is not said is empty."""
    key, value = "", _value(kind, b"")
    for number, found in wire.fields(data):
        if number == 1:
            key = _text(found)
        elif number == 2:
            value = _value(kind, found)
    return key, value


def _value(kind: str, value: Value) -> JSON:
    """One value of a type that the table names: a scalar, a special type, a list, or another message."""
    decoder = _DECODERS.get(kind)
    if decoder is not None:
        return decoder(value)
    table = _table()
    if kind in table.lists:
        return [
            item for number, v in wire.fields(_bytes(value)) if number == 1 for item in _items(table.lists[kind], v)
        ]
    return _message(kind, _bytes(value))


def _bytes(value: Value) -> bytes:
    if isinstance(value, int):
        raise malformed("a number stands where bytes were expected")
    return value


def _number(value: Value) -> int:
    if not isinstance(value, int):
        raise malformed("bytes stand where a number was expected")
    return value


def _text(value: Value) -> str:
    try:
        return _bytes(value).decode()
    except UnicodeDecodeError as error:
        raise malformed("text that is not UTF-8") from error


def _time(value: Value) -> str | None:
    moment, _ = _moment(value)
    return None if moment is None else f"{moment.isoformat()}Z"


def _micro_time(value: Value) -> str | None:
    moment, nanos = _moment(value)
    return None if moment is None else f"{moment.isoformat()}.{nanos // 1000:06}Z"


def _moment(value: Value) -> tuple[datetime.datetime | None, int]:
    """Whole seconds in UTC, and nanoseconds; None for the zero time, which Go writes as nothing."""
    found = dict(wire.fields(_bytes(value)))
    if not found:
        return None, 0
    nanos = wire.signed(_number(found.get(2, 0)), 32)
    try:
        moment = _EPOCH + datetime.timedelta(seconds=wire.signed(_number(found.get(1, 0)), 64))
    except OverflowError as error:
        raise malformed("a time before year 1 or after year 9999") from error
    if not 0 <= nanos < 1_000_000_000:
        raise malformed(f"a time with {nanos} nanoseconds")
    return moment.replace(tzinfo=None), nanos


def _quantity(value: Value) -> str:
    return next((_text(found) for number, found in wire.fields(_bytes(value)) if number == 1), "") or "0"


def _int_or_string(value: Value) -> int | str:
    found = dict(wire.fields(_bytes(value)))
    if _number(found.get(1, 0)) == 0:
        return wire.signed(_number(found.get(2, 0)), 32)
    return _text(found.get(3, b""))


def _json(value: Value) -> JSON:
    """RawExtension and FieldsV1: JSON within protobuf."""
    text = next((_bytes(found) for number, found in wire.fields(_bytes(value)) if number == 1), b"")
    return raw.decode(text) if text else None


_DECODERS: Mapping[str, Callable[[Value], JSON]] = {
    "string": _text,
    "bytes": lambda value: base64.b64encode(_bytes(value)).decode(),
    "bool": lambda value: _number(value) != 0,
    "int32": lambda value: wire.signed(_number(value), 32),
    "int64": lambda value: wire.signed(_number(value), 64),
    "meta.v1.Time": _time,
    "meta.v1.MicroTime": _micro_time,
    "meta.v1.FieldsV1": _json,
    "api.resource.Quantity": _quantity,
    "util.intstr.IntOrString": _int_or_string,
    "runtime.RawExtension": _json,
}
