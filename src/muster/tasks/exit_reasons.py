"""How an allocation ended, told from all that is known of it: the first that holds is what is told."""

from collections.abc import Mapping, Sequence
from typing import Final

from muster.engines.protocol import Failure
from muster.tasks.allocation_states import Ended, Part, State

_WORDS: Final[Mapping[Failure, str]] = {
    Failure.RESOURCES_FAILED: "allocation failed",
    Failure.TASK_ERROR: "allocation failed",
    Failure.RESOURCES_MISSING: "allocation failed",
    Failure.AGENT_FAILED: "allocation exited due to agent failure",
    Failure.AGENT_ERROR: "allocation exited due to agent failure",
    Failure.TASK_ABORTED: "allocation aborted",
    Failure.RESOURCES_ABORTED: "allocation aborted",
    Failure.RESTORE_ERROR: "allocation failed due to restore error",
    Failure.INVALID_REQUEST: "allocation could not be requested",
    Failure.INTERNAL_ERROR: "allocation handler crashed due to error",
}
_TELLING: Final = (
    # What a lost node brings about in the others, a program's own error brings about in them as well: the node first.
    Failure.AGENT_FAILED,
    Failure.AGENT_ERROR,
    Failure.RESOURCES_FAILED,
    Failure.TASK_ERROR,
    Failure.RESOURCES_MISSING,
    Failure.TASK_ABORTED,
    # Last: what is ended because another part has failed was not the cause.
    Failure.RESOURCES_ABORTED,
)


def ended(state: State, reason: str) -> Ended:
    code = _code(state.parts)
    if state.was_killed_while_running:
        return Ended(f"allocation killed after {reason}", exit_code=code, is_killed=True)
    if state.is_preemptible and state.preemption is not None and state.preemption.acknowledged_at is not None:
        return Ended(f"allocation preempted after {reason}", exit_code=code, is_preempted=True)
    if state.trouble is not None:
        return _failed(state.trouble.failure, state.trouble.message, code)
    worst = _worst(state)
    if worst is None and any(part.is_over for part in state.parts):
        return Ended(f"allocation stopped early after {reason}", exit_code=code, is_stopped_early=True)
    if worst is None:
        return Ended(f"allocation aborted after {reason}")
    assert worst.exit is not None
    assert worst.exit.failure is not None
    return _failed(worst.exit.failure, _told(worst), worst.exit.code if worst.exit.code is not None else code)


def _failed(failure: Failure, message: str, code: int | None) -> Ended:
    words = _WORDS.get(failure, "allocation failed")
    return Ended(f"{words}: {message}" if message else words, failure, message, code)


def _worst(state: State) -> Part | None:
    """The part that tells most of why it failed; None where nothing did. Daemons that we ended did what they should."""
    are_daemons_excused = state.kill is not None and state.kill.is_of_daemons
    failed = [
        part
        for part in state.parts
        if part.exit is not None
        if part.exit.failure is not None
        if not (part.is_daemon and are_daemons_excused)
    ]
    return min(failed, key=lambda part: (_place(part), part.resource.rank), default=None)


def _place(part: Part) -> int:
    assert part.exit is not None
    return _TELLING.index(part.exit.failure) if part.exit.failure in _TELLING else len(_TELLING)


def _told(part: Part) -> str:
    assert part.exit is not None
    if part.exit.message:
        return part.exit.message
    if part.exit.code is not None:
        return f"{part.id} exited with code {part.exit.code}"
    return f"{part.id} ended without an exit code"


def _code(parts: Sequence[Part]) -> int | None:
    codes = [part.exit.code for part in parts if part.exit is not None and part.exit.code is not None]
    return next((code for code in codes if code), codes[0] if codes else None)
