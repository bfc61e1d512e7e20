"""Reports of trials in the records: functions of a connection."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import ColumnElement, Connection, Row, Select, and_, bindparam, func, insert, or_, select, update

from muster.api.raw import Document
from muster.experiments.checkpoint_records import CheckpointState
from muster.experiments.metric_reports import VALIDATION, Report
from muster.experiments.states import ExperimentId, TrialId
from muster.records.tables_experiments import CHECKPOINTS, EXPERIMENTS, METRICS, TRIALS

_RECENT: Final = 64
"""Rows among which one that was sent again is looked for, where it has no step to be known by."""


@dataclass(frozen=True, slots=True)
class Head:
    """Where a trial stands: whoever reports must be its latest run."""

    run: int
    task: str


@dataclass(frozen=True, slots=True)
class Known:
    """All that is kept about a trial's metrics, beside the rows. `aim`: what its search looks at. `latest_validation`:
    its step."""

    experiment: ExperimentId
    aim: "Aim"
    summaries: Document
    total_batches: int
    best: float | None
    best_id: int | None
    latest_validation: int | None
    latest_id: int | None


@dataclass(frozen=True, slots=True)
class Aim:
    """`time_metric`: by which a search measures how far a trial has come; "" for steps."""

    metric: str
    is_smaller_better: bool
    time_metric: str

    def is_better(self, new: float, old: float | None) -> bool:
        """Never of what cannot be compared."""
        if old is None:
            return not math.isnan(new)
        return new < old if self.is_smaller_better else new > old


@dataclass(frozen=True, slots=True)
class Kept:
    """A row that is there."""

    id: int
    run: int
    at: float
    metrics: str


def heads(connection: Connection, trials: Collection[TrialId]) -> Mapping[TrialId, Head]:
    """Of those that are there."""
    rows = connection.execute(select(TRIALS.c.id, TRIALS.c.run, TRIALS.c.task_id).where(TRIALS.c.id.in_(list(trials))))
    return {TrialId(row.id): Head(row.run, row.task_id) for row in rows}


def known(connection: Connection, trial: TrialId) -> Known:
    """Of one that is there."""
    validation = select(METRICS.c.steps).where(METRICS.c.id == TRIALS.c.latest_validation_id).scalar_subquery()
    row = connection.execute(
        select(
            TRIALS.c.experiment_id,
            TRIALS.c.summary_metrics,
            TRIALS.c.total_batches,
            TRIALS.c.searcher_metric.label("best"),
            TRIALS.c.best_validation_id,
            TRIALS.c.latest_validation_id,
            EXPERIMENTS.c.searcher_metric,
            EXPERIMENTS.c.is_smaller_better,
            EXPERIMENTS.c.config["searcher"]["time_metric"].as_string().label("time_metric"),
            validation.label("latest_validation"),
        )
        .join(EXPERIMENTS, EXPERIMENTS.c.id == TRIALS.c.experiment_id)
        .where(TRIALS.c.id == trial)
    ).one()
    return Known(
        experiment=ExperimentId(row.experiment_id),
        aim=Aim(row.searcher_metric, row.is_smaller_better, row.time_metric or ""),
        summaries=row.summary_metrics,
        total_batches=row.total_batches,
        best=row.best,
        best_id=row.best_validation_id,
        latest_validation=row.latest_validation,
        latest_id=row.latest_validation_id,
    )


# Rows


def add(connection: Connection, rows: Sequence[Mapping[str, object]]) -> None:
    """By column."""
    connection.execute(insert(METRICS), list(rows))


def row(report: Report, text: str) -> dict[str, object]:
    return {
        "trial_id": report.trial,
        "run": report.run,
        "group": report.group,
        "steps": report.steps,
        "at": report.at,
        "metrics": text,
        "is_archived": False,
    }


def change(connection: Connection, id: int, text: str) -> None:
    connection.execute(update(METRICS).where(METRICS.c.id == id).values(metrics=text))


def archive(connection: Connection, id: int) -> None:
    connection.execute(update(METRICS).where(METRICS.c.id == id).values(is_archived=True))


def find(connection: Connection, trial: TrialId, group: str, steps: int) -> Kept | None:
    """What holds at this step."""
    chosen = _kept(trial, group).where(METRICS.c.steps == steps, ~METRICS.c.is_archived)
    found = connection.execute(chosen).first()
    return None if found is None else _told(found)


def of_run(connection: Connection, report: Report) -> Sequence[Kept]:
    """What the report's own run has said there, in force or not."""
    chosen = _kept(report.trial, report.group).where(METRICS.c.run == report.run)
    if report.steps is not None:
        return [_told(found) for found in connection.execute(chosen.where(METRICS.c.steps == report.steps))]
    recent = chosen.where(METRICS.c.steps.is_(None)).order_by(METRICS.c.id.desc()).limit(_RECENT)
    return [kept for kept in map(_told, connection.execute(recent)) if kept.at == report.at]


