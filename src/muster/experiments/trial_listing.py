"""Trials of an experiment, and all that is told of a trial beside its own row. Functions of a connection."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from sqlalchemy import ColumnElement, Connection, Row, and_, func, or_, select

from muster.api.meta import Instant
from muster.experiments import experiment_records, metric_reports, standings, trial_records
from muster.experiments.checkpoint_records import PRESENT
from muster.experiments.listing import MOST_TOGETHER
from muster.experiments.metric_reading import Reported, Saved
from muster.experiments.metric_reports import VALIDATION
from muster.experiments.standings import Standing
from muster.experiments.states import ExperimentId, TrialId, TrialState
from muster.experiments.trial_records import Trial
from muster.records.json_values import NumberAt
from muster.records.paging import Page, Window
from muster.records.tables_experiments import CHECKPOINTS, EXPERIMENTS, METRICS, TRIAL_TASKS, TRIALS
from muster.records.tables_tasks import ALLOCATIONS, TASKS


class TrialOrder(StrEnum):
    ID = "id"
    STARTED = "created"
    ENDED = "ended"
    STATE = "state"
    BEST_METRIC = "searcher_metric"
    LATEST_METRIC = "latest metric"
    BATCHES = "total_batches"
    DURATION = "duration"
    RESTARTS = "restarts"
    CHECKPOINT_BYTES = "checkpoint_bytes"
    RETENTION = "log_retention_days"


@dataclass(frozen=True, slots=True)
class Details:
    """`seconds`: for how long its runs have run. `best_checkpoint`: by the searcher's metric, of what is there."""

    state: str
    tasks: Sequence[str]
    seconds: float | None
    best_validation: Reported | None
    latest_validation: Reported | None
    best_checkpoint: Saved | None


@dataclass(frozen=True, slots=True)
class ListedTrial:
    trial: Trial
    details: Details


def get(connection: Connection, trial: int, now: Instant) -> ListedTrial:
    """Raises NotFound."""
    found = trial_records.get(connection, trial)
    return ListedTrial(found, detailed(connection, [found], now)[found.id])


def by_id(connection: Connection, trials: Collection[TrialId], now: Instant) -> list[ListedTrial]:
    """Those that are there."""
    rows = connection.execute(trial_records.query().where(TRIALS.c.id.in_(list(trials))))
    found = [trial_records.told(row) for row in rows]
    details = detailed(connection, found, now)
    return [ListedTrial(trial, details[trial.id]) for trial in found]


def of_experiment(
    connection: Connection,
    experiment: ExperimentId,
    states: Sequence[str],
    order: tuple[TrialOrder, bool],
    window: Window,
    now: Instant,
) -> Page[ListedTrial]:
    """`states`: as they are shown; none for all. `order`: by what, and whether it descends. Raises NotFound."""
    metric = experiment_records.get(connection, experiment).searcher_metric
    where = [TRIALS.c.experiment_id == experiment]
    if states:
        where.append(or_(*(standings.trial_is(state) for state in states)))
    key, id = _key(order[0], metric, now), TRIALS.c.id
    keys = [key.desc().nulls_last(), id.desc()] if order[1] else [key.asc().nulls_last(), id.asc()]
    joined = EXPERIMENTS.c.id == TRIALS.c.experiment_id
    total = connection.scalar(select(func.count()).select_from(TRIALS).join(EXPERIMENTS, joined).where(*where)) or 0
    start, end = cut(window, total)
    rows = connection.execute(trial_records.query().where(*where).order_by(*keys).offset(start).limit(end - start))
    trials = [trial_records.told(row) for row in rows]
    details = detailed(connection, trials, now)
    return Page(tuple(ListedTrial(trial, details[trial.id]) for trial in trials), start, total)


def _key(order: TrialOrder, metric: str, now: Instant) -> ColumnElement[object]:
    if order is TrialOrder.DURATION:
        return func.coalesce(TRIALS.c.ended, now) - TRIALS.c.created
    if order is TrialOrder.LATEST_METRIC:
        # Of a name with quotation marks nothing is found, and the order is that of ids.
        return NumberAt(TRIALS.c.summary_metrics, [metric_reports.key(VALIDATION), metric.replace('"', ""), "last"])
    return TRIALS.c[order.value]


def cut(window: Window, total: int) -> tuple[int, int]:
    """Where a page begins and ends."""
    start, end = window.within(total)
    return start, min(end, start + MOST_TOGETHER)


# What is told of a trial beside its own row


def detailed(connection: Connection, trials: Sequence[Trial], now: Instant) -> Mapping[TrialId, Details]:
    ids = [each.id for each in trials]
    states = shown(connection, trials)
    tasks, seconds = _tasks(connection, ids), _seconds(connection, ids, now)
    wanted = [id for each in trials for id in (each.best_validation, each.latest_validation) if id is not None]
    reports, checkpoints = _reports(connection, wanted), _best_checkpoints(connection, ids)
    return {
        each.id: Details(
            state=states[each.id],
            tasks=tasks.get(each.id, ()),
            seconds=seconds.get(each.id),
            best_validation=reports.get(each.best_validation or 0),
            latest_validation=reports.get(each.latest_validation or 0),
            best_checkpoint=checkpoints.get(each.id),
        )
        for each in trials
    }


