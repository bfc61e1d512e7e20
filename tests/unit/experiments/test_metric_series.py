"""Columns of metrics, thinned out: what must still be seen is still there."""

import math
from collections.abc import Sequence

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.experiments import series, series_points
from muster.experiments.metric_reports import SEPARATOR
from muster.experiments.metric_summaries import GroupSummary, from_document
from muster.experiments.series import Series
from muster.experiments.series_reading import Bounds, narrowed

values = st.lists(st.floats(allow_nan=True, allow_infinity=True, width=32), min_size=1, max_size=200)


def a_series(found: Sequence[float], first: int = 0) -> Series:
    return series.made_of([(first + place, 1000.0 + first + place, value) for place, value in enumerate(found)])


@settings(max_examples=60, deadline=None)
@given(values, st.integers(5, 60))
def test_extremes_ends_and_what_is_no_number_survive(found: list[float], most: int) -> None:
    thin = series.downsample(a_series(found), most)
    assert len(thin) <= most
    assert set(thin.steps.tolist()) <= set(range(len(found)))
    assert thin.steps.tolist() == sorted(thin.steps.tolist())
    assert (thin.steps[0], thin.steps[-1]) == (0, len(found) - 1)
    numbers = [value for value in found if not math.isnan(value)]
    if numbers:
        assert {min(numbers), max(numbers)} <= set(thin.values.tolist())
    assert np.isnan(thin.values).any() == any(map(math.isnan, found))


@settings(max_examples=30, deadline=None)
@given(values, st.integers(0, 300))
def test_few_points_are_all_told_and_never_too_many(found: list[float], most: int) -> None:
    thin = series.downsample(a_series(found), most)
    assert len(thin) <= most
    if len(found) <= most:
        np.testing.assert_array_equal(thin.values, found)


def test_a_spike_of_a_single_point_is_seen_where_it_was() -> None:
    found = np.zeros(100_000)
    found[54_321] = 1.0
    thin = series.downsample(a_series(found.tolist()), 200)
    assert thin.steps[int(np.argmax(thin.values))] == 54_321


def test_what_came_late_is_put_where_it_belongs() -> None:
    mixed = series.made_of([(3, 1.0, 30.0), (1, 2.0, 10.0), (2, 3.0, 20.0)])
    assert mixed.ordered().values.tolist() == [10.0, 20.0, 30.0]
    of_machine = series.made_of([(None, 5.0, 2.0), (None, 4.0, 1.0)])
    assert of_machine.ordered().values.tolist() == [1.0, 2.0]
    packed = series.unpack(mixed.pack())
    assert (packed.steps.tolist(), packed.times.tolist()) == ([3, 1, 2], [1.0, 2.0, 3.0])


def test_paths_and_dotted_names() -> None:
    path = SEPARATOR.join(("node.a", "GPU-1", "gpu_util"))
    assert series_points.inside(path, "node.a") == ("GPU-1", "gpu_util")
    assert series_points.inside(path, "node.a.GPU-1.gpu_util") == ()
    assert series_points.inside(path, "node") is None
    assert not series_points.is_of(path, "node")
    assert not series_points.is_of("loss", "los")
    assert series_points.is_of("val.loss", "val.loss")


def test_metrics_beside_each_other_share_their_points() -> None:
    columns = {
        "a": a_series([1.0, 2.0, 3.0]),
        "b": a_series([5.0, math.nan], first=1),
        "epoch": a_series([0.0, 0.0, 1.0]),
    }
    found = series_points.points(columns, ["a", "b"], 100)
    assert [(point.steps, point.values, point.epoch) for point in found] == [
        (0, {"a": 1.0}, 0.0), (1, {"a": 2.0, "b": 5.0}, 0.0), (2, {"a": 3.0, "b": "NaN"}, 1.0),
    ]  # fmt: skip


def test_bounds_of_an_axis_that_nobody_reported_leave_nothing() -> None:
    assert narrowed({"a": a_series([1.0])}, {"epoch": Bounds(above=0)}) == {}
    of_machine = series.made_of([(None, 5.0, 2.0)])
    assert set(narrowed({"a": a_series([1.0]), "cpu": of_machine}, {"batches": Bounds(above=3)})) == {"cpu"}


# Summaries


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.floats(allow_nan=False, allow_infinity=False, width=32), min_size=1, max_size=30), st.integers(0, 30)
)
def test_figures_are_those_of_all_values_however_often_they_were_put_away(found: list[float], stop: int) -> None:
    summary = GroupSummary()
    for place, value in enumerate(found):
        if place == stop:
            summary = from_document(summary.document())
        summary.take({"x": value})
    told = summary.document()["x"]
    assert (told["count"], told["min"], told["max"], told["last"]) == (len(found), min(found), max(found), found[-1])
    assert math.isclose(told["mean"], sum(found) / len(found), abs_tol=1e-3, rel_tol=1e-6)


def test_a_metric_that_was_not_always_of_one_type_has_no_figures() -> None:
    summary = GroupSummary()
    for value in (1.0, "high", 2.0):
        summary.take({"x": value, "flag": True, "shape": [1], "none": None, "words": "x" * 2000})
    assert summary.document() == {
        "x": {"type": "string", "last": 2.0}, "flag": {"type": "boolean", "last": True},
        "shape": {"type": "array", "last": [1]}, "none": {"type": "null", "last": None}, "words": {"type": "string"},
    }  # fmt: skip


def test_what_is_no_number_shows_in_the_mean_alone() -> None:
    summary = GroupSummary()
    for value in ("NaN", 2.0, "NaN", 1.0):
        summary.take({"x": value})
    assert summary.document()["x"] == {
        "type": "number", "last": 1.0, "count": 4, "min": 1.0, "max": 2.0, "sum": "NaN", "mean": "NaN",
    }  # fmt: skip
