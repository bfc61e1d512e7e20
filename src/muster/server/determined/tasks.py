"""Tasks of all kinds: what runs, how one fares, and its files."""

import base64
from collections.abc import Mapping, Sequence
from enum import StrEnum

from muster.accounts.callers import WorkspaceId
from muster.accounts.permissions import Permission
from muster.api import raw
from muster.server.determined import acting
from muster.server.determined.allocations import Allocation, told
from muster.server.determined.routing import Call, Message, Nothing, Route, Rule, known, route
from muster.tasks.allocating import AllocationService
from muster.tasks.allocation_states import Part
from muster.tasks.commands import Tasks
from muster.tasks.contexts import Contexts
from muster.tasks.contract import ProxyPort
from muster.tasks.live import Live
from muster.tasks.task_config import TaskType
from muster.tasks.task_records import Task, TaskFilter


class TaskKind(StrEnum):
    UNSPECIFIED = "TASK_TYPE_UNSPECIFIED"
    TRIAL = "TASK_TYPE_TRIAL"
    NOTEBOOK = "TASK_TYPE_NOTEBOOK"
    SHELL = "TASK_TYPE_SHELL"
    COMMAND = "TASK_TYPE_COMMAND"
    TENSORBOARD = "TASK_TYPE_TENSORBOARD"
    CHECKPOINT_GC = "TASK_TYPE_CHECKPOINT_GC"
    GENERIC = "TASK_TYPE_GENERIC"


class TaskNamed(Message, frozen=True):
    task_id: str = ""


class TaskMessage(Message, frozen=True):
    """`allocations`: the latest first. `config`, `task_state` and what follows: of generic tasks."""

    task_id: str
    task_type: TaskKind
    allocations: Sequence[Allocation]
    start_time: str
    end_time: str | None
    config: str | None
    task_state: str | None
    forked_from: str | None
    parent_id: str | None
    no_pause: bool | None


class TaskReply(Message, frozen=True):
    task: TaskMessage


class ContextReply(Message, frozen=True):
    b64_tgz: str


class ProxyPortMessage(Message, frozen=True):
    service_id: str
    port: int
    proxy_tcp: bool
    unauthenticated: bool


class Devices(Message, frozen=True):
    devices: Sequence[str] = ()


class ResourcesSummary(Message, frozen=True):
    resources_id: str
    resources_type: str
    allocation_id: str
    agent_devices: Mapping[str, Devices]
    container_id: str


class AllocationSummary(Message, frozen=True):
    task_id: str
    allocation_id: str
    name: str
    registered_time: str
    resource_pool: str
    slots_needed: int
    resources: Sequence[ResourcesSummary]
    scheduler_type: str
    priority: int
    proxy_ports: Sequence[ProxyPortMessage]


class GetTasksReply(Message, frozen=True):
    allocation_id_to_summary: Mapping[str, AllocationSummary]


class CountReply(Message, frozen=True):
    """Of what has not ended."""

    commands: int
    notebooks: int
    shells: int
    tensorboards: int


class _Tasks:
    def __init__(self, tasks: Tasks, allocations: AllocationService, contexts: Contexts) -> None:
        self._tasks = tasks
        self._allocations = allocations
        self._contexts = contexts

    async def place(self, call: Call, asked: TaskNamed) -> WorkspaceId:
        return (await self._tasks.visible(call.caller, asked.task_id)).workspace

    async def list(self, call: Call, asked: Nothing) -> GetTasksReply:
        found: dict[str, AllocationSummary] = {}
        for task in await self._unfinished(call):
            run = task.allocation
            live = None if run is None else self._allocations.known(run.id)
            if live is not None and not live.state.is_over:
                found[live.id] = _summary(task, live)
        return GetTasksReply(allocation_id_to_summary=found)

    async def count(self, call: Call, asked: Nothing) -> CountReply:
        types = [task.type for task in await self._unfinished(call)]
        return CountReply(
            commands=types.count(TaskType.COMMAND.value),
            notebooks=types.count(TaskType.NOTEBOOK.value),
            shells=types.count(TaskType.SHELL.value),
            tensorboards=types.count(TaskType.TENSORBOARD.value),
        )

    async def _unfinished(self, call: Call) -> Sequence[Task]:
        return (await self._tasks.list(call.caller, TaskFilter(is_unfinished=True))).items

    async def get(self, call: Call, asked: TaskNamed) -> TaskReply:
        task = await self._tasks.get(asked.task_id)
        is_generic = task.type == TaskType.GENERIC
        return TaskReply(
            task=TaskMessage(
                task_id=task.id,
                task_type=TaskKind[task.type] if task.type in TaskKind.__members__ else TaskKind.UNSPECIFIED,
                allocations=[told(row) for row in reversed(task.allocations)],
                start_time=acting.time(task.created) or "",
                end_time=acting.time(task.ended),
                config=raw.encode(task.config).decode() if is_generic else None,
                task_state=f"GENERIC_TASK_STATE_{task.state}" if is_generic else None,
                forked_from=task.snapshot.get("forked_from") or None,
                parent_id=task.parent or None,
                no_pause=bool(task.snapshot.get("is_unpausable")) if is_generic else None,
            )
        )

    async def context(self, call: Call, asked: TaskNamed) -> ContextReply:
        task = await self._tasks.get(asked.task_id)
        archive = await self._contexts.get(task.snapshot.get("context") or task.id)  # trials share one
        return ContextReply(b64_tgz=base64.b64encode(archive).decode())


def _summary(task: Task, live: Live) -> AllocationSummary:
    request = live.kept.request
    return AllocationSummary(
        task_id=task.id,
        allocation_id=live.id,
        name=task.description,
        registered_time=acting.time(live.state.requested_at) or "",
        resource_pool=request.pool,
        slots_needed=request.slots,
        resources=[_resources(live, part) for part in live.state.parts],
        scheduler_type="priority",
        priority=raw.dig(task.config, "resources", "priority", default=request.priority),
        proxy_ports=[_port(task.id, port) for port in live.kept.proxies],
    )


def _resources(live: Live, part: Part) -> ResourcesSummary:
    found = part.resource
    return ResourcesSummary(
        resources_id=found.id,
        resources_type="docker-container",
        allocation_id=live.id,
        agent_devices={found.node: Devices()} if found.node else {},
        container_id=found.id,
    )


def _port(task: str, port: ProxyPort) -> ProxyPortMessage:
    service = task if port.is_default else f"{task}:{port.port}"
    return ProxyPortMessage(
        service_id=service, port=port.port, proxy_tcp=port.is_tcp, unauthenticated=port.is_unauthenticated
    )


def routes(tasks: Tasks, allocations: AllocationService, contexts: Contexts) -> Sequence[Route]:
    handlers, each = _Tasks(tasks, allocations, contexts), "/api/v1/tasks/{taskId}"
    view: Rule[TaskNamed] = Rule(Permission.VIEW_TASKS, handlers.place, own="task_id")
    return (
        route("GET", "/api/v1/tasks", Nothing, GetTasksReply, known(), handlers.list),
        route("GET", "/api/v1/tasks/count", Nothing, CountReply, known(), handlers.count),
        route("GET", each, TaskNamed, TaskReply, view, handlers.get),
        route("GET", f"{each}/context_directory", TaskNamed, ContextReply, view, handlers.context),
    )
