"""Experiments in the records: functions of a connection."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, Row, Select, delete, insert, select, update

from muster.accounts.callers import UserId, WorkspaceId
from muster.accounts.projects import ProjectId
from muster.api import errors
from muster.api.meta import Instant
from muster.api.raw import Document
from muster.experiments import task_names
from muster.experiments.states import ExperimentId, ExperimentState, TrialId
from muster.records.tables_accounts import PROJECTS, USERS, WORKSPACES
from muster.records.tables_experiments import EXPERIMENT_LABELS, EXPERIMENTS


@dataclass(frozen=True, slots=True)
class Experiment:
    """As it is told. `config` has all defaults; `original_config` is what was sent."""

    id: ExperimentId
    job: str
    project: ProjectId
    project_name: str
    project_owner: UserId
    workspace: WorkspaceId
    workspace_name: str
    user: UserId
    username: str
    display_name: str
    state: ExperimentState
    name: str
    description: str
    notes: str
    labels: Sequence[str]
    config: Document
    original_config: str
    forked_from: ExperimentId | None
    external_id: str | None
    is_unmanaged: bool
    is_archived: bool
    progress: float
    searcher_type: str
    searcher_metric: str
    is_smaller_better: bool
    best_metric: float | None
    best_trial: TrialId | None
    pool: str
    slots_per_trial: int
    priority: int | None
    weight: float | None
    max_slots: int | None
    log_retention_days: int | None
    trial_count: int
    checkpoint_count: int
    checkpoint_bytes: int
    slot_seconds: float
    error: str
    created: Instant
    ended: Instant | None


def get(connection: Connection, experiment: int) -> Experiment:
    """Raises NotFound."""
    row = connection.execute(query().where(EXPERIMENTS.c.id == experiment)).one_or_none()
    if row is None:
        raise not_found(experiment)
    return told(row)


def not_found(experiment: int) -> errors.NotFound:
    return errors.NotFound(f"experiment {experiment} not found")


def add(connection: Connection, values: Mapping[str, object]) -> ExperimentId:
    """`values`: by column, with a job that is there already; `labels` are kept twice, to be shown and to be found."""
    made = connection.execute(insert(EXPERIMENTS).values(dict(values)))
    assert made.inserted_primary_key is not None
    experiment = ExperimentId(made.inserted_primary_key[0])
    _label(connection, experiment, values.get("labels"))
    return experiment


def change(connection: Connection, experiment: ExperimentId, values: Mapping[str, object]) -> None:
    connection.execute(update(EXPERIMENTS).where(EXPERIMENTS.c.id == experiment).values(dict(values)))
    if "labels" in values:
        _label(connection, experiment, values["labels"])


def in_states(connection: Connection, states: Collection[ExperimentState]) -> list[ExperimentId]:
    """The oldest first. Without those that run elsewhere."""
    chosen = select(EXPERIMENTS.c.id).where(EXPERIMENTS.c.state.in_(list(states)), ~EXPERIMENTS.c.is_unmanaged)
    return [ExperimentId(id) for id in connection.scalars(chosen.order_by(EXPERIMENTS.c.id))]


def in_state(connection: Connection, state: ExperimentState) -> list[ExperimentId]:
    """The oldest first. With those that run elsewhere."""
    chosen = select(EXPERIMENTS.c.id).where(EXPERIMENTS.c.state == state.value)
    return [ExperimentId(id) for id in connection.scalars(chosen.order_by(EXPERIMENTS.c.id))]


def contexts(connection: Connection) -> list[str]:
    """Under which names model definitions are kept."""
    return [task_names.context(ExperimentId(id)) for id in connection.scalars(select(EXPERIMENTS.c.id))]


def query() -> Select[tuple[object, ...]]:
    """All columns that `told` needs."""
    return (
        select(
            *(column for column in EXPERIMENTS.c if column is not EXPERIMENTS.c.search),
            USERS.c.username,
            USERS.c.display_name,
            PROJECTS.c.name.label("project_name"),
            PROJECTS.c.user_id.label("project_owner"),
            PROJECTS.c.workspace_id,
            WORKSPACES.c.name.label("workspace_name"),
        )
        .join(USERS, USERS.c.id == EXPERIMENTS.c.user_id)
        .join(PROJECTS, PROJECTS.c.id == EXPERIMENTS.c.project_id)
        .join(WORKSPACES, WORKSPACES.c.id == PROJECTS.c.workspace_id)
    )


def told(row: Row[tuple[object, ...]]) -> Experiment:
    return Experiment(
        id=ExperimentId(row.id),
        job=row.job_id,
        project=ProjectId(row.project_id),
        project_name=row.project_name,
        project_owner=UserId(row.project_owner),
        workspace=WorkspaceId(row.workspace_id),
        workspace_name=row.workspace_name,
        user=UserId(row.user_id),
        username=row.username,
        display_name=row.display_name,
        state=ExperimentState(row.state),
        name=row.name,
        description=row.description,
        notes=row.notes,
        labels=tuple(row.labels),
        config=row.config,
        original_config=row.original_config,
        forked_from=None if row.forked_from is None else ExperimentId(row.forked_from),
        external_id=row.external_id,
        is_unmanaged=row.is_unmanaged,
        is_archived=row.is_archived,
        progress=row.progress,
        searcher_type=row.searcher_type,
        searcher_metric=row.searcher_metric,
        is_smaller_better=row.is_smaller_better,
        best_metric=row.best_metric,
        best_trial=None if row.best_trial_id is None else TrialId(row.best_trial_id),
        pool=row.pool,
        slots_per_trial=row.slots_per_trial,
        priority=row.priority,
        weight=row.weight,
        max_slots=row.max_slots,
        log_retention_days=row.log_retention_days,
        trial_count=row.trial_count,
        checkpoint_count=row.checkpoint_count,
        checkpoint_bytes=row.checkpoint_bytes,
        slot_seconds=row.slot_seconds,
        error=row.error,
        created=Instant(row.created),
        ended=None if row.ended is None else Instant(row.ended),
    )


def _label(connection: Connection, experiment: ExperimentId, labels: object) -> None:
    connection.execute(delete(EXPERIMENT_LABELS).where(EXPERIMENT_LABELS.c.experiment_id == experiment))
    if isinstance(labels, Sequence) and labels:
        rows = [{"experiment_id": experiment, "label": label} for label in dict.fromkeys(labels)]
        connection.execute(insert(EXPERIMENT_LABELS), rows)
