"""The `ResourceManager` protocol: where allocations run, and how those who asked for them hear about it.

An engine grants all of an allocation or nothing of it, runs it once, and remembers how it ended until it is released.
What happens comes as events, of each allocation in order; whoever listens does so before the first request, so that
nothing is missed. Implementations pass `muster.testing.engines.EngineSuite`.
"""

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NewType, Protocol, TypeAlias

import msgspec

from muster.api.meta import Instant
from muster.api.raw import Document

AllocationId = NewType("AllocationId", str)
ResourceId = NewType("ResourceId", str)

DEFAULT_PRIORITY = 42
"""As in Determined: from 1 to 99, and the lower the more urgent."""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What one run of a task needs. Serialisable: it is kept with the allocation's record."""

    allocation: AllocationId
    task: str
    task_type: str
    """As Determined's: TRIAL, NOTEBOOK, SHELL, COMMAND, TENSORBOARD, CHECKPOINT_GC or GENERIC."""
    template: Document
    """A PodTemplateSpec, without the resources that slots stand for."""
    job: str = ""
    name: str = ""
    owner: str = ""
    namespace: str = "default"
    pool: str = ""
    """Empty: the default pool."""
    priority: int = DEFAULT_PRIORITY
    slots: int = 0
    is_single_node: bool = False
    slots_per_pod: int | None = None
    """At most; None: as many as a node of the pool has."""
    is_preemptible: bool = False
    preemption_timeout_seconds: int = 3600
    services: tuple[int, ...] = ()
    """Ports on which its first part answers others."""


class ResourceState(StrEnum):
    """Of one part of an allocation, in order; it never goes back."""

    ASSIGNED = "ASSIGNED"
    PULLING = "PULLING"
    STARTING = "STARTING"
    RUNNING = "RUNNING"
    TERMINATED = "TERMINATED"


STATE_ORDER: Mapping[ResourceState, int] = {state: number for number, state in enumerate(ResourceState)}


class Failure(StrEnum):
    """Why something did not end as it should."""

    RESOURCES_FAILED = "RESOURCES_FAILED"
    """The program: it ended with a code other than 0, or could not be started."""
    RESOURCES_MISSING = "RESOURCES_MISSING"
    """What ran it is gone, and nobody saw how it ended."""
    RESOURCES_ABORTED = "RESOURCES_ABORTED"
    """It was ended by somebody else before it was done."""
    TASK_ABORTED = "TASK_ABORTED"
    TASK_ERROR = "TASK_ERROR"
    AGENT_FAILED = "AGENT_FAILED"
    """Its node is lost."""
    AGENT_ERROR = "AGENT_ERROR"
    RESTORE_ERROR = "RESTORE_ERROR"
    """After a restart of the server nothing was left of it."""
    INVALID_REQUEST = "INVALID_REQUEST"
    """It can never be run."""
    INTERNAL_ERROR = "INTERNAL_ERROR"


TRANSIENT = frozenset(
    {
        Failure.AGENT_FAILED,
        Failure.AGENT_ERROR,
        Failure.TASK_ABORTED,
        Failure.RESOURCES_ABORTED,
        Failure.RESTORE_ERROR,
    }
)
"""Not the program's fault: another try is likely to go well, and does not count."""


class Exit(msgspec.Struct, frozen=True):
    """How one part of an allocation ended. `failure`: None where it ended well."""

    code: int | None = None
    failure: Failure | None = None
    message: str = ""


class Resource(msgspec.Struct, frozen=True, kw_only=True):
    """One part of an allocation: a pod, or a task of a Slurm job. `rank`: from 0, the chief's."""

    id: ResourceId
    rank: int
    node: str = ""
    slots: int = 0
    state: ResourceState = ResourceState.ASSIGNED
    address: str = ""
    started_at: Instant | None = None
    exit: Exit | None = None


# Events


class _Event(msgspec.Struct, frozen=True, tag=True):
    allocation: AllocationId


class Granted(_Event, frozen=True):
    """All of it has a place. `is_recovered`: as it was found after a restart, with what has happened to it so far."""

    resources: tuple[Resource, ...]
    is_recovered: bool = False


class ResourceChanged(_Event, frozen=True):
    """Only after Granted. The last one has an exit."""

    resource: Resource


class Delayed(_Event, frozen=True):
    """Why it does not run yet, for people to read; told where that has changed. It may never come."""

    reason: str


class PreemptionAsked(_Event, frozen=True):
    """Others need the room. Whoever does not leave within its time is ended."""

    reason: str


class Failed(_Event, frozen=True):
    """Nothing will come of it, or of what is left of it. It is still to be released."""

    failure: Failure
    message: str


class Released(_Event, frozen=True):
    """Nothing of it is left. The last event of an allocation; one comes for each release."""


Event: TypeAlias = Granted | ResourceChanged | Delayed | PreemptionAsked | Failed | Released


# Pools


@dataclass(frozen=True, slots=True)
class Pool:
    """Where allocations may go. A slot is a GPU, or, where no node of the pool has one, a CPU."""

    name: str
    slot_resource: str
    slots: int
    slots_per_node: int
    """Of the largest node."""
    nodes: Sequence[str] = field(default_factory=tuple)
    is_default: bool = False


class Caveat(StrEnum):
    """What whoever asks should know of a request that will be taken all the same."""

    CURRENT_SLOTS_EXCEEDED = "LAUNCH_WARNING_CURRENT_SLOTS_EXCEEDED"
    """More than the pool has now: it waits until that grows."""


class ResourceManager(Protocol):
    """Everything may be called again with the same words: a request that is there already is not made twice."""

    async def check(self, request: Request) -> Sequence[Caveat]:
        """Whether it could be run. Raises Invalid or NotFound, which name the field."""
        ...

    async def allocate(self, request: Request, secrets: Mapping[str, str], *, is_restored: bool = False) -> None:
        """Queues it. `secrets`: variables of its environment that others must not read. Raises as `check` does.
        `is_restored`: it was asked for in an earlier life of whoever asks, and is taken up where it stands: all that
        has happened to it is told anew. Raises NotFound where nothing of it is left; it is never made again."""
        ...

    async def kill(self, allocation: AllocationId, resources: Collection[ResourceId]) -> None:
        """Ends these parts of it. They are over when an event says so."""
        ...

    async def release(self, allocation: AllocationId) -> None:
        """Ends what is left of it, and forgets it. Then comes Released."""
        ...

    async def held(self) -> Collection[AllocationId]:
        """All that were requested, by this process or an earlier one, and not released."""
        ...

    def events(self) -> AsyncIterator[Event]:
        """Of all allocations that this process has asked for, from the moment of the call on."""
        ...

    async def pools(self) -> Sequence[Pool]: ...

    async def run(self) -> None:
        """Until cancelled."""
        ...