def newest(connection: Connection, trial: TrialId, group: str) -> Kept | None:
    """The last that was reported, of what is in force."""
    chosen = _kept(trial, group).where(~METRICS.c.is_archived).order_by(METRICS.c.id.desc())
    found = connection.execute(chosen.limit(1)).first()
    return None if found is None else _told(found)


def last_step(connection: Connection, trial: TrialId, group: str) -> int:
    """The highest that was reported, in force or not; -1 where none was."""
    found = select(func.max(METRICS.c.steps)).where(METRICS.c.trial_id == trial, METRICS.c.group == group)
    steps = connection.scalar(found)
    return -1 if steps is None else steps


def last_step_in_force(connection: Connection, trial: TrialId, group: str) -> int:
    chosen = select(METRICS.c.steps).where(
        METRICS.c.trial_id == trial, METRICS.c.group == group, METRICS.c.steps.is_not(None), ~METRICS.c.is_archived
    )
    steps = connection.scalar(chosen.order_by(METRICS.c.steps.desc()).limit(1))
    return -1 if steps is None else steps


def last_run(connection: Connection, trial: TrialId, group: str) -> int:
    """Which run has reported to this group last; 0 where none has."""
    chosen = select(METRICS.c.run).where(METRICS.c.trial_id == trial, METRICS.c.group == group)
    return connection.scalar(chosen.order_by(METRICS.c.id.desc()).limit(1)) or 0


def begun_at(connection: Connection, trial: TrialId, allocation: str) -> int:
    """The step from which this run goes on: that of the latest checkpoint which was there before it."""
    found = select(func.max(CHECKPOINTS.c.steps)).where(
        CHECKPOINTS.c.trial_id == trial,
        CHECKPOINTS.c.state == CheckpointState.COMPLETED,
        CHECKPOINTS.c.allocation_id != allocation,
    )
    return connection.scalar(found) or 0


def archive_after(connection: Connection, trial: TrialId, group: str, run: int, steps: int) -> int | None:
    """What runs before this one have reported after the step. Returns the first row that it was; None where there is
    none."""
    is_older = and_(
        METRICS.c.trial_id == trial,
        METRICS.c.group == group,
        METRICS.c.steps > steps,
        METRICS.c.run < run,
        ~METRICS.c.is_archived,
    )
    first: int | None = connection.scalar(select(func.min(METRICS.c.id)).where(is_older))
    if first is not None:
        connection.execute(update(METRICS).where(is_older).values(is_archived=True))
    return first


# What is known of trials and experiments


def id_of_validation(connection: Connection, trial: TrialId, steps: int) -> int | None:
    found = find(connection, trial, VALIDATION, steps)
    return None if found is None else found.id


def change_trials(connection: Connection, changes: Sequence[Mapping[str, object]]) -> None:
    """Each by column, with the trial's own id as `trial`."""
    if changes:
        columns = [name for name in changes[0] if name != "trial"]
        change = update(TRIALS).where(TRIALS.c.id == bindparam("trial"))
        connection.execute(change.values({name: bindparam(name) for name in columns}), list(changes))


def raise_best(connection: Connection, experiment: ExperimentId, aim: Aim, trial: TrialId, best: float) -> None:
    """Where it is better than what the experiment had."""
    had = EXPERIMENTS.c.best_metric
    is_better: ColumnElement[bool] = had > best if aim.is_smaller_better else had < best
    change = update(EXPERIMENTS).where(EXPERIMENTS.c.id == experiment, or_(had.is_(None), is_better))
    connection.execute(change.values(best_metric=best, best_trial_id=trial))


def lower_best(connection: Connection, experiment: ExperimentId, aim: Aim, trial: TrialId) -> None:
    """Anew from all its trials, where the best was this one's, which is not so good any more."""
    held = select(EXPERIMENTS.c.best_trial_id).where(EXPERIMENTS.c.id == experiment)
    if connection.scalar(held) != trial:
        return
    metric = TRIALS.c.searcher_metric
    chosen = select(TRIALS.c.id, metric).where(TRIALS.c.experiment_id == experiment, metric.is_not(None))
    best = connection.execute(
        chosen.order_by(metric if aim.is_smaller_better else metric.desc(), TRIALS.c.id).limit(1)
    ).first()
    found, value = (None, None) if best is None else tuple(best)
    change = update(EXPERIMENTS).where(EXPERIMENTS.c.id == experiment)
    connection.execute(change.values(best_metric=value, best_trial_id=found))


def _kept(trial: TrialId, group: str) -> Select[tuple[int, int, float, str]]:
    return select(METRICS.c.id, METRICS.c.run, METRICS.c.at, METRICS.c.metrics).where(
        METRICS.c.trial_id == trial, METRICS.c.group == group
    )


def _told(row: Row[tuple[int, int, float, str]]) -> Kept:
    return Kept(row.id, row.run, row.at, row.metrics)
