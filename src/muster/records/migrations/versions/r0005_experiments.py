"""Experiments, trials, metrics, checkpoints and models."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

TABLES = (
    "trial_sources",
    "model_versions",
    "models",
    "checkpoints",
    "metric_blocks",
    "metrics",
    "trial_tasks",
    "trials",
    "experiment_events",
    "experiment_labels",
    "experiments",
    "checkpoint_storages",
)


def upgrade() -> None:
    op.create_table(
        "checkpoint_storages",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("config", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_checkpoint_storages")),
        sa.UniqueConstraint("digest", name=op.f("uq_checkpoint_storages_digest")),
    )
    op.create_table(
        "models",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("workspace_id", sa.Integer(), nullable=False),
        sa.Column("user_id", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(length=254), nullable=False),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("notes", sa.Text(), nullable=False),
        sa.Column("labels", sa.JSON(), nullable=False),
        sa.Column("metadata", sa.JSON(), nullable=False),
        sa.Column("is_archived", sa.Boolean(), nullable=False),
        sa.Column("latest_version", sa.Integer(), nullable=False),
        sa.Column("created", sa.Double(), nullable=False),
        sa.Column("modified", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=op.f("fk_models_user_id")),
        sa.ForeignKeyConstraint(
            ["workspace_id"], ["workspaces.id"], name=op.f("fk_models_workspace_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_models")),
        sa.UniqueConstraint("name", name=op.f("uq_models_name")),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_models_workspace_id", "models", ["workspace_id"], unique=False)
    op.create_table(
        "experiments",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("job_id", sa.String(length=254), nullable=False),
        sa.Column("project_id", sa.Integer(), nullable=False),
        sa.Column("user_id", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(length=32), nullable=False),
        sa.Column("name", sa.String(length=254), nullable=False),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("labels", sa.JSON(), nullable=False),
        sa.Column("forked_from", sa.Integer(), nullable=True),
        sa.Column("external_id", sa.String(length=254), nullable=True),
        sa.Column("is_unmanaged", sa.Boolean(), nullable=False),
        sa.Column("is_untidy", sa.Boolean(), nullable=False),
        sa.Column("is_archived", sa.Boolean(), nullable=False),
        sa.Column("progress", sa.Double(), nullable=False),
        sa.Column("searcher_type", sa.String(length=254), nullable=False),
        sa.Column("searcher_metric", sa.String(length=254), nullable=False),
        sa.Column("is_smaller_better", sa.Boolean(), nullable=False),
        sa.Column("best_metric", sa.Double(), nullable=True),
        sa.Column("best_trial_id", sa.Integer(), nullable=True),
        sa.Column("pool", sa.String(length=254), nullable=False),
        sa.Column("slots_per_trial", sa.Integer(), nullable=False),
        sa.Column("priority", sa.Integer(), nullable=True),
        sa.Column("weight", sa.Double(), nullable=True),
        sa.Column("max_slots", sa.Integer(), nullable=True),
        sa.Column("log_retention_days", sa.Integer(), nullable=True),
        sa.Column("trial_count", sa.Integer(), nullable=False),
        sa.Column("checkpoint_count", sa.Integer(), nullable=False),
        sa.Column("checkpoint_bytes", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("slot_seconds", sa.Double(), nullable=False),
        sa.Column("created", sa.Double(), nullable=False),
        sa.Column("ended", sa.Double(), nullable=True),
        sa.Column("notes", sa.Text(), nullable=False),
        sa.Column("config", sa.JSON(), nullable=False),
        sa.Column("original_config", sa.Text(), nullable=False),
        sa.Column("search", sa.LargeBinary(), nullable=True),
        sa.Column("error", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_experiments_job_id")),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_experiments_project_id")),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=op.f("fk_experiments_user_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_experiments")),
        sa.UniqueConstraint("external_id", name=op.f("uq_experiments_external_id")),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_experiments_created", "experiments", ["created"], unique=False)
    op.create_index("ix_experiments_job_id", "experiments", ["job_id"], unique=False)
    op.create_index(
        "ix_experiments_listed",
        "experiments",
        ["project_id", "is_archived", "user_id", "state", "name", "trial_count", "created"],
        unique=False,
    )
    op.create_index("ix_experiments_name", "experiments", ["name"], unique=False)
    op.create_index("ix_experiments_state", "experiments", ["state"], unique=False)
    op.create_index("ix_experiments_is_untidy", "experiments", ["is_untidy"], unique=False)
    op.create_index("ix_experiments_user_id", "experiments", ["user_id"], unique=False)
    op.create_table(
        "experiment_events",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("experiment_id", sa.Integer(), nullable=False),
        sa.Column("event", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["experiment_id"], ["experiments.id"], name=op.f("fk_experiment_events_experiment_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_experiment_events")),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_experiment_events_experiment_id_id", "experiment_events", ["experiment_id", "id"], unique=False)
    op.create_table(
        "experiment_labels",
        sa.Column("experiment_id", sa.Integer(), nullable=False),
        sa.Column("label", sa.String(length=254), nullable=False),
        sa.ForeignKeyConstraint(
            ["experiment_id"], ["experiments.id"], name=op.f("fk_experiment_labels_experiment_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("experiment_id", "label", name=op.f("pk_experiment_labels")),
    )
    op.create_index("ix_experiment_labels_label", "experiment_labels", ["label"], unique=False)
    op.create_table(
        "trials",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("experiment_id", sa.Integer(), nullable=False),
        sa.Column("request_id", sa.String(length=254), nullable=False),
        sa.Column("state", sa.String(length=32), nullable=False),
        sa.Column("seed", sa.BigInteger(), nullable=False),
        sa.Column("restarts", sa.Integer(), nullable=False),
        sa.Column("run", sa.Integer(), nullable=False),
        sa.Column("task_id", sa.String(length=254), nullable=False),
        sa.Column("progress", sa.Double(), nullable=False),
        sa.Column("total_batches", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("warm_start", sa.String(length=64), nullable=True),
        sa.Column("latest_checkpoint", sa.String(length=64), nullable=True),
        sa.Column("checkpoint_count", sa.Integer(), nullable=False),
        sa.Column("checkpoint_bytes", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("best_validation_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True),
        sa.Column("latest_validation_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True),
        sa.Column("searcher_metric", sa.Double(), nullable=True),
        sa.Column("is_archived", sa.Boolean(), nullable=False),
        sa.Column("external_id", sa.String(length=254), nullable=True),
        sa.Column("log_retention_days", sa.Integer(), nullable=True),
        sa.Column("last_activity", sa.Double(), nullable=True),
        sa.Column("created", sa.Double(), nullable=False),
        sa.Column("ended", sa.Double(), nullable=True),
        sa.Column("hparams", sa.JSON(), nullable=False),
        sa.Column("machine", sa.JSON(), nullable=False),
        sa.Column("runner_state", sa.Text(), nullable=False),
        sa.Column("summary_metrics", sa.JSON(), nullable=False),
        sa.Column("metadata", sa.JSON(), nullable=False),
        sa.Column("log_signal", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["experiment_id"], ["experiments.id"], name=op.f("fk_trials_experiment_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_trials")),
        sa.UniqueConstraint("experiment_id", "external_id", name="uq_trials_external_id"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_trials_experiment_id", "trials", ["experiment_id"], unique=False)
    op.create_index("ix_trials_state", "trials", ["state"], unique=False)
    op.create_index("ix_trials_task_id", "trials", ["task_id"], unique=False)
    op.create_table(
        "checkpoints",
        sa.Column("uuid", sa.String(length=64), nullable=False),
        sa.Column("task_id", sa.String(length=254), nullable=False),
        sa.Column("allocation_id", sa.String(length=254), nullable=False),
        sa.Column("trial_id", sa.Integer(), nullable=True),
        sa.Column("experiment_id", sa.Integer(), nullable=True),
        sa.Column("storage_id", sa.Integer(), nullable=True),
        sa.Column("state", sa.String(length=32), nullable=False),
        sa.Column("steps", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("resources", sa.JSON(), nullable=False),
        sa.Column("metadata", sa.JSON(), nullable=False),
        sa.Column("bytes", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("reported", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["experiment_id"], ["experiments.id"], name=op.f("fk_checkpoints_experiment_id")),
        sa.ForeignKeyConstraint(["storage_id"], ["checkpoint_storages.id"], name=op.f("fk_checkpoints_storage_id")),
        sa.ForeignKeyConstraint(["trial_id"], ["trials.id"], name=op.f("fk_checkpoints_trial_id")),
        sa.PrimaryKeyConstraint("uuid", name=op.f("pk_checkpoints")),
    )
    op.create_index("ix_checkpoints_experiment_id", "checkpoints", ["experiment_id"], unique=False)
    op.create_index("ix_checkpoints_task_id", "checkpoints", ["task_id"], unique=False)
    op.create_index("ix_checkpoints_trial_id", "checkpoints", ["trial_id"], unique=False)
    op.create_table(
        "metric_blocks",
        sa.Column("trial_id", sa.Integer(), nullable=False),
        sa.Column("group", sa.String(length=254), nullable=False),
        sa.Column("name", sa.String(length=254), nullable=False),
        sa.Column("last_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("count", sa.Integer(), nullable=False),
        sa.Column("points", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["trial_id"], ["trials.id"], name=op.f("fk_metric_blocks_trial_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("trial_id", "group", "name", "last_id", name=op.f("pk_metric_blocks")),
    )
    op.create_table(
        "metrics",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("trial_id", sa.Integer(), nullable=False),
        sa.Column("run", sa.Integer(), nullable=False),
        sa.Column("group", sa.String(length=254), nullable=False),
        sa.Column("steps", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("metrics", sa.Text(), nullable=False),
        sa.Column("is_archived", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(["trial_id"], ["trials.id"], name=op.f("fk_metrics_trial_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_metrics")),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_metrics_trial_id_group_id", "metrics", ["trial_id", "group", "id"], unique=False)
    op.create_index("ix_metrics_trial_id_group_steps", "metrics", ["trial_id", "group", "steps"], unique=False)
    op.create_table(
        "trial_tasks",
        sa.Column("task_id", sa.String(length=254), nullable=False),
        sa.Column("trial_id", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["task_id"], ["tasks.id"], name=op.f("fk_trial_tasks_task_id"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["trial_id"], ["trials.id"], name=op.f("fk_trial_tasks_trial_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("task_id", name=op.f("pk_trial_tasks")),
    )
    op.create_index("ix_trial_tasks_trial_id", "trial_tasks", ["trial_id"], unique=False)
    op.create_table(
        "model_versions",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("model_id", sa.Integer(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("checkpoint_uuid", sa.String(length=64), nullable=False),
        sa.Column("user_id", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(length=254), nullable=False),
        sa.Column("comment", sa.Text(), nullable=False),
        sa.Column("notes", sa.Text(), nullable=False),
        sa.Column("labels", sa.JSON(), nullable=False),
        sa.Column("metadata", sa.JSON(), nullable=False),
        sa.Column("created", sa.Double(), nullable=False),
        sa.Column("modified", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(
            ["checkpoint_uuid"], ["checkpoints.uuid"], name=op.f("fk_model_versions_checkpoint_uuid")
        ),
        sa.ForeignKeyConstraint(
            ["model_id"], ["models.id"], name=op.f("fk_model_versions_model_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=op.f("fk_model_versions_user_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_model_versions")),
        sa.UniqueConstraint("model_id", "version", name="uq_model_versions_model_id_version"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_model_versions_checkpoint_uuid", "model_versions", ["checkpoint_uuid"], unique=False)
    op.create_table(
        "trial_sources",
        sa.Column("trial_id", sa.Integer(), nullable=False),
        sa.Column("checkpoint_uuid", sa.String(length=64), nullable=False),
        sa.Column("type", sa.String(length=64), nullable=False),
        sa.Column("model_id", sa.Integer(), nullable=True),
        sa.Column("model_version", sa.Integer(), nullable=True),
        sa.ForeignKeyConstraint(
            ["checkpoint_uuid"], ["checkpoints.uuid"], name=op.f("fk_trial_sources_checkpoint_uuid"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["trial_id"], ["trials.id"], name=op.f("fk_trial_sources_trial_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("trial_id", "checkpoint_uuid", name=op.f("pk_trial_sources")),
    )


def downgrade() -> None:
    for table in TABLES:
        op.drop_table(table)
