"""Generic tasks: programs that can be paused, have children, and be forked."""

from collections.abc import Sequence

from muster.accounts.callers import WorkspaceId
from muster.accounts.permissions import Permission
from muster.accounts.service import UNCATEGORIZED
from muster.accounts.services import AccountServices
from muster.api import errors, raw
from muster.api.raw import Document
from muster.server.determined import acting, interactive
from muster.server.determined.interactive import FileMessage
from muster.server.determined.paging import Id
from muster.server.determined.routing import Call, Message, Nothing, Route, Rule, route
from muster.tasks.commands import Tasks
from muster.tasks.submitting import Submission
from muster.tasks.task_config import TaskType
from muster.tasks.task_records import Task

_GENERIC = (TaskType.GENERIC,)


class CreateGenericTask(Message, frozen=True):
    """`config`: YAML or JSON. Of a fork it may be empty: then it is the other's."""

    config: str = ""
    context_directory: Sequence[FileMessage] = ()
    project_id: Id = 0
    forked_from: str = ""
    parent_id: str = ""
    inherit_context: bool = False
    no_pause: bool = False


class CreateGenericTaskReply(Message, frozen=True):
    task_id: str
    warnings: Sequence[str]


class GenericNamed(Message, frozen=True):
    task_id: str = ""


class KillGenericTask(GenericNamed, frozen=True):
    kill_from_root: bool = False


class ConfigReply(Message, frozen=True):
    config: str


class _Generic:
    def __init__(self, tasks: Tasks, accounts: AccountServices) -> None:
        self._tasks = tasks
        self._accounts = accounts

    async def place(self, call: Call, asked: GenericNamed) -> WorkspaceId:
        return (await self._tasks.visible(call.caller, asked.task_id, _GENERIC)).workspace

    async def wanted_place(self, call: Call, asked: CreateGenericTask) -> WorkspaceId:
        if not asked.project_id:
            return UNCATEGORIZED
        return (await self._accounts.projects.get(asked.project_id)).workspace

    async def create(self, call: Call, asked: CreateGenericTask) -> CreateGenericTaskReply:
        origin = await self._other(call, asked.forked_from)
        await self._other(call, asked.parent_id)
        if asked.inherit_context and not asked.parent_id:
            raise errors.BadRequest("inheritContext: only a task with a parentId can inherit one")
        if asked.inherit_context and asked.context_directory:
            raise errors.BadRequest("contextDirectory: is either sent or inherited")
        wanted = Submission(
            kind=TaskType.GENERIC,
            workspace=await self.wanted_place(call, asked),
            config=_config(asked.config, origin),
            files=interactive.files(asked.context_directory),
            parent=asked.parent_id,
            forked_from=asked.forked_from,
            inherits_context=asked.inherit_context,
            is_unpausable=asked.no_pause,
        )
        made = await self._tasks.submit(acting.by(call), wanted)
        return CreateGenericTaskReply(task_id=made.task.id, warnings=interactive.warnings(made.caveats))

    async def _other(self, call: Call, task: str) -> Task | None:
        return await self._tasks.visible(call.caller, task, _GENERIC) if task else None

    async def config(self, call: Call, asked: GenericNamed) -> ConfigReply:
        task = await self._tasks.get(asked.task_id, _GENERIC)
        return ConfigReply(config=raw.encode(task.config).decode())

    async def kill(self, call: Call, asked: KillGenericTask) -> Nothing:
        task = await self._tasks.get(asked.task_id, _GENERIC)
        await self._tasks.kill_tree(acting.by(call), task, from_root=asked.kill_from_root)
        return Nothing()

    async def pause(self, call: Call, asked: GenericNamed) -> Nothing:
        await self._tasks.pause(acting.by(call), await self._tasks.get(asked.task_id, _GENERIC))
        return Nothing()

    async def unpause(self, call: Call, asked: GenericNamed) -> Nothing:
        await self._tasks.unpause(await self._tasks.get(asked.task_id, _GENERIC))
        return Nothing()


def _config(text: str, origin: Task | None) -> Document:
    """Raises BadRequest."""
    if not text.strip():
        return {} if origin is None else origin.config
    documents = raw.decode_yaml(text)
    if len(documents) != 1:
        raise errors.BadRequest(f"config: expected one document, found {len(documents)}")
    return documents[0]


def routes(tasks: Tasks, accounts: AccountServices) -> Sequence[Route]:
    handlers, each = _Generic(tasks, accounts), "/api/v1/tasks/{taskId}"
    view: Rule[GenericNamed] = Rule(Permission.VIEW_TASKS, handlers.place)
    edit: Rule[GenericNamed] = Rule(Permission.EDIT_TASKS, handlers.place)
    kill: Rule[KillGenericTask] = Rule(Permission.EDIT_TASKS, handlers.place)
    create: Rule[CreateGenericTask] = Rule(Permission.CREATE_TASKS, handlers.wanted_place)
    return (
        route("POST", "/api/v1/generic-tasks", CreateGenericTask, CreateGenericTaskReply, create, handlers.create),
        route("GET", f"{each}/config", GenericNamed, ConfigReply, view, handlers.config),
        route("POST", f"{each}/kill", KillGenericTask, Nothing, kill, handlers.kill),
        route("POST", f"{each}/pause", GenericNamed, Nothing, edit, handlers.pause),
        route("POST", f"{each}/unpause", GenericNamed, Nothing, edit, handlers.unpause),
    )
