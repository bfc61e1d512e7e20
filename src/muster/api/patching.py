"""The three patches that Kubernetes takes: merge (RFC 7386), JSON patch (RFC 6902) and strategic merge.

Pure functions from document and patch to a new document that shares nothing with either, so the caller may
change it in place; with `shares`, what the patch leaves alone is the old document's own. Whether the result is a valid
object is the caller's question.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from muster.api import errors, raw
from muster.api.meta import View
from muster.api.raw import JSON, Document
from muster.api.schema import shapes
from muster.api.schema.shapes import Shape

MAX_OPERATIONS = 10_000
_SCALARS = (str, int, float)  # bool is an int
_TOO_DEEP = "the patch or the object is nested too deeply"


def merge(document: JSON, patch: JSON, *, shares: bool = False) -> JSON:
    """RFC 7386: objects merge, null deletes, anything else replaces."""
    try:
        return _merge(document if shares else raw.copy(document), patch)
    except RecursionError as error:
        raise errors.BadRequest(_TOO_DEEP) from error


def difference(before: Document, after: Document) -> Document:
    """The merge patch that makes `after` of `before`; empty where they are equal."""
    patch: Document = {name: None for name in before if name not in after}
    for name, value in after.items():
        old = before.get(name)
        if name in before and old == value:
            continue
        patch[name] = difference(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return patch


def _merge(document: JSON, patch: JSON) -> JSON:
    if not isinstance(patch, dict):
        return _copied(patch)
    merged = dict(document) if isinstance(document, dict) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = _merge(merged.get(name), value)
    return merged


def _copied(value: JSON) -> JSON:
    return value if isinstance(value, _SCALARS) else raw.copy(value)


# --- JSON patch -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Operation:
    index: int
    verb: str
    path: tuple[str, ...]
    source: tuple[str, ...] = ()  # move, copy
    value: JSON = None  # add, replace, test

    def refuse(self, why: str) -> errors.Invalid:
        return errors.Invalid(f"JSON patch operation {self.index} ({self.verb} {_spell(self.path)}): {why}")


def json_patch(document: JSON, operations: JSON) -> JSON:
    """RFC 6902. A failing test or a missing path is Invalid (422); a malformed operation is BadRequest (400)."""
    if not isinstance(operations, list):
        raise errors.BadRequest(f"a JSON patch is an array of operations, found {raw.type_name(operations)}")
    if len(operations) > MAX_OPERATIONS:
        raise errors.TooLarge(f"a JSON patch may have {MAX_OPERATIONS} operations, this one has {len(operations)}")
    parsed = [_parse_operation(index, operation) for index, operation in enumerate(operations)]
    try:
        result = raw.copy(document)
        copied = 0
        for operation in parsed:
            if operation.verb == "copy":
                # A copy of a copy doubles: thirty short operations would fill the memory.
                copied += len(raw.encode(_lookup(result, operation.source, operation)))
                if copied > raw.MAX_OBJECT_BYTES:
                    limit = raw.MAX_OBJECT_BYTES
                    raise errors.TooLarge(f"JSON patch operation {operation.index}: the copies exceed {limit} bytes")
            result = _VERBS[operation.verb](result, operation)
    except RecursionError as error:
        raise errors.BadRequest(_TOO_DEEP) from error
    return result


def _parse_operation(index: int, operation: JSON) -> _Operation:
    where = f"JSON patch operation {index}"
    if not isinstance(operation, dict):
        raise errors.BadRequest(f"{where}: expected an object, found {raw.type_name(operation)}")
    verb = operation.get("op")
    if not isinstance(verb, str) or verb not in _VERBS:
        raise errors.BadRequest(f"{where}: op must be one of {', '.join(_VERBS)}, found {verb!r}")
    path = _parse_pointer(operation.get("path"), f"{where}: path")
    if verb in ("move", "copy"):
        return _Operation(index, verb, path, source=_parse_pointer(operation.get("from"), f"{where}: from"))
    if verb != "remove" and "value" not in operation:
        raise errors.BadRequest(f"{where}: {verb} needs a value")
    return _Operation(index, verb, path, value=operation.get("value"))


def _parse_pointer(text: JSON, where: str) -> tuple[str, ...]:
    if not isinstance(text, str) or (text and not text.startswith("/")):
        raise errors.BadRequest(f"{where} must be a JSON pointer such as /spec/replicas, found {text!r}")
    return tuple(step.replace("~1", "/").replace("~0", "~") for step in text.split("/")[1:])


def _spell(path: tuple[str, ...]) -> str:
    return "".join(f"/{step.replace('~', '~0').replace('/', '~1')}" for step in path) or '""'


def _lookup(value: JSON, path: tuple[str, ...], operation: _Operation) -> JSON:
    for depth, step in enumerate(path):
        if isinstance(value, dict) and step in value:
            value = value[step]
        elif isinstance(value, list):
            value = value[_position(step, len(value), path[: depth + 1], operation)]
        else:
            raise operation.refuse(f"there is nothing at {_spell(path[: depth + 1])}")
    return value


def _position(step: str, length: int, path: tuple[str, ...], operation: _Operation) -> int:
    # RFC 6901: digits without a leading zero; "-" and negative numbers name no existing element.
    if step.isascii() and step.isdigit() and (step == "0" or step[0] != "0") and len(step) < 10 and int(step) < length:
        return int(step)
    raise operation.refuse(f"there is nothing at {_spell(path)}: the array has {length} elements")


def _add(document: JSON, operation: _Operation) -> JSON:
    return _put(document, operation, raw.copy(operation.value))


def _put(document: JSON, operation: _Operation, value: JSON) -> JSON:
    if not operation.path:
        return value
    parent = _lookup(document, operation.path[:-1], operation)
    last = operation.path[-1]
    if isinstance(parent, dict):
        parent[last] = value
    elif isinstance(parent, list):
        at = len(parent) if last == "-" else _position(last, len(parent) + 1, operation.path, operation)
        parent.insert(at, value)
    else:
        raise operation.refuse(f"{_spell(operation.path[:-1])} is neither object nor array")
    return document


def _take(document: JSON, path: tuple[str, ...], operation: _Operation) -> tuple[JSON, JSON]:
    """What was at `path`, and the document without it."""
    taken = _lookup(document, path, operation)
    if not path:
        return taken, None
    parent = _lookup(document, path[:-1], operation)
    del parent[path[-1] if isinstance(parent, dict) else int(path[-1])]
    return taken, document


def _remove(document: JSON, operation: _Operation) -> JSON:
    return _take(document, operation.path, operation)[1]


def _replace(document: JSON, operation: _Operation) -> JSON:
    _lookup(document, operation.path, operation)
    value = raw.copy(operation.value)
    if not operation.path:
        return value
    parent = _lookup(document, operation.path[:-1], operation)
    parent[operation.path[-1] if isinstance(parent, dict) else int(operation.path[-1])] = value
    return document


def _move(document: JSON, operation: _Operation) -> JSON:
    if operation.path[: len(operation.source)] == operation.source and operation.path != operation.source:
        raise operation.refuse(f"a value cannot move from {_spell(operation.source)} into itself")
    taken, rest = _take(document, operation.source, operation)
    return _put(rest, operation, taken)


def _copy(document: JSON, operation: _Operation) -> JSON:
    return _put(document, operation, raw.copy(_lookup(document, operation.source, operation)))


def _test(document: JSON, operation: _Operation) -> JSON:
    found = _lookup(document, operation.path, operation)
    if not _same(found, operation.value):
        raise operation.refuse(f"the test failed: found {raw.encode(found).decode()[:200]}")
    return document


def _same(one: JSON, other: JSON) -> bool:
    """JSON equality. Python's own would call true and 1 equal."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(value, other[name]) for name, value in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    return bool(one == other)


