"""How messages travel: the conventions of Determined's API, in one place.

Requests come as JSON whatever their Content-Type says, with names in camelCase or snake_case, numbers perhaps as text,
and `null` for what is not set. Replies have all their fields. Numbers that are none travel as words.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from types import UnionType
from typing import Final, Union, get_args, get_origin, get_type_hints

import msgspec

from muster.api import errors, raw
from muster.api.errors import ApiError
from muster.api.raw import JSON, Document
from muster.server.determined.routing import Message, Route

_GRPC: Final[Mapping[type[ApiError], tuple[int, int]]] = {
    errors.BadRequest: (3, 400),
    errors.Invalid: (3, 400),
    errors.TooLarge: (3, 413),
    errors.Unauthorized: (16, 401),
    errors.Forbidden: (7, 403),
    errors.NotFound: (5, 404),
    errors.MethodNotAllowed: (12, 405),
    errors.AlreadyExists: (6, 409),
    errors.Conflict: (10, 409),
    errors.TooManyRequests: (8, 429),
    errors.Unavailable: (14, 503),
    errors.Timeout: (4, 504),
}
"""The code of gRPC, and the status with which it travels."""
_INTERNAL: Final = (13, 500)
_ENCODER: Final = msgspec.json.Encoder()
_FREE: Final[object] = JSON
"""The type of what can be anything."""


def decode(route: Route, path: Mapping[str, str], query: Iterable[tuple[str, str]], body: bytes) -> Message:
    """Raises BadRequest with the field that is wrong."""
    shape = _shape(route.request)
    values = _members(route, shape, body)
    for name, text in query:
        field = shape.get(name)
        if field is None:
            continue  # clients of other versions send more
        if field.is_list:
            listed = values.setdefault(field.wire, [])
            if isinstance(listed, list):
                listed.append(text)
        else:
            values.setdefault(field.wire, text)
    for name, text in path.items():
        field = shape.get(name)
        if field is not None:
            values[field.wire] = text
    try:
        return msgspec.convert(values, route.request, strict=False)
    except msgspec.ValidationError as error:
        raise errors.BadRequest(_worded(str(error))) from error


def encode(message: Message) -> bytes:
    """With all fields; numbers that are none as words."""
    encoded = _ENCODER.encode(message)
    # The encoder writes them as null, which nearly every reply has anyway for what is not set: only then, and only
    # where the message can hold numbers at all, is it worth a second look.
    if b"null" in encoded and _holds_numbers(type(message)):
        return _ENCODER.encode(numbers_as_words(msgspec.to_builtins(message)))
    return encoded


def encode_result(message: Message) -> bytes:
    """One line of a stream."""
    return b'{"result":' + encode(message) + b"}\n"


def error_body(error: ApiError) -> tuple[int, bytes]:
    code, status = _codes(error)
    return status, raw.encode({"error": {"code": code, "reason": error.reason, "error": error.message}})


def error_line(error: ApiError) -> bytes:
    """What ends a stream that had begun well."""
    code, status = _codes(error)
    return raw.encode({"error": {"grpcCode": code, "httpCode": status, "message": error.message}}) + b"\n"


def numbers_as_words(value: JSON) -> JSON:
    """JSON has no NaN: in free documents it is a word, as are the infinities."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {name: numbers_as_words(member) for name, member in value.items()}
    if isinstance(value, list):
        return [numbers_as_words(member) for member in value]
    return value


def _codes(error: ApiError) -> tuple[int, int]:
    return next((found for kind in type(error).__mro__ if (found := _GRPC.get(kind)) is not None), _INTERNAL)


def _worded(text: str) -> str:
    """`Expected `int`, got `str` - at `$.limit`` says it well enough, but for the path."""
    said, _, where = text.partition(" - at `$")
    field = where.rstrip("`").removeprefix(".")
    return f"{field}: {said}" if field else said


@cache
def _holds_numbers(message: type[Message]) -> bool:
    """Whether anything in it, however deep, may be a float."""
    seen: set[object] = set()
    waiting: list[object] = [message]
    while waiting:
        part = waiting.pop()
        if part in seen:
            continue
        seen.add(part)
        if part is float or part is _FREE:
            return True
        if isinstance(part, type) and issubclass(part, msgspec.Struct):
            waiting.extend(leaf for hint in get_type_hints(part).values() for leaf in _leaves(hint))
    return False


# Names


class _Field(msgspec.Struct, frozen=True):
    wire: str
    is_list: bool
    message: type[Message] | None
    """Of the field, or of what it lists."""
    is_map: bool


def _members(route: Route, shape: Mapping[str, _Field], body: bytes) -> Document:
    if not body.strip():
        return {}
    try:
        found = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise errors.BadRequest(f"the body is not JSON: {error}") from error
    if route.body:
        field = shape[route.body]
        return {field.wire: _member(field, found)}
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise errors.BadRequest(f"the body: expected an object, found {type(found).__name__}")
    return _named(shape, found)


def _named(shape: Mapping[str, _Field], found: Mapping[str, JSON]) -> Document:
    """With names as the message has them. Only where there are fields: what is free inside stays as it is."""
    named: Document = {}
    for name, value in found.items():
        field = shape.get(name)
        if field is not None and value is not None:
            named[field.wire] = _member(field, value)
    return named


def _member(field: _Field, value: JSON) -> JSON:
    if field.message is None:
        return value
    shape = _shape(field.message)
    if isinstance(value, list):
        return [_named(shape, entry) if isinstance(entry, dict) else entry for entry in value]
    if isinstance(value, dict):
        if field.is_map:
            return {name: _named(shape, entry) if isinstance(entry, dict) else entry for name, entry in value.items()}
        return _named(shape, value)
    return value


@cache
def _shape(type: type[Message]) -> Mapping[str, _Field]:
    """By both names that a field may be called."""
    hints = get_type_hints(type)
    found: dict[str, _Field] = {}
    for field in msgspec.structs.fields(type):
        described = _described(field.encode_name, hints[field.name])
        found[field.name] = found[field.encode_name] = described
    return found


def _described(wire: str, hint: object) -> _Field:
    is_list = is_map = False
    for part in _parts(hint):
        origin = get_origin(part)
        is_list |= origin in (list, tuple, Sequence)
        is_map |= origin in (dict, Mapping)
    message = next((part for part in _leaves(hint) if isinstance(part, type) and issubclass(part, Message)), None)
    return _Field(wire, is_list, message, is_map)


def _parts(hint: object) -> Iterable[object]:
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)


def _leaves(hint: object) -> Iterable[object]:
    arguments = get_args(hint)
    if not arguments:
        yield hint
    for argument in arguments:
        yield from _leaves(argument)
