"""The lifecycle of an allocation: `step(state, event) -> (state, effects)`.

Pure. The shell makes the new state durable before it does anything about the effects; after a restart `resume` says
what must be done again, because nobody knows whether it was. Late messages are normal, and change nothing.
"""

from collections.abc import Sequence
from typing import TypeAlias

from msgspec.structs import replace

from muster.api.meta import Instant
from muster.engines.protocol import STATE_ORDER, Exit, Failure, Resource, ResourceState
from muster.tasks import exit_reasons
from muster.tasks.allocation_states import (
    CHANGES,
    KILL_AGAIN_SECONDS,
    KILL_COOLDOWN_SECONDS,
    Acknowledged,
    AskToStop,
    BecameDaemon,
    Changed,
    Close,
    Effect,
    EngineFailed,
    Event,
    Granted,
    Kill,
    KillParts,
    OpenProxies,
    Part,
    Phase,
    Preemption,
    ProxyTold,
    Readied,
    Release,
    Report,
    Signal,
    Signalled,
    State,
    Tell,
    Ticked,
    Trouble,
    Waited,
    WasReleased,
    WasReported,
    is_beyond,
)

Step: TypeAlias = tuple[State, list[Effect]]
_FromPeople: TypeAlias = Readied | Waited | Signalled | Acknowledged | BecameDaemon | ProxyTold
_KILLED = 137


class InvalidTransition(RuntimeError):
    """A bug, not a race: races are foreseen."""


def step(state: State, event: Event) -> Step:
    if state.is_over:
        return _afterwards(state, event)
    match event:
        case Granted():
            return _granted(state, event)
        case Changed():
            return _changed(state, event.resource, event.at)
        case EngineFailed():
            return _in_trouble(state, event.failure, event.message, event.at)
        case WasReleased():
            ended, effects = _in_trouble(state, Failure.RESOURCES_ABORTED, "it was released by somebody else", event.at)
            after, more = _afterwards(ended, event)
            return after, [*effects, *more]
        case Ticked():
            return _ticked(state, event.at)
        case WasReported():
            return state, []
    return _told(state, event)


def _told(state: State, event: _FromPeople) -> Step:
    """What the task itself says, or those who want something of it."""
    match event:
        case Readied():
            phase = Phase.RUNNING if state.phase is Phase.WAITING else state.phase
            return _to(replace(state, is_ready=True), phase), []
        case Waited():
            waits = state.phase in (Phase.STARTING, Phase.RUNNING) and not state.is_ready
            return _to(state, Phase.WAITING) if waits else state, []
        case Signalled():
            return _signalled(state, event)
        case Acknowledged():
            return _acknowledged(state, event.at), []
        case BecameDaemon():
            return _became_daemon(state, event)
        case ProxyTold():
            return replace(state, proxy_address=event.address), [OpenProxies(event.address)]


def resume(state: State) -> list[Effect]:
    """What must be done after a restart, whether or not it was done before."""
    if state.is_over:
        if state.is_reported:
            return []
        assert state.ended is not None
        return [Close(), Report(state.ended) if state.is_released else Release()]
    effects: list[Effect] = []
    if state.chief_address and not is_beyond(Phase.RUNNING, state.phase):
        effects.append(OpenProxies(state.chief_address))
    if state.preemption is not None:
        effects.append(AskToStop())
    if state.kill is not None and state.live:
        effects.append(KillParts(tuple(part.id for part in state.live)))
    return effects


def due(state: State) -> Instant | None:
    """When time alone will call for something."""
    if state.is_over or not state.live:
        return None
    wanted = []
    if state.kill is not None:
        wanted.append(Instant(state.kill.at + KILL_AGAIN_SECONDS))
    elif state.preemption is not None:
        wanted.append(state.preemption.deadline)
    return min(wanted, default=None)


def _afterwards(state: State, event: Event) -> Step:
    """It is over, and stays so."""
    if isinstance(event, WasReleased) and not state.is_released:
        assert state.ended is not None
        return replace(state, is_released=True), [Report(state.ended)]
    if isinstance(event, WasReported) and state.is_released:
        return replace(state, is_reported=True), []
    return state, []


