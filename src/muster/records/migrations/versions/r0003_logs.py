"""What tasks have written."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "task_logs",
        sa.Column("task_id", sa.String(length=254), nullable=False),
        sa.Column("newest", sa.BigInteger(), nullable=False),
        sa.Column("lines", sa.BigInteger(), nullable=False),
        sa.Column("retention_days", sa.Integer(), nullable=True),
        sa.PrimaryKeyConstraint("task_id", name=op.f("pk_task_logs")),
    )
    op.create_index("ix_task_logs_newest", "task_logs", ["newest"], unique=False)
    op.create_table(
        "task_log_chunks",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("task_id", sa.String(length=254), nullable=False),
        sa.Column("digest", sa.LargeBinary(length=16), nullable=True),
        sa.Column("allocation_id", sa.String(length=254), nullable=False),
        sa.Column("container_id", sa.String(length=254), nullable=False),
        sa.Column("agent_id", sa.String(length=254), nullable=False),
        sa.Column("source", sa.String(length=254), nullable=False),
        sa.Column("ranks", sa.Text(), nullable=False),
        sa.Column("stdtypes", sa.Text(), nullable=False),
        sa.Column("levels", sa.Integer(), nullable=False),
        sa.Column("oldest", sa.BigInteger(), nullable=False),
        sa.Column("newest", sa.BigInteger(), nullable=False),
        sa.Column("lines", sa.Integer(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_task_log_chunks")),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_task_log_chunks_digest", "task_log_chunks", ["digest"], unique=True)
    op.create_index("ix_task_log_chunks_task_id_id", "task_log_chunks", ["task_id", "id"], unique=False)


def downgrade() -> None:
    op.drop_index("ix_task_log_chunks_task_id_id", table_name="task_log_chunks")
    op.drop_index("ix_task_log_chunks_digest", table_name="task_log_chunks")
    op.drop_table("task_log_chunks")
    op.drop_index("ix_task_logs_newest", table_name="task_logs")
    op.drop_table("task_logs")
