"""The section `searcher`: what is read from it, with which defaults, and what is refused with its path."""

import pytest
from tests.unit.search.search_worlds import checked

from muster.api.raw import JSON, Document
from muster.search import config_reading, registry
from muster.search.config import (
    AdaptiveAsha,
    AsyncHalving,
    Grid,
    Mode,
    Optuna,
    Pruner,
    Random,
    Sampler,
    Single,
    document,
)

_ASHA: Document = {"name": "adaptive_asha", "metric": "loss", "max_trials": 5, "max_time": 10}

_READ: dict[str, tuple[Document, object]] = {
    "single": ({"name": "single", "metric": "loss"}, Single(metric="loss")),
    "nulls are left out": (
        {"name": "single", "metric": "loss", "smaller_is_better": None, "source_trial_id": None, "max_length": None},
        Single(metric="loss"),
    ),
    "what all have": (
        {
            "name": "single",
            "metric": "accuracy",
            "smaller_is_better": False,
            "source_trial_id": 7,
            "source_checkpoint_uuid": "abc",
            "max_length": {"epochs": 3},
        },
        Single(
            metric="accuracy",
            smaller_is_better=False,
            source_trial_id=7,
            source_checkpoint_uuid="abc",
            max_length={"epochs": 3},
        ),
    ),
    "random": (
        {"name": "random", "metric": "loss", "max_trials": 5},
        Random(metric="loss", max_trials=5, max_concurrent_trials=16),
    ),
    "grid": (
        {"name": "grid", "metric": "loss", "max_concurrent_trials": 0},
        Grid(metric="loss", max_concurrent_trials=0),
    ),
    "async_halving": (
        {"name": "async_halving", "metric": "loss", "max_trials": 5, "num_rungs": 2, "max_time": 9, "stop_once": True},
        AsyncHalving(metric="loss", max_trials=5, num_rungs=2, max_time=9, divisor=4.0, stop_once=True),
    ),
    "adaptive_asha": (
        {**_ASHA, "time_metric": "epochs", "mode": "aggressive", "max_rungs": 3, "bracket_rungs": [2], "divisor": 3},
        AdaptiveAsha(
            metric="loss",
            max_trials=5,
            max_time=10,
            time_metric="epochs",
            mode=Mode.AGGRESSIVE,
            max_rungs=3,
            bracket_rungs=(2,),
            divisor=3.0,
        ),
    ),
    "a length of old is a time, its unit the metric": (
        {"name": "adaptive_asha", "metric": "loss", "max_trials": 5, "max_length": {"batches": 100}},
        AdaptiveAsha(metric="loss", max_trials=5, max_length={"batches": 100}, max_time=100, time_metric="batches"),
    ),
    "a length of old without unit counts steps": (
        {"name": "adaptive_asha", "metric": "loss", "max_trials": 5, "max_length": 100},
        AdaptiveAsha(metric="loss", max_trials=5, max_length=100, max_time=100),
    ),
    "max_time goes before a length of old": (
        {**_ASHA, "max_length": {"batches": 100}},
        AdaptiveAsha(metric="loss", max_trials=5, max_length={"batches": 100}, max_time=10),
    ),
    "optuna": (
        {"name": "optuna", "metric": "loss", "max_trials": 5},
        Optuna(metric="loss", max_trials=5, sampler=Sampler.TPE, pruner=Pruner.NONE),
    ),
    "optuna with all": (
        {
            "name": "optuna",
            "metric": "loss",
            "max_trials": 5,
            "sampler": "cmaes",
            "pruner": "hyperband",
            "divisor": 3,
            "max_time": 81,
            "time_metric": "epochs",
            "seed": 0,
            "startup_trials": 0,
        },
        Optuna(
            metric="loss",
            max_trials=5,
            sampler=Sampler.CMAES,
            pruner=Pruner.HYPERBAND,
            divisor=3,
            max_time=81,
            time_metric="epochs",
            seed=0,
            startup_trials=0,
        ),
    ),
}


@pytest.mark.parametrize("sentence", _READ)
def test_what_is_read_can_be_written_and_read_again(sentence: str) -> None:
    given, expected = _READ[sentence]
    found = config_reading.parse(given)
    assert found == expected
    assert not isinstance(found, list)
    assert config_reading.parse(document(found)) == found
    assert document(found)["name"] == given["name"]


_HALVING: Document = {"name": "async_halving", "metric": "loss", "max_trials": 5, "num_rungs": 2, "max_time": 9}
_OPTUNA: Document = {"name": "optuna", "metric": "loss", "max_trials": 5}

