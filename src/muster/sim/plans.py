"""What happens in one simulated run, as data: a cluster, and a list of events that can be shortened and run again.

Every event stands for itself: what chance decides while it lasts is drawn from the event's own seed, so that the others
happen alike without it.
"""

from typing import TypeAlias

import msgspec

from muster.api import raw
from muster.sim.tape import Tear


class _Event(msgspec.Struct, frozen=True, kw_only=True, tag=True, forbid_unknown_fields=True):
    at: float
    """Virtual seconds from the start."""


class Submit(_Event, frozen=True):
    """A user makes an object, and tries until it is acknowledged."""

    document: msgspec.Raw


class Withdraw(_Event, frozen=True):
    """A user deletes the job that was submitted as the `number`-th, if it is still there."""

    number: int


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


class ChangeQuota(_Event, frozen=True):
    """An administrator gives a queue this share of its quota, for a while."""

    queue: int
    share: float
    seconds: float


class CordonNode(_Event, frozen=True):
    node: int
    seconds: float


Fault: TypeAlias = CrashPart | CrashProcess | CrashServer | CutOff | Storm | FullDisk | LoseNode | CrashPod | JumpClock
"""What nobody wants."""
Event: TypeAlias = Submit | Withdraw | ChangeQuota | CordonNode | Fault


class NodeShape(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    cpus: int = 32
    gpus: int = 8
    rack: str = ""


class QueueShape(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A ClusterQueue with a LocalQueue of its name; and, where `is_volcano`, the Volcano Queue that it carries."""

    name: str
    cpus: int
    gpus: int
    cohort: str = ""
    borrowing: int | None = None
    """GPUs that it may borrow at most."""
    lending: int | None = None
    preempts: bool = False


class Plan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    seed: int
    nodes: tuple[NodeShape, ...]
    queues: tuple[QueueShape, ...]
    events: tuple[Event, ...] = ()
    processes: int = 1
    """Processes of controllers, of which one leads."""
    patience: float = 7200.0
    """Virtual seconds, once the last event is over, within which every job must have ended."""


def encode(plan: Plan) -> bytes:
    return msgspec.json.format(msgspec.json.encode(plan))


def decode(encoded: bytes) -> Plan:
    """Raises msgspec.ValidationError, which names the field."""
    return msgspec.json.decode(encoded, type=Plan)


def document_of(event: Submit) -> raw.Document:
    return raw.decode_object(bytes(event.document))


def submit(at: float, document: raw.Document) -> Submit:
    return Submit(at=at, document=msgspec.Raw(raw.encode(document)))
