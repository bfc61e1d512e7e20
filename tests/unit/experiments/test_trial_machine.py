"""The lifecycle of a trial: what is done about what happens, and laws that hold whatever happens."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.engines.protocol import TRANSIENT, Failure
from muster.experiments.inbox import EarlyExit
from muster.experiments.states import TrialState
from muster.experiments.trial import (
    CHANGES,
    LEAVE_SECONDS,
    Activated,
    Admitted,
    Ask,
    Close,
    Effect,
    EndLater,
    Event,
    Exited,
    GaveUp,
    NodeExcluded,
    Paused,
    RetriesCancelled,
    Start,
    State,
    StopAsked,
    resume,
    step,
)
from muster.search.protocol import ExitReason
from muster.tasks.allocation_states import Ended, Signal

T = TrialState
DONE = Ended("done", is_stopped_early=True)
FAILED = Ended("it broke", Failure.RESOURCES_FAILED, exit_code=1)
LOST = Ended("its node is gone", Failure.AGENT_FAILED)
PREEMPTED = Ended("preempted", is_preempted=True)
KILLED = Ended("killed", is_killed=True)
NEVER_STARTED = Ended("aborted before it began")
STOPS = [T.STOPPING_COMPLETED, T.STOPPING_CANCELED, T.STOPPING_ERROR, T.STOPPING_KILLED]


class Run:
    """Steps one trial, and keeps all that is to be done."""

    def __init__(self, max_restarts: int = 2) -> None:
        self.state = State(max_restarts=max_restarts)
        self.effects: list[Effect] = []

    def take(self, *events: Event) -> list[Effect]:
        made: list[Effect] = []
        for event in events:
            self.state, effects = step(self.state, event)
            made += effects
        self.effects += made
        return made

    def started(self) -> "Run":
        self.take(Admitted())
        return self

    def exit(self, ended: Ended) -> list[Effect]:
        return self.take(Exited(self.state.run, ended))


def stop(to: TrialState, exit: ExitReason | None = None) -> StopAsked:
    return StopAsked(to, "so it is wanted", exit)


def test_its_usual_life() -> None:
    run = Run()
    assert run.state.is_waiting
    assert run.take(Admitted()) == [Start(1)]
    assert (run.state.run, run.state.is_live) == (1, True)
    assert run.take(Admitted()) == [], "one run at a time"
    assert run.exit(DONE) == [Close(1)]
    assert (run.state.phase, run.state.exit) == (T.COMPLETED, None)


def test_failures_of_its_program_are_tried_again_as_often_as_it_may() -> None:
    run = Run(max_restarts=2).started()
    for number in (1, 2):
        assert run.exit(FAILED) == []
        assert (run.state.restarts, run.state.is_waiting) == (number, True)
        assert run.take(Admitted()) == [Start(number + 1)]
    assert run.exit(FAILED) == [Close(3)]
    assert (run.state.phase, run.state.restarts, run.state.exit) == (T.ERROR, 2, ExitReason.ERRORED)
    assert "2 times" in run.state.reason


@pytest.mark.parametrize("ended", [*(Ended("x", failure) for failure in TRANSIENT), PREEMPTED, KILLED, NEVER_STARTED])
def test_what_is_not_its_fault_is_tried_again_and_not_counted(ended: Ended) -> None:
    run = Run(max_restarts=0).started()
    assert run.exit(ended) == []
    assert (run.state.phase, run.state.restarts, run.state.is_waiting) == (T.ACTIVE, 0, True)


def test_what_can_never_run_is_not_tried_again() -> None:
    run = Run().started()
    assert run.exit(Ended("no such pool", Failure.INVALID_REQUEST)) == [Close(1)]
    assert run.state.phase is T.ERROR


def test_an_exit_that_is_told_again_or_of_an_earlier_run_changes_nothing() -> None:
    run = Run().started()
    run.exit(FAILED)
    before = run.state
    assert run.take(Exited(1, FAILED)) == []
    run.take(Admitted())
    assert run.take(Exited(1, DONE)) == []
    assert (run.state.run, run.state.restarts) == (2, before.restarts)


def test_a_pause_asks_it_to_stop_and_it_goes_on_only_when_it_may() -> None:
    run = Run().started()
    assert run.take(Paused()) == [Ask(1, Signal.TERMINATE, "the experiment was paused")]
    assert run.exit(PREEMPTED) == []
    assert run.take(Admitted()) == []
    assert run.take(Activated(), Admitted()) == [Start(2)]


def test_one_that_goes_on_before_it_has_stopped_waits_for_that() -> None:
    run = Run().started()
    run.take(Paused(), Activated())
    assert run.take(Admitted()) == []
    assert run.exit(PREEMPTED) == []
    assert run.take(Admitted()) == [Start(2)]


def test_one_that_ends_well_while_it_is_paused_is_done() -> None:
    run = Run().started()
    run.take(Paused())
    assert run.exit(DONE) == [Close(1)]
    assert run.state.phase is T.COMPLETED


def test_the_search_stops_a_trial_that_runs_by_the_signal_and_it_is_complete() -> None:
    run = Run().started()
    assert run.take(stop(T.STOPPING_COMPLETED)) == [Ask(1, Signal.TERMINATE, "so it is wanted")]
    assert run.exit(PREEMPTED) == [Close(1)]
    assert (run.state.phase, run.state.exit) == (T.COMPLETED, None)


@pytest.mark.parametrize(
    ("to", "signal", "final"),
    [
        (T.STOPPING_COMPLETED, Signal.TERMINATE, T.COMPLETED),
        (T.STOPPING_CANCELED, Signal.TERMINATE, T.CANCELED),
        (T.STOPPING_ERROR, Signal.KILL, T.ERROR),
        (T.STOPPING_KILLED, Signal.KILL, T.CANCELED),
    ],
)
def test_how_it_is_stopped_decides_how_it_ends(to: TrialState, signal: Signal, final: TrialState) -> None:
    running, waiting = Run().started(), Run()
    assert running.take(stop(to)) == [Ask(1, signal, "so it is wanted")]
    assert running.exit(KILLED) == [Close(1)]
    assert waiting.take(stop(to)) == [Close(0)], "there is nothing to wait for"
    assert running.state.phase is waiting.state.phase is final


def test_a_program_that_breaks_when_it_is_stopped_early_has_failed_but_not_one_whose_node_is_lost() -> None:
    broken, lost = Run().started(), Run().started()
    for run, ended in ((broken, FAILED), (lost, LOST)):
        run.take(stop(T.STOPPING_COMPLETED))
        run.exit(ended)
    assert (broken.state.phase, lost.state.phase) == (T.ERROR, T.COMPLETED)


def test_a_cancel_may_become_a_kill_but_no_kill_a_cancel() -> None:
    run = Run().started()
    run.take(stop(T.STOPPING_CANCELED))
    assert run.take(stop(T.STOPPING_KILLED)) == [Ask(1, Signal.KILL, "so it is wanted")]
    assert run.take(stop(T.STOPPING_CANCELED), Paused(), Activated()) == []
    assert run.take(stop(T.STOPPING_KILLED)) == [Ask(1, Signal.KILL, "so it is wanted")], "told again"
    assert run.state.phase is T.STOPPING_KILLED


@pytest.mark.parametrize(
    ("reason", "told"),
    [
        (EarlyExit.INVALID_HP, ExitReason.INVALID_HP),
        (EarlyExit.USER_REQUESTED_STOP, ExitReason.USER_REQUESTED_STOP),
    ],
)
def test_one_that_gives_up_has_some_seconds_to_leave(reason: EarlyExit, told: ExitReason) -> None:
    run = Run().started()
    assert run.take(GaveUp(reason)) == [EndLater(1, LEAVE_SECONDS)]
    assert run.take(GaveUp(reason)) == []
    assert run.exit(FAILED) == [Close(1)]
    assert (run.state.phase, run.state.exit) == (T.COMPLETED, told)


def test_a_policy_of_logs_may_say_that_it_is_not_tried_again() -> None:
    run = Run(max_restarts=5).started()
    run.take(RetriesCancelled("policy x"), NodeExcluded("n1"), NodeExcluded("n1"), NodeExcluded("n2"))
    assert run.state.excluded == ("n1", "n2")
    assert run.exit(LOST) == [], "that is about failures of its own"
    run.take(Admitted())
    assert run.exit(FAILED) == [Close(2)]
    assert "policy x" in run.state.reason


def test_what_is_done_again_after_a_restart() -> None:
    run = Run()
    assert resume(run.state) == []
    run.started()
    assert resume(run.state) == [Start(1)]
    run.take(GaveUp(EarlyExit.INVALID_HP), stop(T.STOPPING_KILLED))
    assert resume(run.state) == [Start(1), Ask(1, Signal.KILL, "so it is wanted"), EndLater(1, LEAVE_SECONDS)]
    run.exit(KILLED)
    assert resume(run.state) == []


EVENTS = st.one_of(
    st.just(Admitted()),
    st.builds(
        Exited,
        st.integers(1, 4),
        st.sampled_from([DONE, FAILED, LOST, PREEMPTED, KILLED, NEVER_STARTED]),
    ),
    st.just(Paused()),
    st.just(Activated()),
    st.sampled_from(STOPS).map(stop),
    st.sampled_from([*EarlyExit]).map(GaveUp),
    st.just(RetriesCancelled("x")),
)


@settings(max_examples=75, deadline=None)
@given(st.lists(EVENTS, max_size=30), st.integers(0, 2))
def test_laws(events: list[Event], max_restarts: int) -> None:
    """At most one run at a time, each number once; it closes once, and stays as it ended; only foreseen changes."""
    run, started, live = Run(max_restarts), list[int](), set[int]()
    for event in events:
        before = run.state
        was_live = before.is_live and isinstance(event, Exited) and event.run == before.run
        made = run.take(event)
        live -= {before.run} if was_live else set()
        for effect in made:
            if isinstance(effect, Start):
                started.append(effect.run)
                live.add(effect.run)
            if isinstance(effect, Ask):
                assert effect.run in live
        assert len(live) <= 1
        assert run.state.phase is before.phase or _is_reachable(before.phase, run.state.phase)
        assert run.state.restarts <= max_restarts
        if before.is_over:
            assert (run.state, made) == (before, [])
        assert msgspec.convert(msgspec.to_builtins(run.state), State) == run.state
    assert started == list(range(1, len(started) + 1))
    assert sum(isinstance(effect, Close) for effect in run.effects) == run.state.is_over


def _is_reachable(before: TrialState, after: TrialState) -> bool:
    """At once, or over one state in between that nobody sees."""
    return (before, after) in CHANGES or any((before, each) in CHANGES and (each, after) in CHANGES for each in STOPS)