_WRONG: dict[str, tuple[JSON, str, str]] = {
    "no object": ("random", "searcher", "must be an object"),
    "no method": ({"metric": "loss"}, "searcher.name", "Required value"),
    "an unknown method": ({"name": "adaptive_ash"}, "searcher.name", "did you mean adaptive_asha?"),
    "nothing like it": ({"name": "hill"}, "searcher.name", "there are single, random, grid"),
    "adaptive": ({"name": "adaptive"}, "searcher.name", "use adaptive_asha"),
    "adaptive_simple": ({"name": "adaptive_simple"}, "searcher.name", "use adaptive_asha"),
    "sync_halving": ({"name": "sync_halving"}, "searcher.name", "use async_halving"),
    "custom": ({"name": "custom"}, "searcher.name", "use optuna"),
    "no metric": ({"name": "single"}, "searcher.metric", "Required value"),
    "a mistyped key": ({**_ASHA, "max_trails": 3}, "searcher.max_trails", "did you mean max_trials?"),
    "a key of another method": (
        {"name": "single", "metric": "loss", "max_trials": 3},
        "searcher.max_trials",
        "unknown field",
    ),
    "no trials": ({"name": "random", "metric": "loss"}, "searcher.max_trials", "Required value"),
    "zero trials": ({"name": "random", "metric": "loss", "max_trials": 0}, "searcher.max_trials", "range [1, "),
    "too many trials": (
        {"name": "random", "metric": "loss", "max_trials": 10**7},
        "searcher.max_trials",
        "range [1, 1000000]",
    ),
    "trials as text": (
        {"name": "random", "metric": "loss", "max_trials": "5"},
        "searcher.max_trials",
        "must be a whole number, found string",
    ),
    "fewer than none at once": ({**_ASHA, "max_concurrent_trials": -1}, "searcher.max_concurrent_trials", "range"),
    "no time": ({**_ASHA, "max_time": None}, "searcher.max_time", "trials are compared at parts of it"),
    "a unit that is none": (
        {**_ASHA, "max_length": {"hours": 3}},
        "searcher.max_length",
        "batches, records, epochs",
    ),
    "a length of two units": ({**_ASHA, "max_length": {"epochs": 3, "batches": 5}}, "searcher.max_length", "whole"),
    "a length of nothing": ({**_ASHA, "max_length": {"epochs": 0}}, "searcher.max_length", "whole number from 1"),
    "a divisor that divides nothing": ({**_ASHA, "divisor": 1}, "searcher.divisor", "must be above 1"),
    "an unknown mode": ({**_ASHA, "mode": "agressive"}, "searcher.mode", "did you mean aggressive?"),
    "rungs of brackets that are none": ({**_ASHA, "bracket_rungs": [0]}, "searcher.bracket_rungs", "whole numbers"),
    "no rungs": ({**_HALVING, "num_rungs": None}, "searcher.num_rungs", "Required value"),
    "an unknown sampler": ({**_OPTUNA, "sampler": "tpa"}, "searcher.sampler", "did you mean tpe?"),
    "an unknown pruner": ({**_OPTUNA, "pruner": "mean"}, "searcher.pruner", "did you mean median?"),
    "a percentile without its pruner": ({**_OPTUNA, "percentile": 10}, "searcher.percentile", "has no effect"),
    "a percentile above all": (
        {**_OPTUNA, "pruner": "percentile", "percentile": 101},
        "searcher.percentile",
        "from 0 to 100",
    ),
    "a divisor without its pruner": ({**_OPTUNA, "divisor": 3}, "searcher.divisor", "it is for asha, hyperband"),
    "startup trials of who has none": (
        {**_OPTUNA, "sampler": "random", "startup_trials": 3},
        "searcher.startup_trials",
        "has no effect",
    ),
    "hyperband without time": ({**_OPTUNA, "pruner": "hyperband"}, "searcher.max_time", "compares trials"),
}


@pytest.mark.parametrize("sentence", _WRONG)
def test_what_is_wrong_is_named_with_its_path(sentence: str) -> None:
    given, path, message = _WRONG[sentence]
    found = config_reading.parse(given)
    assert isinstance(found, list)
    assert path in [error.path for error in found]
    assert message in next(error.message for error in found if error.path == path)
    assert len(found) == (1 if isinstance(given, str) or "metric" in given else len(found))


def test_everything_that_is_wrong_is_told_at_once() -> None:
    found = registry.checked({"name": "random", "max_trails": 3}, {"lr": {"type": "double"}})
    assert isinstance(found, list)
    assert [error.path for error in found] == [
        "searcher.metric",
        "searcher.max_trials",
        "searcher.max_trails",
        "hyperparameters.lr.minval",
        "hyperparameters.lr.maxval",
    ]


def test_only_a_grid_needs_counts() -> None:
    space = {"lr": {"type": "double", "minval": 0, "maxval": 1}}
    assert isinstance(registry.checked({"name": "grid", "metric": "loss"}, space), list)
    assert checked({"name": "random", "max_trials": 1}, space).space.points == 0
