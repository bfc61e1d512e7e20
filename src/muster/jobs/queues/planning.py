"""What should become of a queue: by command, by what its parent does, or by itself.

A queue below one that is closed is closed as well, and marked so; it opens again with its parent. One that was closed
for itself stays closed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from muster.api import volcano
from muster.api.volcano.defaults import ROOT_QUEUE
from muster.jobs.queues.states import State, state_of, step
from muster.jobs.volcano.vocabulary import Action

CLOSED_BY_PARENT = "volcano.sh/closed-by-parent"
_SHUT = (State.CLOSED, State.CLOSING)


@dataclass(frozen=True, slots=True)
class Told:
    """An event about the queue."""

    type: Literal["Normal", "Warning"]
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Plan:
    """`mark`: what the annotation should say from now on; None: leave it. `parent`: to be written where none was."""

    state: State
    mark: str | None = None
    parent: str | None = None
    told: Sequence[Told] = ()


def plan(
    queue: volcano.Queue, parent: volcano.Queue | None, action: Action = Action.SYNC_QUEUE, *, has_groups: bool
) -> Plan:
    """`parent`: None where it does not exist, or the queue is the root."""
    name, said = queue.metadata.name, queue.status.state
    state = state_of(said)
    named = ROOT_QUEUE if name != ROOT_QUEUE and not queue.spec.parent else None
    refusal = _refusal(name, parent, action)
    if refusal is not None:
        return Plan(step(state, said, Action.SYNC_QUEUE, has_groups=has_groups), None, named, [refusal])
    mark = (queue.metadata.annotations or {}).get(CLOSED_BY_PARENT)
    wanted = "false" if mark == "true" else None
    if action not in (Action.OPEN_QUEUE, Action.CLOSE_QUEUE):
        action, wanted = _with_parent(state, parent, mark)
    after = step(state, said, action, has_groups=has_groups)
    told = [Told("Normal", str(action), f"Queue is {after}")] if after != state_of(said) else []
    return Plan(after, wanted if wanted != mark else None, named, told)


def _refusal(name: str, parent: volcano.Queue | None, action: Action) -> Told | None:
    if name == ROOT_QUEUE and action is Action.CLOSE_QUEUE:
        return Told("Warning", "FailedCloseQueue", f"the {ROOT_QUEUE} queue can not be closed")
    if action is Action.OPEN_QUEUE and parent is not None and state_of(parent.status.state) in _SHUT:
        message = f"queue {parent.metadata.name}, which it is below, is {parent.status.state}; open that first"
        return Told("Warning", "FailedOpenQueue", message)
    return None


def _with_parent(state: State, parent: volcano.Queue | None, mark: str | None) -> tuple[Action, str | None]:
    """What follows from the parent's state, and the mark to leave."""
    above = state_of(parent.status.state) if parent is not None else None
    if above in _SHUT and state not in _SHUT:
        return Action.CLOSE_QUEUE, "true"
    if above is State.OPEN and mark == "true":
        return (Action.OPEN_QUEUE if state in _SHUT else Action.SYNC_QUEUE), "false"
    return Action.SYNC_QUEUE, None
