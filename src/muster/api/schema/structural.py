"""Structural schemas: what a CustomResourceDefinition says of a kind's fields, made from its view.

A Kubernetes API server checks and prunes custom resources by them. They are complete (nothing is referred to) and
stricter in form than OpenAPI: every value has a type, the keys of a keyed list are required or have a default, and a
value that we keep without reading it says so.
"""

from collections.abc import Mapping
from dataclasses import replace

from muster.api.meta import ObjectMeta, View
from muster.api.raw import JSON, Document
from muster.api.schema import shapes
from muster.api.schema.components import described
from muster.api.schema.shapes import Form, Shape

PRESERVE = "x-kubernetes-preserve-unknown-fields"

_KEPT: Document = {"type": "object", PRESERVE: True}
_INT_OR_STRING: Document = {"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": True}
_SCALARS: Mapping[type, str] = {str: "string", bool: "boolean", int: "integer", float: "number"}
_FORMATS = frozenset({"int32", "int64", "double"})

# The root's metadata is described by the server itself.
_GIVEN = frozenset({"apiVersion", "kind", "metadata"})

# Kubernetes goes on adding fields to these, and jobs only pass them on to pods: what we do not know is kept.
_OPEN = frozenset({"PodSpec", "Container", "Volume"})

# Servers take pods in which elements of these repeat (a variable set twice, say), but no keyed list whose keys do: a
# workload that is made from a job of such pods must not be refused for it.
_MAY_REPEAT = frozenset(
    {("Container", "env"), ("Container", "ports"), ("PodSpec", "imagePullSecrets"), ("PodSpec", "hostAliases")}
)

# Parts of a list's key that may be left out, and what they mean then.
_KEY_DEFAULTS: Mapping[str, JSON] = {"underlyingCause": ""}


def schema(view: type[View]) -> Document:
    """Of a whole object of the kind that `view` describes."""
    return _root(view, {name: _schema(shape) for name, shape in _own_fields(view).items()})


def opaque(view: type[View]) -> Document:
    """Of an object in a version whose fields no view describes: its sections are kept as they come."""
    return _root(view, {name: _KEPT if shape.fields else _schema(shape) for name, shape in _own_fields(view).items()})


def _own_fields(view: type[View]) -> Mapping[str, Shape]:
    return {name: shape for name, shape in shapes.fields_of(view).items() if name not in _GIVEN}


def _root(view: type[View], fields: Document) -> Document:
    given: Document = {"apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {"type": "object"}}
    return {**described(view), "type": "object", "properties": {**given, **fields}}


def _schema(shape: Shape) -> Document:
    match shape.form:
        case Form.STRUCT:
            assert shape.view is not None
            return _struct(shape, shape.view)
        case Form.MAP:
            return {"type": "object", "additionalProperties": _schema(shape.element)}
        case Form.LIST:
            return _list(shape)
        case Form.SCALAR:
            return _scalar(shape)
        case Form.ANYTHING:
            return _KEPT if shape.extensions else {PRESERVE: True}


def _struct(shape: Shape, view: type[View]) -> Document:
    if view is ObjectMeta:
        return _KEPT  # of a template: no server fills it in or prunes it
    found: Document = {**described(view), "type": "object"}
    properties = {
        name: _schema(replace(field, extensions={}) if (view.__name__, name) in _MAY_REPEAT else field)
        for name, field in shape.fields.items()
    }
    if properties:
        found["properties"] = properties
    if view.__name__ in _OPEN:
        found[PRESERVE] = True
    if shape.is_atomic:
        found["x-kubernetes-map-type"] = "atomic"
    return found


def _list(shape: Shape) -> Document:
    item = _schema(shape.element)
    if not shape.keys:
        return {"type": "array", "items": item, "x-kubernetes-list-type": "set" if shape.is_set else "atomic"}
    properties: Document = {**{key: {"type": "string"} for key in shape.keys}, **item.get("properties", {})}
    for key in shape.keys:
        if key in _KEY_DEFAULTS:
            properties[key] = {**properties[key], "default": _KEY_DEFAULTS[key]}
    required = [key for key in shape.keys if key not in _KEY_DEFAULTS]
    return {
        "type": "array",
        "items": {**item, "properties": properties, **({"required": required} if required else {})},
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": list(shape.keys),
    }


def _scalar(shape: Shape) -> Document:
    if len(shape.types) > 1:
        # Quantities too: a server refuses `cpu: 0.5` without quotes in a custom resource, as it does in those of
        # Kueue and Volcano.
        return _INT_OR_STRING
    found: Document = {"type": _SCALARS[shape.types[0]]}
    written = shape.extensions.get("format")
    if written in _FORMATS:
        found["format"] = written
    return found