def _to(state: State, phase: Phase) -> State:
    if phase is state.phase:
        return state
    if (state.phase, phase) not in CHANGES:
        raise InvalidTransition(f"{state.id}: from {state.phase} to {phase}")
    return replace(state, phase=phase)


def _forward(state: State, phase: Phase) -> State:
    return _to(state, phase) if is_beyond(phase, state.phase) else state


# What the engine says


def _granted(state: State, event: Granted) -> Step:
    known = {part.id for part in state.parts}
    given = {resource.id for resource in event.resources}
    if state.phase is not Phase.PENDING and given != known:
        message = f"{state.id} no longer needs the resources that it was given"
        return _in_trouble(state, Failure.INTERNAL_ERROR, message, event.at)
    if state.phase is Phase.PENDING:
        bare = [replace(found, state=ResourceState.ASSIGNED, exit=None, started_at=None) for found in event.resources]
        parts = tuple(Part(found) for found in sorted(bare, key=lambda found: found.rank))
        state = _to(replace(state, parts=parts), Phase.ASSIGNED)
    effects: list[Effect] = []
    for found in event.resources:
        if state.is_over:
            break
        state, more = _changed(state, found, event.at)
        effects += more
    return state, effects


def _changed(state: State, found: Resource, at: Instant) -> Step:
    part = state.part(found.id)
    if part is None or part.is_over:
        return state, []  # of nobody that we know, or said already
    before = part.resource
    is_news = STATE_ORDER[found.state] > STATE_ORDER[before.state]
    has_moved = bool(found.address) and found.address != before.address
    if not is_news and not has_moved:
        return state, []
    merged = replace(
        before,
        state=found.state if is_news else before.state,
        node=found.node or before.node,
        address=found.address or before.address,
        started_at=before.started_at or found.started_at,
        exit=found.exit if is_news else before.exit,
    )
    if merged.state is ResourceState.TERMINATED and merged.exit is None:
        merged = replace(merged, exit=Exit(failure=Failure.RESOURCES_MISSING, message="nobody saw how it ended"))
    state = _with_part(state, replace(part, resource=merged))
    state = _started(state, merged, at)
    effects = _reachable(merged, before)
    if merged.state is not ResourceState.TERMINATED:
        return state, effects
    effects.append(_exit_told(state, part, merged))
    after, more = _after_exit(state, at)
    return after, effects + more


def _with_part(state: State, changed: Part) -> State:
    return replace(state, parts=tuple(changed if part.id == changed.id else part for part in state.parts))


def _started(state: State, found: Resource, at: Instant) -> State:
    """As far as all of it has come. It counts as started from the first that is being prepared."""
    has_begun = found.started_at is not None or found.state in (
        ResourceState.PULLING,
        ResourceState.STARTING,
        ResourceState.RUNNING,
    )
    if has_begun and state.started_at is None:
        state = replace(state, started_at=at)
    least = _least(state.parts)
    if least is ResourceState.TERMINATED:
        return state
    return _forward(state, Phase(least.value))


def _least(parts: Sequence[Part]) -> ResourceState:
    """What has ended holds nobody back."""
    states = [part.resource.state for part in parts if not part.is_over]
    return min(states, key=lambda found: STATE_ORDER[found], default=ResourceState.TERMINATED)


def _reachable(found: Resource, before: Resource) -> list[Effect]:
    """Only the chief has services."""
    if found.rank or not found.address or found.state is not ResourceState.RUNNING:
        return []
    is_new = before.state is not ResourceState.RUNNING or before.address != found.address
    return [OpenProxies(found.address)] if is_new else []


def _exit_told(state: State, part: Part, found: Resource) -> Tell:
    end = found.exit or Exit()
    is_expected = part.is_daemon and end.code == _KILLED and state.kill is not None
    words = f"exited with code {end.code}" if end.code is not None else "ended without an exit code"
    message = f": {end.message}" if end.message else ""
    level = "DEBUG" if is_expected else "INFO" if end.failure is None or state.was_killed_while_running else "ERROR"
    return Tell(f"resources {found.id} {words}{message}", level)


