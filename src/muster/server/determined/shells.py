"""Shells: an SSH server, reached through the proxy with a key that only its user has."""

from collections.abc import Mapping, Sequence

from muster.accounts.callers import WorkspaceId
from muster.accounts.permissions import Permission
from muster.api.raw import JSON
from muster.server.determined import interactive
from muster.server.determined.interactive import GetTasks, Interactive, Launch, Priority, TaskMessage
from muster.server.determined.paging import Pagination
from muster.server.determined.routing import Call, Message, Route, Rule, known, route
from muster.tasks.task_config import TaskType
from muster.tasks.task_records import Task


class Shell(TaskMessage, frozen=True):
    """`private_key`: for its own user alone, and while it has not ended."""

    private_key: str
    public_key: str
    agent_user_group: Mapping[str, JSON]
    addresses: Sequence[Mapping[str, JSON]] = ()


class ShellNamed(Message, frozen=True):
    shell_id: str = ""


class SetPriority(ShellNamed, frozen=True):
    priority: Priority = 0


class ShellReply(Message, frozen=True):
    shell: Shell


class GetShellReply(ShellReply, frozen=True):
    config: Mapping[str, JSON]


class LaunchShellReply(GetShellReply, frozen=True):
    warnings: Sequence[str]


class GetShellsReply(Message, frozen=True):
    shells: Sequence[Shell]
    pagination: Pagination


class _Shells:
    def __init__(self, of: Interactive, agent_user: str) -> None:
        self._of = of
        self._agent_user = agent_user

    async def place(self, call: Call, asked: ShellNamed) -> WorkspaceId:
        return await self._of.place(call, asked.shell_id)

    def told(self, call: Call, task: Task, *, with_key: bool = True) -> Shell:
        is_own = call.caller.user == task.user and with_key
        return self._of.told(
            Shell,
            task,
            private_key=task.snapshot.get("private_key", "") if is_own else "",
            public_key=task.snapshot.get("public_key", ""),
            agent_user_group=self._agent(task),
        )

    def _agent(self, task: Task) -> Mapping[str, JSON]:
        """Whom the client logs in as."""
        kept = task.snapshot.get("agent") or {}
        usual = {"user": self._agent_user, "uid": 0, "group": self._agent_user, "gid": 0}
        return {name: usual[name] if kept.get(name) is None else kept[name] for name in usual}

    async def list(self, call: Call, asked: GetTasks) -> GetShellsReply:
        page = await self._of.list(call, asked)
        told = [self.told(call, task, with_key=False) for task in page.items]
        return GetShellsReply(shells=told, pagination=interactive.pagination(page, asked))

    async def get(self, call: Call, asked: ShellNamed) -> GetShellReply:
        task = await self._of.get(asked.shell_id)
        return GetShellReply(shell=self.told(call, task), config=task.config)

    async def launch(self, call: Call, asked: Launch) -> LaunchShellReply:
        made = await self._of.launch(call, self._of.submission(asked))
        return LaunchShellReply(
            shell=self.told(call, made.task), config=made.task.config, warnings=interactive.warnings(made.caveats)
        )

    async def kill(self, call: Call, asked: ShellNamed) -> ShellReply:
        return ShellReply(shell=self.told(call, await self._of.kill(call, asked.shell_id), with_key=False))

    async def set_priority(self, call: Call, asked: SetPriority) -> ShellReply:
        changed = await self._of.set_priority(asked.shell_id, asked.priority)
        return ShellReply(shell=self.told(call, changed, with_key=False))


def routes(of: Interactive, agent_user: str) -> Sequence[Route]:
    """`agent_user`: whom one logs in as, where neither user nor workspace is linked with somebody."""
    assert of.kind is TaskType.SHELL
    handlers, path = _Shells(of, agent_user), "/api/v1/shells"
    each = f"{path}/{{shellId}}"
    view: Rule[ShellNamed] = Rule(Permission.VIEW_TASKS, handlers.place)
    edit: Rule[ShellNamed] = Rule(Permission.EDIT_TASKS, handlers.place)
    change: Rule[SetPriority] = Rule(Permission.EDIT_TASKS, handlers.place)
    create: Rule[Launch] = Rule(Permission.CREATE_TASKS, of.wanted_place)
    return (
        route("GET", path, GetTasks, GetShellsReply, known(), handlers.list),
        route("POST", path, Launch, LaunchShellReply, create, handlers.launch),
        route("GET", each, ShellNamed, GetShellReply, view, handlers.get),
        route("POST", f"{each}/kill", ShellNamed, ShellReply, edit, handlers.kill),
        route("POST", f"{each}/set_priority", SetPriority, ShellReply, change, handlers.set_priority),
    )
