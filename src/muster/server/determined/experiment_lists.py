"""Experiments in lists: with plain filters, as the command line asks; and in the filter language, as web pages do."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Final

import msgspec

from muster.accounts.authorizing import Authorizer
from muster.accounts.callers import WorkspaceId
from muster.accounts.permissions import Permission
from muster.accounts.projects import ProjectId
from muster.experiments import filters, listing, trial_listing
from muster.experiments.listing import ExperimentFilter, ExperimentOrder, Listed, Numbers, Ordered
from muster.experiments.states import TrialId
from muster.records import Database
from muster.records.paging import Page
from muster.runtime.clock import Clock
from muster.server.determined import experiment_messages, paging, trials
from muster.server.determined.experiment_messages import Experiment, Labels, State
from muster.server.determined.ordering import OrderBy
from muster.server.determined.paging import Id, Ids, Paged, Pagination
from muster.server.determined.routing import Call, Message, Route, known, route
from muster.server.determined.trials import Trial


class SortBy(StrEnum):
    UNSPECIFIED = "SORT_BY_UNSPECIFIED"
    ID = "SORT_BY_ID"
    DESCRIPTION = "SORT_BY_DESCRIPTION"
    START_TIME = "SORT_BY_START_TIME"
    END_TIME = "SORT_BY_END_TIME"
    STATE = "SORT_BY_STATE"
    NUM_TRIALS = "SORT_BY_NUM_TRIALS"
    PROGRESS = "SORT_BY_PROGRESS"
    USER = "SORT_BY_USER"
    NAME = "SORT_BY_NAME"
    FORKED_FROM = "SORT_BY_FORKED_FROM"
    RESOURCE_POOL = "SORT_BY_RESOURCE_POOL"
    PROJECT_ID = "SORT_BY_PROJECT_ID"
    CHECKPOINT_SIZE = "SORT_BY_CHECKPOINT_SIZE"
    CHECKPOINT_COUNT = "SORT_BY_CHECKPOINT_COUNT"
    SEARCHER_METRIC_VAL = "SORT_BY_SEARCHER_METRIC_VAL"


_ORDERS: Final[Mapping[SortBy, ExperimentOrder]] = {
    SortBy.UNSPECIFIED: ExperimentOrder.ID,
    SortBy.ID: ExperimentOrder.ID,
    SortBy.DESCRIPTION: ExperimentOrder.DESCRIPTION,
    SortBy.START_TIME: ExperimentOrder.STARTED,
    SortBy.END_TIME: ExperimentOrder.ENDED,
    SortBy.STATE: ExperimentOrder.STATE,
    SortBy.NUM_TRIALS: ExperimentOrder.TRIALS,
    SortBy.PROGRESS: ExperimentOrder.PROGRESS,
    SortBy.USER: ExperimentOrder.USER,
    SortBy.NAME: ExperimentOrder.NAME,
    SortBy.FORKED_FROM: ExperimentOrder.FORKED_FROM,
    SortBy.RESOURCE_POOL: ExperimentOrder.POOL,
    SortBy.PROJECT_ID: ExperimentOrder.PROJECT,
    SortBy.CHECKPOINT_SIZE: ExperimentOrder.CHECKPOINT_BYTES,
    SortBy.CHECKPOINT_COUNT: ExperimentOrder.CHECKPOINTS,
    SortBy.SEARCHER_METRIC_VAL: ExperimentOrder.METRIC,
}


class GetExperiments(Paged, frozen=True):
    """`show_trial_data`: what it once left out is always there."""

    name: str = ""
    description: str = ""
    labels: Labels = ()
    archived: bool | None = None
    states: Sequence[State] = ()
    users: Sequence[str] = ()
    user_ids: Ids = ()
    project_id: Id = 0
    sort_by: SortBy = SortBy.UNSPECIFIED
    order_by: OrderBy = OrderBy.UNSPECIFIED
    above: Id | None = msgspec.field(default=None, name="experimentIdFilter.gt")
    from_: Id | None = msgspec.field(default=None, name="experimentIdFilter.gte")
    below: Id | None = msgspec.field(default=None, name="experimentIdFilter.lt")
    up_to: Id | None = msgspec.field(default=None, name="experimentIdFilter.lte")
    including: Ids = msgspec.field(default=(), name="experimentIdFilter.incl")
    without: Ids = msgspec.field(default=(), name="experimentIdFilter.notIn")
    show_trial_data: bool = False


class GetExperimentsReply(Message, frozen=True):
    experiments: Sequence[Experiment]
    pagination: Pagination


class SearchExperiments(Paged, frozen=True):
    """`filter`: JSON in the language of `muster.experiments.filters`. `sort`: as in `name=asc,id=desc`."""

    project_id: Id = 0
    filter: str = ""
    sort: str = ""


class Found(Message, frozen=True):
    experiment: Experiment
    best_trial: Trial | None


class SearchReply(Message, frozen=True):
    experiments: Sequence[Found]
    pagination: Pagination


class GetLabels(Message, frozen=True):
    project_id: Id = 0


class GetLabelsReply(Message, frozen=True):
    labels: Sequence[str]


class _Lists:
    def __init__(self, database: Database, clock: Clock, authorizer: Authorizer) -> None:
        self._database = database
        self._clock = clock
        self._authorizer = authorizer

    async def list(self, call: Call, asked: GetExperiments) -> GetExperimentsReply:
        numbers = Numbers(asked.above, asked.from_, asked.below, asked.up_to, asked.including, asked.without)
        chosen = ExperimentFilter(
            name=asked.name,
            description=asked.description,
            labels=asked.labels,
            usernames=asked.users,
            users=asked.user_ids,
            states=experiment_messages.states(asked.states),
            is_archived=asked.archived,
            project=_project(asked.project_id),
            ids=numbers,
            visible=await self._visible(call),
        )
        page = await self._page(chosen, Ordered(_ORDERS[asked.sort_by], asked.order_by is OrderBy.DESC), asked)
        eyes = await experiment_messages.eyes(self._authorizer, call.caller, self._clock.now())
        told = [experiment_messages.told(each, eyes) for each in page.items]
        return GetExperimentsReply(experiments=told, pagination=paging.told(page, asked))

    async def search(self, call: Call, asked: SearchExperiments) -> SearchReply:
        chosen = ExperimentFilter(
            project=_project(asked.project_id),
            visible=await self._visible(call),
            filter=filters.parse(asked.filter),
        )
        ordered = Ordered(is_descending=True, orders=filters.parse_order(asked.sort))
        page = await self._page(chosen, ordered, asked)
        best = await self._best(page)
        eyes = await experiment_messages.eyes(self._authorizer, call.caller, self._clock.now())
        found = [
            Found(experiment=experiment_messages.told(each, eyes), best_trial=best.get(each.experiment.best_trial or 0))
            for each in page.items
        ]
        return SearchReply(experiments=found, pagination=paging.told(page, asked))

    async def labels(self, call: Call, asked: GetLabels) -> GetLabelsReply:
        visible, project = await self._visible(call), _project(asked.project_id)
        found = await self._database.read(lambda connection: listing.labels(connection, visible, project))
        return GetLabelsReply(labels=found)

    async def _page(self, chosen: ExperimentFilter, ordered: Ordered, asked: Paged) -> Page[Listed]:
        now, window = self._clock.now(), asked.window
        return await self._database.read(
            lambda connection: listing.listed(connection, chosen, ordered, window, now)
        )  # fmt: skip

    async def _best(self, page: Page[Listed]) -> Mapping[int, Trial]:
        wanted = [TrialId(each.experiment.best_trial) for each in page.items if each.experiment.best_trial is not None]
        now = self._clock.now()
        found = await self._database.read(lambda connection: trial_listing.by_id(connection, wanted, now))
        return {each.trial.id: trials.told(each) for each in found}

    async def _visible(self, call: Call) -> frozenset[WorkspaceId] | None:
        return await self._authorizer.workspaces(call.caller, Permission.VIEW_EXPERIMENTS)


def _project(id: int) -> ProjectId | None:
    return ProjectId(id) if id else None


def routes(database: Database, clock: Clock, authorizer: Authorizer) -> Sequence[Route]:
    on = _Lists(database, clock, authorizer)
    search = "/api/v1/experiments-search"
    return (
        route("GET", "/api/v1/experiments", GetExperiments, GetExperimentsReply, known(), on.list),
        route("POST", search, SearchExperiments, SearchReply, known(), on.search),
        route("GET", "/api/v1/experiment/labels", GetLabels, GetLabelsReply, known(), on.labels),
    )