def _after_exit(state: State, at: Instant) -> Step:
    if not state.live:
        return _terminated(state, at, _all_ended(state))
    state = _forward(state, Phase.TERMINATING) if _is_ending(state) else state
    return _try_exit(state, at, "a part of it exited") or (state, [])


def _is_ending(state: State) -> bool:
    return state.kill is not None or state.preemption is not None


def _all_ended(state: State) -> str:
    if state.kill is not None:
        return state.kill.reason
    if state.preemption is not None:
        return state.preemption.reason
    return "all of its resources exited"


# How it ends


def _try_exit(state: State, at: Instant, reason: str) -> Step | None:
    """None: it cannot end by itself now."""
    if not state.parts:
        return _terminated(state, at, f"exit before start: {reason}")
    if not state.live:
        return _terminated(state, at, reason)
    if all(part.is_over or part.is_daemon for part in state.parts):
        has_failed = _has_failed(state)
        words = "all but its daemons have exited"
        return _kill(state, at, words, is_of_daemons=not has_failed)
    if _has_failed(state):
        return _kill(state, at, "a part of it has failed")
    return None


def _has_failed(state: State) -> bool:
    return any(part.exit is not None and part.exit.failure is not None for part in state.parts)


def _signalled(state: State, event: Signalled) -> Step:
    ended = _try_exit(state, event.at, event.reason)
    if ended is not None:
        return ended
    can_be_asked = state.is_preemptible and (state.is_ready or event.is_forced)
    if event.signal is Signal.KILL or not can_be_asked:
        return _kill(state, event.at, event.reason)
    if state.preemption is not None:
        return state, []  # its time is running already
    deadline = Instant(event.at + state.preemption_timeout)
    state = replace(state, preemption=Preemption(event.at, deadline, event.reason))
    return _forward(state, Phase.TERMINATING), [AskToStop(), Tell(f"asked to stop: {event.reason}")]


def _acknowledged(state: State, at: Instant) -> State:
    if state.preemption is None or state.preemption.acknowledged_at is not None:
        return state
    return replace(state, preemption=replace(state.preemption, acknowledged_at=at))


def _became_daemon(state: State, event: BecameDaemon) -> Step:
    part = state.part(event.resource)
    if part is None or part.is_daemon or len(state.parts) <= 1:
        return state, []
    state = _with_part(state, replace(part, is_daemon=True))
    if all(part.is_daemon for part in state.parts):
        return _kill(state, event.at, "all of its parts are daemons, and would never end")
    return _try_exit(state, event.at, "only daemons are left") or (state, [])


def _kill(state: State, at: Instant, reason: str, *, is_of_daemons: bool = False) -> Step:
    if state.kill is not None and at < state.kill.at + KILL_COOLDOWN_SECONDS:
        return state, []
    before = state.kill
    # Why it is repeated changes nothing about why it was done: daemons that die slowly are still only daemons.
    kill = Kill(at, reason, is_of_daemons) if before is None else replace(before, at=at)
    was_killed = state.was_killed_while_running or not (kill.is_of_daemons or _has_failed(state))
    state = replace(state, kill=kill, was_killed_while_running=was_killed)
    effects: list[Effect] = [KillParts(tuple(part.id for part in state.live))]
    if before is None:
        effects.append(Tell(f"killed: {reason}", "DEBUG" if is_of_daemons else "INFO"))
    return _forward(state, Phase.TERMINATING), effects


def _ticked(state: State, at: Instant) -> Step:
    when = due(state)
    if when is None or at < when:
        return state, []
    if state.kill is not None:
        return _kill(state, at, state.kill.reason)
    return _kill(state, at, "it did not stop within its time after it was asked to")


def _in_trouble(state: State, failure: Failure, message: str, at: Instant) -> Step:
    """The first trouble is what counts."""
    trouble = state.trouble or Trouble(failure, message)
    return _terminated(replace(state, trouble=trouble), at, trouble.message)


def _terminated(state: State, at: Instant, reason: str) -> Step:
    ended = exit_reasons.ended(state, reason)
    state = replace(state, ended=ended, ended_at=at if state.started_at is not None else None)
    level = "INFO" if ended.failure is None else "ERROR"
    return _to(state, Phase.TERMINATED), [Tell(ended.reason, level), Close(), Release()]
