"""The language in which Determined's web page and scripts ask for experiments and runs. Pure.

A filter is JSON: groups, joined by `and` or `or`, of fields and further groups. A field names a column, which may be a
hyperparameter or a metric, an operator and a value:

    {"filterGroup": {"kind": "group", "conjunction": "and", "children": [
        {"kind": "field", "columnName": "hp.lr", "operator": ">=", "value": 0.1}]}, "showArchived": false}

A field that has no value yet, as one is while somebody is still typing, lets everything pass.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeAlias

import msgspec

from muster.api import errors
from muster.api.raw import JSON

_LONGEST: Final = 64 * 1024
_MOST_FIELDS: Final = 200
_DEEPEST: Final = 20
_MOST_KEYS: Final = 10


class Operator(StrEnum):
    EQUAL = "="
    NOT_EQUAL = "!="
    GREATER = ">"
    GREATER_OR_EQUAL = ">="
    LESS = "<"
    LESS_OR_EQUAL = "<="
    CONTAINS = "contains"
    NOT_CONTAINS = "notContains"
    IS_EMPTY = "isEmpty"
    NOT_EMPTY = "notEmpty"


class ColumnType(StrEnum):
    UNSPECIFIED = "COLUMN_TYPE_UNSPECIFIED"
    TEXT = "COLUMN_TYPE_TEXT"
    NUMBER = "COLUMN_TYPE_NUMBER"
    DATE = "COLUMN_TYPE_DATE"
    ARRAY = "COLUMN_TYPE_ARRAY"


class Conjunction(StrEnum):
    AND = "and"
    OR = "or"


class Field(msgspec.Struct, frozen=True, tag_field="kind", tag="field", rename="camel"):
    """`type`: what the value is meant to be, where the column does not say."""

    column_name: str
    operator: Operator
    value: JSON = None
    type: ColumnType = ColumnType.UNSPECIFIED

    @property
    def is_open(self) -> bool:
        """It says nothing yet."""
        needs_none = self.operator in (Operator.IS_EMPTY, Operator.NOT_EMPTY)
        return not needs_none and (self.value is None or self.value == "")


class Group(msgspec.Struct, frozen=True, tag_field="kind", tag="group", rename="camel"):
    conjunction: Conjunction = Conjunction.AND
    children: "tuple[Group | Field, ...]" = ()


Node: TypeAlias = Group | Field


class Filter(msgspec.Struct, frozen=True, rename="camel"):
    filter_group: Group = Group()
    show_archived: bool = False


EVERYTHING: Final = Filter(show_archived=True)
"""For who sends no filter at all."""


@dataclass(frozen=True, slots=True)
class Order:
    column: str
    is_descending: bool = False


def parse(text: str, field: str = "filter") -> Filter:
    """`field`: where it was given. Raises BadRequest."""
    if not text:
        return EVERYTHING
    if len(text) > _LONGEST:
        raise errors.BadRequest(f"{field}: may have {_LONGEST} characters, this has {len(text)}")
    try:
        found = msgspec.json.decode(text, type=Filter)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise errors.BadRequest(f"{field}: {error}") from error
    if sum(1 for _ in _fields(found.filter_group, 1, field)) > _MOST_FIELDS:
        raise errors.BadRequest(f"{field}: at most {_MOST_FIELDS} fields are taken")
    return found


def _fields(node: Node, depth: int, field: str) -> Iterator[Field]:
    if depth > _DEEPEST:
        raise errors.BadRequest(f"{field}: groups may be nested {_DEEPEST} levels deep")
    if isinstance(node, Field):
        yield node
        return
    for child in node.children:
        yield from _fields(child, depth + 1, field)


def parse_order(text: str, field: str = "sort") -> Sequence[Order]:
    """From `name=asc,id=desc`. Raises BadRequest."""
    keys = [key for key in text.split(",") if key]
    if len(keys) > _MOST_KEYS:
        raise errors.BadRequest(f"{field}: at most {_MOST_KEYS} columns are taken")
    return [_key(key, field) for key in keys]


def _key(text: str, field: str) -> Order:
    column, _, direction = text.rpartition("=")
    if not column or direction not in ("asc", "desc"):
        raise errors.BadRequest(f"{field}: expected a column with =asc or =desc, found {text[:80]!r}")
    return Order(column, direction == "desc")
