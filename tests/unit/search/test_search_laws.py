"""What holds for every method, whatever happens to its trials."""

import random

import pytest
from tests.unit.search.search_worlds import World, checked, created, live

from muster.api import errors
from muster.api.raw import Document
from muster.search import registry
from muster.search.protocol import (
    Action,
    BudgetSpent,
    Create,
    Event,
    ExitReason,
    RequestId,
    Shutdown,
    Stop,
    TrialClosed,
    TrialExited,
    TrialProgress,
    ValidationReported,
)

_METHODS: dict[str, tuple[Document, int, int]] = {
    "single": ({"name": "single"}, 1, 1),
    "random": ({"name": "random", "max_trials": 20, "max_concurrent_trials": 4}, 20, 4),
    "random, unbounded": ({"name": "random", "max_trials": 20, "max_concurrent_trials": 0}, 20, 20),
    "grid": ({"name": "grid", "max_concurrent_trials": 5}, 24, 5),
    "halving": (
        {"name": "async_halving", "max_trials": 20, "max_concurrent_trials": 4, "num_rungs": 3, "max_time": 64},
        20,
        4,
    ),
    "adaptive": ({"name": "adaptive_asha", "max_trials": 30, "max_concurrent_trials": 6, "max_time": 64}, 30, 6),
    "adaptive, few at once": (
        {"name": "adaptive_asha", "max_trials": 30, "max_concurrent_trials": 2, "max_time": 64},
        30,
        2,
    ),
    "tpe": (
        {"name": "optuna", "max_trials": 16, "max_concurrent_trials": 3, "pruner": "median", "startup_trials": 3},
        16,
        3,
    ),
}
"""Configuration, trials that are made, and how many at once."""


def _trials(actions: list[Action]) -> list[RequestId]:
    return [action.request_id for action in actions if isinstance(action, Create)]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("method", _METHODS)
def test_a_search_makes_the_trials_that_it_may_and_ends(method: str, seed: int) -> None:
    config, trials, at_once = _METHODS[method]
    world, searcher = World(seed), created(config, seed)
    assert searcher.progress() == 0.0
    live(searcher, world)
    assert (len(world.creates), world.most_running) == (trials, at_once)
    assert world.end == Shutdown()
    assert searcher.progress() == 1.0


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("method", _METHODS)
def test_bounds_hold_when_trials_fail_and_events_are_late_and_repeated(method: str, seed: int) -> None:
    config, trials, at_once = _METHODS[method]
    world, searcher = World(seed, rough=0.5), created(config, seed)
    story = live(searcher, world)
    invalid = sum(isinstance(event, TrialExited) and event.reason is ExitReason.INVALID_HP for event, _ in story)
    assert trials <= len(world.creates) <= trials + invalid
    assert len(world.creates) <= 2 * trials
    assert config.get("max_concurrent_trials") == 0 or world.most_running <= at_once
    assert 0.0 <= searcher.progress() <= 1.0


@pytest.mark.parametrize("method", _METHODS)
def test_the_same_seed_and_events_give_the_same_actions_from_a_snapshot_at_any_point(method: str) -> None:
    config, *_ = _METHODS[method]
    found = checked(config)
    first = registry.created(found.config, found.space, 7)
    story = live(first, World(1, rough=0.4))
    again = registry.created(found.config, found.space, 7)
    again.start()
    for event, actions in story:
        again = registry.restored(found.config, found.space, 7, again.snapshot())
        assert again.step(event) == actions
    assert again.snapshot() == first.snapshot()
    assert again.progress() == first.progress()


@pytest.mark.parametrize("method", _METHODS)
def test_repeated_events_change_nothing(method: str) -> None:
    config, *_ = _METHODS[method]
    searcher, world, chance = created(config, 3), World(5, rough=0.3), random.Random(9)
    told: list[Event] = []

    world.take(searcher.start())
    for event in world.events():
        world.take(searcher.step(event))
        told.append(event)
        before = searcher.snapshot()
        repeated = chance.choice(told)
        if not isinstance(repeated, TrialProgress):
            assert searcher.step(repeated) == []
            assert searcher.snapshot() == before


@pytest.mark.parametrize("method", _METHODS)
def test_another_seed_gives_other_trials(method: str) -> None:
    config, *_ = _METHODS[method]
    assert created(config, 1).start() != created(config, 2).start()


def test_what_a_trial_gets_does_not_depend_on_how_fast_others_are() -> None:
    config = {"name": "random", "max_trials": 30, "max_concurrent_trials": 5}
    worlds = World(1), World(2)
    for world in worlds:
        live(created(config, 4), world)
    assert worlds[0].creates == worlds[1].creates
    assert len({create.request_id for create in worlds[0].creates}) == 30
    assert all(0 <= create.seed < 2**31 for create in worlds[0].creates)


@pytest.mark.parametrize("method", _METHODS)
def test_a_search_of_which_all_trials_fail_fails(method: str) -> None:
    world = World(0, rough=10.0, reasons=(ExitReason.ERRORED,))
    live(created(_METHODS[method][0]), world)
    assert world.end == Shutdown(is_failure=True)


