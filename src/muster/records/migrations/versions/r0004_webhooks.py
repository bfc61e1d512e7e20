"""Webhooks and what they have still to deliver."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "webhooks",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(length=254), nullable=False),
        sa.Column("workspace_id", sa.Integer(), nullable=True),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("type", sa.String(length=16), nullable=False),
        sa.Column("mode", sa.String(length=16), nullable=False),
        sa.Column("created", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(
            ["workspace_id"], ["workspaces.id"], name=op.f("fk_webhooks_workspace_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_webhooks")),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_webhooks_workspace_id", "webhooks", ["workspace_id"], unique=False)
    op.create_table(
        "webhook_triggers",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("webhook_id", sa.Integer(), nullable=False),
        sa.Column("type", sa.String(length=32), nullable=False),
        sa.Column("condition", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(
            ["webhook_id"], ["webhooks.id"], name=op.f("fk_webhook_triggers_webhook_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_webhook_triggers")),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_webhook_triggers_webhook_id", "webhook_triggers", ["webhook_id"], unique=False)
    op.create_table(
        "webhook_deliveries",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("webhook_id", sa.Integer(), nullable=False),
        sa.Column("event_id", sa.String(length=64), nullable=False),
        sa.Column("event_type", sa.String(length=32), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.Column("created", sa.Double(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("due", sa.Double(), nullable=False),
        sa.Column("is_dead", sa.Boolean(), nullable=False),
        sa.Column("error", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["webhook_id"], ["webhooks.id"], name=op.f("fk_webhook_deliveries_webhook_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_webhook_deliveries")),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_webhook_deliveries_is_dead_due", "webhook_deliveries", ["is_dead", "due"], unique=False)
    op.create_index("ix_webhook_deliveries_webhook_id", "webhook_deliveries", ["webhook_id"], unique=False)
    op.create_table(
        "webhook_log_matches",
        sa.Column("task_id", sa.String(length=254), nullable=False),
        sa.Column("trigger_id", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["trigger_id"],
            ["webhook_triggers.id"],
            name=op.f("fk_webhook_log_matches_trigger_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("task_id", "trigger_id", name=op.f("pk_webhook_log_matches")),
    )
    op.create_table(
        "webhook_log_scans",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("chunk", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_webhook_log_scans")),
    )


def downgrade() -> None:
    for table in ("webhook_log_scans", "webhook_log_matches", "webhook_deliveries", "webhook_triggers", "webhooks"):
        op.drop_table(table)
