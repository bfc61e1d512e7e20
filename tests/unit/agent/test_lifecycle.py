"""The pod lifecycle: a table of stories, and properties that hold for any order of events."""

from dataclasses import dataclass, field

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.agent import lifecycle
from muster.agent.messages import (
    Abandoned,
    Admitted,
    Adopted,
    BeginProbes,
    Effect,
    Event,
    Evicted,
    Exited,
    Forget,
    Launch,
    PreStopEnded,
    Probed,
    Refused,
    Remove,
    Report,
    RunPreStop,
    Signal,
    Started,
    StopRequested,
    Tick,
    Unprepared,
    Watch,
)
from muster.agent.runtime import Exit
from muster.agent.states import (
    CONTAINER_CHANGES,
    POD_CHANGES,
    Container,
    ContainerPlan,
    Phase,
    Plan,
    PodPhase,
    Role,
    State,
)
from muster.api.meta import Instant

T0 = Instant(1_000_000.0)


def at(seconds: float) -> Instant:
    return Instant(T0 + seconds)


def plan(*containers: ContainerPlan, policy: str = "Never", deadline: float | None = None, grace: float = 30) -> Plan:
    return Plan(containers or (main(),), policy, deadline, grace)


def main(name: str = "main", **options: bool) -> ContainerPlan:
    return ContainerPlan(name, Role.MAIN, **options)


def init(name: str) -> ContainerPlan:
    return ContainerPlan(name, Role.INIT)


def sidecar(name: str, **options: bool) -> ContainerPlan:
    return ContainerPlan(name, Role.SIDECAR, **options)


def end(code: int, started: float = 0, finished: float = 1) -> Exit:
    return Exit(code, 0, "Completed" if code == 0 else "Error", "", at(started), at(finished))


@dataclass
class Story:
    """A pod that is told what happens, and what it did about it."""

    state: State
    effects: list[Effect] = field(default_factory=list)

    @classmethod
    def of(cls, pod: Plan) -> "Story":
        return cls(lifecycle.begin(pod))

    def tell(self, *events: Event) -> "Story":
        for event in events:
            self.state, self.effects = lifecycle.step(self.state, event)
        return self

    def admit(self) -> "Story":
        return self.tell(Admitted(T0, T0))

    def run(self, name: str = "main", attempt: int = 0, when: float = 0) -> "Story":
        return self.tell(Started(at(when), name, attempt, at(when)))

    def exit(self, code: int, name: str = "main", attempt: int = 0, when: float = 1, started: float = 0) -> "Story":
        return self.tell(Exited(at(when), name, attempt, end(code, started, when)))

    def container(self, name: str = "main") -> Container:
        return next(c for c in self.state.containers if c.name == name)

    @property
    def done(self) -> list[Effect]:
        """What the last event led to, reports aside."""
        return [effect for effect in self.effects if not isinstance(effect, Report)]


def test_a_pod_waits_until_it_is_admitted() -> None:
    story = Story.of(plan()).tell(Tick(T0))
    assert story.effects == []
    assert story.admit().done == [Launch("main", 0)]


def test_all_containers_are_launched_together() -> None:
    story = Story.of(plan(main("a"), main("b"))).admit()
    assert story.done == [Launch("a", 0), Launch("b", 0)]


@pytest.mark.parametrize(("code", "phase"), [(0, PodPhase.SUCCEEDED), (3, PodPhase.FAILED)])
def test_a_pod_that_is_not_restarted_ends_with_its_container(code: int, phase: PodPhase) -> None:
    story = Story.of(plan()).admit().run()
    assert story.state.phase is PodPhase.RUNNING
    story.exit(code)
    assert story.state.phase is phase
    assert story.effects == [Report(is_final=True)]


def test_a_pod_fails_when_one_of_its_containers_did_but_only_after_all_have_ended() -> None:
    story = Story.of(plan(main("a"), main("b"))).admit().run("a").run("b").exit(1, "a")
    assert story.state.phase is PodPhase.RUNNING
    assert story.exit(0, "b").state.phase is PodPhase.FAILED


