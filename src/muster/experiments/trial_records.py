"""Trials in the records: functions of a connection."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, Row, Select, insert, select, update

from muster.accounts.callers import WorkspaceId
from muster.api import errors
from muster.api.meta import Instant
from muster.api.raw import Document
from muster.experiments.states import ExperimentId, TrialId, TrialState
from muster.records.tables_accounts import PROJECTS
from muster.records.tables_experiments import EXPERIMENTS, TRIAL_TASKS, TRIALS
from muster.records.tables_tasks import TASKS


@dataclass(frozen=True, slots=True)
class Trial:
    """As it is told. `run`: how many allocations it has had. `task`: the latest of its tasks."""

    id: TrialId
    experiment: ExperimentId
    workspace: WorkspaceId
    request_id: str
    state: TrialState
    hparams: Document
    seed: int
    restarts: int
    run: int
    task: str
    runner_state: str
    progress: float
    total_batches: int
    warm_start: str | None
    latest_checkpoint: str | None
    checkpoint_count: int
    checkpoint_bytes: int
    best_validation: int | None
    latest_validation: int | None
    searcher_metric: float | None
    summary_metrics: Document
    metadata: Document
    is_archived: bool
    log_signal: str
    external_id: str | None
    log_retention_days: int | None
    last_activity: Instant | None
    created: Instant
    ended: Instant | None


def get(connection: Connection, trial: int) -> Trial:
    """Raises NotFound."""
    row = connection.execute(query().where(TRIALS.c.id == trial)).one_or_none()
    if row is None:
        raise not_found(trial)
    return told(row)


def not_found(trial: int) -> errors.NotFound:
    return errors.NotFound(f"trial {trial} not found")


def of_task(connection: Connection, task: str) -> TrialId | None:
    """Whose task it is, or was."""
    found = connection.scalar(select(TRIAL_TASKS.c.trial_id).where(TRIAL_TASKS.c.task_id == task))
    return None if found is None else TrialId(found)


def tasks(connection: Connection, trial: TrialId) -> Sequence[str]:
    """All that it has had, the oldest first."""
    mine = select(TRIAL_TASKS.c.task_id).where(TRIAL_TASKS.c.trial_id == trial)
    chosen = mine.join(TASKS, TASKS.c.id == TRIAL_TASKS.c.task_id).order_by(TASKS.c.created, TASKS.c.id)
    return list(connection.scalars(chosen))


def of_experiment(connection: Connection, experiment: ExperimentId) -> list[Trial]:
    """The oldest first."""
    rows = connection.execute(query().where(TRIALS.c.experiment_id == experiment).order_by(TRIALS.c.id))
    return [told(row) for row in rows]


def add(connection: Connection, values: Mapping[str, object]) -> TrialId:
    """`values`: by column."""
    made = connection.execute(insert(TRIALS).values(dict(values)))
    assert made.inserted_primary_key is not None
    return TrialId(made.inserted_primary_key[0])


def change(connection: Connection, trial: TrialId, values: Mapping[str, object]) -> None:
    connection.execute(update(TRIALS).where(TRIALS.c.id == trial).values(dict(values)))


def query() -> Select[tuple[object, ...]]:
    """All columns that `told` needs."""
    return (
        select(*(column for column in TRIALS.c if column is not TRIALS.c.machine), PROJECTS.c.workspace_id)
        .join(EXPERIMENTS, EXPERIMENTS.c.id == TRIALS.c.experiment_id)
        .join(PROJECTS, PROJECTS.c.id == EXPERIMENTS.c.project_id)
    )


def told(row: Row[tuple[object, ...]]) -> Trial:
    return Trial(
        id=TrialId(row.id),
        experiment=ExperimentId(row.experiment_id),
        workspace=WorkspaceId(row.workspace_id),
        request_id=row.request_id,
        state=TrialState(row.state),
        hparams=row.hparams,
        seed=row.seed,
        restarts=row.restarts,
        run=row.run,
        task=row.task_id,
        runner_state=row.runner_state,
        progress=row.progress,
        total_batches=row.total_batches,
        warm_start=row.warm_start,
        latest_checkpoint=row.latest_checkpoint,
        checkpoint_count=row.checkpoint_count,
        checkpoint_bytes=row.checkpoint_bytes,
        best_validation=row.best_validation_id,
        latest_validation=row.latest_validation_id,
        searcher_metric=row.searcher_metric,
        summary_metrics=row.summary_metrics,
        metadata=row.metadata,
        is_archived=row.is_archived,
        log_signal=row.log_signal,
        external_id=row.external_id,
        log_retention_days=row.log_retention_days,
        last_activity=None if row.last_activity is None else Instant(row.last_activity),
        created=Instant(row.created),
        ended=None if row.ended is None else Instant(row.ended),
    )
