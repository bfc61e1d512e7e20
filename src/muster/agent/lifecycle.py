"""The life of one pod on its node, as a pure function: `step(state, event) -> (state, effects)`.

No I/O, no clock, no tasks. The shell (`agent.pods`) feeds events in order and carries effects out. After each event the
state is *advanced*: what should happen next is worked out from the state alone, so a pod that a new agent adopts goes
on exactly like one that was never left.
"""

from collections.abc import Sequence

from msgspec.structs import replace

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
from muster.agent.states import CONTAINER_CHANGES, POD_CHANGES, Container, Phase, Plan, PodPhase, Role, State, Stop
from muster.api.meta import Instant

BACKOFF_SECONDS = 10.0
MAX_BACKOFF_SECONDS = 300.0
FORGIVEN_AFTER_SECONDS = 600.0  # an attempt that ran this long starts the backoff anew
MAX_RETRY_SECONDS = 30.0  # between tries to prepare a container whose configuration is missing
_DEADLINE_PASSED = "Pod was active on the node longer than the specified deadline"


class InvalidTransition(Exception):
    """A bug, not a race: races are handled."""

    def __init__(self, state: State, event: Event | None, why: str) -> None:
        super().__init__(f"{why}\nevent: {event}\nstate: {state}")


def begin(plan: Plan) -> State:
    return State(plan=plan, containers=tuple(Container(plan=container) for container in plan.containers))


def step(state: State, event: Event) -> tuple[State, list[Effect]]:
    """The state after `event`, and what is to be done. Late and repeated events change nothing."""
    if state.is_over:
        return _after_the_end(state, event)
    effects: list[Effect] = []
    changed = _apply(state, event, effects)
    changed = _advance(changed, event.at, effects)
    if changed.is_over:
        changed, effects = _conclude(changed, event.at, effects)
    elif changed != state and not changed.is_abandoned:
        effects.append(Report())
    return changed, effects


def next_wake(state: State) -> Instant | None:
    """When a Tick is due if nothing else happens first."""
    start = state.start_time
    if state.is_over or (start is None and state.stop is None):
        return None
    times = [c.kill_at for c in state.containers if c.phase is Phase.STOPPING and not c.is_killed]
    # One that waits for others, not for a time, must not wake us: it would do so without end.
    times.extend(c.retry_at for c in _in_turn(state) if is_restart_pending(state, c))
    if state.stop is None and start is not None and state.plan.deadline_seconds is not None:
        times.append(Instant(start + state.plan.deadline_seconds))
    return min((time for time in times if time is not None), default=None)


def is_restart_pending(state: State, container: Container) -> bool:
    """Whether a container that does not run will be launched once its `retry_at` has come."""
    if state.stop is not None:
        return False
    if container.phase is Phase.EXITED:
        return _is_restarted(state, container) and not (container.role is Role.SIDECAR and _is_finishing(state))
    return container.phase is Phase.WAITING


def _after_the_end(state: State, event: Event) -> tuple[State, list[Effect]]:
    match event:
        case StopRequested() if not state.is_deleted and not state.is_abandoned:
            # The deletion crossed our final report: the object waits for us.
            return replace(state, is_deleted=True), [Remove()]
        case Abandoned() if not state.is_abandoned:
            return replace(state, is_abandoned=True), [Forget()]
        case _:
            return state, []


def _conclude(state: State, at: Instant, effects: Sequence[Effect]) -> tuple[State, list[Effect]]:
    kept: list[Effect] = [effect for effect in effects if not isinstance(effect, Report)]
    state = replace(state, finished_at=at)
    if state.is_abandoned:
        return state, [*kept, Forget()]
    kept.append(Report(is_final=True))
    if state.is_deleted:
        kept.append(Remove())
    return state, kept


