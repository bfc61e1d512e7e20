"""What happens in one simulated run, as data: a cluster, and a list of events that can be shortened and run again.

Every event stands for itself: what chance decides while it lasts is drawn from the event's own seed, so that the others
happen alike without it.
"""

from typing import Literal, TypeAlias

import msgspec

from muster.api import raw
from muster.sim.tape import Tear

StopPolicy: TypeAlias = Literal["Hold", "HoldAndDrain"]
TaintEffect: TypeAlias = Literal["NoSchedule", "NoExecute"]


class _Event(msgspec.Struct, frozen=True, kw_only=True, tag=True, forbid_unknown_fields=True):
    at: float
    """Virtual seconds from the start."""


class Submit(_Event, frozen=True):
    """A user makes an object, and tries until it is acknowledged."""

    document: msgspec.Raw


class Withdraw(_Event, frozen=True):
    """A user deletes the job of that name, if there is one."""

    name: str


class CrashPart(_Event, frozen=True):
    """One controller of the leading process fails after so many commits, and is started again."""

    part: int
    commits: int = 0


class CrashProcess(_Event, frozen=True):
    """A process of controllers dies after so many commits; another starts in its place."""

    process: int
    seconds: float
    commits: int = 0


class CrashServer(_Event, frozen=True):
    """The server dies, in the middle of a commit."""

    seconds: float
    fate: Tear
    commits: int = 0


class CutOff(_Event, frozen=True):
    """A process of controllers cannot reach the server for a while, and does not know why: another may lead."""

    process: int
    seconds: float


class Storm(_Event, frozen=True):
    """For a while connections to the server are bad. Shares of calls, or of batches of events, that are struck."""

    seconds: float
    seed: int
    refused: float = 0.0
    """Writes that are not taken."""
    conflicts: float = 0.0
    """Writes based on a version that somebody else has just replaced."""
    unanswered: float = 0.0
    """Writes that are taken, and nobody is told."""
    slow: float = 0.0
    """Seconds that a call may take."""
    broken: float = 0.0
    """Watches that break: events are lost until the watch is taken up again."""
    expired: float = 0.0
    """Watches that break and cannot be taken up again: all is listed anew."""
    repeated: float = 0.0
    late: float = 0.0
    shuffled: float = 0.0


class FullDisk(_Event, frozen=True):
    seconds: float


class LoseNode(_Event, frozen=True):
    """An agent falls silent. With `reboots` what it ran is over; without it goes on unseen."""

    node: int
    seconds: float
    reboots: bool


class CrashPod(_Event, frozen=True):
    """Of the pods that run, the one at this share of their list fails."""

    share: float


class JumpClock(_Event, frozen=True):
    """The wall clock is set."""

    seconds: float


class BotherExtender(_Event, frozen=True):
    """For a while the scheduler's extender is slow, fails, or objects. Shares of what it is asked."""

    seconds: float
    seed: int
    slow: float = 0.0
    """Seconds that an answer may take: longer than it is waited for, perhaps."""
    failing: float = 0.0
    objecting: float = 0.0
    """Nodes that it finds unfit, and binds that it refuses."""


class RestartAgent(_Event, frozen=True):
    """The process of an agent ends and is started again. It finds what runs and takes it over; or, unless it `adopts`,
    its pods have died with it."""

    node: int
    seconds: float
    adopts: bool


class ChangeQuota(_Event, frozen=True):
    """An administrator gives a queue this share of its GPUs, and other limits, for a while. None: as they are."""

    queue: int
    share: float
    seconds: float
    borrowing: int | None = None
    lending: int | None = None


class MoveQueue(_Event, frozen=True):
    """A queue joins another cohort for a while, or leaves its own ("")."""

    queue: int
    cohort: str
    seconds: float


class StopQueue(_Event, frozen=True):
    """A queue admits nothing for a while, and with `HoldAndDrain` gives up what it has admitted."""

    queue: int
    policy: StopPolicy
    seconds: float


