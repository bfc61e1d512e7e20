"""Runs: trials across all experiments of a project, in lists, and what can be done with many of them."""

from collections.abc import Mapping, Sequence

from muster.accounts.authorizing import Authorizer
from muster.accounts.permissions import Permission
from muster.accounts.projects import ProjectId
from muster.api import errors
from muster.api.meta import Instant
from muster.api.raw import JSON
from muster.experiments import filters, run_listing
from muster.experiments.bulk import ActOnRun, RunBulk
from muster.experiments.run_listing import Run, RunFilter
from muster.records import Database
from muster.runtime.clock import Clock
from muster.server.determined import acting, experiment_actions, paging
from muster.server.determined.experiment_actions import ManyReply
from muster.server.determined.experiment_messages import State
from muster.server.determined.paging import Id, Ids, Paged, Pagination
from muster.server.determined.routing import Call, Message, Route, known, route


class RunsExperiment(Message, frozen=True):
    id: int
    name: str
    description: str
    searcher_type: str
    searcher_metric: str
    resource_pool: str
    progress: float
    forked_from: int | None
    external_experiment_id: str | None
    is_multitrial: bool
    unmanaged: bool
    pachyderm_integration: JSON = None


class FlatRun(Message, frozen=True):
    """`duration`: in seconds. `checkpoint_size`: in bytes."""

    id: int
    state: State
    start_time: str
    end_time: str | None
    duration: int
    checkpoint_count: int
    checkpoint_size: str
    searcher_metric_value: float | None
    summary_metrics: Mapping[str, JSON]
    hyperparameters: Mapping[str, JSON]
    metadata: Mapping[str, JSON] | None
    labels: Sequence[str]
    external_run_id: str | None
    user_id: int
    project_id: int
    project_name: str
    workspace_id: int
    workspace_name: str
    archived: bool
    parent_archived: bool
    log_policy_matched: str | None
    experiment: RunsExperiment


class SearchRuns(Paged, frozen=True):
    """`filter`: JSON in the language of `muster.experiments.filters`. `sort`: as in `state=asc,id=desc`."""

    project_id: Id = 0
    filter: str = ""
    sort: str = ""


class SearchRunsReply(Message, frozen=True):
    runs: Sequence[FlatRun]
    pagination: Pagination


class ManyRuns(Message, frozen=True):
    """`filter`: instead of numbers."""

    project_id: Id = 0
    run_ids: Ids = ()
    filter: str = ""


class MoveRuns(Message, frozen=True):
    """`skip_multitrial`: runs of searches stay where they are; else the whole search goes along."""

    source_project_id: Id = 0
    destination_project_id: Id = 0
    run_ids: Ids = ()
    filter: str = ""
    skip_multitrial: bool = False


class _Runs:
    def __init__(self, bulk: RunBulk, database: Database, clock: Clock, authorizer: Authorizer) -> None:
        self._bulk = bulk
        self._database = database
        self._clock = clock
        self._authorizer = authorizer

    async def search(self, call: Call, asked: SearchRuns) -> SearchRunsReply:
        chosen = RunFilter(
            project=ProjectId(asked.project_id) if asked.project_id else None,
            filter=filters.parse(asked.filter),
            visible=await self._authorizer.workspaces(call.caller, Permission.VIEW_EXPERIMENTS),
        )
        orders, now, window = filters.parse_order(asked.sort), self._clock.now(), asked.window
        page = await self._database.read(
            lambda connection: run_listing.page(connection, chosen, orders, window, now)
        )  # fmt: skip
        return SearchRunsReply(runs=[_told(run, now) for run in page.items], pagination=paging.told(page, asked))

    # Many: who may do it with which is found out for each

    async def kill(self, call: Call, asked: ManyRuns) -> ManyReply:
        return await self._each(call, asked, self._bulk.kill(acting.by(call)))

    async def pause(self, call: Call, asked: ManyRuns) -> ManyReply:
        return await self._each(call, asked, self._bulk.pause(acting.by(call)))

    async def resume(self, call: Call, asked: ManyRuns) -> ManyReply:
        return await self._each(call, asked, self._bulk.resume(acting.by(call)))

    async def delete(self, call: Call, asked: ManyRuns) -> ManyReply:
        return await self._each(call, asked, self._bulk.delete(acting.by(call)))

    async def archive(self, call: Call, asked: ManyRuns) -> ManyReply:
        return await self._each(call, asked, self._bulk.archive(acting.by(call), is_archived=True))

    async def unarchive(self, call: Call, asked: ManyRuns) -> ManyReply:
        return await self._each(call, asked, self._bulk.archive(acting.by(call), is_archived=False))

    async def move(self, call: Call, asked: MoveRuns) -> ManyReply:
        if not asked.destination_project_id:
            raise errors.BadRequest("destinationProjectId: must name a project")
        to = ProjectId(asked.destination_project_id)
        act = self._bulk.move(acting.by(call), to, is_whole_only=asked.skip_multitrial)
        many = ManyRuns(project_id=asked.source_project_id, run_ids=asked.run_ids, filter=asked.filter)
        return await self._each(call, many, act)

    async def _each(self, call: Call, asked: ManyRuns, act: ActOnRun) -> ManyReply:
        acting.person(call)
        if not asked.filter and not asked.run_ids:
            return experiment_actions.results(())
        chosen = RunFilter(
            project=ProjectId(asked.project_id) if asked.project_id else None,
            ids=None if asked.filter else asked.run_ids,
            filter=filters.parse(asked.filter),
        )
        return experiment_actions.results(await self._bulk.each(acting.by(call), chosen, act))


def _told(run: Run, now: Instant) -> FlatRun:
    trial, above = run.trial, run.experiment
    return FlatRun(
        id=trial.id,
        state=State[run.state],
        start_time=acting.time(trial.created) or "",
        end_time=acting.time(trial.ended),
        duration=max(0, int((trial.ended or now) - trial.created)),
        checkpoint_count=trial.checkpoint_count,
        checkpoint_size=str(trial.checkpoint_bytes),
        searcher_metric_value=trial.searcher_metric,
        summary_metrics=trial.summary_metrics,
        hyperparameters=trial.hparams,
        metadata=trial.metadata or None,
        labels=above.labels,
        external_run_id=trial.external_id,
        user_id=above.user,
        project_id=above.project,
        project_name=above.project_name,
        workspace_id=trial.workspace,
        workspace_name=above.workspace_name,
        archived=trial.is_archived,
        parent_archived=above.is_parent_archived,
        log_policy_matched=trial.log_signal or None,
        experiment=RunsExperiment(
            id=above.id,
            name=above.name,
            description=above.description,
            searcher_type=above.searcher_type,
            searcher_metric=above.searcher_metric,
            resource_pool=above.pool,
            progress=above.progress,
            forked_from=above.forked_from,
            external_experiment_id=above.external_id,
            is_multitrial=above.is_search,
            unmanaged=above.is_unmanaged,
        ),
    )


def routes(bulk: RunBulk, database: Database, clock: Clock, authorizer: Authorizer) -> Sequence[Route]:
    on, here = _Runs(bulk, database, clock, authorizer), "/api/v1/runs"
    actions = {
        "kill": on.kill,
        "pause": on.pause,
        "resume": on.resume,
        "delete": on.delete,
        "archive": on.archive,
        "unarchive": on.unarchive,
    }
    return (
        route("POST", here, SearchRuns, SearchRunsReply, known(), on.search),
        *(route("POST", f"{here}/{name}", ManyRuns, ManyReply, known(), act) for name, act in actions.items()),
        route("POST", f"{here}/move", MoveRuns, ManyReply, known(), on.move),
    )
