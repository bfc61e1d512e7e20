"""Users and what is theirs: sessions, groups, rights, workspaces with their projects, templates and policies; and who
changed what of it.

Instants are seconds since 1970, as everywhere. Nothing here holds a secret that could be shown again: passwords and
tokens are there as hashes. The exception is `server_keys`, with which the server signs what it will only read itself.
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
    LargeBinary,
    String,
    Table,
    Text,
    UniqueConstraint,
    func,
)

from muster.records.tables import METADATA

_NAME: Final = 254


def _name(column: str, *, unique: bool = False) -> "Column[str]":
    return Column(column, String(_NAME), nullable=False, unique=unique, default="")


def _text(column: str) -> "Column[str]":
    return Column(column, Text, nullable=False, default="")


def _flag(column: str, value: bool = False) -> "Column[bool]":
    return Column(column, Boolean, nullable=False, default=value)


def _reference(column: str, to: str, *, key: bool = False, optional: bool = False) -> "Column[int]":
    """Goes with what it refers to."""
    return Column(column, ForeignKey(to, ondelete="CASCADE"), primary_key=key, nullable=optional)


def _owner() -> "Column[int]":
    return Column("user_id", ForeignKey("users.id"), nullable=False)


def _agent_user_group() -> "list[Column[int] | Column[str]]":
    """Under which a user's tasks run on a node; all are NULL where nothing was said."""
    return [
        Column("agent_uid", Integer),
        Column("agent_gid", Integer),
        Column("agent_user", String(_NAME)),
        Column("agent_group", String(_NAME)),
    ]


USERS: Final = Table(
    "users", METADATA,
    Column("id", Integer, primary_key=True),
    _name("username", unique=True),
    _name("display_name"),
    _text("password_hash"),  # empty: no password will do
    _flag("admin"),
    _flag("active", True),
    _flag("remote"),
    *_agent_user_group(),
    Column("created", Double, nullable=False),
    Column("modified", Double, nullable=False),
    Column("last_login", Double),
    sqlite_autoincrement=True,  # an id is never given twice
)  # fmt: skip

USER_SETTINGS: Final = Table(
    "user_settings", METADATA,
    _reference("user_id", "users.id", key=True),
    Column("storage_path", String(_NAME), primary_key=True),
    Column("key", String(_NAME), primary_key=True),
    _text("value"),
)  # fmt: skip

IDENTITIES: Final = Table(
    "identities", METADATA,
    Column("provider", String(_NAME), primary_key=True),
    Column("subject", String(_NAME), primary_key=True),
    _reference("user_id", "users.id"),
)  # fmt: skip

SESSIONS: Final = Table(
    "sessions", METADATA,
    Column("id", Integer, primary_key=True),
    _reference("user_id", "users.id"),
    Column("kind", String(16), nullable=False),
    Column("digest", LargeBinary(32), nullable=False, unique=True),
    Column("created", Double, nullable=False),
    Column("expires", Double),  # NULL: never
    Column("revoked", Double),
    _text("description"),
    _name("task"),
    _name("allocation"),
    Index("ix_sessions_user_id", "user_id"),
    Index("ix_sessions_task", "task"),
    sqlite_autoincrement=True,  # an id is never given twice
)  # fmt: skip

GROUPS: Final = Table(
    "user_groups", METADATA,
    Column("id", Integer, primary_key=True),
    _name("name", unique=True),
    sqlite_autoincrement=True,  # an id is never given twice
)  # fmt: skip

GROUP_MEMBERS: Final = Table(
    "group_members", METADATA,
    _reference("group_id", "user_groups.id", key=True),
    _reference("user_id", "users.id", key=True),
    # Who says so: empty for an administrator, else the login provider whose claims did.
    Column("source", String(_NAME), primary_key=True),
    Index("ix_group_members_user_id", "user_id"),
)  # fmt: skip

WORKSPACES: Final = Table(
    "workspaces", METADATA,
    Column("id", Integer, primary_key=True),
    _name("name", unique=True),
    _owner(),
    _flag("archived"),
    _flag("immutable"),
    _name("state"),
    _text("error_message"),
    Column("created", Double, nullable=False),
    *_agent_user_group(),
    Column("checkpoint_storage", JSON),
    _name("default_compute_pool"),
    _name("default_aux_pool"),
    sqlite_autoincrement=True,  # an id is never given twice
)  # fmt: skip

