"""How trials are divided over brackets, and what a preview tells of it."""

import pytest
from tests.unit.search.search_worlds import checked

from muster.api.raw import Document
from muster.search import preview, shapes
from muster.search.brackets import Shape

# Worked out by hand from Determined's rules, except where they do not keep to what was asked.
_SPLITS: dict[str, tuple[Document, list[Shape]]] = {
    "standard has the larger half of the numbers of rungs": (
        {"max_trials": 100, "max_time": 256},
        [Shape(70, 6, (4, 16, 64, 256)), Shape(22, 5, (16, 64, 256)), Shape(8, 5, (64, 256))],
    ),
    "conservative has all of them": (
        {"max_trials": 100, "max_time": 256, "mode": "conservative"},
        [Shape(67, 4, (4, 16, 64, 256)), Shape(21, 4, (16, 64, 256)), Shape(8, 4, (64, 256)), Shape(4, 4, (256,))],
    ),
    "aggressive has only the largest": (
        {"max_trials": 100, "max_time": 256, "mode": "aggressive"},
        [Shape(100, 16, (4, 16, 64, 256))],
    ),
    "without a bound each bracket has the places of the smallest": (
        {"max_trials": 100, "max_time": 256, "max_concurrent_trials": 0},
        [Shape(70, 8, (4, 16, 64, 256)), Shape(22, 8, (16, 64, 256)), Shape(8, 8, (64, 256))],
    ),
    "no rung is shorter than one": (
        {"max_trials": 100, "max_time": 5, "mode": "aggressive"},
        [Shape(100, 16, (1, 5))],
    ),
    "powers are counted exactly": (
        {"max_trials": 1000, "max_time": 1000, "divisor": 10, "mode": "aggressive"},
        [Shape(1000, 16, (1, 10, 100, 1000))],
    ),
    "one trial needs one bracket": ({"max_trials": 1, "max_time": 256}, [Shape(1, 16, (256,))]),
    "brackets can be given": (
        {"max_trials": 10, "max_time": 16, "bracket_rungs": [1, 3]},
        [Shape(9, 8, (1, 4, 16)), Shape(1, 8, (16,))],
    ),
    "brackets that no trial is left for are not there": (
        {"max_trials": 2, "max_time": 256, "bracket_rungs": [3, 4, 5]},
        [Shape(1, 8, (1, 4, 16, 64, 256)), Shape(1, 8, (4, 16, 64, 256))],
    ),
    "each bracket has a place, even if not all are taken at once": (
        {"max_trials": 100, "max_time": 256, "max_concurrent_trials": 2},
        [Shape(70, 1, (4, 16, 64, 256)), Shape(22, 1, (16, 64, 256)), Shape(8, 1, (64, 256))],
    ),
}


@pytest.mark.parametrize("sentence", _SPLITS)
def test_adaptive_brackets(sentence: str) -> None:
    config, expected = _SPLITS[sentence]
    found = checked({"name": "adaptive_asha", **config})
    assert shapes.shapes(found.config, found.space) == expected


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"name": "single"}, Shape(1)),
        ({"name": "random", "max_trials": 7}, Shape(7)),
        ({"name": "grid"}, Shape(3 * 2 * 2 * 2)),
        (
            {"name": "async_halving", "max_trials": 9, "num_rungs": 3, "max_time": 16, "max_concurrent_trials": 0},
            Shape(9, 16, (1, 4, 16)),
        ),
        (
            {"name": "async_halving", "max_trials": 9, "num_rungs": 3, "max_length": {"epochs": 9}, "divisor": 3},
            Shape(9, 16, (1, 3, 9)),
        ),
    ],
)
def test_other_searches_have_one_bracket(config: Document, expected: Shape) -> None:
    found = checked(config)
    assert shapes.shapes(found.config, found.space) == [expected]


def _preview(config: Document) -> list[tuple[int, Document]]:
    found = checked(config)
    summary = preview.summary(found.config, found.space)
    assert summary["config"]["name"] == config["name"]
    return [(trials["count"], trials["unit"]) for trials in summary["trials"]]


def test_preview_tells_how_many_trials_train_how_long() -> None:
    config = {"name": "adaptive_asha", "max_trials": 100, "max_time": 256, "time_metric": "epochs"}
    counts = _preview(config)
    assert counts == [
        (count, {"maxLength": False, "name": "epochs", "value": length})
        for count, length in ((53, 4), (30, 16), (13, 64), (4, 256))
    ]


@pytest.mark.parametrize(
    ("config", "count"),
    [
        ({"name": "single"}, 1),
        ({"name": "random", "max_trials": 7}, 7),
        ({"name": "grid"}, 24),
        ({"name": "optuna", "max_trials": 9}, 9),
    ],
)
def test_preview_of_searches_that_stop_nobody_beforehand(config: Document, count: int) -> None:
    assert _preview(config) == [(count, {"maxLength": True})]


def test_preview_of_one_bracket_counts_every_trial_once() -> None:
    config = {"name": "async_halving", "max_trials": 3, "num_rungs": 4, "max_time": 64}
    assert _preview(config) == [
        (2, {"maxLength": False, "name": "batches", "value": 1}),
        (1, {"maxLength": False, "name": "batches", "value": 64}),
    ]
