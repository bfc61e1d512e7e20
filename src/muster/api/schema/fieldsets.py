"""Sets of field paths, in the spelling of managedFields: which fields a value has, what two values differ in.

A path is a tuple of steps: `f:name` (a field), `k:{"name":"x"}` (the element of a keyed list), `v:"x"` (the
element of a set). How far a value is taken apart follows its shape: atomic lists and objects are one field.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

import msgspec

from muster.api import errors, raw
from muster.api.raw import JSON, Document
from muster.api.schema.shapes import Form, Shape

Path: TypeAlias = tuple[str, ...]
Fields: TypeAlias = frozenset[Path]

# Keys that a client may leave out of an element, because the server fills them in later.
_KEY_DEFAULTS = {"protocol": "TCP"}


class _Missing:
    """Stands where a value does not exist, for null is one that may."""


_MISSING = _Missing()


@dataclass(frozen=True, slots=True)
class Differences:
    """What turns one value into another. `added` and `removed` name the containers as well as their leaves."""

    added: set[Path] = field(default_factory=set)
    modified: set[Path] = field(default_factory=set)
    removed: set[Path] = field(default_factory=set)


def of_value(value: JSON, shape: Shape) -> Fields:
    """The fields that a value sets: its leaves, and the elements of lists and maps that hold them."""
    found: set[Path] = set()
    _collect(value, shape, (), found)
    return frozenset(found)


def _collect(value: JSON, shape: Shape, path: Path, found: set[Path]) -> None:
    if not _is_granular(value, shape) or not value:
        found.add(path)
        return
    for step, item, below in _children(value, shape):
        _collect(item, below, (*path, step), found)
        if not _is_declared(shape, step):
            found.add((*path, step))


def _is_granular(value: JSON, shape: Shape) -> bool:
    if isinstance(value, dict):
        return not shape.is_atomic
    return isinstance(value, list) and shape.form is Form.LIST and not shape.is_atomic


def _is_declared(shape: Shape, step: str) -> bool:
    """Whether the step is a field that the view has, not a key that somebody chose."""
    return step.startswith("f:") and step[2:] in shape.fields


def _children(value: JSON, shape: Shape) -> Iterator[tuple[str, JSON, Shape]]:
    if isinstance(value, dict):
        for name, item in value.items():
            yield f"f:{name}", item, shape.of(name)
    else:
        for index, item in enumerate(value):
            yield step_of(item, shape) or f"i:{index}", item, shape.element


def step_of(item: JSON, shape: Shape) -> str | None:
    """How an element of a granular list is identified; None where it lacks what should identify it."""
    if shape.is_set:
        return f"v:{_canonical(item)}"
    if not isinstance(item, dict):
        return None
    keys = {key: item.get(key, _KEY_DEFAULTS.get(key)) for key in shape.keys}
    return None if None in keys.values() else f"k:{_canonical(keys)}"


def _canonical(value: JSON) -> str:
    return msgspec.json.encode(value, order="sorted").decode()


def check_elements(value: JSON, shape: Shape, path: str = "") -> None:
    """Raises BadRequest where two elements of a granular list are the same one, or one cannot be identified."""
    if not _is_granular(value, shape):
        return
    if isinstance(value, dict):
        for name, item in value.items():
            check_elements(item, shape.of(name), f"{path}.{name}")
        return
    seen: set[str] = set()
    for index, item in enumerate(value):
        step = step_of(item, shape)
        if step is None:
            raise errors.BadRequest(f"{path}[{index}]: an element of this list needs {' and '.join(shape.keys)}")
        if step in seen:
            raise errors.BadRequest(f"{path}: duplicate entries for key {spell((step,))}")
        seen.add(step)
        check_elements(item, shape.element, f"{path}[{index}]")


def compare(old: JSON, new: JSON, shape: Shape) -> Differences:
    found = Differences()
    _compare(old, new, shape, (), found)
    return found


def _compare(old: JSON, new: JSON, shape: Shape, path: Path, found: Differences) -> None:
    if old is new or (old == new and type(old) is type(new)):
        return
    sides = [side for side in (old, new) if side is not _MISSING]
    is_granular = all(_is_granular(side, shape) for side in sides) and len({type(side) for side in sides}) == 1
    if is_granular:
        before = {} if old is _MISSING else {step: (item, below) for step, item, below in _children(old, shape)}
        after = {} if new is _MISSING else {step: (item, below) for step, item, below in _children(new, shape)}
        for step in before.keys() | after.keys():
            was, below = before.get(step) or (_MISSING, after[step][1])
            _compare(was, after[step][0] if step in after else _MISSING, below, (*path, step), found)
    if old is _MISSING:
        found.added.add(path)
    elif new is _MISSING:
        found.removed.add(path)
    elif not is_granular:
        found.modified.add(path)
        _compare(old if _is_granular(old, shape) else _MISSING, _MISSING, shape, path, found)
        _compare(_MISSING, new if _is_granular(new, shape) else _MISSING, shape, path, found)


def without(value: JSON, shape: Shape, gone: Fields, path: Path = ()) -> JSON:
    """The value without the fields in `gone` and whatever is below them."""
    if not gone or not _is_granular(value, shape):
        return value
    kept = [
        (step, without(item, below, gone, (*path, step)))
        for step, item, below in _children(value, shape)
        if (*path, step) not in gone
    ]
    return {step[2:]: item for step, item in kept} if isinstance(value, dict) else [item for _, item in kept]


def merge(live: JSON, applied: JSON, shape: Shape) -> JSON:
    """`live` with everything that `applied` sets. Shares nothing with `applied`."""
    if not (_is_granular(live, shape) and _is_granular(applied, shape) and type(live) is type(applied)):
        return raw.copy(applied)
    if isinstance(applied, dict):
        merged = dict(live)
        for name, value in applied.items():
            merged[name] = merge(live[name], value, shape.of(name)) if name in live else raw.copy(value)
        return merged
    return _merge_list(live, applied, shape)


def _merge_list(live: list[JSON], applied: list[JSON], shape: Shape) -> list[JSON]:
    """Applied elements in their order; each other element stays behind the one it stood behind."""
    before = [(step, item) for step, item, _ in _children(live, shape)]
    known = dict(before)
    wanted = [(step, item) for step, item, _ in _children(applied, shape)]
    named = {step for step, _ in wanted}
    shared = [step for step, _ in wanted if step in known]
    merged: list[JSON] = []
    at = 0
    for step, item in wanted:
        while at < len(before) and not (shared and before[at][0] == shared[0]):
            if before[at][0] not in named:
                merged.append(before[at][1])
            at += 1
        if step not in known:
            merged.append(raw.copy(item))
            continue
        merged.append(merge(known[step], item, shape.element))
        at += at < len(before)
        shared.pop(0)
    return merged + [item for step, item in before[at:] if step not in named]


def with_parents(fields: Iterable[Path], shape: Shape) -> Fields:
    """The fields and the declared fields that contain them: who owns `spec.replicas` also keeps `spec` alive."""
    found = set(fields)
    for path in list(found):
        here = shape
        for depth, step in enumerate(path[:-1], start=1):
            if _is_declared(here, step):
                found.add(path[:depth])
            here = here.of(step[2:]) if step.startswith("f:") else here.element
    return frozenset(found)


def parse(tree: JSON) -> Fields:
    """The set that a FieldsV1 object stands for. Raises ValueError where it is none."""
    found: set[Path] = set()
    _parse(tree, (), found)
    return frozenset(found)


def _parse(tree: JSON, path: Path, found: set[Path]) -> None:
    if not isinstance(tree, dict):
        raise ValueError(f"FieldsV1: expected an object at {spell(path)}, found {raw.type_name(tree)}")
    for step, below in tree.items():
        if step == ".":
            found.add(path)
            continue
        here = (*path, _parse_step(step))
        if below:
            _parse(below, here, found)
        else:
            found.add(here)


def _parse_step(step: str) -> str:
    mark = step[:2]
    if mark in ("f:", "i:"):
        return step
    if mark in ("k:", "v:"):
        return mark + _canonical(msgspec.json.decode(step[2:]))  # its DecodeError is a ValueError
    raise ValueError(f"FieldsV1: {step!r} is not a path element")


def to_tree(fields: Fields) -> Document:
    """The FieldsV1 object of a set."""
    tree: Document = {}
    for path in sorted(fields):
        here = tree
        for step in path:
            here = here.setdefault(step, {})
        here["."] = {}
    return _without_lone_marks(tree)


def _without_lone_marks(tree: Document) -> Document:
    return {
        step: {} if below.keys() == {"."} else _without_lone_marks(below) if below else {}
        for step, below in tree.items()
    }


def spell(path: Path) -> str:
    """As people read it: `.spec.containers[name="x"].image`."""
    return "".join(map(_spell_step, path))


def _spell_step(step: str) -> str:
    mark, rest = step[:2], step[2:]
    if mark == "f:":
        return f".{rest}"
    if mark == "k:":
        keys = msgspec.json.decode(rest)
        return f"[{','.join(f'{key}={_canonical(value)}' for key, value in keys.items())}]"
    return f"[={rest}]" if mark == "v:" else f"[{rest}]"