def _apply(state: State, event: Event, effects: list[Effect]) -> State:
    match event:
        case Admitted():
            return replace(state, start_time=event.start_time) if state.start_time is None else state
        case Refused():
            if any(c.phase is not Phase.WAITING for c in state.containers):
                raise InvalidTransition(state, event, "a pod that has containers cannot be refused")
            return _to_phase(replace(state, reason=event.reason, message=event.message), PodPhase.FAILED)
        case StopRequested():
            stop = _sooner(state.stop, Stop(kill_at=Instant(event.at + event.grace_seconds)))
            return replace(state, stop=stop, is_deleted=True)
        case Evicted():
            kill_at = Instant(event.at + event.grace_seconds)
            stop = _sooner(state.stop, Stop(kill_at=kill_at, reason=event.reason, message=event.message))
            return replace(state, stop=stop)
        case Abandoned():
            stop = _sooner(state.stop, Stop(kill_at=Instant(event.at + event.grace_seconds)))
            return replace(state, stop=stop, is_abandoned=True)
        case Tick():
            return state
        case _:
            return _apply_to_container(state, event, effects)


def _sooner(old: Stop | None, new: Stop) -> Stop:
    """A second request may shorten the grace but keeps the first reason."""
    return new if old is None else replace(old, kill_at=min(old.kill_at, new.kill_at))


def _apply_to_container(
    state: State,
    event: Adopted | Started | Unprepared | Exited | Probed | PreStopEnded,
    effects: list[Effect],
) -> State:
    found = next((c for c in state.containers if c.name == event.container), None)
    if found is None:
        raise InvalidTransition(state, event, f'the pod has no container "{event.container}"')
    if isinstance(event, Adopted):
        return _adopt(state, found, event, effects)
    if event.attempt != found.attempt:
        if event.attempt > found.attempt:
            raise InvalidTransition(state, event, "news of an attempt that was never asked for")
        return state  # of an earlier attempt, late
    match event:
        case Started():
            return _put(state, _started(state, found, event, effects))
        case Unprepared():
            return _put(state, _unprepared(found, event))
        case Exited():
            return _put(state, _exited(found, event.exit)) if found.is_alive else state
        case Probed():
            return _put(state, _probed(state, found, event))
        case PreStopEnded():
            if found.phase is Phase.STOPPING and not found.is_killed:
                effects.append(Signal(found.name, found.attempt, "TERM"))
            return state


def _put(state: State, container: Container) -> State:
    return replace(state, containers=tuple(container if c.name == container.name else c for c in state.containers))


def _move(container: Container, phase: Phase) -> Container:
    if (container.phase, phase) not in CONTAINER_CHANGES:
        raise AssertionError(f'container "{container.name}" cannot go from {container.phase} to {phase}')
    return replace(container, phase=phase)


def _adopt(state: State, container: Container, event: Adopted, effects: list[Effect]) -> State:
    if state.start_time is not None or container.phase is not Phase.WAITING:
        raise InvalidTransition(state, event, "a container is adopted once, and before the pod is admitted")
    found = replace(
        container,
        attempt=event.attempt,
        started_at=event.started_at,
        last_exit=event.last_exit,
        # How often it crashed in a row is not kept; the number of attempts is the careful guess.
        crashes=event.attempt,
    )
    if container.role is Role.MAIN:
        state = replace(state, is_initialized=True)  # it would not have been started otherwise
    if event.exit is not None:
        return _put(state, replace(_exited(found, event.exit), was_started=not found.plan.has_startup))
    effects.append(Watch(found.name, found.attempt))
    return _put(state, _running(_move(found, Phase.RUNNING), effects, is_new=False))


def _started(state: State, container: Container, event: Started, effects: list[Effect]) -> Container:
    if container.phase is not Phase.STARTING:
        raise InvalidTransition(state, event, f'container "{container.name}" was not being started')
    moved = replace(_move(container, Phase.RUNNING), started_at=event.started_at, failures=0)
    return _running(moved, effects, is_new=True)


def _running(container: Container, effects: list[Effect], *, is_new: bool) -> Container:
    has_hook = is_new and container.plan.has_post_start
    if container.plan.has_probes or has_hook:
        effects.append(BeginProbes(container.name, container.attempt, is_new))
    is_started = not (container.plan.has_startup or has_hook)
    is_ready = is_started and not container.plan.has_readiness
    return replace(container, is_started=is_started, was_started=container.was_started or is_started, is_ready=is_ready)


