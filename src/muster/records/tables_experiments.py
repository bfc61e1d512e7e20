"""Experiments, their trials, what trials report and keep, and the models that come of it.

Instants are seconds since 1970. What a search has decided so far is in `experiments.search`; what has happened to it
and was not taken in yet waits in `experiment_events`, in order: whoever takes it in writes both in one change, so that
nothing is decided twice or never.
"""

from typing import Final

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    String,
    Table,
    Text,
    UniqueConstraint,
)

from muster.records.tables import METADATA
from muster.records.tables_accounts import PROJECTS, USERS, WORKSPACES
from muster.records.tables_tasks import JOBS, TASKS

_NAME: Final = 254
_BIG: Final = BigInteger().with_variant(Integer(), "sqlite")
"""SQLite counts up only what it calls an integer; its integers are as large."""


def _name(column: str) -> "Column[str]":
    return Column(column, String(_NAME), nullable=False, default="")


def _text(column: str) -> "Column[str]":
    return Column(column, Text, nullable=False, default="")


def _state() -> "Column[str]":
    return Column("state", String(32), nullable=False)


def _flag(column: str) -> "Column[bool]":
    return Column(column, Boolean, nullable=False, default=False)


def _document(column: str) -> "Column[object]":
    return Column(column, JSON, nullable=False, default=dict)


def _count(column: str) -> "Column[int]":
    return Column(column, Integer, nullable=False, default=0)


EXPERIMENTS: Final = Table(
    "experiments", METADATA,
    Column("id", Integer, primary_key=True),
    Column("job_id", ForeignKey(JOBS.c.id), nullable=False),
    Column("project_id", ForeignKey(PROJECTS.c.id), nullable=False),
    Column("user_id", ForeignKey(USERS.c.id), nullable=False),
    _state(),
    _name("name"),
    _text("description"),
    Column("labels", JSON, nullable=False, default=list),
    Column("forked_from", Integer),
    Column("external_id", String(_NAME), unique=True),
    _flag("is_unmanaged"),  # runs elsewhere, and only reports
    _flag("is_untidy"),  # may have checkpoints that its policy does not keep
    _flag("is_archived"),
    Column("progress", Double, nullable=False, default=0.0),
    _name("searcher_type"),
    _name("searcher_metric"),
    _flag("is_smaller_better"),
    Column("best_metric", Double),
    Column("best_trial_id", Integer),
    _name("pool"),
    _count("slots_per_trial"),
    Column("priority", Integer),
    Column("weight", Double),
    Column("max_slots", Integer),
    Column("log_retention_days", Integer),  # NULL: as the cluster has it
    _count("trial_count"),
    _count("checkpoint_count"),
    Column("checkpoint_bytes", _BIG, nullable=False, default=0),
    Column("slot_seconds", Double, nullable=False, default=0.0),  # used by what has ended
    Column("created", Double, nullable=False),
    Column("ended", Double),
    # What is large comes last: a database that looks through rows need not read so far.
    _text("notes"),
    _document("config"),  # with all defaults
    _text("original_config"),  # as it was sent
    Column("search", LargeBinary),  # where it stands; NULL: not begun
    _text("error"),
    Index(
        # All that lists are narrowed by and projects count: read instead of the rows themselves.
        "ix_experiments_listed", "project_id", "is_archived", "user_id", "state", "name", "trial_count", "created"
    ),
    Index("ix_experiments_user_id", "user_id"),
    Index("ix_experiments_state", "state"),
    Index("ix_experiments_is_untidy", "is_untidy"),
    Index("ix_experiments_created", "created"),
    Index("ix_experiments_name", "name"),
    Index("ix_experiments_job_id", "job_id"),
    sqlite_autoincrement=True,  # an id is never given twice
)  # fmt: skip

