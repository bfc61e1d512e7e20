"""Spaces of hyperparameters: what is drawn, which points a grid has, and what is refused with its path."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.search.search_worlds import SPACE

from muster.api.raw import JSON, Document
from muster.search import space_reading
from muster.search.hyperparameters import Integer, Real, Space
from muster.search.randomness import Source


def _space(document: Document, *, is_grid: bool = False) -> Space:
    found = space_reading.parse(document, is_grid=is_grid)
    assert isinstance(found, Space), found
    return found


def _draws(axis: Document, count: int = 2000) -> list[JSON]:
    space = _space({"x": axis})
    return [space.at(Source(1, number).units(1))["x"] for number in range(count)]


def _points(axis: JSON) -> list[JSON]:
    space = _space({"x": axis}, is_grid=True)
    return [space.point(number)["x"] for number in range(space.points)]


def test_what_is_drawn_has_the_shape_of_what_was_written() -> None:
    drawn = _space(SPACE).at(Source(0, 0).units(5))
    assert drawn.keys() == SPACE.keys()
    assert drawn["model"]["bias"] is True
    assert drawn["model"]["layers"] in (1, 2, 3, 4)


def test_whole_numbers_are_equally_likely_and_both_ends_are_drawn() -> None:
    drawn = _draws({"type": "int", "minval": -1, "maxval": 2})
    assert {value: drawn.count(value) > 400 for value in drawn} == dict.fromkeys((-1, 0, 1, 2), True)
    assert {type(value) for value in drawn} == {int}


def test_doubles_are_spread_evenly() -> None:
    drawn = _draws({"type": "double", "minval": 2, "maxval": 4})
    assert all(2 <= value < 4 for value in drawn)
    assert abs(sum(drawn) / len(drawn) - 3) < 0.05


@given(st.floats(allow_nan=False, allow_infinity=False), st.floats(allow_nan=False, allow_infinity=False), st.data())
def test_doubles_are_within_their_bounds_however_far_these_are_apart(
    one: float, other: float, data: st.DataObject
) -> None:
    axis = Real(min(one, other), max(one, other))
    assert axis.low <= axis.at(data.draw(st.floats(0, 1, exclude_max=True))) <= axis.high


def test_exponents_of_log_are_spread_evenly() -> None:
    drawn = _draws({"type": "log", "minval": -4, "maxval": 0})
    assert all(1e-4 <= value < 1 for value in drawn)
    assert abs(sum(value < 1e-2 for value in drawn) / len(drawn) - 0.5) < 0.05


def test_choices_are_equally_likely() -> None:
    drawn = _draws({"type": "categorical", "vals": ["a", None, [1]]})
    assert all(drawn.count(value) > 550 for value in ("a", None, [1]))


@pytest.mark.parametrize(
    ("axis", "points"),
    [
        (5, [5]),
        ([1, 2], [[1, 2]]),
        (None, [None]),
        ({}, [{}]),
        ({"type": "const", "val": {"type": "x"}}, [{"type": "x"}]),
        ({"type": "categorical", "vals": [1, "b"]}, [1, "b"]),
        ({"type": "int", "minval": 0, "maxval": 10, "count": 3}, [0, 5, 10]),
        ({"type": "int", "minval": 0, "maxval": 10, "count": 1}, [5]),
        ({"type": "int", "minval": -3, "maxval": 0, "count": 1}, [-1]),
        ({"type": "int", "minval": 1, "maxval": 3, "count": 10}, [1, 2, 3]),
        ({"type": "int", "minval": 7, "maxval": 7, "count": 2}, [7]),
        ({"type": "double", "minval": 0, "maxval": 1, "count": 5}, [0, 0.25, 0.5, 0.75, 1]),
        ({"type": "double", "minval": 0, "maxval": 1, "count": 1}, [0.5]),
        ({"type": "log", "minval": -2, "maxval": 0, "base": 10, "count": 3}, [0.01, 0.1, 1]),
        ({"type": "log", "minval": 0, "maxval": 4, "base": 2, "count": 3}, [1, 4, 16]),
    ],
)
def test_points_of_a_grid(axis: JSON, points: list[JSON]) -> None:
    assert _points(axis) == pytest.approx(points) if isinstance(points[0], float) else _points(axis) == points


@given(st.integers(-(2**53), 2**53), st.integers(0, 200), st.integers(1, 300))
def test_whole_points_of_a_grid_do_not_repeat_and_reach_both_ends(low: int, width: int, count: int) -> None:
    axis = Integer(low, low + width, min(count, width + 1))
    points = [axis.point(index) for index in range(axis.count)]
    assert points == sorted(set(points))
    assert axis.count == 1 or (points[0], points[-1]) == (low, low + width)


def test_a_grid_has_every_combination_once_the_last_name_fastest() -> None:
    document: Document = {
        "b": {"y": {"type": "categorical", "vals": [1, 2]}, "x": 0},
        "a": {"type": "int", "minval": 1, "maxval": 2, "count": 2},
    }
    space = _space(document, is_grid=True)
    points = [space.point(number) for number in range(space.points)]
    assert points == [{"a": a, "b": {"x": 0, "y": y}} for a in (1, 2) for y in (1, 2)]


def test_the_order_in_which_names_are_written_means_nothing() -> None:
    turned = dict(reversed(SPACE.items()))
    units = Source(3, 3).units(5)
    assert _space(SPACE).at(units) == _space(turned).at(units)
    assert _space(SPACE, is_grid=True).point(13) == _space(turned, is_grid=True).point(13)


def test_no_hyperparameters_are_one_point() -> None:
    space = _space({}, is_grid=True)
    assert (space.points, space.point(0), space.at([])) == (1, {}, {})


_WRONG: dict[str, tuple[JSON, str, str]] = {
    "no object": ([1], "hyperparameters", "must be an object"),
    "an unknown type": ({"lr": {"type": "doubel"}}, "hyperparameters.lr.type", "did you mean double?"),
    "a type of its own": ({"opt": {"type": "adam", "lr": 1}}, "hyperparameters.opt.type", "{type: const, val: …}"),
    "a type that is no text": ({"opt": {"type": 5}}, "hyperparameters.opt.type", "must be a string"),
    "bounds the wrong way round": (
        {"lr": {"type": "double", "minval": 2, "maxval": 1}},
        "hyperparameters.lr.minval",
        "must not be above maxval, which is 1",
    ),
    "whole bounds the wrong way round": (
        {"a": {"b": {"type": "int", "minval": 2, "maxval": 1}}},
        "hyperparameters.a.b.minval",
        "must not be above maxval",
    ),
    "no lower bound": ({"lr": {"type": "double", "maxval": 1}}, "hyperparameters.lr.minval", "Required value"),
    "no upper bound": ({"lr": {"type": "int", "minval": 1}}, "hyperparameters.lr.maxval", "Required value"),
    "a fraction as a whole number": (
        {"n": {"type": "int", "minval": 1.5, "maxval": 3}},
        "hyperparameters.n.minval",
        "must be a whole number, found number",
    ),
    "not a number": (
        {"lr": {"type": "double", "minval": float("nan"), "maxval": 1}},
        "hyperparameters.lr.minval",
        "must be a finite number",
    ),
    "larger than any double": (
        {"lr": {"type": "double", "minval": 0, "maxval": 10**400}},
        "hyperparameters.lr.maxval",
        "must be a finite number",
    ),
    "true as a number": (
        {"n": {"type": "int", "minval": True, "maxval": 3}},
        "hyperparameters.n.minval",
        "must be a whole number",
    ),
    "values instead of exponents": (
        {"lr": {"type": "log", "minval": 1, "maxval": 1000}},
        "hyperparameters.lr.maxval",
        "the bounds of log are exponents",
    ),
    "a base that has no powers": (
        {"lr": {"type": "log", "minval": 1, "maxval": 2, "base": 0}},
        "hyperparameters.lr.base",
        "must be above 0",
    ),
    "nothing to choose from": ({"o": {"type": "categorical", "vals": []}}, "hyperparameters.o.vals", "at least one"),
    "one choice that is no list": ({"o": {"type": "categorical", "vals": "ab"}}, "hyperparameters.o.vals", "a list"),
    "a constant without value": ({"o": {"type": "const"}}, "hyperparameters.o.val", "Required value"),
    "a mistyped key": (
        {"lr": {"type": "double", "minval": 0, "maxvalue": 1, "maxval": 1}},
        "hyperparameters.lr.maxvalue",
        "did you mean maxval?",
    ),
    "a count of none": (
        {"n": {"type": "int", "minval": 1, "maxval": 3, "count": 0}},
        "hyperparameters.n.count",
        "must be",
    ),
    "two with one name": ({"a.b": 1, "a": {"b": 2}}, "hyperparameters.a.b", "Duplicate value"),
}


@pytest.mark.parametrize("sentence", _WRONG)
def test_what_is_wrong_is_named_with_its_path(sentence: str) -> None:
    document, path, message = _WRONG[sentence]
    found = space_reading.parse(document)
    assert isinstance(found, list)
    assert [error.path for error in found] == [path]
    assert message in found[0].message


def test_everything_that_is_wrong_is_told_at_once() -> None:
    found = space_reading.parse({"a": {"type": "int"}, "b": {"c": {"type": "nothing"}}})
    assert isinstance(found, list)
    assert [error.path for error in found] == [
        "hyperparameters.a.minval",
        "hyperparameters.a.maxval",
        "hyperparameters.b.c.type",
    ]


def test_a_grid_needs_counts() -> None:
    found = space_reading.parse({"a": {"lr": {"type": "double", "minval": 0, "maxval": 1}}, "b": 1}, is_grid=True)
    assert isinstance(found, list)
    assert [error.path for error in found] == ["hyperparameters.a.lr.count"]


def test_a_grid_has_an_end() -> None:
    axis = {"type": "double", "minval": 0, "maxval": 1, "count": 1000}
    found = space_reading.parse({"a": axis, "b": axis, "c": axis}, is_grid=True)
    assert isinstance(found, list)
    assert "1000000000" in str(found[0])
    assert isinstance(space_reading.parse({"a": axis, "b": axis, "c": axis}), Space)


def test_names_can_be_nested_but_not_without_end() -> None:
    document: Document = {"x": 1}
    for _ in range(31):
        document = {"a": document}
    assert isinstance(space_reading.parse(document), Space)
    for _ in range(5000):
        document = {"a": document}
    found = space_reading.parse(document)
    assert isinstance(found, list)
    assert "32 deep" in found[0].message