_VERBS: dict[str, Callable[[JSON, _Operation], JSON]] = {
    "add": _add,
    "remove": _remove,
    "replace": _replace,
    "move": _move,
    "copy": _copy,
    "test": _test,
}


# --- strategic merge --------------------------------------------------------------------------------------------

_PATCH = "$patch"
_RETAIN = "$retainKeys"
_ORDER = "$setElementOrder/"
_DELETE_FROM = "$deleteFromPrimitiveList/"

_Identity: TypeAlias = str | int | float | bool
"""What elements of a list are told apart by: the value of the merge key, or a scalar itself."""


def strategic(document: JSON, patch: JSON, view: type[View], *, shares: bool = False) -> JSON:
    """Kubernetes' strategic merge: lists that the view marks with `merge_by` or `MERGED_SET` merge, others are
    replaced. A directive that makes no sense is BadRequest."""
    if not isinstance(patch, dict):
        raise errors.BadRequest(f"a strategic merge patch is an object, found {raw.type_name(patch)}")
    try:
        found: Document = document if isinstance(document, dict) else {}
        return _merge_object(found if shares else raw.copy(found), patch, shapes.of_view(view), "")
    except RecursionError as error:
        raise errors.BadRequest(_TOO_DEEP) from error


def _merge_object(document: Document, patch: Document, shape: Shape, path: str) -> Document:
    directive = patch.get(_PATCH, "merge")
    if directive == "delete":
        return {}
    if directive not in ("merge", "replace"):
        raise _refuse(path, f"{_PATCH} must be replace, merge or delete, found {directive!r}")
    merged = {} if directive == "replace" else _retained(document, patch, path)
    orders: list[str] = []
    for name, value in patch.items():
        if name in (_PATCH, _RETAIN):
            continue
        if name.startswith(_DELETE_FROM):
            _delete_from(merged, name.removeprefix(_DELETE_FROM), value, _below(path, name))
        elif name.startswith(_ORDER):
            orders.append(name)  # after the lists have merged
        elif value is None:
            merged.pop(name, None)
        elif isinstance(value, _SCALARS):
            merged[name] = value
        else:
            merged[name] = _merge_value(merged.get(name), value, shape.of(name), _below(path, name))
    for name in orders:
        field, order = name.removeprefix(_ORDER), patch[name]
        found = merged.get(field)
        if isinstance(order, list) and isinstance(found, list):
            merged[field] = _ordered(found, document.get(field), order, shape.of(field).merge_key)
    return merged


