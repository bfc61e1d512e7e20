"""Optuna behind the same seam: it learns, prunes, is put away and taken up again; and is loaded only when asked for."""

import subprocess
import sys

import pytest
from tests.unit.search.search_worlds import World, checked, created, live

from muster.api.raw import Document
from muster.search import registry
from muster.search.protocol import Create, ExitReason, Shutdown, Stop, TrialClosed, TrialExited, ValidationReported

_PLANE: Document = {
    "x": {"type": "double", "minval": -1, "maxval": 1},
    "deep": {"y": {"type": "double", "minval": -1, "maxval": 1}},
}


@pytest.mark.parametrize("pruner", ["none", "median", "percentile", "asha", "hyperband"])
@pytest.mark.parametrize("sampler", ["tpe", "cmaes", "random", "qmc", "nsgaii"])
def test_decisions_are_the_same_after_any_restart(sampler: str, pruner: str) -> None:
    config = {"name": "optuna", "sampler": sampler, "pruner": pruner, "max_trials": 12, "max_concurrent_trials": 3}
    found = checked({**config, "max_time": 64})
    story = live(registry.created(found.config, found.space, 5), World(2, rough=0.2))
    again = registry.created(found.config, found.space, 5)
    again.start()
    for number, (event, actions) in enumerate(story):
        if number % 5 == 0:
            again = registry.restored(found.config, found.space, 5, again.snapshot())
        assert again.step(event) == actions


def test_what_is_proposed_is_within_the_space() -> None:
    world = World(0)
    live(created({"name": "optuna", "max_trials": 30}, 1), world)
    for create in world.creates:
        assert 1e-4 <= create.hparams["lr"] <= 1e-1
        assert create.hparams["model"]["layers"] in (1, 2, 3, 4)
        assert create.hparams["model"]["bias"] is True
        assert create.hparams["optimizer"] in ("sgd", {"name": "adam"})


def _distances(searcher: Document, *, is_maximised: bool = False) -> list[float]:
    """How far from the best point trials are, in the order in which they were proposed, one at a time."""
    config = {"name": "optuna", "max_concurrent_trials": 1, "smaller_is_better": not is_maximised, **searcher}
    search_ = created(config, 11, _PLANE)
    distances: list[float] = []
    actions = search_.start()
    while isinstance(action := actions[-1], Create):
        distance = (action.hparams["x"] - 0.3) ** 2 + (action.hparams["deep"]["y"] + 0.5) ** 2
        distances.append(distance)
        search_.step(ValidationReported(action.request_id, -distance if is_maximised else distance, 1))
        actions = search_.step(TrialClosed(action.request_id))
    assert actions == [Shutdown()]
    return distances


@pytest.mark.parametrize("is_maximised", [False, True])
@pytest.mark.parametrize("sampler", ["tpe", "cmaes"])
def test_samplers_learn(sampler: str, is_maximised: bool) -> None:
    distances = _distances({"sampler": sampler, "max_trials": 60}, is_maximised=is_maximised)
    assert sum(distances[-15:]) < sum(distances[:15]) / 2


def test_a_seed_of_its_own_goes_before_the_experiments() -> None:
    config = {"name": "optuna", "max_trials": 4, "seed": 3}
    first, second = (created(config, seed).start() for seed in (1, 2))
    proposed = [[action.hparams for action in actions if isinstance(action, Create)] for actions in (first, second)]
    assert proposed[0] == proposed[1]
    assert first != second, "the trials are others all the same"


def test_the_median_stops_a_trial_that_is_worse_than_half_of_the_others() -> None:
    config = {"name": "optuna", "pruner": "median", "startup_trials": 1, "max_trials": 3, "max_concurrent_trials": 1}
    searcher = created(config)
    first = searcher.start()[0].request_id  # type: ignore[union-attr]
    assert searcher.step(ValidationReported(first, 0.5, 1)) == []
    second = searcher.step(TrialClosed(first))[0].request_id  # type: ignore[union-attr]
    assert searcher.step(ValidationReported(second, 0.6, 1)) == [Stop(second)]
    assert searcher.step(ValidationReported(second, 0.1, 2)) == []


def test_steps_that_are_no_whole_numbers_and_metrics_that_are_none_are_taken() -> None:
    searcher = created({"name": "optuna", "pruner": "median", "max_trials": 1})
    trial = searcher.start()[0].request_id  # type: ignore[union-attr]
    for metric, length in ((0.5, 0.25), (0.4, 0.5), (float("nan"), 1.5), (float("inf"), 2.5)):
        assert searcher.step(ValidationReported(trial, metric, length)) == []
    assert searcher.step(TrialClosed(trial)) == [Shutdown()]


def test_trials_that_report_nothing_or_fail_are_told_as_failed() -> None:
    searcher = created({"name": "optuna", "max_trials": 2})
    first, second = (action.request_id for action in searcher.start() if isinstance(action, Create))
    searcher.step(ValidationReported(first, 0.5, 1))
    searcher.step(TrialExited(first, ExitReason.ERRORED))
    assert searcher.step(TrialClosed(first)) == []
    assert searcher.step(TrialClosed(second)) == [Shutdown()]


@pytest.mark.parametrize(
    ("sampler", "missing", "path", "install"),
    [
        ("tpe", {"optuna"}, "searcher.name", "install muster[search]"),
        ("cmaes", {"cmaes"}, "searcher.sampler", "needs cmaes where the server runs: install muster[search]"),
        ("qmc", {"scipy"}, "searcher.sampler", "install muster[search]"),
        ("gp", {"torch"}, "searcher.sampler", "needs torch where the server runs: install torch"),
        ("gp", {"torch", "scipy"}, "searcher.sampler", "install muster[search] and torch"),
    ],
)
def test_what_is_not_installed_is_named(
    monkeypatch: pytest.MonkeyPatch, sampler: str, missing: set[str], path: str, install: str
) -> None:
    monkeypatch.setattr(registry, "_is_installed", lambda name: name not in missing)
    found = registry.checked({"name": "optuna", "metric": "loss", "max_trials": 1, "sampler": sampler}, {})
    assert isinstance(found, list)
    assert (found[0].path, install in found[0].message) == (path, True)


_PROGRAM = """
import sys
from muster.search import registry
found = registry.checked({"name": "random", "metric": "loss", "max_trials": 1}, {})
registry.created(found.config, found.space, 0).start()
assert "optuna" not in sys.modules
space = {"x": {"type": "int", "minval": 1, "maxval": 9}}
found = registry.checked({"name": "optuna", "metric": "loss", "max_trials": 3}, space)
print([create.hparams for create in registry.created(found.config, found.space, 0).start()])
"""


def test_optuna_is_loaded_only_for_itself_and_says_the_same_in_every_process() -> None:
    told = {
        subprocess.run(
            [sys.executable, "-c", _PROGRAM], env={"PYTHONHASHSEED": seed}, check=True, capture_output=True
        ).stdout
        for seed in ("1", "2")
    }
    assert len(told) == 1
