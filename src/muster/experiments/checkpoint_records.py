"""Checkpoints in the records: functions of a connection."""

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from sqlalchemy import ColumnElement, Connection, Row, Select, and_, func, insert, select, update

from muster.accounts.callers import WorkspaceId
from muster.api import errors, raw
from muster.api.meta import Instant
from muster.api.raw import Document
from muster.experiments.metric_reports import VALIDATION, decode, number
from muster.experiments.states import ExperimentId, TrialId
from muster.records.tables_accounts import PROJECTS
from muster.records.tables_experiments import CHECKPOINTS, EXPERIMENTS, METRICS, MODEL_VERSIONS, STORAGES, TRIALS


class CheckpointState(StrEnum):
    ACTIVE = "ACTIVE"
    COMPLETED = "COMPLETED"
    ERROR = "ERROR"
    DELETED = "DELETED"
    PARTIALLY_DELETED = "PARTIALLY_DELETED"


PRESENT: Final = (CheckpointState.COMPLETED, CheckpointState.PARTIALLY_DELETED)
"""There is something of it."""


@dataclass(frozen=True, slots=True)
class Training:
    """What a checkpoint comes of. `validation`: what was measured at its step; `metric`: the searcher's, of that."""

    trial: TrialId
    experiment: ExperimentId
    config: Document
    hparams: Document
    validation: Document = field(default_factory=dict)
    metric: float | None = None


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """`resources`: bytes by path. `training`: None where it comes of no trial."""

    uuid: str
    task: str
    allocation: str
    state: CheckpointState
    steps: int
    resources: Mapping[str, int]
    metadata: Document
    bytes: int
    storage: int | None
    reported: Instant
    workspace: WorkspaceId | None
    training: Training | None


@dataclass(frozen=True, slots=True)
class NewCheckpoint:
    uuid: str
    task: str
    allocation: str
    resources: Mapping[str, int]
    metadata: Document
    state: CheckpointState = CheckpointState.COMPLETED
    storage: int | None = None


@dataclass(frozen=True, slots=True)
class CheckpointFilter:
    """Of one experiment or one trial."""

    experiment: ExperimentId | None = None
    trial: TrialId | None = None
    uuids: Sequence[str] = ()
    states: Collection[CheckpointState] = ()


def storage_id(connection: Connection, config: Document) -> int:
    """Of this configuration: the same for all that save there."""
    digest = hashlib.sha256(raw.encode(dict(sorted(config.items())))).hexdigest()
    found = connection.scalar(select(STORAGES.c.id).where(STORAGES.c.digest == digest))
    if found is not None:
        return int(found)
    made = connection.execute(insert(STORAGES).values(digest=digest, config=config))
    assert made.inserted_primary_key is not None
    return int(made.inserted_primary_key[0])


def storage_config(connection: Connection, checkpoint: Checkpoint) -> Document:
    """Where it is kept. Raises NotFound where that is not known."""
    if checkpoint.storage is not None:
        found: Document | None = connection.scalar(select(STORAGES.c.config).where(STORAGES.c.id == checkpoint.storage))
        if found is not None:
            return found
    if checkpoint.training is None:
        raise errors.NotFound(f"it is not known where checkpoint {checkpoint.uuid} is kept")
    return checkpoint.training.config.get("checkpoint_storage") or {}


def add(connection: Connection, new: NewCheckpoint, trial: TrialId | None, at: Instant) -> None:
    """The same again is no news: clients that lost the answer send it again. Raises Conflict where it is another."""
    present = connection.execute(select(CHECKPOINTS).where(CHECKPOINTS.c.uuid == new.uuid)).one_or_none()
    if present is not None:
        if present.task_id != new.task:
            raise errors.Conflict(f"uuid: checkpoint {new.uuid} was reported by another task")
        return
    experiment = connection.scalar(select(TRIALS.c.experiment_id).where(TRIALS.c.id == trial))
    size = sum(new.resources.values())
    connection.execute(
        insert(CHECKPOINTS).values(
            uuid=new.uuid,
            task_id=new.task,
            allocation_id=new.allocation,
            trial_id=trial,
            experiment_id=experiment,
            storage_id=new.storage,
            state=new.state.value,
            steps=_steps(new.metadata),
            resources=dict(new.resources),
            metadata=new.metadata,
            bytes=size,
            reported=at,
        )
    )
    if trial is not None:
        _count(connection, trial)


def _steps(metadata: Document) -> int:
    found = metadata.get("steps_completed")
    return found if isinstance(found, int) and not isinstance(found, bool) else 0


def set_resources(connection: Connection, uuid: str, left: Mapping[str, int]) -> None:
    """What is left of it. Raises NotFound."""
    found = get(connection, uuid)
    if dict(found.resources) == dict(left) and found.state is not CheckpointState.DELETED:
        return
    state = CheckpointState.PARTIALLY_DELETED if left else CheckpointState.DELETED
    values = {"resources": dict(left), "bytes": sum(left.values()), "state": state.value}
    connection.execute(update(CHECKPOINTS).where(CHECKPOINTS.c.uuid == uuid).values(values))
    if found.training is not None:
        _count(connection, found.training.trial)