def test_init_containers_run_one_after_the_other_and_before_the_others() -> None:
    story = Story.of(plan(init("one"), init("two"), main())).admit()
    assert story.done == [Launch("one", 0)]
    assert story.run("one").exit(0, "one").done == [Launch("two", 0)]
    assert story.state.phase is PodPhase.PENDING
    assert story.run("two").exit(0, "two").done == [Launch("main", 0)]
    assert story.run().state.phase is PodPhase.RUNNING


def test_a_failed_init_container_fails_a_pod_that_is_never_restarted() -> None:
    story = Story.of(plan(init("one"), main())).admit().run("one").exit(2, "one")
    assert story.state.phase is PodPhase.FAILED


def test_a_failed_init_container_ends_the_sidecars_before_it_too() -> None:
    story = Story.of(plan(sidecar("proxy"), init("one"), main())).admit().run("proxy").run("one")
    assert story.exit(2, "one").done == [Signal("proxy", 0, "TERM")]
    assert story.exit(143, "proxy", when=2).state.phase is PodPhase.FAILED


def test_a_pod_runs_while_its_startup_probe_has_not_passed() -> None:
    assert Story.of(plan(main(has_startup=True))).admit().run().state.phase is PodPhase.RUNNING


@pytest.mark.parametrize("policy", ["Always", "OnFailure"])
def test_a_failed_init_container_is_tried_again_otherwise(policy: str) -> None:
    story = Story.of(plan(init("one"), main(), policy=policy)).admit().run("one").exit(2, "one")
    assert story.done == [Launch("one", 1)]


def test_a_sidecar_lets_the_next_begin_once_it_has_started_and_ends_last() -> None:
    story = Story.of(plan(sidecar("proxy", has_startup=True), main())).admit()
    assert story.run("proxy").done == [BeginProbes("proxy", 0)]
    assert story.tell(Probed(at(1), "proxy", 0, "startup", True)).done == [Launch("main", 0)]
    story.run()
    assert story.exit(0).done == [Signal("proxy", 0, "TERM")]
    assert story.state.phase is PodPhase.RUNNING
    assert story.exit(143, "proxy").state.phase is PodPhase.SUCCEEDED


def test_a_sidecar_that_ends_early_is_restarted_whatever_the_pod_says() -> None:
    story = Story.of(plan(sidecar("proxy"), main(), policy="Never")).admit().run("proxy").run()
    assert story.exit(0, "proxy").done == [Launch("proxy", 1)]


def test_the_first_restart_is_at_once_and_later_ones_wait_twice_as_long_each_time() -> None:
    story = Story.of(plan(policy="Always")).admit()
    now, waits = 0.0, []
    for attempt in range(9):
        story.run(attempt=attempt, when=now).exit(1, attempt=attempt, when=now + 1, started=now)
        now += 1
        if story.done != [Launch("main", attempt + 1)]:
            due = lifecycle.next_wake(story.state)
            assert due is not None
            waits.append(due - T0 - now)
            now = due - T0
            story.tell(Tick(due))
        else:
            waits.append(0.0)
        assert story.done == [Launch("main", attempt + 1)]
    assert waits == [0, 10, 20, 40, 80, 160, 300, 300, 300]


def test_ten_minutes_of_running_are_forgiveness() -> None:
    story = Story.of(plan(policy="Always")).admit().run().exit(1).run(attempt=1, when=1)
    story.exit(1, attempt=1, when=700, started=1)
    assert story.done == [Launch("main", 2)]


def test_on_failure_restarts_failures_only() -> None:
    assert Story.of(plan(policy="OnFailure")).admit().run().exit(1).done == [Launch("main", 1)]
    assert Story.of(plan(policy="OnFailure")).admit().run().exit(0).state.phase is PodPhase.SUCCEEDED


def test_deletion_asks_then_kills() -> None:
    story = Story.of(plan()).admit().run().tell(StopRequested(at(5), 30))
    assert story.done == [Signal("main", 0, "TERM")]
    assert lifecycle.next_wake(story.state) == at(35)
    assert story.tell(Tick(at(34))).effects == []
    assert story.tell(Tick(at(35))).done == [Signal("main", 0, "KILL")]
    assert story.tell(Tick(at(36))).effects == []
    assert story.exit(137, when=36).effects == [Report(is_final=True), Remove()]
    assert story.state.phase is PodPhase.FAILED


