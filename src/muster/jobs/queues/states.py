"""The state of a queue, and what opening, closing and time do to it.

Open    --> Closing    closed, with pod groups in it
Open    --> Closed     closed, and empty
Closing --> Closed     the last pod group is gone
any     --> Open       opened
any     --> Unknown    somebody wrote a state that there is not; it can be opened and closed from there
"""

from enum import StrEnum

from muster.jobs.volcano.vocabulary import Action


class State(StrEnum):
    OPEN = "Open"
    CLOSED = "Closed"
    CLOSING = "Closing"
    UNKNOWN = "Unknown"


_STATES = {str(state): state for state in State}


def state_of(text: str | None) -> State:
    """A queue that is new is open."""
    return _STATES.get(text, State.UNKNOWN) if text else State.OPEN


def step(state: State, said: str | None, action: Action, *, has_groups: bool) -> State:
    """`said`: what stands in the queue's status, which a user may have written there instead of a command."""
    emptying = State.CLOSING if has_groups else State.CLOSED
    if action is Action.OPEN_QUEUE:
        return State.OPEN
    if action is Action.CLOSE_QUEUE:
        return State.CLOSED if state is State.CLOSED else emptying
    match state_of(said):
        case State.OPEN:
            return State.OPEN
        case State.CLOSED:
            # What is closed stays so, even if a pod group has slipped in.
            return State.CLOSED if state is State.CLOSED else emptying
        case State.CLOSING if state is State.CLOSING:
            return emptying
    return State.UNKNOWN
