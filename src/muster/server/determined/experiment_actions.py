"""What can be done with experiments: with one of them, or with many of a project at once."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, TypeAlias

from muster.accounts.audit import By
from muster.accounts.callers import WorkspaceId
from muster.accounts.permissions import Permission
from muster.accounts.projects import ProjectId
from muster.api import errors
from muster.experiments.bulk import Bulk, Outcome
from muster.experiments.contract import Experiments
from muster.experiments.listing import ExperimentFilter, Numbers
from muster.experiments.log_keeping import LogKeeping
from muster.experiments.places import Places
from muster.experiments.states import ExperimentId
from muster.server.determined import acting, experiment_messages
from muster.server.determined.experiment_messages import Labels, State
from muster.server.determined.paging import Id, Ids
from muster.server.determined.routing import Call, Message, Nothing, Route, Rule, known, route

Act: TypeAlias = Callable[[By, ExperimentId], Awaitable[None]]


class Named(Message, frozen=True):
    id: Id = 0


class Move(Message, frozen=True):
    experiment_id: Id = 0
    destination_project_id: Id = 0


class RetainLogs(Message, frozen=True):
    experiment_id: Id = 0
    num_days: int = 0


class BulkFilters(Message, frozen=True):
    name: str = ""
    description: str = ""
    labels: Labels = ()
    archived: bool | None = None
    states: Sequence[State] = ()
    user_ids: Ids = ()
    project_id: Id = 0
    excluded_experiment_ids: Ids = ()


class Many(Message, frozen=True):
    """`filters`: instead of numbers."""

    project_id: Id = 0
    experiment_ids: Ids = ()
    filters: BulkFilters | None = None


class MoveMany(Many, frozen=True):
    destination_project_id: Id = 0


class RetainMany(Many, frozen=True):
    num_days: int = 0


class ActionResult(Message, frozen=True):
    id: int
    error: str


class ManyReply(Message, frozen=True):
    results: Sequence[ActionResult]


def results(outcomes: Sequence[Outcome]) -> ManyReply:
    return ManyReply(results=[ActionResult(id=each.id, error=each.error) for each in outcomes])


class _Actions:
    def __init__(self, experiments: Experiments, bulk: Bulk, logs: LogKeeping, places: Places) -> None:
        self._experiments = experiments
        self._bulk = bulk
        self._logs = logs
        self._places = places

    # Where

    async def place(self, call: Call, asked: Named) -> WorkspaceId:
        return await self._places.of_experiment(call.caller, asked.id)

    async def named_place(self, call: Call, asked: Move | RetainLogs) -> WorkspaceId:
        return await self._places.of_experiment(call.caller, asked.experiment_id)

    # One

    def one(self, act: Act) -> Callable[[Call, Named], Awaitable[Nothing]]:
        async def handle(call: Call, asked: Named) -> Nothing:
            await act(acting.by(call), ExperimentId(asked.id))
            return Nothing()

        return handle

    async def move(self, call: Call, asked: Move) -> Nothing:
        to = _destination(asked.destination_project_id)
        await self._experiments.move(acting.by(call), ExperimentId(asked.experiment_id), to)
        return Nothing()

    async def retain(self, call: Call, asked: RetainLogs) -> Nothing:
        await self._logs.keep_experiment(acting.by(call), ExperimentId(asked.experiment_id), asked.num_days)
        return Nothing()

    # Many: who may do it with which is found out for each

    def many(self, act: Act) -> Callable[[Call, Many], Awaitable[ManyReply]]:
        async def handle(call: Call, asked: Many) -> ManyReply:
            return await self._with_each(call, asked, act)

        return handle

    async def move_many(self, call: Call, asked: MoveMany) -> ManyReply:
        to = _destination(asked.destination_project_id)

        async def act(by: By, experiment: ExperimentId) -> None:
            await self._experiments.move(by, experiment, to)

        return await self._with_each(call, asked, act)

    async def retain_many(self, call: Call, asked: RetainMany) -> ManyReply:
        async def act(by: By, experiment: ExperimentId) -> None:
            await self._logs.keep_experiment(by, experiment, asked.num_days)

        return await self._with_each(call, asked, act)

    async def _with_each(self, call: Call, asked: Many, act: Act) -> ManyReply:
        acting.person(call)
        if asked.filters is None and not asked.experiment_ids:
            return results(())
        by = acting.by(call)
        return results(await self._bulk.each(by, _chosen(asked), lambda experiment: act(by, experiment)))


def _destination(project: int) -> ProjectId:
    if not project:
        raise errors.BadRequest("destinationProjectId: must name a project")
    return ProjectId(project)


def _chosen(asked: Many) -> ExperimentFilter:
    wanted = asked.filters or BulkFilters()
    project = asked.project_id or wanted.project_id
    including = () if asked.filters is not None else asked.experiment_ids
    return ExperimentFilter(
        name=wanted.name,
        description=wanted.description,
        labels=wanted.labels,
        users=wanted.user_ids,
        states=experiment_messages.states(wanted.states),
        is_archived=wanted.archived,
        project=ProjectId(project) if project else None,
        ids=Numbers(including=including, without=wanted.excluded_experiment_ids),
    )


_METHODS: Final = {"delete": "DELETE"}
"""Of actions on many; all others are posted."""


def routes(experiments: Experiments, bulk: Bulk, logs: LogKeeping, places: Places) -> Sequence[Route]:
    on, here = _Actions(experiments, bulk, logs, places), "/api/v1/experiments"
    of_project = "/api/v1/projects/{projectId}/experiments"
    edit: Rule[Named] = Rule(Permission.EDIT_EXPERIMENTS, on.place)
    move: Rule[Move] = Rule(Permission.EDIT_EXPERIMENTS, on.named_place)
    retain: Rule[RetainLogs] = Rule(Permission.EDIT_EXPERIMENTS, on.named_place)

    async def archive(by: By, experiment: ExperimentId) -> None:
        await experiments.archive(by, experiment, is_archived=True)

    async def unarchive(by: By, experiment: ExperimentId) -> None:
        await experiments.archive(by, experiment, is_archived=False)

    plain: Mapping[str, Act] = {
        "activate": experiments.activate,
        "pause": experiments.pause,
        "cancel": experiments.cancel,
        "kill": experiments.kill,
        "archive": archive,
        "unarchive": unarchive,
    }
    of_one = [
        route("POST", f"{here}/{{id}}/{name}", Named, Nothing, edit, on.one(act)) for name, act in plain.items()
    ]  # fmt: skip
    of_many = [
        route(_METHODS.get(name, "POST"), f"{of_project}/{name}", Many, ManyReply, known(), on.many(act))
        for name, act in {**plain, "delete": experiments.delete}.items()
    ]
    return (
        *of_one,
        route("POST", f"{here}/{{experimentId}}/move", Move, Nothing, move, on.move),
        route("PUT", f"{here}/{{experimentId}}/retain_logs", RetainLogs, Nothing, retain, on.retain),
        *of_many,
        route("POST", f"{of_project}/move", MoveMany, ManyReply, known(), on.move_many),
        route("PUT", f"{of_project}/retain_logs", RetainMany, ManyReply, known(), on.retain_many),
    )