def test_a_second_deletion_can_only_shorten_the_grace() -> None:
    story = Story.of(plan()).admit().run().tell(StopRequested(at(5), 30))
    assert lifecycle.next_wake(story.tell(StopRequested(at(6), 60)).state) == at(35)
    assert story.tell(StopRequested(at(7), 0)).done == [Signal("main", 0, "KILL")]


def test_no_grace_is_a_kill_at_once() -> None:
    assert Story.of(plan()).admit().run().tell(StopRequested(at(5), 0)).done == [Signal("main", 0, "KILL")]


def test_a_container_that_is_just_being_launched_is_ended_when_it_is_up() -> None:
    story = Story.of(plan()).admit().tell(StopRequested(at(1), 30))
    assert story.done == []
    assert story.run(when=2).done == [Signal("main", 0, "TERM")]


def test_a_pod_deleted_before_it_ran_is_removed_at_once() -> None:
    story = Story.of(plan()).tell(StopRequested(T0, 30))
    assert story.effects == [Report(is_final=True), Remove()]


def test_deletion_that_crosses_the_last_report_still_removes_the_object() -> None:
    story = Story.of(plan()).admit().run().exit(0).tell(StopRequested(at(2), 30))
    assert story.effects == [Remove()]
    assert story.tell(StopRequested(at(3), 30)).effects == []


def test_sidecars_are_asked_after_the_others_on_deletion_but_share_the_grace() -> None:
    story = Story.of(plan(sidecar("proxy"), main())).admit().run("proxy").run().tell(StopRequested(at(5), 30))
    assert story.done == [Signal("main", 0, "TERM")]
    assert story.exit(143, when=20).done == [Signal("proxy", 0, "TERM")]
    assert story.tell(Tick(at(35))).done == [Signal("proxy", 0, "KILL")]


def test_the_hook_runs_before_the_signal_and_counts_into_the_grace() -> None:
    story = Story.of(plan(main(has_pre_stop=True))).admit().run().tell(StopRequested(at(5), 30))
    assert story.done == [RunPreStop("main", 0, at(35))]
    assert story.tell(PreStopEnded(at(6), "main", 0)).done == [Signal("main", 0, "TERM")]
    hanging = Story.of(plan(main(has_pre_stop=True))).admit().run().tell(StopRequested(at(5), 30), Tick(at(35)))
    assert hanging.done == [Signal("main", 0, "KILL")]
    assert hanging.tell(PreStopEnded(at(35), "main", 0)).done == []


def test_the_deadline_ends_a_pod_as_failed_whatever_its_containers_say() -> None:
    story = Story.of(plan(deadline=60, policy="Always")).admit().run()
    assert lifecycle.next_wake(story.state) == at(60)
    assert story.tell(Tick(at(60))).done == [Signal("main", 0, "TERM")]
    story.exit(0, when=61)
    assert (story.state.phase, story.state.reason) == (PodPhase.FAILED, "DeadlineExceeded")


def test_the_deadline_counts_from_the_first_start_also_after_adoption() -> None:
    story = Story.of(plan(deadline=60)).tell(Adopted(at(50), "main", 0, at(1)), Admitted(at(50), T0))
    assert lifecycle.next_wake(story.state) == at(60)


def test_a_refused_pod_fails_with_the_reason() -> None:
    story = Story.of(plan()).tell(Refused(T0, "OutOfcpu", "no room"))
    assert (story.state.phase, story.state.reason, story.state.message) == (PodPhase.FAILED, "OutOfcpu", "no room")
    assert story.effects == [Report(is_final=True)]


def test_an_evicted_pod_fails_with_the_reason_and_stays() -> None:
    story = Story.of(plan()).admit().run().tell(Evicted(at(1), 30, "Terminated", "shutdown")).exit(0)
    assert (story.state.phase, story.state.reason) == (PodPhase.FAILED, "Terminated")
    assert story.effects == [Report(is_final=True)]


def test_an_abandoned_pod_is_ended_without_a_word() -> None:
    story = Story.of(plan()).admit().run().tell(Abandoned(at(1), 30))
    assert story.effects == [Signal("main", 0, "TERM")]
    assert story.exit(143).effects == [Forget()]