def _unprepared(container: Container, event: Unprepared) -> Container:
    if container.phase is not Phase.STARTING:
        return container
    failures = container.failures + 1
    return replace(
        _move(container, Phase.WAITING),
        attempt=container.attempt - 1,
        exit=container.last_exit,
        last_exit=None,
        failures=failures,
        retry_at=Instant(event.at + min(MAX_RETRY_SECONDS, 2.0 ** min(failures - 1, 10))),
        waiting_reason=event.reason,
        waiting_message=event.message,
    )


def _exited(container: Container, end: Exit) -> Container:
    is_forgiven = end.finished_at - end.started_at >= FORGIVEN_AFTER_SECONDS
    crashes = 1 if is_forgiven else container.crashes + 1
    return replace(
        _move(container, Phase.EXITED),
        exit=end,
        started_at=end.started_at,
        crashes=crashes,
        failures=0,
        retry_at=Instant(end.finished_at + backoff_seconds(crashes)),
        is_started=False,
        is_ready=False,
        kill_at=None,
        is_killed=False,
    )


def backoff_seconds(crashes: int) -> float:
    """How long to wait after the n-th end in a row: the first restart is free."""
    return 0.0 if crashes <= 1 else float(min(MAX_BACKOFF_SECONDS, BACKOFF_SECONDS * 2 ** min(crashes - 2, 10)))


def _probed(state: State, container: Container, event: Probed) -> Container:
    if container.phase is not Phase.RUNNING:
        return container
    match event.probe, event.is_good:
        case "startup", True:
            is_ready = not container.plan.has_readiness
            return replace(container, is_started=True, was_started=True, is_ready=is_ready)
        case "readiness", is_good:
            return replace(container, is_ready=is_good and container.is_started)
        case _, False:
            # `_advance` sends the signal: kill_at says that this one is to stop.
            return replace(container, kill_at=Instant(event.at + state.plan.grace_seconds))
        case _:
            return container


def _advance(state: State, at: Instant, effects: list[Effect]) -> State:
    """Work out what should happen next, from the state alone."""
    if state.start_time is None and state.stop is None:
        return state  # not admitted yet
    if state.is_over:
        return state
    deadline = state.plan.deadline_seconds
    start = state.start_time
    if state.stop is None and deadline is not None and start is not None and at >= start + deadline:
        kill_at = Instant(at + state.plan.grace_seconds)
        state = replace(state, stop=Stop(kill_at=kill_at, reason="DeadlineExceeded", message=_DEADLINE_PASSED))
    if state.stop is None:
        state = _launch_due(state, at, effects)
    state = _stop_due(state, at, effects)
    return _settle(state)


def _launch_due(state: State, at: Instant, effects: list[Effect]) -> State:
    """Start what is to run now: init containers one after the other, then all others together."""
    if not state.is_initialized and not _is_finishing(state) and _next_init(state) is None:
        state = replace(state, is_initialized=True)
    for container in _in_turn(state):
        if _may_run(state, container, at):
            state = _put(state, _launch(container, effects))
    return state


def _in_turn(state: State) -> list[Container]:
    """Those that may run now, as far as the order of containers goes. Sidecars that were begun keep being restarted
    while a later init container runs."""
    if _is_finishing(state):
        return []
    first = None if state.is_initialized else _next_init(state)
    return [
        c
        for c in state.containers
        if (c.role is Role.MAIN and state.is_initialized) or (c.role is Role.SIDECAR and c.attempt >= 0) or c is first
    ]


def _next_init(state: State) -> Container | None:
    return next((c for c in state.containers if c.role is not Role.MAIN and not _is_passed(c)), None)


def _is_passed(container: Container) -> bool:
    """Whether the next init container may begin."""
    if container.role is Role.SIDECAR:
        return container.was_started
    return container.phase is Phase.EXITED and container.exit is not None and container.exit.exit_code == 0


def _may_run(state: State, container: Container, at: Instant) -> bool:
    if container.retry_at is not None and at < container.retry_at:
        return False
    return container.phase is Phase.WAITING or (container.phase is Phase.EXITED and _is_restarted(state, container))