EXPERIMENT_LABELS: Final = Table(
    "experiment_labels", METADATA,
    Column("experiment_id", ForeignKey(EXPERIMENTS.c.id, ondelete="CASCADE"), primary_key=True),
    Column("label", String(_NAME), primary_key=True),
    Index("ix_experiment_labels_label", "label"),
)  # fmt: skip

EXPERIMENT_EVENTS: Final = Table(
    "experiment_events", METADATA,
    Column("id", _BIG, primary_key=True),
    Column("experiment_id", ForeignKey(EXPERIMENTS.c.id, ondelete="CASCADE"), nullable=False),
    Column("event", LargeBinary, nullable=False),
    Index("ix_experiment_events_experiment_id_id", "experiment_id", "id"),
    sqlite_autoincrement=True,  # they are taken in by number
)  # fmt: skip

TRIALS: Final = Table(
    "trials", METADATA,
    Column("id", Integer, primary_key=True),
    Column("experiment_id", ForeignKey(EXPERIMENTS.c.id, ondelete="CASCADE"), nullable=False),
    _name("request_id"),  # by which the search knows it
    _state(),
    Column("seed", BigInteger, nullable=False, default=0),
    _count("restarts"),
    _count("run"),  # how many allocations it has had
    _name("task_id"),  # the latest
    Column("progress", Double, nullable=False, default=0.0),
    Column("total_batches", _BIG, nullable=False, default=0),
    Column("warm_start", String(64)),  # the checkpoint that it begins with
    Column("latest_checkpoint", String(64)),
    _count("checkpoint_count"),
    Column("checkpoint_bytes", _BIG, nullable=False, default=0),
    Column("best_validation_id", _BIG),
    Column("latest_validation_id", _BIG),
    Column("searcher_metric", Double),  # the best; of a value that can be compared
    _flag("is_archived"),
    Column("external_id", String(_NAME)),
    Column("log_retention_days", Integer),
    Column("last_activity", Double),
    Column("created", Double, nullable=False),
    Column("ended", Double),
    # What is large comes last.
    _document("hparams"),
    _document("machine"),  # of its lifecycle
    _text("runner_state"),
    _document("summary_metrics"),
    _document("metadata"),
    _text("log_signal"),  # what a policy has seen in its log
    UniqueConstraint("experiment_id", "external_id", name="uq_trials_external_id"),
    Index("ix_trials_experiment_id", "experiment_id"),
    Index("ix_trials_state", "state"),
    Index("ix_trials_task_id", "task_id"),
    sqlite_autoincrement=True,  # an id is never given twice
)  # fmt: skip

TRIAL_TASKS: Final = Table(
    "trial_tasks", METADATA,
    Column("task_id", ForeignKey(TASKS.c.id, ondelete="CASCADE"), primary_key=True),
    Column("trial_id", ForeignKey(TRIALS.c.id, ondelete="CASCADE"), nullable=False),
    Index("ix_trial_tasks_trial_id", "trial_id"),
)  # fmt: skip

METRICS: Final = Table(
    "metrics", METADATA,
    Column("id", _BIG, primary_key=True),
    Column("trial_id", ForeignKey(TRIALS.c.id, ondelete="CASCADE"), nullable=False),
    Column("run", Integer, nullable=False),
    Column("group", String(_NAME), nullable=False),
    Column("steps", _BIG),  # NULL: of the machine, not of the training
    Column("at", Double, nullable=False),
    Column("metrics", Text, nullable=False),  # JSON as it is told: {"avg_metrics": …, "batch_metrics": …}
    _flag("is_archived"),  # of a run whose steps were made again
    Index("ix_metrics_trial_id_group_steps", "trial_id", "group", "steps"),
    Index("ix_metrics_trial_id_group_id", "trial_id", "group", "id"),
    sqlite_autoincrement=True,  # readers follow by number
)  # fmt: skip