def test_missing_configuration_is_tried_again_with_the_same_attempt() -> None:
    story = Story.of(plan()).admit()
    for tried, wait in enumerate([1, 2, 4, 8, 16, 30, 30]):
        now = tried * 100.0
        story.tell(Unprepared(at(now), "main", 0, "CreateContainerConfigError", "configmap missing"))
        assert (story.container().phase, story.container().attempt) == (Phase.WAITING, -1)
        assert lifecycle.next_wake(story.state) == at(now + wait)
        assert story.tell(Tick(at(now + wait))).done == [Launch("main", 0)]
        assert story.container().waiting_reason == "CreateContainerConfigError"


def test_a_failed_liveness_probe_ends_the_container_and_policy_decides_what_follows() -> None:
    story = Story.of(plan(main(has_liveness=True), policy="Always", grace=5)).admit().run()
    assert story.tell(Probed(at(9), "main", 0, "liveness", False)).done == [Signal("main", 0, "TERM")]
    assert story.tell(Tick(at(14))).done == [Signal("main", 0, "KILL")]
    assert story.exit(137, when=15).done == [Launch("main", 1)]


def test_readiness_follows_its_probe_and_waits_for_startup() -> None:
    story = Story.of(plan(main(has_startup=True, has_readiness=True))).admit().run()
    story.tell(Probed(at(1), "main", 0, "readiness", True))
    assert not story.container().is_ready
    story.tell(Probed(at(2), "main", 0, "startup", True), Probed(at(3), "main", 0, "readiness", True))
    assert story.container().is_ready
    assert not story.tell(Probed(at(4), "main", 0, "readiness", False)).container().is_ready


def test_adoption_goes_on_where_it_was() -> None:
    running = Story.of(plan(init("one"), main())).tell(
        Adopted(at(9), "one", 0, at(0), end(0)), Adopted(at(9), "main", 2, at(5), None, end(1))
    )
    assert running.done == [Watch("main", 2)]
    assert running.tell(Admitted(at(9), T0)).done == []
    assert running.state.phase is PodPhase.RUNNING
    assert running.container().last_exit == end(1)
    assert running.exit(4, attempt=2, when=20).state.phase is PodPhase.FAILED


def test_an_end_nobody_saw_counts_after_adoption() -> None:
    story = Story.of(plan()).tell(Adopted(at(9), "main", 0, at(0), end(3)), Admitted(at(9), T0))
    assert story.state.phase is PodPhase.FAILED
    again = Story.of(plan(policy="OnFailure")).tell(Adopted(at(9), "main", 0, at(0), end(3)), Admitted(at(9), T0))
    assert again.done == [Launch("main", 1)]


def test_late_news_of_an_earlier_attempt_is_ignored() -> None:
    story = Story.of(plan(policy="Always")).admit().run().exit(1).run(attempt=1)
    before = story.state
    story.exit(1, attempt=0, when=9)
    assert (story.state, story.effects) == (before, [])


def test_what_is_adopted_only_to_be_ended_is_killed_after_its_grace() -> None:
    story = Story.of(plan()).tell(Adopted(T0, "main", 0, T0)).tell(Abandoned(at(1), 30.0))
    assert lifecycle.next_wake(story.state) == at(31)
    assert Signal("main", 0, "KILL") in story.tell(Tick(at(31))).effects


def test_an_init_container_that_waits_for_a_sidecar_does_not_wake_us_for_ever() -> None:
    pod = plan(sidecar("s", has_startup=True), init("i"), main(), policy="Always")
    gone = end(1, finished=0)
    story = Story.of(pod).tell(Adopted(T0, "s", 0, T0, gone), Adopted(T0, "i", 0, T0, gone)).admit()
    assert Launch("s", 1) in story.effects
    assert lifecycle.next_wake(story.state) is None
    story.run("s", 1).tell(Probed(at(5), "s", 1, "startup", is_good=True))
    assert Launch("i", 1) in story.effects


