"""TensorBoards: over what experiments and trials have written, or over a directory."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated

import msgspec

from muster.accounts.callers import WorkspaceId
from muster.accounts.permissions import Permission
from muster.api import errors
from muster.api.raw import JSON
from muster.server.determined import interactive
from muster.server.determined.interactive import GetTasks, Interactive, Launch, Priority, TaskMessage
from muster.server.determined.paging import Id, Pagination
from muster.server.determined.routing import Call, Message, Route, Rule, known, route
from muster.tasks import kinds
from muster.tasks.task_config import TaskType
from muster.tasks.task_records import Task

_Ids = Annotated[Sequence[Id], msgspec.Meta(max_length=100)]


class Tensorboard(TaskMessage, frozen=True):
    experiment_ids: Sequence[int]
    trial_ids: Sequence[int]
    service_address: str


class LaunchTensorboard(Launch, frozen=True):
    """Without experiments and trials it shows the files that are sent, or `work_dir` of the configuration."""

    experiment_ids: _Ids = ()
    trial_ids: _Ids = ()
    filters: JSON = None


class TensorboardNamed(Message, frozen=True):
    tensorboard_id: str = ""


class SetPriority(TensorboardNamed, frozen=True):
    priority: Priority = 0


class TensorboardReply(Message, frozen=True):
    tensorboard: Tensorboard


class GetTensorboardReply(TensorboardReply, frozen=True):
    config: Mapping[str, JSON]


class LaunchTensorboardReply(GetTensorboardReply, frozen=True):
    warnings: Sequence[str]


class GetTensorboardsReply(Message, frozen=True):
    tensorboards: Sequence[Tensorboard]
    pagination: Pagination


class _Tensorboards:
    def __init__(self, of: Interactive) -> None:
        self._of = of

    async def place(self, call: Call, asked: TensorboardNamed) -> WorkspaceId:
        return await self._of.place(call, asked.tensorboard_id)

    def told(self, task: Task) -> Tensorboard:
        return self._of.told(
            Tensorboard,
            task,
            experiment_ids=task.snapshot.get("experiment_ids", ()),
            trial_ids=task.snapshot.get("trial_ids", ()),
            service_address=kinds.service_address(task.type, task.id, ""),
        )

    async def list(self, call: Call, asked: GetTasks) -> GetTensorboardsReply:
        page = await self._of.list(call, asked)
        told = [self.told(task) for task in page.items]
        return GetTensorboardsReply(tensorboards=told, pagination=interactive.pagination(page, asked))

    async def get(self, call: Call, asked: TensorboardNamed) -> GetTensorboardReply:
        task = await self._of.get(asked.tensorboard_id)
        return GetTensorboardReply(tensorboard=self.told(task), config=task.config)

    async def launch(self, call: Call, asked: LaunchTensorboard) -> LaunchTensorboardReply:
        if asked.filters is not None:
            raise errors.BadRequest("filters: name experiments by experimentIds instead")
        wanted = replace(self._of.submission(asked), experiments=asked.experiment_ids, trials=asked.trial_ids)
        shows = (asked.experiment_ids, asked.trial_ids, asked.files, asked.b64_tgz, asked.config.get("work_dir"))
        if not any(shows):
            raise errors.BadRequest(
                "experimentIds: name experiments or trials, send files, or set work_dir in the configuration"
            )
        made = await self._of.launch(call, wanted)
        return LaunchTensorboardReply(
            tensorboard=self.told(made.task),
            config=made.task.config,
            warnings=interactive.warnings(made.caveats),
        )

    async def kill(self, call: Call, asked: TensorboardNamed) -> TensorboardReply:
        return TensorboardReply(tensorboard=self.told(await self._of.kill(call, asked.tensorboard_id)))

    async def set_priority(self, call: Call, asked: SetPriority) -> TensorboardReply:
        return TensorboardReply(
            tensorboard=self.told(await self._of.set_priority(asked.tensorboard_id, asked.priority))
        )


def routes(of: Interactive) -> Sequence[Route]:
    assert of.kind is TaskType.TENSORBOARD
    handlers, path = _Tensorboards(of), "/api/v1/tensorboards"
    each = f"{path}/{{tensorboardId}}"
    view: Rule[TensorboardNamed] = Rule(Permission.VIEW_TASKS, handlers.place)
    edit: Rule[TensorboardNamed] = Rule(Permission.EDIT_TASKS, handlers.place)
    change: Rule[SetPriority] = Rule(Permission.EDIT_TASKS, handlers.place)
    create: Rule[LaunchTensorboard] = Rule(Permission.CREATE_TASKS, of.wanted_place)
    return (
        route("GET", path, GetTasks, GetTensorboardsReply, known(), handlers.list),
        route("POST", path, LaunchTensorboard, LaunchTensorboardReply, create, handlers.launch),
        route("GET", each, TensorboardNamed, GetTensorboardReply, view, handlers.get),
        route("POST", f"{each}/kill", TensorboardNamed, TensorboardReply, edit, handlers.kill),
        route("POST", f"{each}/set_priority", SetPriority, TensorboardReply, change, handlers.set_priority),
    )
