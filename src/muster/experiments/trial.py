"""The lifecycle of a trial: `step(state, event) -> (state, effects)`.

Pure. A run is counted before it is begun, and the new state is durable before anything is done about the effects: so a
trial never has two runs at once, whatever happens in between. After a restart `resume` says what must be done again,
because nobody knows whether it was. Late and repeated messages are normal, and change nothing.
"""

from collections.abc import Mapping
from typing import Final, TypeAlias

import msgspec
from msgspec.structs import replace

from muster.engines.protocol import TRANSIENT, Failure
from muster.experiments.inbox import EarlyExit
from muster.experiments.states import TRIAL_ENDED, TrialState
from muster.search.protocol import ExitReason
from muster.tasks.allocation_states import Ended, Signal

LEAVE_SECONDS: Final = 10.0
"""So long a program that gave up has to end by itself."""
_T: Final = TrialState
_FINAL: Final[Mapping[TrialState, TrialState]] = {
    _T.STOPPING_COMPLETED: _T.COMPLETED,
    _T.STOPPING_CANCELED: _T.CANCELED,
    _T.STOPPING_ERROR: _T.ERROR,
    _T.STOPPING_KILLED: _T.CANCELED,
}
_SEVERITY: Final = {state: number for number, state in enumerate(_FINAL)}
"""It only ever grows."""
_KILLING: Final = frozenset({_T.STOPPING_ERROR, _T.STOPPING_KILLED})


def _changes() -> Mapping[tuple[TrialState, TrialState], str]:
    asked: Mapping[TrialState, str] = {
        _T.STOPPING_COMPLETED: "its search has no more use for it: it is asked to stop",
        _T.STOPPING_CANCELED: "its user cancels: it is asked to stop",
        _T.STOPPING_ERROR: "its experiment has failed: it is ended",
        _T.STOPPING_KILLED: "its user kills it",
    }
    found = {
        (_T.ACTIVE, _T.PAUSED): "its experiment is paused: it is asked to stop",
        (_T.PAUSED, _T.ACTIVE): "its experiment goes on",
    }
    for before in (_T.ACTIVE, _T.PAUSED):
        found |= {(before, after): why for after, why in asked.items()}
        found[before, _T.COMPLETED] = "its program has ended well, or has given up by itself"
        found[before, _T.ERROR] = "its program has failed more often than it may, or can never run"
    for before in asked:
        found |= {(before, after): why for after, why in asked.items() if _SEVERITY[before] < _SEVERITY[after]}
    for before, after in _FINAL.items():
        found[before, after] = "nothing of it runs any more"
    found[_T.STOPPING_COMPLETED, _T.ERROR] = "its program has failed when it was asked to stop"
    return found


CHANGES: Final[Mapping[tuple[TrialState, TrialState], str]] = _changes()


class State(msgspec.Struct, frozen=True, kw_only=True):
    """`run`: how many runs it has had. `is_live`: the latest is not over, or may not even have been begun."""

    phase: TrialState = TrialState.ACTIVE
    max_restarts: int = 0
    run: int = 0
    is_live: bool = False
    restarts: int = 0
    """After failures that were its program's."""
    gave_up: EarlyExit | None = None
    no_retries: str = ""
    """Why it is not to be run again after a failure; empty: it is."""
    excluded: tuple[str, ...] = ()
    """Nodes that it must not come to any more."""
    reason: str = ""
    """Why it stops, or has ended."""
    exit: ExitReason | None = None
    """How it ended otherwise than by training to its end, as its search is told."""

    @property
    def is_over(self) -> bool:
        return self.phase in TRIAL_ENDED

    @property
    def is_waiting(self) -> bool:
        """For room to run in."""
        return self.phase is TrialState.ACTIVE and not self.is_live


# What happens


class _Event(msgspec.Struct, frozen=True, tag=True):
    pass


class Admitted(_Event, frozen=True):
    """There is room for another run."""


class Exited(_Event, frozen=True):
    run: int
    ended: Ended


class Paused(_Event, frozen=True):
    pass


class Activated(_Event, frozen=True):
    pass


class StopAsked(_Event, frozen=True):
    """`to`: how it is to end, as the state in which it stops."""

    to: TrialState
    reason: str
    exit: ExitReason | None = None


class GaveUp(_Event, frozen=True):
    """Its program says that it is not worth going on, and ends after that."""

    reason: EarlyExit


class RetriesCancelled(_Event, frozen=True):
    why: str


class NodeExcluded(_Event, frozen=True):
    node: str


Event: TypeAlias = Admitted | Exited | Paused | Activated | StopAsked | GaveUp | RetriesCancelled | NodeExcluded


# What is to be done about it


class _Effect(msgspec.Struct, frozen=True, tag=True):
    """All may be repeated."""

    run: int


class Start(_Effect, frozen=True):
    pass


class Ask(_Effect, frozen=True):
    """It is to end: of one that has not been started yet, once it has."""

    signal: Signal
    reason: str


class EndLater(_Effect, frozen=True):
    """It ends by itself, or is killed after some seconds."""

    seconds: float