def _below(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _retained(document: Document, patch: Document, path: str) -> Document:
    if _RETAIN not in patch:
        return dict(document)
    retained = patch[_RETAIN]
    if not isinstance(retained, list):
        raise _refuse(path, f"{_RETAIN} must be an array of field names, found {raw.type_name(retained)}")
    for name, value in patch.items():
        if value is not None and not name.startswith("$") and name not in retained:
            raise _refuse(path, f"{name!r} is set by the patch but missing in {_RETAIN}")
    return {name: value for name, value in document.items() if name in retained}


def _merge_value(document: JSON, patch: JSON, shape: Shape, path: str) -> JSON:
    if isinstance(patch, dict):
        return _merge_object(document if isinstance(document, dict) else {}, patch, shape, path)
    if isinstance(patch, list) and shape.is_patched_by_merging:
        found = document if isinstance(document, list) else []
        merged = _merge_elements(found, patch, shape, path) if shape.merge_key else _merge_scalars(found, patch)
        return _ordered(merged, found, patch, shape.merge_key)
    return _copied(patch)


def _merge_scalars(document: list[JSON], patch: list[JSON]) -> list[JSON]:
    merged = list(document)
    for item in patch:
        if item not in merged:
            merged.append(raw.copy(item))
    return merged


def _merge_elements(document: list[JSON], patch: list[JSON], shape: Shape, path: str) -> list[JSON]:
    merged, key = list(document), shape.merge_key
    if any(isinstance(item, dict) and item.get(_PATCH) == "replace" for item in patch):
        merged = []  # the element that says so stands for the whole list
    added: list[JSON] = []  # apart: two new elements may share the merge key and differ in another (a port's protocol)
    for index, item in enumerate(patch):
        below = f"{path}[{index}]"
        if not isinstance(item, dict):
            raise _refuse(below, f"expected an object, found {raw.type_name(item)}")
        if item.get(_PATCH) == "replace":
            continue
        identity = _identity(item, key)
        if identity is None:
            raise _refuse(below, f"does not contain its merge key {key!r}")
        at = [position for position, found in enumerate(merged) if _identity(found, key) == identity]
        if item.get(_PATCH) == "delete":
            merged = [found for position, found in enumerate(merged) if position not in at]
        elif at:
            merged[at[0]] = _merge_object(merged[at[0]], item, shape.element, below)
        else:
            added.append(_merge_object({}, item, shape.element, below))
    return merged + added


def _identity(item: JSON, key: str) -> _Identity | None:
    found = item.get(key) if key and isinstance(item, dict) else item
    return found if isinstance(found, _SCALARS) else None


def _delete_from(merged: Document, name: str, values: JSON, path: str) -> None:
    if not isinstance(values, list):
        raise _refuse(path, f"expected an array of values to delete, found {raw.type_name(values)}")
    found = merged.get(name)
    if isinstance(found, list):
        merged[name] = [item for item in found if item not in values]


def _ordered(found: list[JSON], before: JSON, order: list[JSON], key: str) -> list[JSON]:
    """Listed elements take the listed order; the others keep their place among those they stood with before."""
    rank = {_identity(item, key): position for position, item in enumerate(order)}
    listed = sorted((item for item in found if _identity(item, key) in rank), key=lambda i: rank[_identity(i, key)])
    others = [item for item in found if _identity(item, key) not in rank]
    was = {_identity(item, key): position for position, item in enumerate(before if isinstance(before, list) else [])}
    ordered: list[JSON] = []
    for item in listed:
        at = was.get(_identity(item, key))
        while others and at is not None and was.get(_identity(others[0], key), at) < at:
            ordered.append(others.pop(0))
        ordered.append(item)
    return ordered + others


def _refuse(path: str, why: str) -> errors.BadRequest:
    return errors.BadRequest(f"strategic merge patch: {path or 'the top level'}: {why}")