class CloseQueue(_Event, frozen=True):
    """A Volcano queue is closed, and opened again, by commands."""

    queue: int
    seconds: float


class ChangeCapability(_Event, frozen=True):
    """A Volcano queue may have this share of its capability, for a while."""

    queue: int
    share: float
    seconds: float


class HoldJob(_Event, frozen=True):
    """A Volcano job is suspended, and resumed, by commands, where there is one of that name."""

    name: str
    seconds: float


class CordonNode(_Event, frozen=True):
    node: int
    seconds: float


class TaintNode(_Event, frozen=True):
    node: int
    effect: TaintEffect
    seconds: float


class RelabelNode(_Event, frozen=True):
    """A node leaves the pool that the queues' flavor is about, for a while."""

    node: int
    seconds: float


class BreakDevices(_Event, frozen=True):
    """So many of a node's GPUs are left for a while, whatever runs on them."""

    node: int
    gpus: int
    seconds: float


Fault: TypeAlias = (
    CrashPart
    | CrashProcess
    | CrashServer
    | CutOff
    | Storm
    | FullDisk
    | LoseNode
    | CrashPod
    | JumpClock
    | BotherExtender
    | RestartAgent
)
"""What nobody wants."""
Order: TypeAlias = (
    ChangeQuota
    | MoveQueue
    | StopQueue
    | CloseQueue
    | ChangeCapability
    | HoldJob
    | CordonNode
    | TaintNode
    | RelabelNode
    | BreakDevices
)
"""What an administrator does, and takes back."""
Event: TypeAlias = Submit | Withdraw | Order | Fault


RACK_LABEL = "rack"
POOL_LABEL = "pool"
POOL = "main"
"""Of the nodes that the queues' flavor is about: all, but for those that are relabelled."""


class NodeShape(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    cpus: int = 32
    gpus: int = 8
    rack: str = ""


class QueueShape(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A ClusterQueue with a LocalQueue of its name."""

    name: str
    cpus: int
    gpus: int
    cohort: str = ""
    borrowing: int | None = None
    """GPUs that it may borrow at most."""
    lending: int | None = None
    preempts: bool = False


class VolcanoQueueShape(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A Volcano Queue, and the GPUs that it may have, deserves, and is guaranteed."""

    name: str
    capability: int
    deserved: int
    guarantee: int = 0


class ExtenderShape(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An extender of the scheduler, that filters and prioritizes."""

    is_ignorable: bool = False
    binds: bool = False
    """It binds pods itself, one by one."""


class Plan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    seed: int
    nodes: tuple[NodeShape, ...]
    queues: tuple[QueueShape, ...]
    events: tuple[Event, ...] = ()
    processes: int = 1
    """Processes of controllers, of which one leads."""
    patience: float = 3600.0
    """Virtual seconds, once the last event is over, within which every job must have ended."""
    volcano_queues: tuple[VolcanoQueueShape, ...] = ()
    extender: ExtenderShape | None = None
    cron_gap: float = 0.0
    """Virtual seconds that may lie between two runs of a cron job, beyond the patience."""
    has_racks: bool = False
    """The queues' flavor has a topology: racks, and the nodes in them."""
    renews: float = 10.0
    """Virtual seconds between two signs of life of a node."""

    @property
    def set_back(self) -> float:
        """By how much the wall clock is set back in all: what a schedule makes is due so much later."""
        return sum(-event.seconds for event in self.events if isinstance(event, JumpClock) and event.seconds < 0)


def encode(plan: Plan) -> bytes:
    return msgspec.json.format(msgspec.json.encode(plan))


def decode(encoded: bytes) -> Plan:
    """Raises msgspec.ValidationError, which names the field."""
    return msgspec.json.decode(encoded, type=Plan)


def document_of(event: Submit) -> raw.Document:
    return raw.decode_object(bytes(event.document))


def submit(at: float, document: raw.Document) -> Submit:
    return Submit(at=at, document=msgspec.Raw(raw.encode(document)))