WORKSPACE_PINS: Final = Table(
    "workspace_pins", METADATA,
    _reference("user_id", "users.id", key=True),
    _reference("workspace_id", "workspaces.id", key=True),
    Column("pinned", Double, nullable=False),
)  # fmt: skip

WORKSPACE_NAMESPACES: Final = Table(
    "workspace_namespaces", METADATA,
    _reference("workspace_id", "workspaces.id", key=True),
    Column("cluster", String(_NAME), primary_key=True),
    _name("namespace"),
    _flag("is_made_by_us"),
)  # fmt: skip

WORKSPACE_QUOTAS: Final = Table(
    "workspace_quotas", METADATA,
    _reference("workspace_id", "workspaces.id", key=True),
    Column("cluster", String(_NAME), primary_key=True),
    Column("slots", Integer, nullable=False),
)  # fmt: skip

POOL_BINDINGS: Final = Table(
    "pool_bindings", METADATA,
    Column("pool", String(_NAME), primary_key=True),
    _reference("workspace_id", "workspaces.id", key=True),
)  # fmt: skip

PROJECTS: Final = Table(
    "projects", METADATA,
    Column("id", Integer, primary_key=True),
    _reference("workspace_id", "workspaces.id"),
    _name("name"),
    Column("key", String(5), nullable=False, unique=True),
    _text("description"),
    _owner(),
    _flag("archived"),
    _flag("immutable"),
    _name("state"),
    _text("error_message"),
    Column("notes", JSON, nullable=False),
    Column("created", Double, nullable=False),
    UniqueConstraint("workspace_id", "name"),
    sqlite_autoincrement=True,  # an id is never given twice
)  # fmt: skip

PROJECT_VISITS: Final = Table(
    "project_visits", METADATA,
    _reference("user_id", "users.id", key=True),
    _reference("project_id", "projects.id", key=True),
    Column("visited", Double, nullable=False),
)  # fmt: skip

TEMPLATES: Final = Table(
    "templates", METADATA,
    Column("name", String(_NAME), primary_key=True),
    _reference("workspace_id", "workspaces.id"),
    Column("config", JSON, nullable=False),
)  # fmt: skip

CONFIG_POLICIES: Final = Table(
    "config_policies", METADATA,
    Column("id", Integer, primary_key=True),
    _reference("workspace_id", "workspaces.id", optional=True),  # NULL: all of them
    Column("workload", String(16), nullable=False),
    Column("policies", JSON, nullable=False),
    Column("modified", Double, nullable=False),
    _owner(),
)  # fmt: skip

ROLE_ASSIGNMENTS: Final = Table(
    "role_assignments", METADATA,
    Column("id", Integer, primary_key=True),
    Column("role_id", Integer, nullable=False),
    _reference("user_id", "users.id", optional=True),  # either a user or a group
    _reference("group_id", "user_groups.id", optional=True),
    _reference("workspace_id", "workspaces.id", optional=True),  # NULL: the whole cluster
    Index("ix_role_assignments_user_id", "user_id"),
    Index("ix_role_assignments_group_id", "group_id"),
)  # fmt: skip

# NULLs are all different to a plain unique constraint.
Index(
    "ix_config_policies_once", func.coalesce(CONFIG_POLICIES.c.workspace_id, 0), CONFIG_POLICIES.c.workload, unique=True
)
Index(
    "ix_role_assignments_once",
    ROLE_ASSIGNMENTS.c.role_id,
    func.coalesce(ROLE_ASSIGNMENTS.c.user_id, 0),
    func.coalesce(ROLE_ASSIGNMENTS.c.group_id, 0),
    func.coalesce(ROLE_ASSIGNMENTS.c.workspace_id, 0),
    unique=True,
)

AUDIT: Final = Table(
    "audit", METADATA,
    Column("id", Integer, primary_key=True),
    Column("at", Double, nullable=False),
    Column("user_id", Integer),  # not a reference: what was done outlives who did it
    _name("username"),
    _name("action"),
    _name("target"),
    Column("outcome", String(16), nullable=False),
    _name("remote"),
    _text("detail"),
    Index("ix_audit_at", "at"),
)  # fmt: skip

SERVER_KEYS: Final = Table(
    "server_keys", METADATA,
    Column("name", String(_NAME), primary_key=True),
    Column("value", LargeBinary, nullable=False),
)  # fmt: skip