def shown(connection: Connection, trials: Sequence[Trial]) -> Mapping[TrialId, str]:
    """How they stand, as it is shown. One that has had no run here runs elsewhere, or waits for its first."""
    active = [each.id for each in trials if each.state is TrialState.ACTIVE]
    found = standings.of_trials(connection, active)
    elsewhere = _elsewhere(connection, active)

    def state(each: Trial) -> str:
        if each.state is not TrialState.ACTIVE:
            return each.state.value
        return Standing.RUNNING if each.id in elsewhere else found.get(each.id, Standing.QUEUED)

    return {each.id: state(each) for each in trials}


def _elsewhere(connection: Connection, trials: Collection[TrialId]) -> frozenset[TrialId]:
    if not trials:
        return frozenset()
    query = select(TRIALS.c.id).join(EXPERIMENTS, EXPERIMENTS.c.id == TRIALS.c.experiment_id)
    chosen = query.where(TRIALS.c.id.in_(list(trials)), EXPERIMENTS.c.is_unmanaged.is_(True))
    return frozenset(TrialId(id) for id in connection.scalars(chosen))


def _tasks(connection: Connection, trials: Collection[TrialId]) -> Mapping[TrialId, Sequence[str]]:
    """The oldest first."""
    query = (
        select(TRIAL_TASKS.c.trial_id, TRIAL_TASKS.c.task_id)
        .join(TASKS, TASKS.c.id == TRIAL_TASKS.c.task_id)
        .where(TRIAL_TASKS.c.trial_id.in_(list(trials)))
        .order_by(TASKS.c.created, TASKS.c.id)
    )
    found: dict[TrialId, list[str]] = {}
    for trial, task in connection.execute(query):
        found.setdefault(TrialId(trial), []).append(task)
    return found


def _seconds(connection: Connection, trials: Collection[TrialId], now: Instant) -> Mapping[TrialId, float]:
    ran = func.sum(func.coalesce(ALLOCATIONS.c.ended, now) - ALLOCATIONS.c.started)
    query = (
        select(TRIAL_TASKS.c.trial_id, ran)
        .join(ALLOCATIONS, ALLOCATIONS.c.task_id == TRIAL_TASKS.c.task_id)
        .where(TRIAL_TASKS.c.trial_id.in_(list(trials)), ALLOCATIONS.c.started.is_not(None))
        .group_by(TRIAL_TASKS.c.trial_id)
    )
    return {TrialId(trial): max(0.0, seconds) for trial, seconds in connection.execute(query)}


def _reports(connection: Connection, ids: Collection[int]) -> Mapping[int, Reported]:
    rows = connection.execute(select(METRICS).where(METRICS.c.id.in_(list(ids)))) if ids else ()
    return {
        row.id: Reported(row.id, TrialId(row.trial_id), row.run, row.group, row.steps, Instant(row.at), row.metrics)
        for row in rows
    }


def _best_checkpoints(connection: Connection, trials: Collection[TrialId]) -> Mapping[TrialId, Saved]:
    measured = and_(
        METRICS.c.trial_id == CHECKPOINTS.c.trial_id,
        METRICS.c.group == VALIDATION,
        METRICS.c.steps == CHECKPOINTS.c.steps,
        METRICS.c.is_archived.is_(False),
    )
    query = (
        select(CHECKPOINTS, METRICS.c.metrics, EXPERIMENTS.c.searcher_metric, EXPERIMENTS.c.is_smaller_better)
        .join(EXPERIMENTS, EXPERIMENTS.c.id == CHECKPOINTS.c.experiment_id)
        .join(METRICS, measured)
        .where(CHECKPOINTS.c.trial_id.in_(list(trials)), CHECKPOINTS.c.state.in_([state.value for state in PRESENT]))
        .order_by(CHECKPOINTS.c.steps)
    )
    best: dict[TrialId, tuple[float, Saved]] = {}
    for row in connection.execute(query):
        value = metric_reports.number(metric_reports.decode(VALIDATION, row.metrics)[0].get(row.searcher_metric))
        if value is None or math.isnan(value):
            continue
        loss, trial = value if row.is_smaller_better else -value, TrialId(row.trial_id)
        if trial not in best or loss < best[trial][0]:
            best[trial] = (loss, _saved(row))
    return {trial: saved for trial, (_, saved) in best.items()}


def _saved(row: Row[tuple[object, ...]]) -> Saved:
    return Saved(row.uuid, row.steps, Instant(row.reported), row.state, row.resources, row.metadata)
