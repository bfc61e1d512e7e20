"""What trials have reported, as it is read: functions of a connection. Of what is in force; never what was archived."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection, Row, Select, literal, select, union_all

from muster.accounts.callers import WorkspaceId
from muster.api import raw
from muster.api.meta import Instant
from muster.api.raw import Document
from muster.experiments import experiment_records, metric_reports, trial_records
from muster.experiments.checkpoint_records import CheckpointState
from muster.experiments.metric_reports import TRAINING, VALIDATION
from muster.experiments.states import ENDED, ExperimentId, ExperimentState, TrialId
from muster.records.paging import Page, Window, select_page
from muster.records.tables_accounts import PROJECTS
from muster.records.tables_experiments import CHECKPOINTS, EXPERIMENTS, METRICS, TRIALS

_COLUMNS: Final = (
    METRICS.c.id, METRICS.c.trial_id, METRICS.c.run, METRICS.c.group, METRICS.c.steps, METRICS.c.at, METRICS.c.metrics,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Reported:
    """`metrics`: JSON as it is told. `steps`: None of what belongs to no step."""

    id: int
    trial: TrialId
    run: int
    group: str
    steps: int | None
    at: Instant
    metrics: str


@dataclass(frozen=True, slots=True)
class Cursor:
    """Where a page ended. Steps come in their order; what belongs to none comes after them, as it was reported."""

    steps: int | None = -1
    id: int = 0


def page(connection: Connection, trial: TrialId, group: str, after: Cursor, most: int) -> Sequence[Reported]:
    """Of one group; the first page is that after `Cursor()`, and one with less than `most` is the last."""
    here = (METRICS.c.trial_id == trial, METRICS.c.group == group, ~METRICS.c.is_archived)
    found: list[Reported] = []
    if after.steps is not None:
        # Of each step only one is in force.
        ordered = _reported().where(*here, METRICS.c.steps > after.steps).order_by(METRICS.c.steps)
        found = [_told(row) for row in connection.execute(ordered.limit(most))]
    if len(found) < most:
        start = after.id if after.steps is None else 0
        rest = _reported().where(*here, METRICS.c.steps.is_(None), METRICS.c.id > start).order_by(METRICS.c.id)
        found += [_told(row) for row in connection.execute(rest.limit(most - len(found)))]
    return found


def of_trial(connection: Connection, trial: TrialId, group: str, most: int) -> Sequence[Reported]:
    """By group and steps. `group`: empty for all of them."""
    chosen = _reported().where(METRICS.c.trial_id == trial, ~METRICS.c.is_archived)
    if group:
        chosen = chosen.where(METRICS.c.group == group)
    ordered = chosen.order_by(METRICS.c.group, METRICS.c.steps, METRICS.c.id).limit(most)
    return [_told(row) for row in connection.execute(ordered)]


def cursor_after(reported: Reported) -> Cursor:
    return Cursor(reported.steps, reported.id)


def workspaces(connection: Connection, trials: Collection[TrialId]) -> Mapping[TrialId, WorkspaceId]:
    """Of those that are there. Raises NotFound for the first that is not."""
    rows = connection.execute(
        select(TRIALS.c.id, PROJECTS.c.workspace_id)
        .join(EXPERIMENTS, EXPERIMENTS.c.id == TRIALS.c.experiment_id)
        .join(PROJECTS, PROJECTS.c.id == EXPERIMENTS.c.project_id)
        .where(TRIALS.c.id.in_(list(trials)))
    )
    found = {TrialId(row.id): WorkspaceId(row.workspace_id) for row in rows}
    for trial in trials:
        if trial not in found:
            raise trial_records.not_found(trial)
    return found


# Workloads


@dataclass(frozen=True, slots=True)
class WorkloadFilter:
    """`groups`: of metrics. `is_newest_first`: by steps."""

    groups: Sequence[str] = (TRAINING, VALIDATION)
    has_checkpoints: bool = True
    has_deleted: bool = True
    is_newest_first: bool = False


@dataclass(frozen=True, slots=True)
class Saved:
    """A checkpoint among workloads."""

    uuid: str
    steps: int
    at: Instant
    state: str
    resources: Mapping[str, int]
    metadata: Document


def workloads(
    connection: Connection, trial: TrialId, chosen: WorkloadFilter, window: Window
) -> Page[Reported | Saved]:  # fmt: skip
    """Reports and checkpoints of a trial, by steps."""
    parts = [_reports_part(trial, group) for group in chosen.groups]
    if chosen.has_checkpoints:
        parts.append(_checkpoints_part(trial, chosen.has_deleted))
    if not parts:
        return Page((), 0, 0)
    together = union_all(*parts).subquery()
    order = [together.c.steps, together.c.at, together.c.group, together.c.id]
    query = select(together).order_by(*(column.desc() if chosen.is_newest_first else column for column in order))
    found = select_page(connection, query, window)
    checkpoints = _checkpoints(connection, trial) if chosen.has_checkpoints else {}
    items = tuple(checkpoints[row.uuid] if row.uuid else _told(row) for row in found.items)
    return Page(items, found.start, found.total)


def _reports_part(trial: TrialId, group: str) -> Select[tuple[object, ...]]:
    columns = select(*_COLUMNS, literal("").label("uuid"))
    return columns.where(METRICS.c.trial_id == trial, METRICS.c.group == group, ~METRICS.c.is_archived)


def _checkpoints_part(trial: TrialId, has_deleted: bool) -> Select[tuple[object, ...]]:
    columns = select(
        literal(0).label("id"),
        CHECKPOINTS.c.trial_id,
        literal(0).label("run"),
        literal("").label("group"),
        CHECKPOINTS.c.steps,
        CHECKPOINTS.c.reported.label("at"),
        literal("").label("metrics"),
        CHECKPOINTS.c.uuid,
    )
    mine = columns.where(CHECKPOINTS.c.trial_id == trial)
    return mine if has_deleted else mine.where(CHECKPOINTS.c.state != CheckpointState.DELETED)


def _checkpoints(connection: Connection, trial: TrialId) -> Mapping[str, Saved]:
    rows = connection.execute(select(CHECKPOINTS).where(CHECKPOINTS.c.trial_id == trial))
    return {
        row.uuid: Saved(row.uuid, row.steps, Instant(row.reported), row.state, row.resources, row.metadata)
        for row in rows
    }


# All trials of an experiment


@dataclass(frozen=True, slots=True)
class Progress:
    """Of an experiment, for who follows what its trials report."""

    metric: str
    is_smaller_better: bool
    is_over: bool


@dataclass(frozen=True, slots=True)
class Judged:
    """A trial, and the best of one of its metrics."""

    trial: TrialId
    hparams: Document
    best: float


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A metric of a trial at a step."""

    trial: TrialId
    hparams: Document
    steps: int
    value: float


