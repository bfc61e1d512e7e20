"""Experiments, looked for: which there are, in which order, and how they stand. Functions of a connection.

What is looked for is found by columns and indexes alone; whole rows, whose configurations are large, are read only of
the page that is shown.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeAlias

from sqlalchemy import ColumnElement, Connection, func, or_, select

from muster.accounts.callers import WorkspaceId
from muster.accounts.projects import ProjectId
from muster.api.meta import Instant
from muster.experiments import experiment_records, filter_columns, standings
from muster.experiments.experiment_records import Experiment
from muster.experiments.filter_columns import contains
from muster.experiments.filters import EVERYTHING, Filter, Order
from muster.experiments.standings import Standing
from muster.experiments.states import ExperimentId, ExperimentState
from muster.records.paging import Page, Window
from muster.records.tables_accounts import PROJECTS, USERS, WORKSPACES
from muster.records.tables_experiments import EXPERIMENT_LABELS, EXPERIMENTS

_ENDLESS: Final = 2**31
MOST_TOGETHER: Final = 5000
"""On one page, however many are asked for: the reply says where it ends, and clients read on from there."""


class ExperimentOrder(StrEnum):
    ID = "id"
    NAME = "name"
    DESCRIPTION = "description"
    STARTED = "created"
    ENDED = "ended"
    STATE = "state"
    TRIALS = "trial_count"
    PROGRESS = "progress"
    USER = "user"
    FORKED_FROM = "forked_from"
    POOL = "pool"
    PROJECT = "project_id"
    CHECKPOINT_BYTES = "checkpoint_bytes"
    CHECKPOINTS = "checkpoint_count"
    METRIC = "best_metric"


@dataclass(frozen=True, slots=True)
class Numbers:
    """Bounds of ids: None for none. `including`: empty for all."""

    above: int | None = None
    from_: int | None = None
    below: int | None = None
    up_to: int | None = None
    including: Sequence[int] = ()
    without: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class ExperimentFilter:
    """`name`, `description`: somewhere in it, in any case. `labels`: all of them. `states`: as they are shown.
    `visible`: the workspaces that may be seen; None for all. `filter`: in the language of `filters`."""

    name: str = ""
    description: str = ""
    labels: Sequence[str] = ()
    usernames: Sequence[str] = ()
    users: Sequence[int] = ()
    states: Sequence[str] = ()
    is_archived: bool | None = None
    project: ProjectId | None = None
    ids: Numbers = Numbers()
    visible: Collection[WorkspaceId] | None = None
    filter: Filter = EVERYTHING


@dataclass(frozen=True, slots=True)
class Ordered:
    """`orders`: in the language of `filters`, before the other."""

    by: ExperimentOrder = ExperimentOrder.ID
    is_descending: bool = False
    orders: Sequence[Order] = ()


@dataclass(frozen=True, slots=True)
class Listed:
    """`is_parent_archived`: its project or workspace is."""

    experiment: Experiment
    state: str
    is_parent_archived: bool


def listed(
    connection: Connection, chosen: ExperimentFilter, ordered: Ordered, window: Window, now: Instant
) -> Page[Listed]:
    """Raises BadRequest where the filter or the order is none."""
    where, orders = list(_where(chosen, now)), _orders(ordered, now)
    is_scan = bool(chosen.name or chosen.description or chosen.filter.filter_group.children)
    # What must be looked for in every row is looked for once, counted on the way. Where indexes know which rows there
    # are, to count them costs little, and to see them all would cost much.
    found = _scanned(connection, where, orders, window) if is_scan and window.offset >= 0 else None
    ids, start, total = found or _counted(connection, where, orders, window)
    return Page(tuple(_by_id(connection, ids)), start, total)


_Where: TypeAlias = Sequence[ColumnElement[bool]]
_Orders: TypeAlias = Sequence[ColumnElement[object]]
_Found: TypeAlias = tuple[list[int], int, int]
"""Ids of a page, where it begins, and how many there are in all."""


def _scanned(connection: Connection, where: _Where, orders: _Orders, window: Window) -> _Found | None:
    """None where the page is empty: then nothing is known of the others."""
    start, end = window.within(_ENDLESS)
    most = min(end - start, MOST_TOGETHER)
    query = select(EXPERIMENTS.c.id, func.count().over()).where(*where).order_by(*orders)
    rows = connection.execute(query.offset(start).limit(most)).all()
    return ([row[0] for row in rows], start, rows[0][1]) if rows else None


def _counted(connection: Connection, where: _Where, orders: _Orders, window: Window) -> _Found:
    total = connection.scalar(select(func.count()).select_from(EXPERIMENTS).where(*where)) or 0
    start, end = window.within(total)
    end = min(end, start + MOST_TOGETHER)
    if end <= start:
        return [], start, total
    page = select(EXPERIMENTS.c.id).where(*where).order_by(*orders).offset(start).limit(end - start)
    return list(connection.scalars(page)), start, total


def get(connection: Connection, experiment: int) -> Listed:
    """Raises NotFound."""
    for found in _by_id(connection, [experiment]):
        return found
    raise experiment_records.not_found(experiment)


def ids(
    connection: Connection, chosen: ExperimentFilter, now: Instant
) -> list[tuple[ExperimentId, WorkspaceId]]:  # fmt: skip
    """All of them, the oldest first, with where they are."""
    query = (
        select(EXPERIMENTS.c.id, PROJECTS.c.workspace_id)
        .join(PROJECTS, PROJECTS.c.id == EXPERIMENTS.c.project_id)
        .where(*_where(chosen, now))
        .order_by(EXPERIMENTS.c.id)
    )
    return [(ExperimentId(id), WorkspaceId(workspace)) for id, workspace in connection.execute(query)]


def labels(
    connection: Connection, visible: Collection[WorkspaceId] | None, project: ProjectId | None
) -> Sequence[str]:  # fmt: skip
    """Those that are used most come first."""
    query = select(EXPERIMENT_LABELS.c.label).group_by(EXPERIMENT_LABELS.c.label)
    where = list(_where(ExperimentFilter(project=project, visible=visible), Instant(0)))
    if where:
        query = query.join(EXPERIMENTS, EXPERIMENTS.c.id == EXPERIMENT_LABELS.c.experiment_id).where(*where)
    return list(connection.scalars(query.order_by(func.count().desc(), EXPERIMENT_LABELS.c.label)))


def shown(connection: Connection, experiments: Sequence[Experiment]) -> Mapping[ExperimentId, str]:
    """How they stand, as it is shown."""
    active = [each.id for each in experiments if each.state is ExperimentState.ACTIVE and not each.is_unmanaged]
    found = standings.of_experiments(connection, active)

    def state(each: Experiment) -> str:
        if each.state is not ExperimentState.ACTIVE:
            return each.state.value
        return Standing.RUNNING if each.is_unmanaged else found.get(each.id, Standing.QUEUED)

    return {each.id: state(each) for each in experiments}


def _by_id(connection: Connection, wanted: Sequence[int]) -> Iterator[Listed]:
    """In this order."""
    archived = or_(PROJECTS.c.archived, WORKSPACES.c.archived).label("is_parent_archived")
    rows = connection.execute(
        experiment_records.query().add_columns(archived).where(EXPERIMENTS.c.id.in_(list(wanted)))
    ).all()
    parents = {row.id: bool(row.is_parent_archived) for row in rows}
    experiments = {row.id: experiment_records.told(row) for row in rows}
    states = shown(connection, list(experiments.values()))
    for id in wanted:
        if id in experiments:
            yield Listed(experiments[id], states[ExperimentId(id)], parents[id])


def _where(chosen: ExperimentFilter, now: Instant) -> Iterator[ColumnElement[bool]]:
    column = EXPERIMENTS.c
    if chosen.project is not None:
        yield column.project_id == chosen.project
    if chosen.visible is not None:
        here = select(PROJECTS.c.id).where(PROJECTS.c.workspace_id.in_(list(chosen.visible)))
        yield column.project_id.in_(here)
    if chosen.is_archived is not None:
        yield column.is_archived.is_(chosen.is_archived)
    if chosen.users:
        yield column.user_id.in_(list(chosen.users))
    if chosen.usernames:
        named = select(USERS.c.id).where(USERS.c.username.in_([name.lower() for name in chosen.usernames]))
        yield column.user_id.in_(named)
    if chosen.states:
        yield or_(*(standings.experiment_is(state) for state in chosen.states))
    for label in dict.fromkeys(chosen.labels):
        of_label = select(EXPERIMENT_LABELS.c.experiment_id).where(EXPERIMENT_LABELS.c.label == label)
        yield column.id.in_(of_label)
    if chosen.name:
        yield contains(column.name, chosen.name)
    if chosen.description:
        yield contains(column.description, chosen.description)
    yield from _within(chosen.ids)
    if not chosen.filter.show_archived:
        yield column.is_archived.is_(False)
    if chosen.filter.filter_group.children:
        yield filter_columns.condition(chosen.filter.filter_group, filter_columns.of_experiments(now))


def _within(numbers: Numbers) -> Iterator[ColumnElement[bool]]:
    id = EXPERIMENTS.c.id
    if numbers.above is not None:
        yield id > numbers.above
    if numbers.from_ is not None:
        yield id >= numbers.from_
    if numbers.below is not None:
        yield id < numbers.below
    if numbers.up_to is not None:
        yield id <= numbers.up_to
    if numbers.including:
        yield id.in_(list(numbers.including))
    if numbers.without:
        yield id.not_in(list(numbers.without))


def _orders(ordered: Ordered, now: Instant) -> list[ColumnElement[object]]:
    keys = filter_columns.ordering(ordered.orders, filter_columns.of_experiments(now))
    id = EXPERIMENTS.c.id
    if ordered.by is not ExperimentOrder.ID:
        column = _order(ordered.by)
        key = column.desc() if ordered.is_descending else column.asc()
        # Elsewhere it would only keep the database from using its indexes.
        keys.append(key.nulls_last() if getattr(column, "nullable", False) else key)
    keys.append(id.desc() if ordered.is_descending else id.asc())
    return keys


def _order(by: ExperimentOrder) -> ColumnElement[object]:
    if by is ExperimentOrder.USER:
        return select(USERS.c.username).where(USERS.c.id == EXPERIMENTS.c.user_id).scalar_subquery()
    return EXPERIMENTS.c[by.value]