METRIC_BLOCKS: Final = Table(
    # Columns of what `metrics` has in rows, so that a million points can be drawn at once. Made of rows that are there:
    # what has no block yet is read from them. The blocks of a group end together, where the one without a name does.
    "metric_blocks", METADATA,
    Column("trial_id", ForeignKey(TRIALS.c.id, ondelete="CASCADE"), primary_key=True),
    Column("group", String(_NAME), primary_key=True),
    Column("name", String(_NAME), primary_key=True),
    Column("last_id", _BIG, primary_key=True),  # of the rows that it is made of
    Column("count", Integer, nullable=False),
    Column("points", LargeBinary, nullable=False),
)  # fmt: skip

STORAGES: Final = Table(
    "checkpoint_storages", METADATA,
    Column("id", Integer, primary_key=True),
    Column("digest", String(64), nullable=False, unique=True),
    _document("config"),
)  # fmt: skip

CHECKPOINTS: Final = Table(
    "checkpoints", METADATA,
    Column("uuid", String(64), primary_key=True),
    Column("task_id", String(_NAME), nullable=False, default=""),
    Column("allocation_id", String(_NAME), nullable=False, default=""),
    Column("trial_id", ForeignKey(TRIALS.c.id)),
    Column("experiment_id", ForeignKey(EXPERIMENTS.c.id)),
    Column("storage_id", ForeignKey(STORAGES.c.id)),
    _state(),
    Column("steps", _BIG, nullable=False, default=0),
    _document("resources"),  # size by path
    _document("metadata"),
    Column("bytes", _BIG, nullable=False, default=0),
    Column("reported", Double, nullable=False),
    Index("ix_checkpoints_trial_id", "trial_id"),
    Index("ix_checkpoints_experiment_id", "experiment_id"),
    Index("ix_checkpoints_task_id", "task_id"),
)  # fmt: skip

MODELS: Final = Table(
    "models", METADATA,
    Column("id", Integer, primary_key=True),
    Column("workspace_id", ForeignKey(WORKSPACES.c.id, ondelete="CASCADE"), nullable=False),
    Column("user_id", ForeignKey(USERS.c.id), nullable=False),
    Column("name", String(_NAME), nullable=False, unique=True),
    _text("description"),
    _text("notes"),
    Column("labels", JSON, nullable=False, default=list),
    _document("metadata"),
    _flag("is_archived"),
    _count("latest_version"),  # a number is never given twice
    Column("created", Double, nullable=False),
    Column("modified", Double, nullable=False),
    Index("ix_models_workspace_id", "workspace_id"),
    sqlite_autoincrement=True,  # an id is never given twice
)  # fmt: skip

MODEL_VERSIONS: Final = Table(
    "model_versions", METADATA,
    Column("id", Integer, primary_key=True),
    Column("model_id", ForeignKey(MODELS.c.id, ondelete="CASCADE"), nullable=False),
    Column("version", Integer, nullable=False),
    Column("checkpoint_uuid", ForeignKey(CHECKPOINTS.c.uuid), nullable=False),
    Column("user_id", ForeignKey(USERS.c.id), nullable=False),
    _name("name"),
    _text("comment"),
    _text("notes"),
    Column("labels", JSON, nullable=False, default=list),
    _document("metadata"),
    Column("created", Double, nullable=False),
    Column("modified", Double, nullable=False),
    UniqueConstraint("model_id", "version", name="uq_model_versions_model_id_version"),
    Index("ix_model_versions_checkpoint_uuid", "checkpoint_uuid"),
    sqlite_autoincrement=True,  # an id is never given twice
)  # fmt: skip

TRIAL_SOURCES: Final = Table(
    # Which checkpoints or model versions a trial has read, as batch inference does.
    "trial_sources", METADATA,
    Column("trial_id", ForeignKey(TRIALS.c.id, ondelete="CASCADE"), primary_key=True),
    Column("checkpoint_uuid", ForeignKey(CHECKPOINTS.c.uuid, ondelete="CASCADE"), primary_key=True),
    Column("type", String(64), nullable=False),
    Column("model_id", Integer),
    Column("model_version", Integer),
)  # fmt: skip
