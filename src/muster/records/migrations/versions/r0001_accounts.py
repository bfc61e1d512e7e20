"""Users, sessions, groups, roles, workspaces, projects, templates, policies, audit."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "audit",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("user_id", sa.Integer(), nullable=True),
        sa.Column("username", sa.String(length=254), nullable=False),
        sa.Column("action", sa.String(length=254), nullable=False),
        sa.Column("target", sa.String(length=254), nullable=False),
        sa.Column("outcome", sa.String(length=16), nullable=False),
        sa.Column("remote", sa.String(length=254), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_audit")),
    )
    op.create_index("ix_audit_at", "audit", ["at"], unique=False)
    op.create_table(
        "server_keys",
        sa.Column("name", sa.String(length=254), nullable=False),
        sa.Column("value", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_server_keys")),
    )
    op.create_table(
        "user_groups",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(length=254), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_user_groups")),
        sa.UniqueConstraint("name", name=op.f("uq_user_groups_name")),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "users",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("username", sa.String(length=254), nullable=False),
        sa.Column("display_name", sa.String(length=254), nullable=False),
        sa.Column("password_hash", sa.Text(), nullable=False),
        sa.Column("admin", sa.Boolean(), nullable=False),
        sa.Column("active", sa.Boolean(), nullable=False),
        sa.Column("remote", sa.Boolean(), nullable=False),
        sa.Column("agent_uid", sa.Integer(), nullable=True),
        sa.Column("agent_gid", sa.Integer(), nullable=True),
        sa.Column("agent_user", sa.String(length=254), nullable=True),
        sa.Column("agent_group", sa.String(length=254), nullable=True),
        sa.Column("created", sa.Double(), nullable=False),
        sa.Column("modified", sa.Double(), nullable=False),
        sa.Column("last_login", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_users")),
        sa.UniqueConstraint("username", name=op.f("uq_users_username")),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "group_members",
        sa.Column("group_id", sa.Integer(), nullable=False),
        sa.Column("user_id", sa.Integer(), nullable=False),
        sa.Column("source", sa.String(length=254), nullable=False),
        sa.ForeignKeyConstraint(
            ["group_id"], ["user_groups.id"], name=op.f("fk_group_members_group_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=op.f("fk_group_members_user_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("group_id", "user_id", "source", name=op.f("pk_group_members")),
    )
    op.create_index("ix_group_members_user_id", "group_members", ["user_id"], unique=False)
    op.create_table(
        "identities",
        sa.Column("provider", sa.String(length=254), nullable=False),
        sa.Column("subject", sa.String(length=254), nullable=False),
        sa.Column("user_id", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=op.f("fk_identities_user_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("provider", "subject", name=op.f("pk_identities")),
    )
    op.create_table(
        "sessions",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("user_id", sa.Integer(), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("digest", sa.LargeBinary(length=32), nullable=False),
        sa.Column("created", sa.Double(), nullable=False),
        sa.Column("expires", sa.Double(), nullable=True),
        sa.Column("revoked", sa.Double(), nullable=True),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("task", sa.String(length=254), nullable=False),
        sa.Column("allocation", sa.String(length=254), nullable=False),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=op.f("fk_sessions_user_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_sessions")),
        sa.UniqueConstraint("digest", name=op.f("uq_sessions_digest")),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_sessions_task", "sessions", ["task"], unique=False)
    op.create_index("ix_sessions_user_id", "sessions", ["user_id"], unique=False)
    op.create_table(
        "user_settings",
        sa.Column("user_id", sa.Integer(), nullable=False),
        sa.Column("storage_path", sa.String(length=254), nullable=False),
        sa.Column("key", sa.String(length=254), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=op.f("fk_user_settings_user_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("user_id", "storage_path", "key", name=op.f("pk_user_settings")),
    )
    op.create_table(
        "workspaces",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(length=254), nullable=False),
        sa.Column("user_id", sa.Integer(), nullable=False),
        sa.Column("archived", sa.Boolean(), nullable=False),
        sa.Column("immutable", sa.Boolean(), nullable=False),
        sa.Column("state", sa.String(length=254), nullable=False),
        sa.Column("error_message", sa.Text(), nullable=False),
        sa.Column("created", sa.Double(), nullable=False),
        sa.Column("agent_uid", sa.Integer(), nullable=True),
        sa.Column("agent_gid", sa.Integer(), nullable=True),
        sa.Column("agent_user", sa.String(length=254), nullable=True),
        sa.Column("agent_group", sa.String(length=254), nullable=True),
        sa.Column("checkpoint_storage", sa.JSON(), nullable=True),
        sa.Column("default_compute_pool", sa.String(length=254), nullable=False),
        sa.Column("default_aux_pool", sa.String(length=254), nullable=False),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=op.f("fk_workspaces_user_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_workspaces")),
        sa.UniqueConstraint("name", name=op.f("uq_workspaces_name")),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "config_policies",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("workspace_id", sa.Integer(), nullable=True),
        sa.Column("workload", sa.String(length=16), nullable=False),
        sa.Column("policies", sa.JSON(), nullable=False),
        sa.Column("modified", sa.Double(), nullable=False),
        sa.Column("user_id", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=op.f("fk_config_policies_user_id")),
        sa.ForeignKeyConstraint(
            ["workspace_id"], ["workspaces.id"], name=op.f("fk_config_policies_workspace_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_config_policies")),
    )
    op.create_table(
        "pool_bindings",
        sa.Column("pool", sa.String(length=254), nullable=False),
        sa.Column("workspace_id", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["workspace_id"], ["workspaces.id"], name=op.f("fk_pool_bindings_workspace_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("pool", "workspace_id", name=op.f("pk_pool_bindings")),
    )
    op.create_table(
        "projects",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("workspace_id", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(length=254), nullable=False),
        sa.Column("key", sa.String(length=5), nullable=False),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("user_id", sa.Integer(), nullable=False),
        sa.Column("archived", sa.Boolean(), nullable=False),
        sa.Column("immutable", sa.Boolean(), nullable=False),
        sa.Column("state", sa.String(length=254), nullable=False),
        sa.Column("error_message", sa.Text(), nullable=False),
        sa.Column("notes", sa.JSON(), nullable=False),
        sa.Column("created", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=op.f("fk_projects_user_id")),
        sa.ForeignKeyConstraint(
            ["workspace_id"], ["workspaces.id"], name=op.f("fk_projects_workspace_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_projects")),
        sa.UniqueConstraint("key", name=op.f("uq_projects_key")),
        sa.UniqueConstraint("workspace_id", "name", name=op.f("uq_projects_workspace_id_name")),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "role_assignments",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("role_id", sa.Integer(), nullable=False),
        sa.Column("user_id", sa.Integer(), nullable=True),
        sa.Column("group_id", sa.Integer(), nullable=True),
        sa.Column("workspace_id", sa.Integer(), nullable=True),
        sa.ForeignKeyConstraint(
            ["group_id"], ["user_groups.id"], name=op.f("fk_role_assignments_group_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["user_id"], ["users.id"], name=op.f("fk_role_assignments_user_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["workspace_id"], ["workspaces.id"], name=op.f("fk_role_assignments_workspace_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_role_assignments")),
    )
    op.create_index("ix_role_assignments_group_id", "role_assignments", ["group_id"], unique=False)
    op.create_index("ix_role_assignments_user_id", "role_assignments", ["user_id"], unique=False)
    op.create_table(
        "templates",
        sa.Column("name", sa.String(length=254), nullable=False),
        sa.Column("workspace_id", sa.Integer(), nullable=False),
        sa.Column("config", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(
            ["workspace_id"], ["workspaces.id"], name=op.f("fk_templates_workspace_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_templates")),
    )
    op.create_table(
        "workspace_namespaces",
        sa.Column("workspace_id", sa.Integer(), nullable=False),
        sa.Column("cluster", sa.String(length=254), nullable=False),
        sa.Column("namespace", sa.String(length=254), nullable=False),
        sa.Column("is_made_by_us", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(
            ["workspace_id"], ["workspaces.id"], name=op.f("fk_workspace_namespaces_workspace_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("workspace_id", "cluster", name=op.f("pk_workspace_namespaces")),
    )
    op.create_table(
        "workspace_pins",
        sa.Column("user_id", sa.Integer(), nullable=False),
        sa.Column("workspace_id", sa.Integer(), nullable=False),
        sa.Column("pinned", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=op.f("fk_workspace_pins_user_id"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(
            ["workspace_id"], ["workspaces.id"], name=op.f("fk_workspace_pins_workspace_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("user_id", "workspace_id", name=op.f("pk_workspace_pins")),
    )
    op.create_table(
        "workspace_quotas",
        sa.Column("workspace_id", sa.Integer(), nullable=False),
        sa.Column("cluster", sa.String(length=254), nullable=False),
        sa.Column("slots", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["workspace_id"], ["workspaces.id"], name=op.f("fk_workspace_quotas_workspace_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("workspace_id", "cluster", name=op.f("pk_workspace_quotas")),
    )
    op.create_table(
        "project_visits",
        sa.Column("user_id", sa.Integer(), nullable=False),
        sa.Column("project_id", sa.Integer(), nullable=False),
        sa.Column("visited", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(
            ["project_id"], ["projects.id"], name=op.f("fk_project_visits_project_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=op.f("fk_project_visits_user_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("user_id", "project_id", name=op.f("pk_project_visits")),
    )
    op.create_index(
        "ix_config_policies_once",
        "config_policies",
        [sa.text("coalesce(workspace_id, 0)"), "workload"],
        unique=True,
    )
    op.create_index(
        "ix_role_assignments_once",
        "role_assignments",
        [
            "role_id",
            sa.text("coalesce(user_id, 0)"),
            sa.text("coalesce(group_id, 0)"),
            sa.text("coalesce(workspace_id, 0)"),
        ],
        unique=True,
    )


def downgrade() -> None:
    op.drop_table("project_visits")
    op.drop_table("workspace_quotas")
    op.drop_table("workspace_pins")
    op.drop_table("workspace_namespaces")
    op.drop_table("templates")
    op.drop_index("ix_role_assignments_user_id", table_name="role_assignments")
    op.drop_index("ix_role_assignments_group_id", table_name="role_assignments")
    op.drop_table("role_assignments")
    op.drop_table("projects")
    op.drop_table("pool_bindings")
    op.drop_table("config_policies")
    op.drop_table("workspaces")
    op.drop_table("user_settings")
    op.drop_index("ix_sessions_user_id", table_name="sessions")
    op.drop_index("ix_sessions_task", table_name="sessions")
    op.drop_table("sessions")
    op.drop_table("identities")
    op.drop_index("ix_group_members_user_id", table_name="group_members")
    op.drop_table("group_members")
    op.drop_table("users")
    op.drop_table("user_groups")
    op.drop_table("server_keys")
    op.drop_index("ix_audit_at", table_name="audit")
    op.drop_table("audit")
