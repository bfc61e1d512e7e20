"""From the section `hyperparameters` of an experiment to the space that it describes, or to all that is wrong with it.

A value that is no object, or a list, is a constant; an object without `type` is a level of names.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from muster.api import fields
from muster.api.errors import FieldError
from muster.api.raw import JSON
from muster.api.sections import Section
from muster.search.hyperparameters import Axis, Choice, Constant, Integer, Logarithmic, Path, Real, Space, flat_name

MAX_POINTS: Final = 1_000_000
"""Of a grid."""
_ROOT: Final = "hyperparameters"
_TYPES: Final = ("const", "int", "double", "log", "categorical")
_BOUNDS: Final = ("minval", "maxval")
_EXACT: Final = 2**53  # beyond it, not every whole number is a double
_DEEPEST: Final = 32


def parse(document: JSON, *, is_grid: bool = False) -> Space | list[FieldError]:
    """`is_grid`: every hyperparameter must say how many points it has."""
    errors: list[FieldError] = []
    root = Section(document, _ROOT, errors)
    axes: dict[Path, Axis] = {}
    names: set[str] = set()
    for path, axis in _axes(root, document if isinstance(document, Mapping) else {}, ()):
        name = flat_name(path)
        if name in names:
            errors.append(fields.duplicate(root.at(name), name))
        names.add(name)
        axes[path] = axis
    space = Space(axes)
    if is_grid and not errors:
        errors += _grid_errors(space)
    return errors or space


def _grid_errors(space: Space) -> list[FieldError]:
    uncounted = [
        fields.required(f"{_ROOT}.{flat_name(path)}.count", "Required value: a grid needs the number of its points")
        for path, axis in space.axes.items()
        if not axis.count
    ]
    if not uncounted and space.points > MAX_POINTS:
        return [fields.too_many(_ROOT, space.points, MAX_POINTS)]
    return uncounted


def _axes(section: Section, document: Mapping[str, JSON], path: Path) -> Iterator[tuple[Path, Axis]]:
    for key, value in document.items():
        here = (*path, str(key))
        if not isinstance(value, Mapping):
            yield here, Constant(value)
            continue
        below = Section(value, section.at(str(key)), section.errors)
        if "type" in value:
            yield here, _typed(below, value)
        elif not value:
            yield here, Constant({})
        elif len(here) == _DEEPEST:
            section.errors.append(fields.forbidden(below.path, f"nested more than {_DEEPEST} deep"))
        else:
            yield from _axes(below, value, here)


def _typed(section: Section, document: Mapping[str, JSON]) -> Axis:
    axis = _of_type(section, document, section.text("type"))
    if axis is None:
        return Constant(None)
    section.finish()
    return axis


def _of_type(section: Section, document: Mapping[str, JSON], kind: str) -> Axis | None:
    """None where there is no such type."""
    match kind:
        case "const":
            return _constant(section, document)
        case "categorical":
            return _choice(section)
        case "int":
            return _integer(section)
        case "double":
            return _real(section)
        case "log":
            return _logarithmic(section)
    if isinstance(document["type"], str):  # what is no text was noted when it was read
        hint = fields.nearest(kind, _TYPES) or f"; there are {', '.join(_TYPES)}"
        message = f"no such type{hint} (an object with a type of its own is written as {{type: const, val: …}})"
        section.errors.append(fields.invalid(section.at("type"), kind, message))
    return None


def _constant(section: Section, document: Mapping[str, JSON]) -> Constant:
    if "val" not in document:  # null is a value
        section.errors.append(fields.required(section.at("val")))
    return Constant(section.take("val"))


def _choice(section: Section) -> Choice:
    values = section.take("vals")
    if not isinstance(values, list) or not values:
        section.errors.append(fields.invalid(section.at("vals"), values, "must be a list of at least one value"))
        return Choice((None,))
    return Choice(tuple(values))


def _integer(section: Section) -> Integer:
    _require_bounds(section)
    low, high = (section.number(name, least=-_EXACT, most=_EXACT) for name in _BOUNDS)
    _check_order(section, low, high)
    return Integer(low, high, min(_count(section), high - low + 1))


def _real(section: Section) -> Real:
    _require_bounds(section)
    low, high = (section.fraction(name) for name in _BOUNDS)
    _check_order(section, low, high)
    return Real(low, high, _count(section))


def _logarithmic(section: Section) -> Logarithmic:
    exponent = _real(section)
    base = section.fraction("base", 10.0)
    if base <= 0:
        section.errors.append(fields.invalid(section.at("base"), base, "must be above 0"))
        return Logarithmic(exponent)
    found = Logarithmic(exponent, base)
    for name, value in zip(_BOUNDS, (exponent.low, exponent.high), strict=True):
        if not _is_representable(found, value):
            message = f"the bounds of log are exponents, and {base:g} to this power is beyond what a double can be"
            section.errors.append(fields.invalid(section.at(name), value, message))
    return found


def _is_representable(axis: Logarithmic, exponent: float) -> bool:
    try:
        return 0 < axis.power(exponent) < float("inf")
    except OverflowError:
        return False


def _require_bounds(section: Section) -> None:
    for name in _BOUNDS:
        if not section.has(name):
            section.errors.append(fields.required(section.at(name)))


def _check_order(section: Section, low: float, high: float) -> None:
    if low > high and all(section.has(name) for name in _BOUNDS):
        section.errors.append(fields.invalid(section.at("minval"), low, f"must not be above maxval, which is {high:g}"))


def _count(section: Section) -> int:
    """0 where nothing is said."""
    return section.number("count", 0, least=1, most=MAX_POINTS)
