"""Commands: a program that runs once."""

from collections.abc import Mapping, Sequence

from muster.accounts.callers import WorkspaceId
from muster.accounts.permissions import Permission
from muster.api.raw import JSON
from muster.server.determined import interactive
from muster.server.determined.interactive import GetTasks, Interactive, Launch, Priority, TaskMessage
from muster.server.determined.paging import Pagination
from muster.server.determined.routing import Call, Message, Route, Rule, known, route


class Command(TaskMessage, frozen=True):
    pass


class CommandNamed(Message, frozen=True):
    command_id: str = ""


class SetPriority(CommandNamed, frozen=True):
    priority: Priority = 0


class CommandReply(Message, frozen=True):
    command: Command


class GetCommandReply(CommandReply, frozen=True):
    config: Mapping[str, JSON]


class LaunchCommandReply(GetCommandReply, frozen=True):
    warnings: Sequence[str]


class GetCommandsReply(Message, frozen=True):
    commands: Sequence[Command]
    pagination: Pagination


class _Commands:
    def __init__(self, of: Interactive) -> None:
        self._of = of

    async def place(self, call: Call, asked: CommandNamed) -> WorkspaceId:
        return await self._of.place(call, asked.command_id)

    async def list(self, call: Call, asked: GetTasks) -> GetCommandsReply:
        page = await self._of.list(call, asked)
        told = [self._of.told(Command, task) for task in page.items]
        return GetCommandsReply(commands=told, pagination=interactive.pagination(page, asked))

    async def get(self, call: Call, asked: CommandNamed) -> GetCommandReply:
        task = await self._of.get(asked.command_id)
        return GetCommandReply(command=self._of.told(Command, task), config=task.config)

    async def launch(self, call: Call, asked: Launch) -> LaunchCommandReply:
        made = await self._of.launch(call, self._of.submission(asked))
        return LaunchCommandReply(
            command=self._of.told(Command, made.task),
            config=made.task.config,
            warnings=interactive.warnings(made.caveats),
        )

    async def kill(self, call: Call, asked: CommandNamed) -> CommandReply:
        return CommandReply(command=self._of.told(Command, await self._of.kill(call, asked.command_id)))

    async def set_priority(self, call: Call, asked: SetPriority) -> CommandReply:
        changed = await self._of.set_priority(asked.command_id, asked.priority)
        return CommandReply(command=self._of.told(Command, changed))


def routes(of: Interactive) -> Sequence[Route]:
    handlers, path = _Commands(of), "/api/v1/commands"
    each = f"{path}/{{commandId}}"
    view: Rule[CommandNamed] = Rule(Permission.VIEW_TASKS, handlers.place)
    edit: Rule[CommandNamed] = Rule(Permission.EDIT_TASKS, handlers.place)
    change: Rule[SetPriority] = Rule(Permission.EDIT_TASKS, handlers.place)
    create: Rule[Launch] = Rule(Permission.CREATE_TASKS, of.wanted_place)
    return (
        route("GET", path, GetTasks, GetCommandsReply, known(), handlers.list),
        route("POST", path, Launch, LaunchCommandReply, create, handlers.launch),
        route("GET", each, CommandNamed, GetCommandReply, view, handlers.get),
        route("POST", f"{each}/kill", CommandNamed, CommandReply, edit, handlers.kill),
        route("POST", f"{each}/set_priority", SetPriority, CommandReply, change, handlers.set_priority),
    )
