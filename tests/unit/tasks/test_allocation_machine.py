"""The lifecycle of an allocation: what is done about what happens, and laws that hold whatever happens."""

import itertools

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.api.meta import Instant
from muster.engines.protocol import AllocationId, Exit, Failure, Resource, ResourceId, ResourceState
from muster.tasks.allocation import due, resume, step
from muster.tasks.allocation_states import (
    CHANGES,
    Acknowledged,
    AskToStop,
    BecameDaemon,
    Changed,
    Close,
    Effect,
    EngineFailed,
    Event,
    Granted,
    KillParts,
    OpenProxies,
    Phase,
    ProxyTold,
    Readied,
    Release,
    Report,
    Signal,
    Signalled,
    State,
    Tell,
    Ticked,
    Waited,
    WasReleased,
    WasReported,
)

R = ResourceState
FAILED, DONE = Exit(1, Failure.RESOURCES_FAILED), Exit(0)
ABORTED = Exit(137, Failure.RESOURCES_ABORTED)


def at(seconds: float) -> Instant:
    return Instant(seconds)


def name(rank: int) -> ResourceId:
    return ResourceId(f"a-{rank}")


def resource(rank: int, state: ResourceState = R.ASSIGNED, exit: Exit | None = None, address: str = "") -> Resource:
    return Resource(id=name(rank), rank=rank, node=f"n{rank}", slots=1, state=state, exit=exit, address=address)


class Run:
    """Steps one allocation, and keeps all that is to be done."""

    def __init__(self, parts: int = 1, **settings: object) -> None:
        self.state = State(id=AllocationId("a"), **settings)  # type: ignore[arg-type]
        self.effects: list[Effect] = []
        self.parts = parts

    def take(self, event: Event) -> list[Effect]:
        self.state, effects = step(self.state, event)
        self.effects += effects
        return effects

    def grant(self) -> "Run":
        self.take(Granted(at(1), tuple(resource(rank) for rank in range(self.parts))))
        return self

    def start(self) -> "Run":
        self.grant()
        for rank in range(self.parts):
            for state in (R.PULLING, R.STARTING, R.RUNNING):
                self.take(Changed(at(2), resource(rank, state, address=f"10.0.0.{rank}")))
        return self

    def ready(self) -> "Run":
        self.start()
        self.take(Readied(at(3)))
        return self

    def exit(self, rank: int, exit: Exit, seconds: float = 10) -> list[Effect]:
        return self.take(Changed(at(seconds), resource(rank, R.TERMINATED, exit)))

    def ask(self, signal: Signal, seconds: float = 5, reason: str = "so it is wanted") -> list[Effect]:
        return self.take(Signalled(at(seconds), signal, reason))

    def phase(self) -> Phase:
        return self.state.phase

    @property
    def reason(self) -> str:
        assert self.state.ended is not None
        return self.state.ended.reason


def kinds(effects: list[Effect]) -> list[type]:
    return [type(effect) for effect in effects if not isinstance(effect, Tell)]


def test_its_usual_life() -> None:
    run = Run()
    seen = [run.state.phase]
    for state in (R.ASSIGNED, R.PULLING, R.STARTING, R.RUNNING):
        event = Changed(at(2), resource(0, state)) if state is not R.ASSIGNED else Granted(at(1), (resource(0),))
        run.take(event)
        seen.append(run.state.phase)
    assert seen == ["PENDING", "ASSIGNED", "PULLING", "STARTING", "RUNNING"]
    assert kinds(run.exit(0, DONE)) == [Close, Release]
    assert (run.state.phase, run.state.started_at, run.state.ended_at) == (Phase.TERMINATED, at(2), at(10))
    assert run.state.ended is not None
    assert run.state.ended.is_stopped_early
    assert kinds(run.take(WasReleased(at(11)))) == [Report]
    assert run.take(WasReleased(at(12))) == []
    run.take(WasReported(at(13)))
    assert run.state.is_reported


def test_it_runs_when_all_of_it_runs() -> None:
    run = Run(2).grant()
    for state in (R.PULLING, R.STARTING, R.RUNNING):
        run.take(Changed(at(2), resource(0, state)))
    assert run.phase() is Phase.ASSIGNED
    run.take(Changed(at(3), resource(1, R.RUNNING)))
    assert run.phase() is Phase.RUNNING


