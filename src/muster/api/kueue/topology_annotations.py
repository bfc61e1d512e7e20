"""How pods ask for places in a topology: by annotations, which become the `topologyRequest` of their pod set."""

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Final

from muster.api import errors, fields, raw
from muster.api.errors import FieldError
from muster.api.kueue import names
from muster.api.raw import JSON, Document

MOST_LAYERS: Final = 3
_CHOICES: Final = (names.REQUIRED_TOPOLOGY, names.PREFERRED_TOPOLOGY, names.UNCONSTRAINED_TOPOLOGY)


def read_request(annotations: Mapping[str, str]) -> Document | None:
    """None where nothing is asked for. What is wrong is left out: `validate_request` names it."""
    request: Document = {}
    if annotations.get(names.REQUIRED_TOPOLOGY):
        request["required"] = annotations[names.REQUIRED_TOPOLOGY]
    elif annotations.get(names.PREFERRED_TOPOLOGY):
        request["preferred"] = annotations[names.PREFERRED_TOPOLOGY]
    elif annotations.get(names.UNCONSTRAINED_TOPOLOGY) == "true":
        request["unconstrained"] = True
    size = _number(annotations.get(names.SLICE_SIZE))
    if annotations.get(names.SLICE_TOPOLOGY) and size is not None:
        request["podSetSliceRequiredTopology"] = annotations[names.SLICE_TOPOLOGY]
        request["podSetSliceSize"] = size
    layers = _layers(annotations.get(names.SLICE_CONSTRAINTS))
    if layers:
        request["podsetSliceRequiredTopologyConstraints"] = layers
    if annotations.get(names.GROUP_TOPOLOGY):
        request["podSetGroupName"] = annotations[names.GROUP_TOPOLOGY]
    return request or None


def validate_request(path: str, annotations: Mapping[str, str] | None, count: int | None) -> Iterator[FieldError]:
    """`path`: of the annotations. `count`: of the pods; None where it is not known."""
    given = {name: value for name, value in (annotations or {}).items() if name in _ALL}
    if not given:
        return
    for name in (names.REQUIRED_TOPOLOGY, names.PREFERRED_TOPOLOGY, names.SLICE_TOPOLOGY):
        if name in given:
            yield from fields.qualified_name(f"{path}[{name}]", given[name])
    if sum(name in given for name in _CHOICES) > 1:
        yield fields.invalid(path, ", ".join(sorted(set(_CHOICES) & given.keys())), "only one of them can be set")
    yield from _slices(path, given, count)
    group = given.get(names.GROUP_TOPOLOGY)
    if group is not None:
        at = f"{path}[{names.GROUP_TOPOLOGY}]"
        if group.isdigit():
            yield fields.invalid(at, group, "must not be a number")
        if not {names.REQUIRED_TOPOLOGY, names.PREFERRED_TOPOLOGY} & given.keys():
            yield fields.forbidden(at, "needs a required or a preferred topology")
        if {names.SLICE_TOPOLOGY, names.SLICE_CONSTRAINTS} & given.keys():
            yield fields.forbidden(at, "cannot be combined with slices")


def _slices(path: str, given: Mapping[str, str], count: int | None) -> Iterator[FieldError]:
    size_at = f"{path}[{names.SLICE_SIZE}]"
    if names.SLICE_CONSTRAINTS in given:
        at = f"{path}[{names.SLICE_CONSTRAINTS}]"
        if {names.SLICE_TOPOLOGY, names.SLICE_SIZE} & given.keys():
            yield fields.forbidden(at, "cannot be combined with one slice topology and size")
        yield from _layer_errors(at, given[names.SLICE_CONSTRAINTS])
        return
    if (names.SLICE_TOPOLOGY in given) != (names.SLICE_SIZE in given):
        yield fields.required(size_at, "Required value: a slice topology and a slice size are given together")
    elif names.SLICE_SIZE in given:
        size = _number(given[names.SLICE_SIZE])
        if size is None:
            yield fields.invalid(size_at, given[names.SLICE_SIZE], "must be a positive number")
        elif count is not None and size > count > 0:
            yield fields.invalid(size_at, size, f"must not be greater than the number of pods, {count}")


def _layer_errors(path: str, written: str) -> Iterator[FieldError]:
    layers = _layers(written)
    if not layers or len(layers) > MOST_LAYERS:
        shape = '[{"topology": "<level>", "size": <pods>}, ...]'
        yield fields.invalid(path, written, f"must be a JSON list of 1 to {MOST_LAYERS} layers: {shape}")
        return
    if len({layer["topology"] for layer in layers}) < len(layers):
        yield fields.invalid(path, written, "each level may appear once")
    for outer, inner in pairwise(layers):
        if outer["size"] % inner["size"]:
            yield fields.invalid(path, inner["size"], f"must divide the size of the layer above, {outer['size']}")


def _layers(written: str | None) -> list[Document]:
    """Empty where it is not a list of layers."""
    if not written:
        return []
    try:
        found: JSON = raw.decode(written)
    except errors.BadRequest:
        return []
    if not isinstance(found, list):
        return []
    layers: list[Document] = []
    for item in found:
        topology, size = raw.dig(item, "topology"), raw.dig(item, "size")
        if not isinstance(topology, str) or not topology or not isinstance(size, int) or size < 1:
            return []
        layers.append({"topology": topology, "size": size})
    return layers


def _number(written: str | None) -> int | None:
    is_number = written is not None and written.isascii() and written.isdigit() and len(written) < 10
    return int(written) or None if written is not None and is_number else None


_ALL: Final = names.TOPOLOGY_ANNOTATIONS | {names.SLICE_SIZE, names.GROUP_TOPOLOGY}
