"""Notebooks: JupyterLab, which is used through the proxy."""

from collections.abc import Mapping, Sequence

from muster.accounts.callers import WorkspaceId
from muster.accounts.permissions import Permission
from muster.api.raw import JSON
from muster.server.determined import interactive
from muster.server.determined.allocations import TaskState
from muster.server.determined.interactive import GetTasks, Interactive, Launch, Priority, TaskMessage
from muster.server.determined.paging import Pagination
from muster.server.determined.routing import Call, Message, Nothing, Route, Rule, known, route
from muster.tasks import kinds
from muster.tasks.proxy_tokens import ProxyTokens
from muster.tasks.task_config import TaskConfig, TaskType
from muster.tasks.task_records import Task


class Notebook(TaskMessage, frozen=True):
    service_address: str


class LaunchNotebook(Launch, frozen=True):
    """`preview`: only to see what its configuration would be."""

    preview: bool = False


class NotebookNamed(Message, frozen=True):
    notebook_id: str = ""


class SetPriority(NotebookNamed, frozen=True):
    priority: Priority = 0


class ReportIdle(NotebookNamed, frozen=True):
    idle: bool = False


class NotebookReply(Message, frozen=True):
    notebook: Notebook


class GetNotebookReply(NotebookReply, frozen=True):
    config: Mapping[str, JSON]


class LaunchNotebookReply(GetNotebookReply, frozen=True):
    warnings: Sequence[str]


class GetNotebooksReply(Message, frozen=True):
    notebooks: Sequence[Notebook]
    pagination: Pagination


class _Notebooks:
    def __init__(self, of: Interactive, tokens: ProxyTokens) -> None:
        self._of = of
        self._tokens = tokens

    async def place(self, call: Call, asked: NotebookNamed) -> WorkspaceId:
        return await self._of.place(call, asked.notebook_id)

    async def told(self, call: Call, task: Task) -> Notebook:
        """With the token of its address for those who may use it."""
        token = self._tokens.of(task.id) if await self._of.may_use(call, task) else ""
        return self._of.told(Notebook, task, service_address=kinds.service_address(task.type, task.id, token))

    async def list(self, call: Call, asked: GetTasks) -> GetNotebooksReply:
        page = await self._of.list(call, asked)
        told = [await self.told(call, task) for task in page.items]
        return GetNotebooksReply(notebooks=told, pagination=interactive.pagination(page, asked))

    async def get(self, call: Call, asked: NotebookNamed) -> GetNotebookReply:
        task = await self._of.get(asked.notebook_id)
        return GetNotebookReply(notebook=await self.told(call, task), config=task.config)

    async def launch(self, call: Call, asked: LaunchNotebook) -> LaunchNotebookReply:
        wanted = self._of.submission(asked)
        if asked.preview:
            config = await self._of.preview(call, wanted)
            return LaunchNotebookReply(notebook=_previewed(config, call), config=config.document(), warnings=())
        made = await self._of.launch(call, wanted)
        return LaunchNotebookReply(
            notebook=await self.told(call, made.task),
            config=made.task.config,
            warnings=interactive.warnings(made.caveats),
        )

    async def kill(self, call: Call, asked: NotebookNamed) -> NotebookReply:
        return NotebookReply(notebook=await self.told(call, await self._of.kill(call, asked.notebook_id)))

    async def set_priority(self, call: Call, asked: SetPriority) -> NotebookReply:
        changed = await self._of.set_priority(asked.notebook_id, asked.priority)
        return NotebookReply(notebook=await self.told(call, changed))

    async def report_idle(self, call: Call, asked: ReportIdle) -> Nothing:
        """That it is idle is no news: only its time without use counts."""
        if not asked.idle:
            self._of.tasks.busy(asked.notebook_id)
        return Nothing()


def _previewed(config: TaskConfig, call: Call) -> Notebook:
    """One that is not there."""
    return Notebook(
        id="",
        description=config.description,
        state=TaskState.UNSPECIFIED,
        start_time="1970-01-01T00:00:00Z",
        container=None,
        display_name="",
        user_id=call.caller.user,
        username=call.caller.username,
        resource_pool=config.resources.pool,
        exit_status="",
        job_id="",
        workspace_id=0,
        service_address="",
    )


def routes(of: Interactive, tokens: ProxyTokens) -> Sequence[Route]:
    assert of.kind is TaskType.NOTEBOOK
    handlers, path = _Notebooks(of, tokens), "/api/v1/notebooks"
    each = f"{path}/{{notebookId}}"
    view: Rule[NotebookNamed] = Rule(Permission.VIEW_TASKS, handlers.place)
    edit: Rule[NotebookNamed] = Rule(Permission.EDIT_TASKS, handlers.place)
    change: Rule[SetPriority] = Rule(Permission.EDIT_TASKS, handlers.place)
    report: Rule[ReportIdle] = Rule(Permission.EDIT_TASKS, handlers.place, own="notebook_id")
    create: Rule[LaunchNotebook] = Rule(Permission.CREATE_TASKS, of.wanted_place)
    return (
        route("GET", path, GetTasks, GetNotebooksReply, known(), handlers.list),
        route("POST", path, LaunchNotebook, LaunchNotebookReply, create, handlers.launch),
        route("GET", each, NotebookNamed, GetNotebookReply, view, handlers.get),
        route("POST", f"{each}/kill", NotebookNamed, NotebookReply, edit, handlers.kill),
        route("POST", f"{each}/set_priority", SetPriority, NotebookReply, change, handlers.set_priority),
        route("PUT", f"{each}/report_idle", ReportIdle, Nothing, report, handlers.report_idle),
    )