def test_nonsense_is_a_bug_and_says_so() -> None:
    with pytest.raises(lifecycle.InvalidTransition, match="no container"):
        Story.of(plan()).admit().run("other")
    with pytest.raises(lifecycle.InvalidTransition, match="never asked for"):
        Story.of(plan()).admit().run(attempt=4)
    with pytest.raises(lifecycle.InvalidTransition, match="cannot be refused"):
        Story.of(plan()).admit().run().tell(Refused(T0, "OutOfcpu", ""))


# Properties: a random plan, and a world that answers effects in any order.

_plans = st.builds(
    lambda inits, sidecars, mains, policy, deadline, grace: Plan(
        tuple(
            [init("first")] * (inits > 1)
            + [sidecar(f"s{n}") for n in range(sidecars)]
            + [init("second")] * (inits > 0)
            + [main(f"m{n}", has_pre_stop=n == 1, has_liveness=n == 0) for n in range(mains)]
        ),
        policy,
        deadline,
        grace,
    ),
    st.integers(0, 2),
    st.integers(0, 1),
    st.integers(1, 3),
    st.sampled_from(["Always", "OnFailure", "Never"]),
    st.none() | st.sampled_from([5.0, 100.0]),
    st.sampled_from([0.0, 5.0, 30.0]),
)


