"""The lifecycle of an experiment around a search: what is told the search, and what is done about what it says."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.engines.protocol import Failure
from muster.experiments import trial
from muster.experiments.experiment import (
    CHANGES,
    Activated,
    Before,
    Begun,
    BudgetSpent,
    Event,
    LimitChanged,
    Machine,
    OfTrial,
    Outcome,
    Paused,
    RunEnded,
    StopAsked,
    Validated,
)
from muster.experiments.inbox import EarlyExit
from muster.experiments.states import ENDED, ExperimentState, TrialState
from muster.search import protocol as search
from muster.search import registry
from muster.search.protocol import Action, ExitReason, RequestId
from muster.tasks.allocation_states import Ended, Signal

E, T = ExperimentState, TrialState
DONE, BAD = Ended("done", is_stopped_early=True), Ended("it broke", Failure.RESOURCES_FAILED)
PREEMPTED = Ended("preempted", is_preempted=True)
A, B, C = (RequestId(name * 36) for name in "abc")


class Scripted:
    """A search that wants what it is told to, and notes what it hears."""

    def __init__(self, *first: Action) -> None:
        self.first = list(first)
        self.replies: dict[type[search.Event], list[Action]] = {}
        self.heard: list[search.Event] = []

    def start(self) -> list[Action]:
        return self.first

    def step(self, event: search.Event) -> list[Action]:
        self.heard.append(event)
        return self.replies.pop(type(event), [])

    def progress(self) -> float:
        return 0.0

    def snapshot(self) -> bytes:
        return b"x"


def create(*ids: RequestId) -> list[Action]:
    return [search.Create(id, {}, 0) for id in ids]


def begun(searcher: search.Searcher, **settings: object) -> Machine:
    machine = Machine(searcher, **settings)  # type: ignore[arg-type]
    machine.take(Begun())
    return machine


def starts(outcome: Outcome) -> list[RequestId]:
    return [do.request_id for do in outcome.effects if isinstance(do.effect, trial.Start)]


def asks(outcome: Outcome) -> list[tuple[RequestId, Signal]]:
    return [(do.request_id, do.effect.signal) for do in outcome.effects if isinstance(do.effect, trial.Ask)]


def test_what_the_search_creates_is_started_and_it_is_told() -> None:
    searcher = Scripted(*create(A, B))
    machine = begun(searcher)
    outcome = machine.taken()
    assert [action.request_id for action in outcome.created] == starts(outcome) == [A, B]
    assert searcher.heard == [search.TrialCreated(A), search.TrialCreated(B)]
    machine.take(Validated(A, 0.5, 10.0))
    searcher.replies[search.TrialClosed] = create(C)
    machine.take(RunEnded(A, 1, DONE, slot_seconds=8.0))
    after = machine.taken()
    assert (starts(after), after.slot_seconds, after.changed[A].phase) == ([C], 8.0, T.COMPLETED)
    assert searcher.heard[2:] == [
        search.ValidationReported(A, 0.5, 10.0),
        search.TrialClosed(A),
        search.TrialCreated(C),
    ]
    assert set(machine.trials) == {B, C}, "what has ended is not kept"


def test_a_search_that_stops_a_trial_early_has_it_asked() -> None:
    searcher = Scripted(*create(A, B))
    machine = begun(searcher, most=1)
    machine.taken()
    searcher.replies[search.ValidationReported] = [search.Stop(A), search.Stop(B)]
    machine.take(Validated(A, 0.5, 1.0))
    outcome = machine.taken()
    assert asks(outcome) == [(A, Signal.TERMINATE)]
    assert outcome.changed[B].phase is T.COMPLETED, "it waited, and never runs"
    assert search.TrialClosed(B) in searcher.heard
    machine.take(RunEnded(A, 1, PREEMPTED))
    assert searcher.heard[-1] == search.TrialClosed(A)


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        (RunEnded(A, 1, BAD), ExitReason.ERRORED),
        (OfTrial(A, trial.StopAsked(T.STOPPING_KILLED, "x", ExitReason.USER_CANCELED)), ExitReason.USER_CANCELED),
        (OfTrial(A, trial.GaveUp(EarlyExit.INVALID_HP)), ExitReason.INVALID_HP),
    ],
)
def test_the_search_hears_why_a_trial_ended_before_it_hears_that_it_has(event: Event, reason: ExitReason) -> None:
    searcher = Scripted(*create(A))
    machine = begun(searcher)
    machine.take(event)
    machine.take(RunEnded(A, 1, PREEMPTED))
    assert searcher.heard[1:] == [search.TrialExited(A, reason), search.TrialClosed(A)]


@pytest.mark.parametrize(
    ("shutdown", "final"),
    [
        (search.Shutdown(), E.COMPLETED),
        (search.Shutdown(is_failure=True), E.ERROR),
        (search.Shutdown(is_cancel=True), E.CANCELED),
    ],
)
def test_it_ends_as_its_search_says(shutdown: search.Shutdown, final: ExperimentState) -> None:
    searcher = Scripted(*create(A))
    machine = begun(searcher)
    searcher.replies[search.TrialClosed] = [shutdown]
    machine.take(RunEnded(A, 1, DONE))
    assert machine.state is final
    assert bool(machine.error) is (final is E.ERROR)


def test_a_search_that_raises_ends_its_experiment_and_what_runs_for_it() -> None:
    class Broken(Scripted):
        def step(self, event: search.Event) -> list[Action]:
            if isinstance(event, search.ValidationReported):
                raise ArithmeticError("no such number")
            return super().step(event)

    machine = begun(Broken(*create(A)))
    machine.taken()
    machine.take(Validated(A, 1.0, 1.0))
    assert (machine.state, asks(machine.taken())) == (E.STOPPING_ERROR, [(A, Signal.KILL)])
    assert "no such number" in machine.error
    machine.take(RunEnded(A, 1, PREEMPTED))
    assert machine.state is E.ERROR


def test_a_pause_holds_for_all_trials_also_for_those_that_come_later() -> None:
    searcher = Scripted(*create(A, B))
    machine = begun(searcher, most=1)
    machine.take(Paused())
    assert machine.state is E.PAUSED
    machine.taken()
    searcher.replies[search.TrialClosed] = create(C)
    machine.take(RunEnded(A, 1, DONE))
    outcome = machine.taken()
    assert (starts(outcome), outcome.changed[C].phase) == ([], T.PAUSED)
    machine.take(Activated())
    assert starts(machine.taken()) == [B]
    machine.take(LimitChanged(None))
    assert starts(machine.taken()) == [C]


@pytest.mark.parametrize(("to", "signal"), [(E.STOPPING_CANCELED, Signal.TERMINATE), (E.STOPPING_KILLED, Signal.KILL)])
def test_who_cancels_or_kills_ends_all_and_the_search_has_no_more_say(to: ExperimentState, signal: Signal) -> None:
    searcher = Scripted(*create(A, B))
    machine = begun(searcher, most=1)
    heard = list(searcher.heard)
    machine.taken()
    machine.take(StopAsked(to, "by its user"))
    assert asks(machine.taken()) == [(A, signal)]
    assert machine.state is to
    machine.take(Validated(A, 1.0, 1.0))
    machine.take(RunEnded(A, 1, PREEMPTED))
    assert (machine.state, searcher.heard) == (E.CANCELED, heard)


def test_a_budget_is_told_once() -> None:
    searcher = Scripted(*create(A))
    machine = begun(searcher)
    machine.taken()
    searcher.replies[search.BudgetSpent] = [search.Stop(A)]
    machine.take(BudgetSpent("spent"))
    outcome = machine.taken()
    assert (outcome.note, asks(outcome)) == ("spent", [(A, Signal.TERMINATE)])
    machine.take(BudgetSpent("spent"))
    assert (machine.taken().note, searcher.heard.count(search.BudgetSpent())) == ("", 1)


def test_one_that_is_continued_goes_on_with_what_was_not_done() -> None:
    searcher = Scripted(*create(A, B))
    machine = begun(searcher, before={A: Before(is_done=True, run=1), B: Before(is_done=False, run=3)})
    outcome = machine.taken()
    assert (starts(outcome), outcome.changed[B].run) == ([B], 4)
    assert search.TrialClosed(A) in searcher.heard


CONFIG = {"name": "random", "metric": "x", "max_trials": 6, "max_concurrent_trials": 3}
SPACE = {"lr": {"type": "double", "minval": 0.0, "maxval": 1.0}}
ASKED: dict[str, Event] = {
    "pause": Paused(),
    "activate": Activated(),
    "cancel": StopAsked(E.STOPPING_CANCELED, "x"),
    "kill": StopAsked(E.STOPPING_KILLED, "x"),
}
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("exit"), st.integers(0, 5), st.sampled_from([DONE, BAD, PREEMPTED])),
        st.tuples(st.just("validate"), st.integers(0, 5), st.floats(0, 1)),
        st.tuples(st.sampled_from([*ASKED]), st.just(0), st.just(None)),
        st.tuples(st.just("limit"), st.integers(0, 4), st.just(None)),
    ),
    max_size=40,
)


@settings(max_examples=50, deadline=None)
@given(STEPS)
def test_laws(steps: list[tuple[str, int, object]]) -> None:
    """Only foreseen changes; nothing runs beyond the limit or after the end; the search is restored at any point and
    decides the same."""
    checked = registry.checked(CONFIG, SPACE)
    assert not isinstance(checked, list)
    machine = begun(registry.created(checked.config, checked.space, 7))
    ids, limit = [action.request_id for action in machine.taken().created], 99
    for what, number, value in steps:
        before, live = machine.state, sum(found.is_live for found in machine.trials.values())
        event: Event
        match what, value:
            case "exit", Ended():
                id = ids[number % len(ids)]
                event = RunEnded(id, machine.trials[id].run if id in machine.trials else 1, value)
            case "validate", float():
                event = Validated(ids[number % len(ids)], value, 1.0)
            case "limit", _:
                event, limit = LimitChanged(number), number
            case _:
                event = ASKED[what]
        restored = registry.restored(checked.config, checked.space, 7, machine.searcher.snapshot())
        copy = Machine(restored, machine.state, machine.trials, most=None if limit == 99 else limit)
        machine.take(event)
        copy.take(event)
        made, again = machine.taken(), copy.taken()
        assert [action.request_id for action in made.created] == [action.request_id for action in again.created]
        ids += [action.request_id for action in made.created]
        now = sum(found.is_live for found in machine.trials.values())
        assert now <= max(limit, live)
        assert machine.state is before or _is_reachable(before, machine.state)
        assert (machine.state in ENDED) <= (not machine.trials)
    assert len(ids) <= CONFIG["max_trials"]  # type: ignore[operator]


def _is_reachable(before: ExperimentState, after: ExperimentState) -> bool:
    """At once, or over one state in between that nobody sees."""
    return (before, after) in CHANGES or any((before, each) in CHANGES and (each, after) in CHANGES for each in E)