class Close(_Effect, frozen=True):
    """It has ended, for good."""


Effect: TypeAlias = Start | Ask | EndLater | Close
Step: TypeAlias = tuple[State, list[Effect]]


class InvalidTransition(RuntimeError):
    """A bug, not a race: races are foreseen."""


def step(state: State, event: Event) -> Step:
    if state.is_over:
        return state, []
    match event:
        case Admitted():
            return _admitted(state)
        case Exited():
            return _exited(state, event)
        case Paused():
            return _paused(state)
        case Activated():
            return (_to(state, TrialState.ACTIVE) if state.phase is TrialState.PAUSED else state), []
        case StopAsked():
            return _stop_asked(state, event)
        case GaveUp():
            return _gave_up(state, event.reason)
        case RetriesCancelled():
            return replace(state, no_retries=state.no_retries or event.why), []
        case NodeExcluded():
            known = state.excluded
            return (state if event.node in known else replace(state, excluded=(*known, event.node))), []


def resume(state: State) -> list[Effect]:
    """What must be done after a restart, whether or not it was done before."""
    if state.is_over or not state.is_live:
        return []
    effects: list[Effect] = [Start(state.run), *_ask(state)]
    return [*effects, EndLater(state.run, LEAVE_SECONDS)] if state.gave_up is not None else effects


def wanted_signal(state: State) -> Signal | None:
    """What the run that is under way should have been told; None: to go on."""
    if state.phase in _KILLING:
        return Signal.KILL
    return None if state.phase is TrialState.ACTIVE else Signal.TERMINATE


def _to(state: State, phase: TrialState) -> State:
    if (state.phase, phase) not in CHANGES:
        raise InvalidTransition(f"from {state.phase} to {phase}")
    return replace(state, phase=phase)


def _ask(state: State) -> list[Effect]:
    signal = wanted_signal(state)
    return [Ask(state.run, signal, state.reason)] if state.is_live and signal is not None else []


def _admitted(state: State) -> Step:
    if not state.is_waiting:
        return state, []
    run = state.run + 1
    return replace(state, run=run, is_live=True), [Start(run)]


def _paused(state: State) -> Step:
    if state.phase is not TrialState.ACTIVE:
        return state, []
    state = _to(replace(state, reason="the experiment was paused"), TrialState.PAUSED)
    return state, _ask(state)


def _stop_asked(state: State, event: StopAsked) -> Step:
    is_stopping = state.phase in _SEVERITY
    if is_stopping and _SEVERITY[event.to] <= _SEVERITY[state.phase]:
        return state, _ask(state) if event.to is state.phase else []
    state = _to(replace(state, reason=event.reason, exit=event.exit), event.to)
    if not state.is_live:
        return _closed(state, _FINAL[state.phase], event.reason)
    return state, _ask(state)


def _gave_up(state: State, reason: EarlyExit) -> Step:
    if state.gave_up is not None:
        return state, []
    state = replace(state, gave_up=reason)
    if state.is_live:
        return state, [EndLater(state.run, LEAVE_SECONDS)]
    return _after_giving_up(state)


# How a run ends


def _exited(state: State, event: Exited) -> Step:
    if not state.is_live or event.run != state.run:
        return state, []  # told again
    state, ended = replace(state, is_live=False), event.ended
    is_own_fault = ended.failure is not None and ended.failure not in TRANSIENT
    if state.phase in _SEVERITY:
        is_error = state.phase is TrialState.STOPPING_COMPLETED and is_own_fault
        return _failed(state, ended.reason) if is_error else _closed(state, _FINAL[state.phase], state.reason)
    if state.gave_up is not None:
        return _after_giving_up(state)
    if ended.failure is None:
        return _closed(state, TrialState.COMPLETED, ended.reason) if ended.is_stopped_early else (state, [])
    if not is_own_fault:
        return state, []
    return _again(state, ended)


def _again(state: State, ended: Ended) -> Step:
    if ended.failure is Failure.INVALID_REQUEST:
        return _failed(state, ended.reason)
    if state.no_retries:
        return _failed(state, f"{ended.reason}; it is not run again: {state.no_retries}")
    if state.restarts >= state.max_restarts:
        return _failed(state, f"{ended.reason}; it has been run again {state.restarts} times, and may be no more")
    return replace(state, restarts=state.restarts + 1), []


def _after_giving_up(state: State) -> Step:
    is_invalid = state.gave_up is EarlyExit.INVALID_HP
    exit = ExitReason.INVALID_HP if is_invalid else ExitReason.USER_REQUESTED_STOP
    why = "its hyperparameters will not do" if is_invalid else "it asked for its own end"
    final = TrialState.COMPLETED if state.phase not in _SEVERITY else _FINAL[state.phase]
    return _closed(replace(state, exit=state.exit or exit), final, why)


def _failed(state: State, why: str) -> Step:
    return _closed(replace(state, exit=ExitReason.ERRORED), TrialState.ERROR, why)


def _closed(state: State, final: TrialState, why: str) -> Step:
    state = _to(replace(state, reason=why), final)
    return state, [Close(state.run)]