def progress(connection: Connection, experiment: ExperimentId) -> Progress:
    """Raises NotFound."""
    row = connection.execute(
        select(EXPERIMENTS.c.searcher_metric, EXPERIMENTS.c.is_smaller_better, EXPERIMENTS.c.state).where(
            EXPERIMENTS.c.id == experiment
        )
    ).one_or_none()
    if row is None:
        raise experiment_records.not_found(experiment)
    return Progress(row.searcher_metric, row.is_smaller_better, ExperimentState(row.state) in ENDED)


def names(connection: Connection, experiments: Collection[ExperimentId]) -> frozenset[tuple[str, str]]:
    """Groups and names that any trial of theirs has reported."""
    chosen = select(TRIALS.c.summary_metrics).where(TRIALS.c.experiment_id.in_(list(experiments)))
    return frozenset(
        (metric_reports.group_of(key), name)
        for summaries in connection.scalars(chosen)
        for key, summary in summaries.items()
        for name in summary
    )


def steps_of(connection: Connection, experiment: ExperimentId, group: str, name: str) -> Sequence[int]:
    """At which any of its trials has reported the metric."""
    chosen = (
        select(METRICS.c.steps)
        .where(METRICS.c.trial_id.in_(_trials(experiment)), METRICS.c.group == group, ~METRICS.c.is_archived)
        .where(METRICS.c.steps.is_not(None), METRICS.c.metrics.contains(_quoted(name), autoescape=True))
    )
    return list(connection.scalars(chosen.distinct().order_by(METRICS.c.steps)))


def judged(connection: Connection, experiment: ExperimentId, group: str, name: str, most: int) -> Sequence[Judged]:
    """The trials that did best by this metric, the best first."""
    smaller = progress(connection, experiment).is_smaller_better
    rows = connection.execute(
        select(TRIALS.c.id, TRIALS.c.hparams, TRIALS.c.summary_metrics).where(TRIALS.c.experiment_id == experiment)
    )
    found = []
    for row in rows:
        summary = raw.dig(row.summary_metrics, metric_reports.key(group), name, default={})
        best = metric_reports.number(summary.get("min" if smaller else "max"))
        if best is not None and not math.isnan(best):
            found.append(Judged(TrialId(row.id), row.hparams, best))
    return sorted(found, key=lambda each: (each.best if smaller else -each.best, each.trial))[:most]


def snapshots(
    connection: Connection, experiment: ExperimentId, group: str, name: str, steps: tuple[int, int]
) -> Sequence[Snapshot]:  # fmt: skip
    """Of each trial, the last that it has reported of the metric between these steps, both included."""
    rows = connection.execute(
        select(METRICS.c.trial_id, METRICS.c.steps, METRICS.c.metrics, TRIALS.c.hparams)
        .join(TRIALS, TRIALS.c.id == METRICS.c.trial_id)
        .where(TRIALS.c.experiment_id == experiment, METRICS.c.group == group, ~METRICS.c.is_archived)
        .where(METRICS.c.steps.between(*steps))
        .order_by(METRICS.c.steps)
    )
    found: dict[TrialId, Snapshot] = {}
    for row in rows:
        value = metric_reports.number(metric_reports.decode(group, row.metrics)[0].get(name))
        if value is not None:
            found[TrialId(row.trial_id)] = Snapshot(TrialId(row.trial_id), row.hparams, row.steps, value)
    return [found[trial] for trial in sorted(found)]


def _trials(experiment: ExperimentId) -> Select[tuple[int]]:
    return select(TRIALS.c.id).where(TRIALS.c.experiment_id == experiment)


def _quoted(name: str) -> str:
    """As it stands in a report: not decoded there, since there may be millions."""
    return raw.encode(name).decode() + ":"


def _reported() -> Select[tuple[object, ...]]:
    return select(*_COLUMNS)


def _told(row: Row[tuple[object, ...]]) -> Reported:
    return Reported(row.id, TrialId(row.trial_id), row.run, row.group, row.steps, Instant(row.at), row.metrics)
