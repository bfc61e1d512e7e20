"""Runs, which are trials across all experiments, looked for. Functions of a connection."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from sqlalchemy import ColumnElement, Connection, Row, Select, func, or_, select

from muster.accounts.callers import UserId, WorkspaceId
from muster.accounts.projects import ProjectId
from muster.api.meta import Instant
from muster.experiments import filter_columns, trial_listing, trial_records
from muster.experiments.filters import EVERYTHING, Filter, Order
from muster.experiments.listing import MOST_TOGETHER
from muster.experiments.states import ExperimentId
from muster.experiments.trial_records import Trial
from muster.records.paging import Page, Window
from muster.records.tables_accounts import PROJECTS, WORKSPACES
from muster.records.tables_experiments import EXPERIMENTS, TRIALS

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RunFilter:
    """`ids`: None for all. `visible`: the workspaces that may be seen; None for all."""

    project: ProjectId | None = None
    ids: Sequence[int] | None = None
    filter: Filter = EVERYTHING
    visible: Collection[WorkspaceId] | None = None


@dataclass(frozen=True, slots=True)
class RunsExperiment:
    """What is told with a run of where it belongs. `is_parent_archived`: it is itself, or its project or workspace."""

    id: ExperimentId
    name: str
    description: str
    labels: Sequence[str]
    searcher_type: str
    searcher_metric: str
    pool: str
    progress: float
    external_id: str | None
    forked_from: ExperimentId | None
    is_unmanaged: bool
    user: UserId
    project: ProjectId
    project_name: str
    workspace_name: str
    is_parent_archived: bool

    @property
    def is_search(self) -> bool:
        """Other runs belong to it, or may."""
        return self.searcher_type != "single"


@dataclass(frozen=True, slots=True)
class Run:
    trial: Trial
    state: str
    experiment: RunsExperiment = field(repr=False)


def page(
    connection: Connection, chosen: RunFilter, orders: Sequence[Order], window: Window, now: Instant
) -> Page[Run]:  # fmt: skip
    """The newest first, unless an order is given. Raises BadRequest where the filter or the order is none."""
    where = list(_where(chosen, now))
    keys = [*filter_columns.ordering(orders, filter_columns.of_runs(now)), TRIALS.c.id.desc()]
    total = connection.scalar(_joined(select(func.count()).select_from(TRIALS)).where(*where)) or 0
    start, end = trial_listing.cut(window, total)
    wanted = _joined(select(TRIALS.c.id)).where(*where).order_by(*keys).offset(start).limit(end - start)
    return Page(tuple(_by_id(connection, list(connection.scalars(wanted)))), start, total)


def whole(connection: Connection, chosen: RunFilter, now: Instant) -> list[Run]:
    """All of them, the oldest first."""
    wanted = list(
        connection.scalars(_joined(select(TRIALS.c.id)).where(*_where(chosen, now)).order_by(TRIALS.c.id))
    )  # fmt: skip
    parts = [wanted[start : start + MOST_TOGETHER] for start in range(0, len(wanted), MOST_TOGETHER)]
    return [run for part in parts for run in _by_id(connection, part)]


def _joined(query: Select[T]) -> Select[T]:
    """With all that columns of runs may need."""
    return (
        query.join(EXPERIMENTS, EXPERIMENTS.c.id == TRIALS.c.experiment_id)
        .join(PROJECTS, PROJECTS.c.id == EXPERIMENTS.c.project_id)
        .join(WORKSPACES, WORKSPACES.c.id == PROJECTS.c.workspace_id)
    )


def _where(chosen: RunFilter, now: Instant) -> Iterator[ColumnElement[bool]]:
    if chosen.project is not None:
        yield EXPERIMENTS.c.project_id == chosen.project
    if chosen.visible is not None:
        yield PROJECTS.c.workspace_id.in_(list(chosen.visible))
    if chosen.ids is not None:
        yield TRIALS.c.id.in_(list(chosen.ids))
    if not chosen.filter.show_archived:
        yield TRIALS.c.is_archived.is_(False)
    if chosen.filter.filter_group.children:
        yield filter_columns.condition(chosen.filter.filter_group, filter_columns.of_runs(now))


def _by_id(connection: Connection, wanted: Sequence[int]) -> Iterator[Run]:
    """In this order."""
    rows = connection.execute(trial_records.query().where(TRIALS.c.id.in_(list(wanted))))
    trials = {int(row.id): trial_records.told(row) for row in rows}
    states = trial_listing.shown(connection, list(trials.values()))
    experiments = _experiments(connection, {trial.experiment for trial in trials.values()})
    for id in wanted:
        if id in trials:
            trial = trials[id]
            yield Run(trial, states[trial.id], experiments[trial.experiment])


def _experiments(
    connection: Connection, wanted: Collection[ExperimentId]
) -> Mapping[ExperimentId, RunsExperiment]:  # fmt: skip
    rows = connection.execute(_query().where(EXPERIMENTS.c.id.in_(list(wanted))))
    return {ExperimentId(row.id): _experiment(row) for row in rows}


def _query() -> Select[tuple[object, ...]]:
    above = EXPERIMENTS.c
    columns = (
        above.id, above.name, above.description, above.labels, above.searcher_type, above.searcher_metric, above.pool,
        above.progress, above.external_id, above.forked_from, above.is_unmanaged, above.user_id, above.project_id,
        PROJECTS.c.name.label("project"), WORKSPACES.c.name.label("workspace"),
        or_(above.is_archived, PROJECTS.c.archived, WORKSPACES.c.archived).label("is_parent_archived"),
    )  # fmt: skip
    return (
        select(*columns)
        .join(PROJECTS, PROJECTS.c.id == above.project_id)
        .join(WORKSPACES, WORKSPACES.c.id == PROJECTS.c.workspace_id)
    )


def _experiment(row: Row[tuple[object, ...]]) -> RunsExperiment:
    return RunsExperiment(
        id=ExperimentId(row.id),
        name=row.name,
        description=row.description,
        labels=tuple(row.labels),
        searcher_type=row.searcher_type,
        searcher_metric=row.searcher_metric,
        pool=row.pool,
        progress=row.progress,
        external_id=row.external_id,
        forked_from=None if row.forked_from is None else ExperimentId(row.forked_from),
        is_unmanaged=row.is_unmanaged,
        user=UserId(row.user_id),
        project=ProjectId(row.project_id),
        project_name=row.project,
        workspace_name=row.workspace,
        is_parent_archived=bool(row.is_parent_archived),
    )