def set_metadata(connection: Connection, uuid: str, metadata: Document) -> None:
    connection.execute(update(CHECKPOINTS).where(CHECKPOINTS.c.uuid == uuid).values(metadata=metadata))


def _count(connection: Connection, trial: TrialId) -> None:
    """What the trial and its experiment say of their checkpoints, anew."""
    of_trial = CHECKPOINTS.c.trial_id == trial
    latest = (
        select(CHECKPOINTS.c.uuid)
        .where(of_trial, CHECKPOINTS.c.state == CheckpointState.COMPLETED.value)
        .order_by(CHECKPOINTS.c.steps.desc(), CHECKPOINTS.c.reported.desc())
        .limit(1)
    )
    values = {**_totals(connection, of_trial), "latest_checkpoint": connection.scalar(latest)}
    connection.execute(update(TRIALS).where(TRIALS.c.id == trial).values(values))
    experiment = connection.scalar(select(TRIALS.c.experiment_id).where(TRIALS.c.id == trial))
    totals = _totals(connection, CHECKPOINTS.c.experiment_id == experiment)
    connection.execute(update(EXPERIMENTS).where(EXPERIMENTS.c.id == experiment).values(totals))


def _totals(connection: Connection, chosen: ColumnElement[bool]) -> dict[str, int]:
    present = CHECKPOINTS.c.state.in_([state.value for state in PRESENT])
    query = select(func.count(), func.coalesce(func.sum(CHECKPOINTS.c.bytes), 0)).where(chosen, present)
    count, size = connection.execute(query).one()
    return {"checkpoint_count": int(count), "checkpoint_bytes": int(size)}


def get(connection: Connection, uuid: str) -> Checkpoint:
    """Raises NotFound."""
    found = listed(connection, CheckpointFilter(uuids=[uuid]))
    if not found:
        raise not_found(uuid)
    return found[0]


def not_found(uuid: str) -> errors.NotFound:
    return errors.NotFound(f"checkpoint {uuid[:80]!r} not found")


def listed(connection: Connection, chosen: CheckpointFilter) -> list[Checkpoint]:
    """The oldest first."""
    query = _query()
    if chosen.experiment is not None:
        query = query.where(CHECKPOINTS.c.experiment_id == chosen.experiment)
    if chosen.trial is not None:
        query = query.where(CHECKPOINTS.c.trial_id == chosen.trial)
    if chosen.uuids:
        query = query.where(CHECKPOINTS.c.uuid.in_(list(chosen.uuids)))
    if chosen.states:
        query = query.where(CHECKPOINTS.c.state.in_([state.value for state in chosen.states]))
    rows = connection.execute(query.order_by(CHECKPOINTS.c.reported, CHECKPOINTS.c.uuid)).all()
    return [_told(row) for row in rows]


def registered(connection: Connection, uuids: Iterable[str]) -> set[str]:
    """Those that are versions of models."""
    chosen = select(MODEL_VERSIONS.c.checkpoint_uuid).where(MODEL_VERSIONS.c.checkpoint_uuid.in_(list(uuids)))
    return set(connection.scalars(chosen))


def _query() -> Select[tuple[object, ...]]:
    measured = and_(
        METRICS.c.trial_id == CHECKPOINTS.c.trial_id,
        METRICS.c.group == VALIDATION,
        METRICS.c.steps == CHECKPOINTS.c.steps,
        ~METRICS.c.is_archived,
    )
    return (
        select(
            CHECKPOINTS,
            TRIALS.c.hparams,
            EXPERIMENTS.c.config,
            EXPERIMENTS.c.searcher_metric,
            PROJECTS.c.workspace_id,
            METRICS.c.metrics.label("validation"),
        )
        .outerjoin(TRIALS, TRIALS.c.id == CHECKPOINTS.c.trial_id)
        .outerjoin(EXPERIMENTS, EXPERIMENTS.c.id == CHECKPOINTS.c.experiment_id)
        .outerjoin(PROJECTS, PROJECTS.c.id == EXPERIMENTS.c.project_id)
        .outerjoin(METRICS, measured)
    )


def _told(row: Row[tuple[object, ...]]) -> Checkpoint:
    return Checkpoint(
        uuid=row.uuid,
        task=row.task_id,
        allocation=row.allocation_id,
        state=CheckpointState(row.state),
        steps=row.steps,
        resources=row.resources,
        metadata=row.metadata,
        bytes=row.bytes,
        storage=row.storage_id,
        reported=Instant(row.reported),
        workspace=None if row.workspace_id is None else WorkspaceId(row.workspace_id),
        training=_training(row),
    )


def _training(row: Row[tuple[object, ...]]) -> Training | None:
    if row.trial_id is None:
        return None
    validation: Document = {} if row.validation is None else decode(VALIDATION, row.validation)[0]
    return Training(
        trial=TrialId(row.trial_id),
        experiment=ExperimentId(row.experiment_id),
        config=row.config,
        hparams=row.hparams,
        validation=validation,
        metric=number(validation.get(row.searcher_metric)),
    )
