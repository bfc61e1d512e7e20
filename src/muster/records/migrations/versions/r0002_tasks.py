"""Jobs, tasks, allocations and what is known of them."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "heartbeats",
        sa.Column("name", sa.String(length=254), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_heartbeats")),
    )
    op.create_table(
        "jobs",
        sa.Column("id", sa.String(length=254), nullable=False),
        sa.Column("type", sa.String(length=32), nullable=False),
        sa.Column("user_id", sa.Integer(), nullable=False),
        sa.Column("queue_position", sa.Double(), nullable=True),
        sa.Column("created", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=op.f("fk_jobs_user_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_jobs")),
    )
    op.create_table(
        "tasks",
        sa.Column("id", sa.String(length=254), nullable=False),
        sa.Column("type", sa.String(length=32), nullable=False),
        sa.Column("job_id", sa.String(length=254), nullable=True),
        sa.Column("user_id", sa.Integer(), nullable=False),
        sa.Column("workspace_id", sa.Integer(), nullable=True),
        sa.Column("parent_id", sa.String(length=254), nullable=False),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("state", sa.String(length=32), nullable=False),
        sa.Column("config", sa.JSON(), nullable=True),
        sa.Column("snapshot", sa.JSON(), nullable=True),
        sa.Column("created", sa.Double(), nullable=False),
        sa.Column("ended", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_tasks_job_id"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=op.f("fk_tasks_user_id")),
        sa.ForeignKeyConstraint(
            ["workspace_id"], ["workspaces.id"], name=op.f("fk_tasks_workspace_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tasks")),
    )
    op.create_index("ix_tasks_ended", "tasks", ["ended"], unique=False)
    op.create_index("ix_tasks_job_id", "tasks", ["job_id"], unique=False)
    op.create_index("ix_tasks_parent_id", "tasks", ["parent_id"], unique=False)
    op.create_index("ix_tasks_type_ended", "tasks", ["type", "ended"], unique=False)
    op.create_index("ix_tasks_workspace_id", "tasks", ["workspace_id"], unique=False)
    op.create_table(
        "allocations",
        sa.Column("id", sa.String(length=254), nullable=False),
        sa.Column("task_id", sa.String(length=254), nullable=False),
        sa.Column("user_id", sa.Integer(), nullable=False),
        sa.Column("pool", sa.String(length=254), nullable=False),
        sa.Column("slots", sa.Integer(), nullable=False),
        sa.Column("phase", sa.String(length=16), nullable=False),
        sa.Column("is_ready", sa.Boolean(), nullable=False),
        sa.Column("requested", sa.Double(), nullable=False),
        sa.Column("started", sa.Double(), nullable=True),
        sa.Column("ended", sa.Double(), nullable=True),
        sa.Column("exit_reason", sa.Text(), nullable=False),
        sa.Column("exit_error", sa.Text(), nullable=False),
        sa.Column("exit_code", sa.Integer(), nullable=True),
        sa.Column("proxy_address", sa.String(length=254), nullable=False),
        sa.Column("ports", sa.JSON(), nullable=False),
        sa.Column("is_open", sa.Boolean(), nullable=False),
        sa.Column("launch", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["task_id"], ["tasks.id"], name=op.f("fk_allocations_task_id"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=op.f("fk_allocations_user_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_allocations")),
    )
    op.create_index("ix_allocations_is_open", "allocations", ["is_open"], unique=False)
    op.create_index("ix_allocations_started_ended", "allocations", ["started", "ended"], unique=False)
    op.create_index("ix_allocations_task_id", "allocations", ["task_id"], unique=False)
    op.create_table(
        "accelerators",
        sa.Column("allocation_id", sa.String(length=254), nullable=False),
        sa.Column("container_id", sa.String(length=254), nullable=False),
        sa.Column("node_name", sa.String(length=254), nullable=False),
        sa.Column("type", sa.String(length=254), nullable=False),
        sa.Column("uuids", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(
            ["allocation_id"], ["allocations.id"], name=op.f("fk_accelerators_allocation_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("allocation_id", "container_id", name=op.f("pk_accelerators")),
    )


def downgrade() -> None:
    op.drop_table("accelerators")
    op.drop_index("ix_allocations_task_id", table_name="allocations")
    op.drop_index("ix_allocations_started_ended", table_name="allocations")
    op.drop_index("ix_allocations_is_open", table_name="allocations")
    op.drop_table("allocations")
    op.drop_index("ix_tasks_workspace_id", table_name="tasks")
    op.drop_index("ix_tasks_type_ended", table_name="tasks")
    op.drop_index("ix_tasks_parent_id", table_name="tasks")
    op.drop_index("ix_tasks_job_id", table_name="tasks")
    op.drop_index("ix_tasks_ended", table_name="tasks")
    op.drop_table("tasks")
    op.drop_table("jobs")
    op.drop_table("heartbeats")
