"""What a running task says and asks of its own allocation; and how allocations fare, for their users."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Final, Protocol

import msgspec

from muster.accounts.callers import WorkspaceId
from muster.accounts.permissions import Permission
from muster.api import timestamps
from muster.api.meta import Instant
from muster.api.raw import JSON
from muster.engines.protocol import AllocationId, ResourceId
from muster.records import Database
from muster.server.determined.routing import Call, Message, Nothing, Route, Rule, route
from muster.tasks import allocation_records as records
from muster.tasks.allocation_records import Accelerators, AllocationRow
from muster.tasks.harness import Harness

_MOST_DEVICES: Final = 1024
_Name = Annotated[str, msgspec.Meta(max_length=254)]


class TaskState(StrEnum):
    """Of a task, and of an allocation."""

    UNSPECIFIED = "STATE_UNSPECIFIED"
    QUEUED = "STATE_QUEUED"
    PULLING = "STATE_PULLING"
    STARTING = "STATE_STARTING"
    RUNNING = "STATE_RUNNING"
    WAITING = "STATE_WAITING"
    TERMINATING = "STATE_TERMINATING"
    TERMINATED = "STATE_TERMINATED"


_QUEUED: Final = frozenset({"PENDING", "ASSIGNED"})


def told_phase(phase: str) -> TaskState:
    """As the client knows it."""
    if phase in _QUEUED:
        return TaskState.QUEUED
    return TaskState[phase] if phase in TaskState.__members__ else TaskState.UNSPECIFIED


class Allocation(Message, frozen=True):
    task_id: str
    allocation_id: str
    state: TaskState
    is_ready: bool
    start_time: str | None
    end_time: str | None
    slots: int
    exit_reason: str | None
    status_code: int | None


def told(row: AllocationRow) -> Allocation:
    return Allocation(
        task_id=row.task,
        allocation_id=row.id,
        state=told_phase(row.phase),
        is_ready=row.is_ready,
        start_time=_text(row.started),
        end_time=_text(row.ended),
        slots=row.slots,
        exit_reason=row.exit_reason or None,
        status_code=row.exit_code,
    )


def _text(at: Instant | None) -> str | None:
    return None if at is None else timestamps.to_micro_text(at)


class OfAllocation(Message, frozen=True):
    allocation_id: str = ""


class OfResource(OfAllocation, frozen=True):
    resources_id: str = ""


class GetAllocationReply(Message, frozen=True):
    allocation: Allocation


class AcceleratorData(Message, frozen=True):
    container_id: _Name = ""
    allocation_id: _Name = ""
    node_name: _Name = ""
    task_id: _Name = ""
    accelerator_type: _Name = ""
    accelerator_uuids: Annotated[Sequence[_Name], msgspec.Meta(max_length=_MOST_DEVICES)] = ()
    resource_pool: _Name = ""


class PostAcceleratorData(OfAllocation, frozen=True):
    accelerator_data: AcceleratorData = AcceleratorData()


class RendezvousInfo(Message, frozen=True):
    addresses: Sequence[str]
    rank: int
    slots: Sequence[int]


class RendezvousReply(Message, frozen=True):
    rendezvous_info: RendezvousInfo


class PostAllGather(OfAllocation, frozen=True):
    request_uuid: _Name = ""
    num_peers: Annotated[int, msgspec.Meta(ge=-(2**31), lt=2**31)] = 0
    data: Mapping[str, JSON] = {}


class AllGatherReply(Message, frozen=True):
    data: Sequence[JSON]


class NotifyContainerRunning(PostAllGather, frozen=True):
    rank: int = 0
    node_name: str = ""


class PostProxyAddress(OfAllocation, frozen=True):
    proxy_address: _Name = ""


class PreemptionAsked(OfAllocation, frozen=True):
    timeout_seconds: float = 0.0


class PreemptionReply(Message, frozen=True):
    preempt: bool


class _Handlers:
    def __init__(self, harness: Harness, database: Database) -> None:
        self._harness = harness
        self._database = database

    async def workspace(self, call: Call, asked: OfAllocation) -> WorkspaceId | None:
        found = await self._database.read(lambda connection: records.workspace_of(connection, asked.allocation_id))
        return None if found is None else WorkspaceId(found)

    async def get(self, call: Call, asked: OfAllocation) -> GetAllocationReply:
        row = await self._database.read(lambda connection: records.get(connection, asked.allocation_id))
        return GetAllocationReply(allocation=told(row))

    # How it fares

    async def ready(self, call: Call, asked: OfAllocation) -> Nothing:
        await self._harness.ready(AllocationId(asked.allocation_id))
        return Nothing()

    async def waiting(self, call: Call, asked: OfAllocation) -> Nothing:
        await self._harness.waiting(AllocationId(asked.allocation_id))
        return Nothing()

    async def daemon(self, call: Call, asked: OfResource) -> Nothing:
        await self._harness.daemon(AllocationId(asked.allocation_id), ResourceId(asked.resources_id))
        return Nothing()

    async def proxy_address(self, call: Call, asked: PostProxyAddress) -> Nothing:
        await self._harness.proxy_address(AllocationId(asked.allocation_id), asked.proxy_address)
        return Nothing()

    async def accelerators(self, call: Call, asked: PostAcceleratorData) -> Nothing:
        data = asked.accelerator_data
        found = Accelerators(data.container_id, data.node_name, data.accelerator_type, data.accelerator_uuids)
        await self._harness.accelerators(AllocationId(asked.allocation_id), found)
        return Nothing()

    # The others

    async def rendezvous(self, call: Call, asked: OfResource) -> RendezvousReply:
        met = await self._harness.rendezvous(AllocationId(asked.allocation_id), ResourceId(asked.resources_id))
        info = RendezvousInfo(addresses=met.addresses, rank=met.rank, slots=met.slots)
        return RendezvousReply(rendezvous_info=info)

    async def all_gather(self, call: Call, asked: PostAllGather) -> AllGatherReply:
        id = AllocationId(asked.allocation_id)
        data = await self._harness.all_gather(id, asked.request_uuid, asked.num_peers, dict(asked.data))
        return AllGatherReply(data=data)

    async def notify_running(self, call: Call, asked: NotifyContainerRunning) -> AllGatherReply:
        """Of batch systems that cannot tell by themselves what runs; ours can."""
        await self._harness.known(AllocationId(asked.allocation_id))
        return AllGatherReply(data=[dict(asked.data)])

    # Preemption

    async def preemption(self, call: Call, asked: PreemptionAsked) -> PreemptionReply:
        preempt = await self._harness.should_stop(AllocationId(asked.allocation_id), asked.timeout_seconds)
        return PreemptionReply(preempt=preempt)

    async def acknowledge(self, call: Call, asked: OfAllocation) -> Nothing:
        await self._harness.acknowledge(AllocationId(asked.allocation_id))
        return Nothing()

    async def pending_preemption(self, call: Call, asked: OfAllocation) -> Nothing:
        await self._harness.preemption_is_near(AllocationId(asked.allocation_id))
        return Nothing()


class _Scoped(Protocol):
    async def __call__(self, call: Call, asked: OfAllocation, /) -> WorkspaceId | None: ...


def _rule(permission: Permission, scope: _Scoped) -> Rule[OfAllocation]:
    return Rule(permission, scope, own="allocation_id")


def routes(harness: Harness, database: Database) -> Sequence[Route]:
    on = _Handlers(harness, database)
    each = "/api/v1/allocations/{allocationId}"
    part = each + "/resources/{resourcesId}"
    view, edit = _rule(Permission.VIEW_TASKS, on.workspace), _rule(Permission.EDIT_TASKS, on.workspace)
    edit_part: Rule[OfResource] = Rule(Permission.EDIT_TASKS, on.workspace, own="allocation_id")
    gather: Rule[PostAllGather] = Rule(Permission.EDIT_TASKS, on.workspace, own="allocation_id")
    notify: Rule[NotifyContainerRunning] = Rule(Permission.EDIT_TASKS, on.workspace, own="allocation_id")
    proxy: Rule[PostProxyAddress] = Rule(Permission.EDIT_TASKS, on.workspace, own="allocation_id")
    devices: Rule[PostAcceleratorData] = Rule(Permission.EDIT_TASKS, on.workspace, own="allocation_id")
    signal: Rule[PreemptionAsked] = Rule(Permission.VIEW_TASKS, on.workspace, own="allocation_id")
    return (
        route("GET", each, OfAllocation, GetAllocationReply, view, on.get),
        route("POST", f"{each}/ready", OfAllocation, Nothing, edit, on.ready),
        route("POST", f"{each}/waiting", OfAllocation, Nothing, edit, on.waiting),
        route("POST", f"{each}/acceleratorData", PostAcceleratorData, Nothing, devices, on.accelerators),
        route("POST", f"{each}/proxy_address", PostProxyAddress, Nothing, proxy, on.proxy_address),
        route("POST", f"{each}/all_gather", PostAllGather, AllGatherReply, gather, on.all_gather),
        route(
            "POST", f"{each}/notify_container_running", NotifyContainerRunning, AllGatherReply, notify,
            on.notify_running,
        ),
        route("GET", f"{part}/rendezvous", OfResource, RendezvousReply, edit_part, on.rendezvous),
        route("POST", f"{part}/daemon", OfResource, Nothing, edit_part, on.daemon),
        route("GET", f"{each}/signals/preemption", PreemptionAsked, PreemptionReply, signal, on.preemption),
        route("POST", f"{each}/signals/ack_preemption", OfAllocation, Nothing, edit, on.acknowledge),
        route("POST", f"{each}/signals/pending_preemption", OfAllocation, Nothing, edit, on.pending_preemption),
    )  # fmt: skip
