"""What happens to a pod on its node (events, past tense) and what is to be done about it (effects, imperative).

Every effect that takes time ends by producing an event, also when it fails: the docstring of each says which.
"""

from typing import TypeAlias

import msgspec

from muster.agent.runtime import Exit
from muster.api.meta import Instant


class _Message(msgspec.Struct, frozen=True, tag=True):
    """Events and effects: frozen, tagged, serialisable."""


class Admitted(_Message, frozen=True):
    """The node has room: begin, or go on with what was adopted."""

    at: Instant
    start_time: Instant


class Refused(_Message, frozen=True):
    at: Instant
    reason: str
    message: str


class Adopted(_Message, frozen=True):
    """What an earlier agent process left of one container. Comes before Admitted. `exit` is None where it runs."""

    at: Instant
    container: str
    attempt: int
    started_at: Instant
    exit: Exit | None = None
    last_exit: Exit | None = None


class Started(_Message, frozen=True):
    at: Instant
    container: str
    attempt: int
    started_at: Instant


class Unprepared(_Message, frozen=True):
    """A launch did not get as far as an attempt; the same attempt number is used again."""

    at: Instant
    container: str
    attempt: int
    reason: str
    message: str
    told: str = "Failed"  # the reason under which it is told as a Kubernetes Event


class Exited(_Message, frozen=True):
    at: Instant
    container: str
    attempt: int
    exit: Exit


class Probed(_Message, frozen=True):
    """A probe's verdict has changed (thresholds are the prober's business)."""

    at: Instant
    container: str
    attempt: int
    probe: str  # startup, readiness, liveness; postStart where that hook failed
    is_good: bool


class PreStopEnded(_Message, frozen=True):
    at: Instant
    container: str
    attempt: int


class StopRequested(_Message, frozen=True):
    """The object was marked for deletion."""

    at: Instant
    grace_seconds: float


class Evicted(_Message, frozen=True):
    """The node ends the pod for a reason of its own."""

    at: Instant
    grace_seconds: float
    reason: str
    message: str


class Abandoned(_Message, frozen=True):
    """The object is gone, was replaced, or was ended by somebody else."""

    at: Instant
    grace_seconds: float


class Tick(_Message, frozen=True):
    at: Instant


Event: TypeAlias = (
    Admitted
    | Refused
    | Adopted
    | Started
    | Unprepared
    | Exited
    | Probed
    | PreStopEnded
    | StopRequested
    | Evicted
    | Abandoned
    | Tick
)


class Launch(_Message, frozen=True):
    """Ends in Started, Exited or Unprepared; after Started, in Exited."""

    container: str
    attempt: int


class Watch(_Message, frozen=True):
    """Wait for an adopted attempt. Ends in Exited."""

    container: str
    attempt: int


class Signal(_Message, frozen=True):
    container: str
    attempt: int
    signal: str  # TERM, KILL


class RunPreStop(_Message, frozen=True):
    """Ends in PreStopEnded."""

    container: str
    attempt: int
    until: Instant


class BeginProbes(_Message, frozen=True):
    """Until the attempt ends, verdicts come as Probed. `is_new`: its postStart hook comes first, and counts as part of
    its startup."""

    container: str
    attempt: int
    is_new: bool = True


class Report(_Message, frozen=True):
    """Make the pod's status say what the state says. `is_final` once, when the pod is over."""

    is_final: bool = False


class Remove(_Message, frozen=True):
    """Delete the pod's object: nothing of it runs any more."""


class Forget(_Message, frozen=True):
    """An abandoned pod has ended: its directory may go."""


Effect: TypeAlias = Launch | Watch | Signal | RunPreStop | BeginProbes | Report | Remove | Forget
