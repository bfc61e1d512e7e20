"""`Shape`: how a value of a view's field is built, as patches, server-side apply and OpenAPI need to know it.

Resolved from type hints and their `msgspec.Meta` once for each class, then cached for good: the set of
views is fixed. A value that no view describes has the shape `ANYTHING`.
"""

import functools
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

import msgspec

from muster.api.meta import View
from muster.api.raw import JSON


class Form(StrEnum):
    STRUCT = "struct"  # an object with the fields of a view
    MAP = "map"  # an object with any keys and values of one shape
    LIST = "list"
    SCALAR = "scalar"
    ANYTHING = "anything"  # not described by us: objects merge key by key, lists are replaced


@dataclass(frozen=True, slots=True, eq=False)
class Shape:
    form: Form
    view: type[View] | None = None  # STRUCT
    item: "Shape | None" = None  # MAP and LIST
    types: tuple[type, ...] = ()  # SCALAR: str, bool, int, float; `int | str` has two
    extensions: Mapping[str, JSON] = field(default_factory=dict)

    @property
    def fields(self) -> "Mapping[str, Shape]":
        """By wire name. Empty for all but a STRUCT."""
        return {} if self.view is None else fields_of(self.view)

    def of(self, name: str) -> "Shape":
        """The shape of the value under `name` of an object."""
        if self.view is not None:
            return fields_of(self.view).get(name, ANYTHING)
        return self.item or ANYTHING if self.form is Form.MAP else ANYTHING

    @property
    def element(self) -> "Shape":
        """The shape of a list's elements."""
        return self.item or ANYTHING

    @property
    def keys(self) -> tuple[str, ...]:
        """What identifies an element of a list that merges element by element; () for any other."""
        return tuple(self.extensions.get("x-kubernetes-list-map-keys", ()))

    @property
    def merge_key(self) -> str:
        """The one key that strategic merge goes by; "" where the list is replaced or holds scalars."""
        return str(self.extensions.get("x-kubernetes-patch-merge-key", ""))

    @property
    def is_patched_by_merging(self) -> bool:
        return "merge" in self.extensions.get("x-kubernetes-patch-strategy", "")

    @property
    def is_set(self) -> bool:
        return self.extensions.get("x-kubernetes-list-type") == "set"

    @property
    def is_atomic(self) -> bool:
        """Owned and replaced as a whole by server-side apply."""
        if self.form is Form.LIST:
            return not self.keys and not self.is_set
        if self.view is not None and self.view.__name__ in _ATOMIC_STRUCTS:
            return True
        return self.extensions.get("x-kubernetes-map-type") == "atomic"


# Kubernetes marks these types as one unit wherever they stand: half of somebody else's reference
# or selector never means anything.
_ATOMIC_STRUCTS = frozenset({
    "ConfigMapKeySelector", "LabelSelector", "LocalObjectReference", "NodeSelector", "NodeSelectorTerm",
    "ObjectFieldSelector", "ObjectReference", "OwnerReference", "ResourceFieldSelector", "SecretKeySelector",
    "SecretReference", "TypedLocalObjectReference",
})  # fmt: skip
_ATOMIC_MAPS = frozenset({("PodSpec", "nodeSelector"), ("ServiceSpec", "selector")})

ANYTHING = Shape(Form.ANYTHING)


@functools.cache
def of_view(view: type[View]) -> Shape:
    return Shape(Form.STRUCT, view=view)


@functools.cache
def fields_of(view: type[View]) -> Mapping[str, Shape]:
    found = {field.encode_name: _of_type(field.type) for field in msgspec.structs.fields(view)}
    for owner, name in _ATOMIC_MAPS:
        if view.__name__ == owner and name in found:
            extensions = {**found[name].extensions, "x-kubernetes-map-type": "atomic"}
            found[name] = replace(found[name], extensions=extensions)
    return found


def _of_type(hint: JSON) -> Shape:
    origin: JSON = typing.get_origin(hint)
    if origin is typing.Annotated:
        inner, *notes = typing.get_args(hint)
        return _annotated(_of_type(inner), notes)
    if origin in (typing.Union, types.UnionType):
        return _of_union([option for option in typing.get_args(hint) if option is not types.NoneType])
    if origin is typing.Literal:
        return Shape(Form.SCALAR, types=(type(typing.get_args(hint)[0]),))
    if origin is not None:
        return _of_container(origin, typing.get_args(hint))
    if isinstance(hint, type):
        return _of_class(hint)
    return ANYTHING


def _annotated(shape: Shape, notes: list[JSON]) -> Shape:
    extensions = dict(shape.extensions)
    for note in notes:
        if isinstance(note, msgspec.Meta):
            extensions |= note.extra_json_schema or {}
    if extensions.get("x-kubernetes-preserve-unknown-fields"):
        return replace(ANYTHING, extensions=extensions)
    return replace(shape, extensions=extensions)


def _of_union(options: list[JSON]) -> Shape:
    shapes = [_of_type(option) for option in options]
    if len(shapes) == 1:
        return shapes[0]
    if all(shape.form is Form.SCALAR for shape in shapes):
        return Shape(Form.SCALAR, types=tuple(scalar for shape in shapes for scalar in shape.types))
    return ANYTHING


def _of_container(origin: JSON, arguments: tuple[JSON, ...]) -> Shape:
    if issubclass(origin, tuple | list | frozenset):
        return Shape(Form.LIST, item=_of_type(arguments[0]))
    if issubclass(origin, Mapping):
        return Shape(Form.MAP, item=_of_type(arguments[1]))
    return ANYTHING


def _of_class(hint: type) -> Shape:
    if issubclass(hint, View):
        return of_view(hint)
    for scalar in (bool, str, int, float):
        if issubclass(hint, scalar):
            return Shape(Form.SCALAR, types=(scalar,))
    return ANYTHING