class World:
    """Keeps what was asked for and answers it in an order that hypothesis draws."""

    def __init__(self, pod: Plan, data: st.DataObject) -> None:
        self.data = data
        self.now = 0.0
        self.state = lifecycle.begin(pod)
        self.log: list[Event] = []
        self.launching: set[tuple[str, int]] = set()
        self.alive: set[tuple[str, int]] = set()
        self.killed: set[tuple[str, int]] = set()
        self.hooks: set[tuple[str, int]] = set()
        self.finals = 0
        self.removals = 0
        self.forgotten = 0
        self.phases = [self.state.phase]

    def tell(self, event: Event) -> None:
        was_over = self.state.is_over
        before = self.state
        self.state, effects = lifecycle.step(self.state, event)
        self.log.append(event)
        for effect in effects:
            self._take(effect)
        if was_over:
            assert self.state.phase is before.phase
            assert self.state.containers == before.containers
        for old, new in zip(before.containers, self.state.containers, strict=True):
            # One event may carry a container over two edges: ended and launched again, or up and asked to stop.
            direct = old.phase is new.phase or (old.phase, new.phase) in CONTAINER_CHANGES
            middle = {Phase.STARTING: Phase.EXITED, Phase.STOPPING: Phase.RUNNING}.get(new.phase, old.phase)
            assert direct or {(old.phase, middle), (middle, new.phase)} <= set(CONTAINER_CHANGES)
        if self.state.phase is not self.phases[-1]:
            assert (self.phases[-1], self.state.phase) in POD_CHANGES
            self.phases.append(self.state.phase)
        wake = lifecycle.next_wake(self.state)
        if isinstance(event, Tick) and wake is not None:
            assert wake > event.at, "a timer that is due at once for ever"
        if self.state.is_over:
            assert not self.alive | self.launching

    def adopt(self) -> None:
        """Perhaps an earlier agent process had the pod: init containers that passed, then those that were begun."""
        if not self.data.draw(st.booleans()):
            return
        for plan in self.state.plan.containers:
            attempt, code = self.data.draw(st.integers(0, 2)), self.data.draw(st.sampled_from([None, 0, 1]))
            end = None if code is None else Exit(code, 0, "", "", T0, T0)
            if end is None:
                self.alive.add((plan.name, attempt))
            self.tell(Adopted(T0, plan.name, attempt, T0, end))
            if plan.role is Role.INIT and code != 0:
                return

    def _take(self, effect: Effect) -> None:
        match effect:
            case Launch(name, attempt):
                running = {n for n, _ in self.alive | self.launching}
                assert name not in running, f"{name} runs twice"
                assert self.state.stop is None or self.state.is_over is False
                self.launching.add((name, attempt))
            case Signal(name, attempt, "KILL"):
                assert (name, attempt) in self.alive
                assert (name, attempt) not in self.killed
                self.killed.add((name, attempt))
            case Signal(name, attempt, _):
                assert (name, attempt) in self.alive
            case RunPreStop(name, attempt, _):
                self.hooks.add((name, attempt))
            case Report(is_final=True):
                self.finals += 1
            case Remove():
                self.removals += 1
            case Forget():
                self.forgotten += 1
            case _:
                pass

    def turn(self) -> None:
        self.now += self.data.draw(st.sampled_from([0.0, 1.0, 7.0, 400.0]))
        now = at(self.now)
        choices: list[str] = ["tick", "stop", "abandon", "evict"]
        choices += ["answer"] * 4 * bool(self.launching) + ["end"] * 4 * bool(self.alive) + ["hook"] * bool(self.hooks)
        match self.data.draw(st.sampled_from(choices)):
            case "tick":
                wake = lifecycle.next_wake(self.state)
                self.now = max(self.now, (wake or T0) - T0)
                self.tell(Tick(at(self.now)))
            case "stop":
                self.tell(StopRequested(now, self.data.draw(st.sampled_from([0.0, 30.0]))))
            case "abandon":
                if self.data.draw(st.integers(0, 4)) == 0:
                    self.tell(Abandoned(now, 30.0))
            case "evict":
                if self.data.draw(st.integers(0, 4)) == 0:
                    self.tell(Evicted(now, 30.0, "Terminated", ""))
            case "answer":
                name, attempt = self.data.draw(st.sampled_from(sorted(self.launching)))
                self.launching.discard((name, attempt))
                match self.data.draw(st.sampled_from(["up", "up", "bad", "dead"])):
                    case "up":
                        self.alive.add((name, attempt))
                        self.tell(Started(now, name, attempt, now))
                    case "bad":
                        self.tell(Unprepared(now, name, attempt, "CreateContainerConfigError", "x"))
                    case _:
                        self.tell(Exited(now, name, attempt, Exit(127, 0, "ContainerCannotRun", "", now, now)))
            case "end":
                name, attempt = self.data.draw(st.sampled_from(sorted(self.alive)))
                self.alive.discard((name, attempt))
                code = self.data.draw(st.sampled_from([0, 1, 137]))
                self.tell(Exited(now, name, attempt, Exit(code, 0, "", "", now, now)))
            case "hook":
                name, attempt = self.data.draw(st.sampled_from(sorted(self.hooks)))
                self.hooks.discard((name, attempt))
                self.tell(PreStopEnded(now, name, attempt))

    def wind_up(self) -> None:
        """Ask for the end and answer everything until it comes."""
        self.tell(StopRequested(at(self.now), 0.0))
        for _ in range(50):
            self.now += 1
            for name, attempt in sorted(self.launching):
                self.launching.discard((name, attempt))
                self.alive.add((name, attempt))
                self.tell(Started(at(self.now), name, attempt, at(self.now)))
            for name, attempt in sorted(self.alive):
                self.alive.discard((name, attempt))
                self.tell(Exited(at(self.now), name, attempt, Exit(137, 9, "Error", "", at(self.now), at(self.now))))
            self.tell(Tick(at(self.now)))
            if self.state.is_over:
                return


@settings(max_examples=75, deadline=None)
@given(pod=_plans, data=st.data())
def test_whatever_happens_every_pod_ends_once_and_nothing_runs_twice(pod: Plan, data: st.DataObject) -> None:
    world = World(pod, data)
    world.adopt()
    world.tell(Admitted(T0, T0))
    for _ in range(data.draw(st.integers(0, 40))):
        world.turn()
    was_abandoned_first = world.state.is_abandoned and not world.finals
    world.wind_up()
    assert world.state.is_over
    assert world.finals == (0 if was_abandoned_first else 1)
    assert world.forgotten == (1 if world.state.is_abandoned else 0)
    assert world.removals <= 1
    replayed = lifecycle.begin(pod)
    for event in world.log:
        encoded = msgspec.json.encode(event)
        replayed, _ = lifecycle.step(replayed, msgspec.json.decode(encoded, type=Event))
    assert replayed == world.state


def test_every_phase_change_has_its_reason() -> None:
    assert all(reason for reason in (*CONTAINER_CHANGES.values(), *POD_CHANGES.values()))
    ended = {PodPhase.SUCCEEDED, PodPhase.FAILED}
    assert not [change for change in POD_CHANGES if change[0] in ended]
