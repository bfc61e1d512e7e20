"""The decisions of ASHA, one bracket and several, against an independent reference; and what must hold beside them."""

import math

import pytest
from tests.unit.search.asha_reference import Reference, one_bracket, tournament
from tests.unit.search.search_worlds import World, created

from muster.api.raw import Document
from muster.search.protocol import (
    Action,
    BudgetSpent,
    Create,
    ExitReason,
    RequestId,
    Searcher,
    Stop,
    TrialClosed,
    TrialExited,
    ValidationReported,
)

_HALVING: Document = {"name": "async_halving", "max_trials": 40, "max_concurrent_trials": 6, "num_rungs": 3}
_ADAPTIVE: Document = {"name": "adaptive_asha", "max_trials": 60, "max_concurrent_trials": 8, "divisor": 2}


def _compare(searcher: Searcher, reference: Reference, world: World) -> int:
    """How many were stopped."""
    stopped: set[RequestId] = set()
    _take(searcher.start(), reference, world)
    for event in world.events():
        assert not isinstance(event, BudgetSpent)
        trial = event.request_id
        is_heard = trial not in stopped
        is_stopped = False
        match event:
            case ValidationReported() if is_heard and trial in world.lives:
                is_stopped = not reference.home[trial].survives(trial, event.metric, event.length)
            case TrialExited(_, ExitReason.INVALID_HP) if is_heard:
                reference.home[trial].forget(trial)
                is_stopped = True
            case TrialExited() if is_heard:
                reference.home[trial].fails(trial)
            case TrialClosed():
                reference.leaves(trial)
        actions = searcher.step(event)
        assert [each for each in actions if isinstance(each, Stop)] == [Stop(trial)] * is_stopped
        if is_stopped:
            stopped.add(trial)
        _take(actions, reference, world)
    return len(stopped)


def _take(actions: list[Action], reference: Reference, world: World) -> None:
    creates = [action for action in actions if isinstance(action, Create)]
    assert len(creates) == reference.room()
    for create in creates:
        reference.enters(create.request_id)
    world.take(actions)


@pytest.mark.parametrize("seed", range(100))
def test_one_bracket_decides_as_the_published_algorithm(seed: int) -> None:
    divisor = (2, 3, 4, 2.5)[seed % 4]
    searcher = created({**_HALVING, "max_time": 64, "divisor": divisor}, seed)
    reference = one_bracket(trials=40, places=6, eta=divisor, count=3, longest=64)
    assert _compare(searcher, reference, World(seed, rough=(seed % 3) * 0.2)) > 10


@pytest.mark.parametrize("seed", range(100))
def test_brackets_decide_as_a_tournament_of_the_published_algorithm(seed: int) -> None:
    mode, counts = (("aggressive", [5]), ("standard", [5, 4, 3]), ("conservative", [5, 4, 3, 2, 1]))[seed % 3]
    searcher = created({**_ADAPTIVE, "max_time": 64, "mode": mode}, seed)
    reference = tournament(trials=60, places=8, eta=2, counts=counts, longest=64)
    assert _compare(searcher, reference, World(seed, rough=(seed % 4) * 0.1)) > 10


def _three(smaller_is_better: bool = True, **config: object) -> tuple[Searcher, list[RequestId]]:
    searcher = created(
        {
            "name": "async_halving",
            "max_trials": 4,
            "max_concurrent_trials": 4,
            "num_rungs": 2,
            "divisor": 2,
            "max_time": 10,
            "smaller_is_better": smaller_is_better,
            **config,
        }
    )
    return searcher, [action.request_id for action in searcher.start() if isinstance(action, Create)]


def _report(searcher: Searcher, trial: RequestId, metric: float, length: float) -> bool:
    """Whether it was stopped."""
    return Stop(trial) in searcher.step(ValidationReported(trial, metric, length))


def test_larger_can_be_better() -> None:
    searcher, (first, second, third, _) = _three(smaller_is_better=False)
    assert not _report(searcher, first, 0.5, 5)
    assert _report(searcher, second, 0.4, 5)
    assert not _report(searcher, third, 0.6, 5)


def test_nobody_is_compared_before_the_first_rung_and_everybody_stops_at_the_last() -> None:
    searcher, (first, second, *_) = _three()
    assert not _report(searcher, first, 0.5, 4)
    assert not _report(searcher, second, 9.0, 4)
    assert not _report(searcher, first, 0.5, 5)
    assert _report(searcher, first, 0.5, 10)


def test_one_report_can_pass_several_rungs() -> None:
    searcher, (first, second, *_) = _three()
    assert _report(searcher, first, 0.5, 10)
    assert _report(searcher, second, 0.6, 10)


@pytest.mark.parametrize("nothing", [math.nan, math.inf, -math.inf])
def test_who_has_no_finite_metric_is_last(nothing: float) -> None:
    searcher, (first, second, third, _) = _three()
    assert not _report(searcher, first, 0.5, 5)
    assert _report(searcher, second, nothing, 5)
    assert not _report(searcher, third, 0.4, 5)


def test_a_trial_that_failed_counts_as_one_that_reached_the_next_rung_with_the_worst_metric() -> None:
    searcher, (first, second, third, fourth) = _three()
    assert not _report(searcher, first, 0.1, 5)
    searcher.step(TrialExited(second, ExitReason.ERRORED))
    searcher.step(TrialExited(third, ExitReason.ERRORED))
    assert not _report(searcher, fourth, 0.2, 5), "the second of four is in the better half"


def test_nothing_more_is_heard_of_a_trial_that_has_exited() -> None:
    searcher, (first, *_) = _three()
    searcher.step(TrialExited(first, ExitReason.ERRORED))
    before = searcher.snapshot()
    assert searcher.step(TrialExited(first, ExitReason.INVALID_HP)) == []
    assert not _report(searcher, first, 0.1, 10)
    assert searcher.snapshot() == before


def test_a_trial_with_invalid_hyperparameters_has_never_been_and_is_replaced() -> None:
    searcher, (first, second, third, _) = _three()
    assert not _report(searcher, first, 0.1, 5)
    assert searcher.step(TrialExited(first, ExitReason.INVALID_HP)) == [Stop(first)]
    [replacement] = searcher.step(TrialClosed(first))
    assert isinstance(replacement, Create)
    assert not _report(searcher, second, 0.5, 5), "the first one's metric is gone"
    assert _report(searcher, third, 0.6, 5)


def test_a_trial_that_trains_again_after_a_restart_is_not_compared_again() -> None:
    searcher, (first, second, third, _) = _three()
    assert not _report(searcher, first, 0.5, 6)
    assert not _report(searcher, first, 0.9, 3)
    assert not _report(searcher, first, 0.9, 5)
    assert _report(searcher, second, 0.6, 5)
    assert not _report(searcher, third, 0.4, 5)
