"""The states of a generic task, and what becomes of it when a run of it has ended. Pure."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from muster.tasks.allocation_states import Signal
from muster.tasks.contract import Exited


class GenericState(StrEnum):
    ACTIVE = "ACTIVE"
    PAUSED = "PAUSED"
    COMPLETED = "COMPLETED"
    ERROR = "ERROR"
    CANCELED = "CANCELED"
    STOPPING_PAUSED = "STOPPING_PAUSED"
    STOPPING_CANCELED = "STOPPING_CANCELED"


OVER: Final = frozenset({GenericState.COMPLETED, GenericState.ERROR, GenericState.CANCELED})
SIGNALS: Final = {GenericState.STOPPING_PAUSED: Signal.TERMINATE, GenericState.STOPPING_CANCELED: Signal.KILL}
"""What a run is told where its task is to stop."""


@dataclass(frozen=True, slots=True)
class Settled:
    state: GenericState
    is_over: bool


def settle(state: GenericState, exited: Exited) -> Settled:
    """A run that had to make room, whether it heard of it or not, goes on; one that was paused waits for somebody. An
    exit may be told twice: what was settled stays so."""
    if state is GenericState.PAUSED or state in OVER:
        return Settled(state, state in OVER)
    if state is GenericState.STOPPING_CANCELED:
        return Settled(GenericState.CANCELED, True)
    if state is GenericState.STOPPING_PAUSED:
        return Settled(GenericState.PAUSED, False)
    if exited.ended.is_preempted or exited.ended.is_killed:
        return Settled(GenericState.ACTIVE, False)
    return Settled(GenericState.ERROR if exited.ended.failure is not None else GenericState.COMPLETED, True)