def test_what_never_started_has_no_times() -> None:
    run = Run().grant()
    run.exit(0, Exit(None, Failure.RESOURCES_FAILED, "no such image"))
    assert (run.state.started_at, run.state.ended_at) == (None, None)
    assert "no such image" in run.reason


def test_a_task_that_waited_runs_when_it_is_ready() -> None:
    run = Run().start()
    run.take(Waited(at(3)))
    assert run.phase() is Phase.WAITING
    run.take(Readied(at(4)))
    assert (run.state.phase, run.state.is_ready) == (Phase.RUNNING, True)
    run.take(Waited(at(5)))
    assert run.phase() is Phase.RUNNING


def test_only_the_chief_is_reached_and_where_it_says() -> None:
    run = Run(2).start()
    assert [effect for effect in run.effects if isinstance(effect, OpenProxies)] == [OpenProxies("10.0.0.0")]
    assert run.take(ProxyTold(at(4), "elsewhere")) == [OpenProxies("elsewhere")]
    assert run.state.chief_address == "elsewhere"


# Ending


def test_one_that_waits_ends_at_once() -> None:
    run = Run()
    assert kinds(run.ask(Signal.KILL)) == [Close, Release]
    assert run.reason == "allocation aborted after exit before start: so it is wanted"
    assert run.take(Granted(at(6), (resource(0),))) == []


def test_a_kill_is_repeated_until_it_worked_but_not_at_once() -> None:
    run = Run(2).start()
    assert kinds(run.ask(Signal.KILL, 100)) == [KillParts]
    assert run.phase() is Phase.TERMINATING
    assert run.ask(Signal.KILL, 110) == []
    assert run.take(Ticked(at(129))) == []
    assert due(run.state) == at(130)
    assert run.take(Ticked(at(130))) == [KillParts((name(0), name(1)))]
    run.exit(0, ABORTED, 131)
    assert run.take(Ticked(at(160))) == [KillParts((name(1),))]
    assert kinds(run.exit(1, ABORTED, 161)) == [Close, Release]
    assert run.state.ended is not None
    assert (run.state.ended.failure, run.state.ended.is_killed) == (None, True)


def test_when_a_part_fails_the_rest_is_killed_and_its_failure_is_told() -> None:
    run = Run(3).start()
    assert kinds(run.exit(1, FAILED)) == [KillParts]
    run.exit(0, ABORTED)
    run.exit(2, ABORTED)
    assert run.state.ended is not None
    assert (run.state.ended.failure, run.state.ended.exit_code) == (Failure.RESOURCES_FAILED, 1)
    assert "a-1" in run.reason


def test_what_cannot_be_asked_is_killed() -> None:
    assert kinds(Run().start().ask(Signal.TERMINATE)) == [KillParts]
    assert kinds(Run(is_preemptible=True).start().ask(Signal.TERMINATE)) == [KillParts], "it has not begun its work"
    assert kinds(Run(is_preemptible=True).ready().ask(Signal.TERMINATE)) == [AskToStop]
    forced = Run(is_preemptible=True).start()
    assert kinds(forced.take(Signalled(at(5), Signal.PREEMPT, "now", True))) == [AskToStop]


def test_its_time_is_not_begun_anew_and_then_it_is_killed() -> None:
    run = Run(is_preemptible=True, preemption_timeout=60.0).ready()
    run.ask(Signal.PREEMPT, 100)
    assert run.ask(Signal.TERMINATE, 130) == []
    assert due(run.state) == at(160)
    assert kinds(run.take(Ticked(at(160)))) == [KillParts]


@pytest.mark.parametrize(("acknowledges", "expected"), [(True, "preempted"), (False, "stopped early")])
def test_whether_it_has_heard_tells_why_it_ended(acknowledges: bool, expected: str) -> None:
    run = Run(is_preemptible=True).ready()
    run.ask(Signal.PREEMPT)
    if acknowledges:
        run.take(Acknowledged(at(6)))
    run.exit(0, DONE)
    assert run.reason == f"allocation {expected} after so it is wanted"