def _is_restarted(state: State, container: Container) -> bool:
    """Whether policy starts this ended container again."""
    assert container.exit is not None
    policy, failed = state.plan.restart_policy, container.exit.exit_code != 0
    match container.role:
        case Role.SIDECAR:
            return True
        case Role.INIT:
            return failed and policy != "Never"
        case Role.MAIN:
            return policy == "Always" or (policy == "OnFailure" and failed)


def _launch(container: Container, effects: list[Effect]) -> Container:
    attempt = container.attempt + 1
    effects.append(Launch(container.name, attempt))
    return replace(
        _move(container, Phase.STARTING),
        attempt=attempt,
        exit=None,
        last_exit=container.exit,
        retry_at=None,
        # Kept through a try that may fail again: the reason stays visible meanwhile.
        waiting_reason=container.waiting_reason if container.failures else "",
        waiting_message=container.waiting_message if container.failures else "",
    )


def _is_finishing(state: State) -> bool:
    """Whether only sidecars may still run: the others have all ended, or one that all wait for has failed for good."""
    if state.is_initialized:
        mains = (c for c in state.containers if c.role is Role.MAIN)
        return all(c.phase is Phase.EXITED and not _is_restarted(state, c) for c in mains)
    inits = (c for c in state.containers if c.role is Role.INIT and c.phase is Phase.EXITED)
    return any(not _is_passed(c) and not _is_restarted(state, c) for c in inits)


def _stop_due(state: State, at: Instant, effects: list[Effect]) -> State:
    """Ask to stop what is to stop, kill what had its time. Sidecars go last: others may need them to finish."""
    mains_alive = any(c.is_alive for c in state.containers if c.role is not Role.SIDECAR)
    is_winding_down = state.stop is None and _is_finishing(state)
    for container in state.containers:
        wanted_by: Instant | None = container.kill_at
        if state.stop is not None and (container.role is not Role.SIDECAR or not mains_alive):
            wanted_by = state.stop.kill_at if wanted_by is None else min(wanted_by, state.stop.kill_at)
        elif state.stop is not None and at >= state.stop.kill_at:
            wanted_by = state.stop.kill_at
        elif is_winding_down and container.role is Role.SIDECAR and wanted_by is None:
            wanted_by = Instant(at + state.plan.grace_seconds)
        if wanted_by is not None and container.phase in (Phase.RUNNING, Phase.STOPPING):
            state = _put(state, _ask_to_stop(container, wanted_by, at, effects))
    return state


def _ask_to_stop(container: Container, kill_at: Instant, at: Instant, effects: list[Effect]) -> Container:
    is_new = container.phase is Phase.RUNNING
    if is_new:
        container = _move(container, Phase.STOPPING)
    container = replace(container, kill_at=kill_at, is_ready=False)
    if at >= kill_at:
        if not container.is_killed:
            effects.append(Signal(container.name, container.attempt, "KILL"))
        return replace(container, is_killed=True)
    if is_new and container.plan.has_pre_stop:
        effects.append(RunPreStop(container.name, container.attempt, kill_at))
    elif is_new:
        effects.append(Signal(container.name, container.attempt, "TERM"))
    return container


def _settle(state: State) -> State:
    """The pod's phase, from its containers."""
    mains = [c for c in state.containers if c.role is Role.MAIN]
    is_well = bool(mains) and all(c.exit is not None and c.exit.exit_code == 0 for c in mains)
    if not any(c.is_alive for c in state.containers):
        if state.stop is not None:
            is_well = is_well and not state.stop.reason
            state = replace(state, reason=state.stop.reason, message=state.stop.message)
            return _to_phase(state, PodPhase.SUCCEEDED if is_well else PodPhase.FAILED)
        if _is_finishing(state):
            return _to_phase(state, PodPhase.SUCCEEDED if is_well else PodPhase.FAILED)
    running = (Phase.RUNNING, Phase.STOPPING)
    has_begun = any(c.phase in running or c.exit is not None or c.last_exit is not None for c in mains)
    return _to_phase(state, PodPhase.RUNNING) if has_begun and state.phase is PodPhase.PENDING else state


def _to_phase(state: State, phase: PodPhase) -> State:
    if (state.phase, phase) not in POD_CHANGES:
        raise InvalidTransition(state, None, f"a pod cannot go from {state.phase} to {phase}")
    return replace(state, phase=phase)
