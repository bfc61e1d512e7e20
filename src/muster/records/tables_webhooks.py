"""Webhooks: where to tell of what, and what has still to be told.

A delivery is a row until it was taken: what is in the queue outlives the server. One that nobody took stays as a dead
letter for a while. Instants are seconds since 1970.
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
)

from muster.records.tables import METADATA
from muster.records.tables_accounts import WORKSPACES

_NAME: Final = 254
_Big: Final = BigInteger().with_variant(Integer, "sqlite")  # only an INTEGER counts by itself there

WEBHOOKS: Final = Table(
    "webhooks", METADATA,
    Column("id", Integer, primary_key=True),
    Column("name", String(_NAME), nullable=False),
    Column("workspace_id", ForeignKey(WORKSPACES.c.id, ondelete="CASCADE")),  # NULL: for the whole cluster
    Column("url", Text, nullable=False),
    Column("type", String(16), nullable=False),
    Column("mode", String(16), nullable=False),
    Column("created", Double, nullable=False),
    Index("ix_webhooks_workspace_id", "workspace_id"),
    sqlite_autoincrement=True,  # configurations name them: an id is never given twice
)  # fmt: skip

WEBHOOK_TRIGGERS: Final = Table(
    "webhook_triggers", METADATA,
    Column("id", Integer, primary_key=True),
    Column("webhook_id", ForeignKey(WEBHOOKS.c.id, ondelete="CASCADE"), nullable=False),
    Column("type", String(32), nullable=False),
    Column("condition", JSON, nullable=False),
    Index("ix_webhook_triggers_webhook_id", "webhook_id"),
    sqlite_autoincrement=True,
)  # fmt: skip

WEBHOOK_DELIVERIES: Final = Table(
    "webhook_deliveries", METADATA,
    Column("id", _Big, primary_key=True),
    Column("webhook_id", ForeignKey(WEBHOOKS.c.id, ondelete="CASCADE"), nullable=False),
    Column("event_id", String(64), nullable=False),
    Column("event_type", String(32), nullable=False),
    Column("body", LargeBinary, nullable=False),
    Column("created", Double, nullable=False),
    Column("attempts", Integer, nullable=False, default=0),
    Column("due", Double, nullable=False),
    Column("is_dead", Boolean, nullable=False, default=False),
    Column("error", Text, nullable=False, default=""),  # of the latest attempt
    Index("ix_webhook_deliveries_is_dead_due", "is_dead", "due"),
    Index("ix_webhook_deliveries_webhook_id", "webhook_id"),
    sqlite_autoincrement=True,
)  # fmt: skip

WEBHOOK_LOG_MATCHES: Final = Table(
    "webhook_log_matches", METADATA,
    Column("task_id", String(_NAME), primary_key=True),
    Column("trigger_id", ForeignKey(WEBHOOK_TRIGGERS.c.id, ondelete="CASCADE"), primary_key=True),
)  # fmt: skip
"""A pattern that was found in a task's log is told once for that task."""

WEBHOOK_LOG_SCANS: Final = Table(
    "webhook_log_scans", METADATA,
    Column("id", Integer, primary_key=True),
    Column("chunk", BigInteger, nullable=False),
)  # fmt: skip
"""One row: the last chunk of all logs that was looked through for patterns. None while nobody wants that."""