def test_an_acknowledgement_that_nobody_asked_for_means_nothing() -> None:
    run = Run(is_preemptible=True).ready()
    run.take(Acknowledged(at(6)))
    run.exit(0, DONE)
    assert run.state.ended is not None
    assert not run.state.ended.is_preempted


def test_daemons_are_not_waited_for_and_their_end_is_no_failure() -> None:
    run = Run(3).start()
    run.take(BecameDaemon(at(4), name(1)))
    run.take(BecameDaemon(at(4), name(2)))
    assert run.exit(0, DONE)[-2:] == [
        KillParts((name(1), name(2))),
        Tell("killed: all but its daemons have exited", "DEBUG"),
    ]
    told = run.exit(1, Exit(137, Failure.RESOURCES_ABORTED))
    assert [effect.level for effect in told if isinstance(effect, Tell)] == ["DEBUG"]
    run.exit(2, Exit(137, Failure.RESOURCES_ABORTED))
    assert run.state.ended is not None
    assert run.state.ended.failure is None


def test_daemons_that_die_slowly_are_killed_again_and_their_task_has_still_ended_well() -> None:
    run = Run(2).start()
    run.take(BecameDaemon(at(4), name(1)))
    run.exit(0, DONE, 10)
    assert run.take(Ticked(at(40))) == [KillParts((name(1),))]
    run.exit(1, ABORTED, 41)
    assert run.state.ended is not None
    assert (run.state.ended.is_stopped_early, run.state.ended.is_killed) == (True, False)


def test_a_failed_chief_is_told_also_where_daemons_are_killed_after_it() -> None:
    run = Run(2).start()
    run.take(BecameDaemon(at(4), name(1)))
    run.exit(0, FAILED)
    run.exit(1, ABORTED)
    assert run.state.ended is not None
    assert run.state.ended.failure is Failure.RESOURCES_FAILED


def test_a_part_alone_is_no_daemon_and_where_all_are_they_are_killed() -> None:
    alone = Run().start()
    alone.take(BecameDaemon(at(4), name(0)))
    assert not alone.state.parts[0].is_daemon
    run = Run(2).start()
    run.take(BecameDaemon(at(4), name(0)))
    assert kinds(run.take(BecameDaemon(at(4), name(1)))) == [KillParts]


@pytest.mark.parametrize("failure", list(Failure))
def test_every_failure_has_words(failure: Failure) -> None:
    run = Run().start()
    run.take(EngineFailed(at(5), failure, "the message"))
    assert run.state.ended is not None
    assert run.state.ended.failure is failure
    assert run.reason.endswith(": the message")


def test_a_lost_node_is_told_before_what_it_has_brought_about() -> None:
    run = Run(2).start()
    run.exit(0, FAILED)
    run.exit(1, Exit(137, Failure.AGENT_FAILED, "node lost"))
    assert run.state.ended is not None
    assert run.state.ended.failure is Failure.AGENT_FAILED


def test_resources_that_are_not_the_same_are_not_taken() -> None:
    run = Run().start()
    assert run.take(Granted(at(5), (resource(0),))) == []
    run.take(Granted(at(6), (resource(7),)))
    assert "no longer needs" in run.reason


def test_what_was_missed_during_a_restart_is_caught_up_with() -> None:
    run = Run(2).start()
    found = (resource(0, R.TERMINATED, DONE), resource(1, R.TERMINATED, DONE))
    run.take(Granted(at(50), found, is_recovered=True))
    assert run.phase() is Phase.TERMINATED
    fresh = Run(2)
    fresh.take(Granted(at(50), (resource(0, R.RUNNING, address="x"), resource(1, R.RUNNING)), is_recovered=True))
    assert (fresh.state.phase, fresh.state.chief_address) == (Phase.RUNNING, "x")


