"""An allocation's life as the platform knows it: phases, the changes allowed between them, and what `allocation.step`
moves: its state, what happens to it, and what is to be done about that.

Small, frozen and serialisable: the state is kept with the allocation's record, and read again after a restart.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, TypeAlias

import msgspec

from muster.api.meta import Instant
from muster.engines.protocol import AllocationId, Exit, Failure, Resource, ResourceId, ResourceState

KILL_COOLDOWN_SECONDS: Final = 15.0
KILL_AGAIN_SECONDS: Final = 30.0
"""A kill may be lost: it is repeated until everything has ended."""


class Phase(StrEnum):
    PENDING = "PENDING"
    ASSIGNED = "ASSIGNED"
    PULLING = "PULLING"
    STARTING = "STARTING"
    RUNNING = "RUNNING"
    WAITING = "WAITING"
    TERMINATING = "TERMINATING"
    TERMINATED = "TERMINATED"


_ORDER: Final = {phase: number for number, phase in enumerate(Phase)}
_FORWARD: Final[Mapping[Phase, str]] = {
    Phase.ASSIGNED: "the engine has a place for all of it",
    Phase.PULLING: "its parts are being prepared",
    Phase.STARTING: "its programs are being started",
    Phase.RUNNING: "all of its programs run, or have run",
    Phase.TERMINATING: "it was asked or made to end, or a part of it has ended",
    Phase.TERMINATED: "nothing of it runs",
}


def _changes() -> Mapping[tuple[Phase, Phase], str]:
    """Forward, and steps may be left out where we have not seen them; but a task that waits may go on to run."""
    found = {
        (before, after): why
        for before in Phase
        for after, why in _FORWARD.items()
        if _ORDER[before] < _ORDER[after]
        if before is not Phase.PENDING or after in (Phase.ASSIGNED, Phase.TERMINATED)
    }
    found[Phase.PENDING, Phase.TERMINATED] = "it was ended while it waited, or can never run"
    found[Phase.RUNNING, Phase.WAITING] = "it says that it waits for something of its own"
    found[Phase.STARTING, Phase.WAITING] = "it says that it waits, before we heard that all of it runs"
    found[Phase.WAITING, Phase.RUNNING] = "it says that it is ready"
    return found


CHANGES: Final[Mapping[tuple[Phase, Phase], str]] = _changes()


def is_beyond(phase: Phase, other: Phase) -> bool:
    return _ORDER[phase] > _ORDER[other]


class Signal(StrEnum):
    """What somebody wants of an allocation, the mildest first."""

    PREEMPT = "preempt"
    """Asked to end, and given its time, if it can be asked at all and has begun its work; else it is ended."""
    TERMINATE = "terminate"
    """The same, on behalf of whoever owns it: a pause, a move, an idle timeout."""
    KILL = "kill"


class Part(msgspec.Struct, frozen=True):
    """A resource as far as it concerns the lifecycle."""

    resource: Resource
    is_daemon: bool = False
    """It serves the others, and is not waited for."""

    @property
    def id(self) -> ResourceId:
        return self.resource.id

    @property
    def exit(self) -> Exit | None:
        return self.resource.exit

    @property
    def is_over(self) -> bool:
        return self.resource.state is ResourceState.TERMINATED


class Preemption(msgspec.Struct, frozen=True):
    asked_at: Instant
    deadline: Instant
    reason: str
    acknowledged_at: Instant | None = None


class Kill(msgspec.Struct, frozen=True):
    at: Instant
    """The latest."""
    reason: str
    is_of_daemons: bool = False
    """Only those are left, and they would never end by themselves."""


class Trouble(msgspec.Struct, frozen=True):
    """What went wrong with the allocation as a whole, as against one of its parts."""

    failure: Failure
    message: str


class Ended(msgspec.Struct, frozen=True):
    """How it ended, as told to people and to whoever owns it."""

    reason: str
    failure: Failure | None = None
    """None: as it should."""
    message: str = ""
    exit_code: int | None = None
    """Of the part that tells most; None where none is known."""
    is_preempted: bool = False
    """It stopped because it was asked to, and said so: it would go on elsewhere."""
    is_stopped_early: bool = False
    """It ended well, and by itself: its program has decided that it is done."""
    is_killed: bool = False


class State(msgspec.Struct, frozen=True, kw_only=True):
    id: AllocationId
    is_preemptible: bool = False
    preemption_timeout: float = 3600.0
    phase: Phase = Phase.PENDING
    parts: tuple[Part, ...] = ()
    """By rank."""
    is_ready: bool = False
    requested_at: Instant = Instant(0.0)
    started_at: Instant | None = None
    ended_at: Instant | None = None
    """Only where it was started."""
    preemption: Preemption | None = None
    kill: Kill | None = None
    was_killed_while_running: bool = False
    """Ends that follow are no failures."""
    trouble: Trouble | None = None
    ended: Ended | None = None
    proxy_address: str = ""
    """Where its services are reached, as the task itself has said."""
    is_released: bool = False
    is_reported: bool = False

    @property
    def is_over(self) -> bool:
        return self.phase is Phase.TERMINATED

    @property
    def live(self) -> tuple[Part, ...]:
        return tuple(part for part in self.parts if not part.is_over)

    @property
    def is_asked_to_stop(self) -> bool:
        return self.preemption is not None

    def part(self, resource: ResourceId) -> Part | None:
        return next((part for part in self.parts if part.id == resource), None)

    @property
    def chief_address(self) -> str:
        """Where the services of rank 0 are reached; empty while that is not known."""
        return self.proxy_address or next((p.resource.address for p in self.parts if p.resource.rank == 0), "")


# What happens


class _Event(msgspec.Struct, frozen=True, tag=True):
    at: Instant


class Granted(_Event, frozen=True):
    resources: tuple[Resource, ...]
    is_recovered: bool = False


class Changed(_Event, frozen=True):
    resource: Resource


class Readied(_Event, frozen=True):
    """It says so itself, or all of its parts have met."""


class Waited(_Event, frozen=True):
    """It says that it has nothing to show yet."""


class Signalled(_Event, frozen=True):
    signal: Signal
    reason: str
    is_forced: bool = False
    """To be asked, even where it has not said that it is ready."""


class Acknowledged(_Event, frozen=True):
    """It has heard that it should end."""


class BecameDaemon(_Event, frozen=True):
    resource: ResourceId


class ProxyTold(_Event, frozen=True):
    address: str


class EngineFailed(_Event, frozen=True):
    failure: Failure
    message: str


class Ticked(_Event, frozen=True):
    """Time has passed."""


class WasReleased(_Event, frozen=True):
    """The engine has nothing of it any more."""


class WasReported(_Event, frozen=True):
    """Whoever owns it has been told how it ended."""


Event: TypeAlias = (
    Granted
    | Changed
    | Readied
    | Waited
    | Signalled
    | Acknowledged
    | BecameDaemon
    | ProxyTold
    | EngineFailed
    | Ticked
    | WasReleased
    | WasReported
)


# What is to be done about it


class _Effect(msgspec.Struct, frozen=True, tag=True):
    """All may be repeated: after a restart they are, where nobody knows whether they were done."""


class KillParts(_Effect, frozen=True):
    resources: tuple[ResourceId, ...]


class AskToStop(_Effect, frozen=True):
    """Whoever waits for the word gets it."""


class OpenProxies(_Effect, frozen=True):
    """Its services can be reached at this address."""

    address: str


class Tell(_Effect, frozen=True):
    """A line for the task's log."""

    text: str
    level: str = "INFO"


class Close(_Effect, frozen=True):
    """Its session, ports, proxies and waiting calls end."""


class Release(_Effect, frozen=True):
    """The engine may forget it: the last thing that is asked of it."""


class Report(_Effect, frozen=True):
    """To whoever owns it; WasReported follows."""

    ended: Ended


Effect: TypeAlias = KillParts | AskToStop | OpenProxies | Tell | Close | Release | Report
