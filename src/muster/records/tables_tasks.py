"""Jobs, their tasks, and each run of a task: what was asked for, how far it has come, how it ended.

A job is what stands in the queue as one (an experiment, or a single notebook); a task is what runs for it; an
allocation is one run of a task. Instants are seconds since 1970.
"""

from typing import Final

from sqlalchemy import (
    JSON,
    Boolean,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    String,
    Table,
    Text,
)

from muster.records.tables import METADATA
from muster.records.tables_accounts import USERS, WORKSPACES

_NAME: Final = 254


def _name(column: str) -> "Column[str]":
    return Column(column, String(_NAME), nullable=False, default="")


def _id(column: str = "id") -> "Column[str]":
    return Column(column, String(_NAME), primary_key=True)


def _user() -> "Column[int]":
    return Column("user_id", ForeignKey(USERS.c.id), nullable=False)


JOBS: Final = Table(
    "jobs", METADATA,
    _id(),
    Column("type", String(32), nullable=False),
    _user(),
    Column("queue_position", Double),  # NULL: by time of submission
    Column("created", Double, nullable=False),
)  # fmt: skip

TASKS: Final = Table(
    "tasks", METADATA,
    _id(),
    Column("type", String(32), nullable=False),
    Column("job_id", ForeignKey(JOBS.c.id, ondelete="CASCADE")),
    _user(),
    Column("workspace_id", ForeignKey(WORKSPACES.c.id, ondelete="CASCADE")),
    _name("parent_id"),  # of a generic task
    Column("description", Text, nullable=False, default=""),
    Column("state", String(32), nullable=False, default=""),  # of a generic task; others are as their allocation is
    Column("config", JSON),
    Column("snapshot", JSON),  # whatever its kind needs to be itself again after a restart
    Column("created", Double, nullable=False),
    Column("ended", Double),
    Index("ix_tasks_job_id", "job_id"),
    Index("ix_tasks_type_ended", "type", "ended"),
    Index("ix_tasks_ended", "ended"),  # those that run are few among those that ever did
    Index("ix_tasks_workspace_id", "workspace_id"),
    Index("ix_tasks_parent_id", "parent_id"),
)  # fmt: skip

ALLOCATIONS: Final = Table(
    "allocations", METADATA,
    _id(),
    Column("task_id", ForeignKey(TASKS.c.id, ondelete="CASCADE"), nullable=False),
    _user(),
    _name("pool"),
    Column("slots", Integer, nullable=False, default=0),
    Column("phase", String(16), nullable=False),
    Column("is_ready", Boolean, nullable=False, default=False),
    Column("requested", Double, nullable=False),
    Column("started", Double),  # NULL: it never ran, and is not counted
    Column("ended", Double),
    Column("exit_reason", Text, nullable=False, default=""),
    Column("exit_error", Text, nullable=False, default=""),  # empty: it ended as it should
    Column("exit_code", Integer),
    _name("proxy_address"),
    Column("ports", JSON, nullable=False, default=dict),
    Column("is_open", Boolean, nullable=False),  # until its owner knows how it ended
    Column("launch", Text, nullable=False),  # as asked for, without secrets
    Column("state", Text, nullable=False),  # of its machine
    Index("ix_allocations_task_id", "task_id"),
    Index("ix_allocations_is_open", "is_open"),
    Index("ix_allocations_started_ended", "started", "ended"),
)  # fmt: skip

ACCELERATORS: Final = Table(
    "accelerators", METADATA,
    Column("allocation_id", ForeignKey(ALLOCATIONS.c.id, ondelete="CASCADE"), primary_key=True),
    Column("container_id", String(_NAME), primary_key=True),
    _name("node_name"),
    _name("type"),
    Column("uuids", JSON, nullable=False),
)  # fmt: skip

HEARTBEATS: Final = Table(
    "heartbeats", METADATA,
    _id("name"),  # of a part of the server
    Column("at", Double, nullable=False),
)  # fmt: skip