def test_after_a_restart_all_is_done_again_that_may_not_have_been() -> None:
    run = Run(is_preemptible=True).ready()
    assert resume(run.state) == [OpenProxies("10.0.0.0")]
    run.ask(Signal.PREEMPT)
    assert resume(run.state)[-1:] == [AskToStop()]
    run.ask(Signal.KILL)
    assert resume(run.state)[-1:] == [KillParts((name(0),))]
    run.exit(0, ABORTED)
    assert resume(run.state) == [Close(), Release()]
    run.take(WasReleased(at(20)))
    assert kinds(resume(run.state)) == [Close, Report]
    run.take(WasReported(at(21)))
    assert resume(run.state) == []


# Laws

instants = st.floats(0, 10_000, allow_nan=False).map(Instant)
ranks = st.integers(0, 3)
exits = st.one_of(st.just(DONE), st.builds(Exit, st.sampled_from([None, 0, 1, 137]), st.sampled_from([*Failure, None])))
resources = st.builds(
    lambda rank, state, exit, address: resource(rank, state, exit if state is R.TERMINATED else None, address),
    ranks,
    st.sampled_from(list(R)),
    exits,
    st.sampled_from(["", "10.0.0.1", "10.0.0.2"]),
)
grants = st.builds(
    lambda when, count, recovered: Granted(when, tuple(resource(rank) for rank in range(count)), recovered),
    instants,
    st.integers(1, 4),
    st.booleans(),
)
events = st.one_of(
    grants,
    st.builds(Changed, instants, resources),
    st.builds(Changed, instants, resources),
    st.builds(Readied, instants),
    st.builds(Waited, instants),
    st.builds(Signalled, instants, st.sampled_from(list(Signal)), st.just("why"), st.booleans()),
    st.builds(Acknowledged, instants),
    st.builds(BecameDaemon, instants, ranks.map(name)),
    st.builds(ProxyTold, instants, st.just("there")),
    st.builds(Ticked, instants),
    st.builds(EngineFailed, instants, st.sampled_from(list(Failure)), st.just("oh")),
    st.builds(WasReleased, instants),
    st.builds(WasReported, instants),
)
histories = st.tuples(st.booleans(), st.lists(events, max_size=30))


@settings(max_examples=75, deadline=None)
@given(histories)
def test_whatever_happens(history: tuple[bool, list[Event]]) -> None:
    is_preemptible, happened = history
    first = State(id=AllocationId("a"), is_preemptible=is_preemptible, preemption_timeout=60.0)
    run, phases = Run(), [first.phase]
    run.state = first
    for event in happened:
        before = run.state
        effects = run.take(event)
        if run.state.phase is not before.phase:
            phases.append(run.state.phase)
        if before.is_over:
            assert run.phase() is Phase.TERMINATED
            assert run.state.ended == before.ended
            assert not {KillParts, Release, AskToStop, OpenProxies} & set(kinds(effects))
        over = {part.id for part in before.parts if part.is_over}
        assert over <= {part.id for part in run.state.parts if part.is_over}, "an end is an end"
        assert msgspec.json.decode(msgspec.json.encode(run.state), type=State) == run.state
    assert all(change in CHANGES for change in itertools.pairwise(phases))
    done = kinds(run.effects)
    assert done.count(Release) == done.count(Close) == int(run.state.is_over)
    assert done.count(Report) == int(run.state.is_released)
    assert (run.state.ended is not None) == run.state.is_over
    assert run.state.is_over or not run.state.parts or run.state.live, "nothing is left, and it is not over"
    again = first
    for event in happened:
        again, _ = step(again, event)
    assert again == run.state


@settings(max_examples=50, deadline=None)
@given(histories)
def test_it_always_comes_to_an_end(history: tuple[bool, list[Event]]) -> None:
    """Somebody kills it, and all that is killed ends: then it is over, released and reported."""
    is_preemptible, happened = history
    run = Run()
    run.state = State(id=AllocationId("a"), is_preemptible=is_preemptible)
    for event in happened:
        run.take(event)
    now = 20_000.0
    run.ask(Signal.KILL, now)
    for _ in range(3):
        now += 60
        effects = run.take(Ticked(at(now)))
        for effect in effects:
            for killed in effect.resources if isinstance(effect, KillParts) else ():
                run.exit(int(killed.removeprefix("a-")), ABORTED, now)
    run.take(WasReleased(at(now)))
    assert run.state.is_over
    assert kinds(run.effects).count(Report) == 1
