"""Reading a document as a view where bad input must be answered with every field that is wrong: configuration."""

import dataclasses
from typing import TypeVar

import msgspec

from muster.api import misfits
from muster.api.errors import FieldError
from muster.api.meta import View
from muster.api.raw import Document, type_name
from muster.api.schema import unknown_fields

V = TypeVar("V", bound=View)


def read(view: type[V], document: object, path: str = "") -> V | list[FieldError]:
    """The document as a view, or what is wrong with it: each field that the view does not know, else the first that
    has a wrong type. `path`: where the document stands in the whole. A field that is null counts as absent."""
    if not isinstance(document, dict):
        return [FieldError(path, "FieldValueTypeInvalid", f"expected an object, found {type_name(document)}")]
    present = _without_nulls(document)
    unknown = unknown_fields(view, present)
    if unknown:
        return [FieldError(_join(path, name), "FieldValueForbidden", "unknown field") for name in unknown]
    try:
        return msgspec.convert(present, view)
    except msgspec.ValidationError as error:
        found = misfits.field_error(error, present)
        return [dataclasses.replace(found, path=_join(path, found.path))]


def _without_nulls(document: Document) -> Document:
    return {key: _cleaned(value) for key, value in document.items() if value is not None}


def _cleaned(value: object) -> object:
    if isinstance(value, dict):
        return _without_nulls(value)
    if isinstance(value, list):
        return [_cleaned(item) for item in value]
    return value


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path and name else path or name