@pytest.mark.parametrize("method", _METHODS)
def test_a_search_without_valid_hyperparameters_fails_after_twice_its_trials(method: str) -> None:
    config, trials, _ = _METHODS[method]
    world = World(0, rough=10.0, reasons=(ExitReason.INVALID_HP,))
    live(created(config), world)
    assert world.end == Shutdown(is_failure=True)
    assert len(world.creates) == (trials if method in ("single", "grid") else 2 * trials)


def test_a_search_of_which_all_trials_were_canceled_is_canceled() -> None:
    world = World(0, rough=10.0, reasons=(ExitReason.USER_CANCELED,))
    live(created(_METHODS["random"][0]), world)
    assert world.end == Shutdown(is_cancel=True)


def test_failed_and_canceled_together_are_a_failure() -> None:
    searcher = created({"name": "random", "max_trials": 2})
    first, second = _trials(searcher.start())
    for trial, reason in ((first, ExitReason.ERRORED), (second, ExitReason.USER_CANCELED)):
        searcher.step(TrialExited(trial, reason))
    assert searcher.step(TrialClosed(first)) == []
    assert searcher.step(TrialClosed(second)) == [Shutdown(is_failure=True)]


def test_one_trial_that_ends_well_is_enough() -> None:
    searcher = created({"name": "random", "max_trials": 2})
    first, second = _trials(searcher.start())
    searcher.step(TrialExited(first, ExitReason.ERRORED))
    searcher.step(TrialClosed(first))
    assert searcher.step(TrialClosed(second)) == [Shutdown()]


def test_how_a_trial_ends_that_was_stopped_is_no_failure() -> None:
    searcher = created({"name": "async_halving", "max_trials": 1, "num_rungs": 1, "max_time": 1})
    [trial] = _trials(searcher.start())
    assert searcher.step(ValidationReported(trial, 0.5, 1)) == [Stop(trial)]
    assert searcher.step(TrialExited(trial, ExitReason.ERRORED)) == []
    assert searcher.step(TrialClosed(trial)) == [Shutdown()]


@pytest.mark.parametrize("method", _METHODS)
def test_a_spent_budget_stops_what_runs_and_makes_nothing_more(method: str) -> None:
    searcher = created(_METHODS[method][0])
    trials = _trials(searcher.start())
    assert searcher.step(BudgetSpent()) == [Stop(trial) for trial in trials]
    assert searcher.step(BudgetSpent()) == []
    *before, last = [searcher.step(TrialClosed(trial)) for trial in trials]
    assert before == [[]] * (len(trials) - 1)
    assert last == [Shutdown()]
    assert searcher.step(BudgetSpent()) == []


def test_progress_is_that_of_trials() -> None:
    searcher = created({"name": "random", "max_trials": 4, "max_concurrent_trials": 2})
    first, second = _trials(searcher.start())
    searcher.step(TrialProgress(first, 0.5))
    searcher.step(TrialProgress(second, float("nan")))
    searcher.step(TrialProgress(second, 7.0))
    assert searcher.progress() == 0.5 / 4
    searcher.step(TrialClosed(first))
    assert searcher.progress() == 1 / 4


def test_progress_when_nothing_counts() -> None:
    searcher = created({"name": "random", "max_trials": 1, "max_concurrent_trials": 1})
    [trial] = _trials(searcher.start())
    searcher.step(TrialExited(trial, ExitReason.INVALID_HP))
    searcher.step(BudgetSpent())
    assert searcher.progress() == 0.0


def test_trials_that_nobody_asked_for_are_not_heard() -> None:
    searcher = created({"name": "random", "max_trials": 4})
    before = (searcher.start(), searcher.snapshot())[1]
    assert searcher.step(TrialClosed(RequestId("00000000-0000-4000-8000-000000000000"))) == []
    assert searcher.snapshot() == before


@pytest.mark.parametrize("length", [float("nan"), float("inf"), -1.0])
def test_reports_of_no_length_are_not_heard(length: float) -> None:
    searcher = created({"name": "async_halving", "max_trials": 1, "num_rungs": 1, "max_time": 1})
    [trial] = _trials(searcher.start())
    assert searcher.step(ValidationReported(trial, 0.5, length)) == []


def test_a_snapshot_of_something_else_is_refused() -> None:
    halving, other = checked(_METHODS["halving"][0]), checked(_METHODS["adaptive"][0])
    snapshot = registry.created(halving.config, halving.space, 0).snapshot()
    with pytest.raises(errors.Invalid, match="rungs"):
        registry.restored(other.config, other.space, 0, snapshot)
    with pytest.raises(errors.Invalid, match="no snapshot"):
        registry.restored(halving.config, halving.space, 0, b"what is this")
    learned, drawn = checked(_METHODS["tpe"][0]), checked(_METHODS["random"][0])
    snapshot = registry.created(drawn.config, drawn.space, 0).snapshot()
    with pytest.raises(errors.Invalid, match="no snapshot"):
        registry.restored(learned.config, learned.space, 0, snapshot)


@pytest.mark.parametrize("method", _METHODS)
def test_starting_again_makes_nothing_more(method: str) -> None:
    searcher = created(_METHODS[method][0])
    assert searcher.start()
    assert searcher.start() == []
