"""What msgspec says of a document that does not have the shape of its view, as an error that names the field."""

import re
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from muster.api.errors import FieldError
from muster.api.raw import JSON

_ANY_KEY: Final = "..."
_STEP: Final = re.compile(r"\[(\d+|\.\.\.)\]|\.([^.\[]+)")
_GOT: Final = re.compile(r"got `(\w+)`")
_TYPES: Final = {
    "array": list,
    "bool": bool,
    "float": float,
    "int": int,
    "null": type(None),
    "object": dict,
    "str": str,
}


def field_error(error: msgspec.ValidationError, document: JSON) -> FieldError:
    """The path is empty where it is the document as a whole. msgspec does not say which key of a map has the wrong
    value: the first one that has such a value is named."""
    # It says: Expected `int`, got `str` - at `$.spec.replicas`
    message, _, where = str(error).partition(" - at ")
    path = where.strip("`").removeprefix("$")
    got = _GOT.search(message)
    if got is not None and f"[{_ANY_KEY}]" in path:
        steps = [index or name for index, name in _STEP.findall(path)]
        path = next(_paths(document, steps, _TYPES.get(got[1])), path)
    return FieldError(path.lstrip("."), "FieldValueTypeInvalid", message)


def _paths(value: JSON, steps: Sequence[str], wanted: type | None) -> Iterator[str]:
    """Of values of that type that these steps may lead to."""
    if not steps:
        if type(value) is wanted:
            yield ""
    elif isinstance(value, list) and steps[0].isdecimal():
        yield from (f"[{steps[0]}]{rest}" for rest in _paths(value[int(steps[0])], steps[1:], wanted))
    elif isinstance(value, dict) and steps[0] == _ANY_KEY:
        for key, below in value.items():
            yield from (f"[{key}]{rest}" for rest in _paths(below, steps[1:], wanted))
    elif isinstance(value, dict):
        yield from (f".{steps[0]}{rest}" for rest in _paths(value.get(steps[0]), steps[1:], wanted))
