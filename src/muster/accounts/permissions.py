"""What one may be allowed to do, and the roles: sets of it, held in the whole cluster or in one workspace.

This is the one table of rights. Routes name a permission, roles hold permissions, and nothing else grants anything but
being an administrator.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NewType

RoleId = NewType("RoleId", int)


class Permission(StrEnum):
    ADMINISTRATE_USERS = "administrate users"
    ADMINISTRATE_CLUSTER = "administrate the cluster"
    VIEW_CLUSTER = "view the cluster"
    CREATE_WORKSPACES = "create workspaces"
    VIEW_WORKSPACE = "view the workspace"
    EDIT_WORKSPACE = "edit the workspace"
    EDIT_PROJECTS = "edit projects"
    ASSIGN_ROLES = "assign roles"
    CREATE_TASKS = "create tasks"
    VIEW_TASKS = "view tasks"
    EDIT_TASKS = "edit tasks"
    CREATE_EXPERIMENTS = "create experiments"
    VIEW_EXPERIMENTS = "view experiments"
    EDIT_EXPERIMENTS = "edit experiments"
    VIEW_MODELS = "view models"
    EDIT_MODELS = "edit models"
    VIEW_TEMPLATES = "view templates"
    EDIT_TEMPLATES = "edit templates"
    EDIT_WEBHOOKS = "edit webhooks"


_P = Permission
CLUSTER_ONLY: Final = frozenset({_P.ADMINISTRATE_USERS, _P.ADMINISTRATE_CLUSTER, _P.VIEW_CLUSTER, _P.CREATE_WORKSPACES})
"""These mean nothing in a single workspace: a role that is held there does not give them."""

VIEWER: Final = frozenset(
    {_P.VIEW_CLUSTER, _P.VIEW_WORKSPACE, _P.VIEW_TASKS, _P.VIEW_EXPERIMENTS, _P.VIEW_MODELS, _P.VIEW_TEMPLATES}
)
EDITOR: Final = VIEWER | {
    _P.EDIT_PROJECTS,
    _P.CREATE_TASKS,
    _P.EDIT_TASKS,
    _P.CREATE_EXPERIMENTS,
    _P.EDIT_EXPERIMENTS,
    _P.EDIT_MODELS,
    _P.EDIT_TEMPLATES,
}
WORKSPACE_ADMIN: Final = EDITOR | {_P.EDIT_WORKSPACE, _P.ASSIGN_ROLES, _P.EDIT_WEBHOOKS}
CLUSTER_ADMIN: Final = frozenset(Permission)


@dataclass(frozen=True, slots=True)
class Role:
    """`is_for_cluster`, `is_for_workspace`: where it can be held."""

    id: RoleId
    name: str
    permissions: frozenset[Permission]
    is_for_cluster: bool = True
    is_for_workspace: bool = True


_ALL: Final = (
    Role(RoleId(1), "ClusterAdmin", CLUSTER_ADMIN, is_for_workspace=False),
    Role(RoleId(2), "WorkspaceAdmin", WORKSPACE_ADMIN),
    Role(RoleId(3), "WorkspaceCreator", frozenset({_P.CREATE_WORKSPACES}), is_for_workspace=False),
    Role(RoleId(4), "Viewer", VIEWER),
    Role(RoleId(5), "Editor", EDITOR),
    Role(RoleId(6), "EditorRestricted", EDITOR - {_P.CREATE_TASKS, _P.EDIT_TASKS}),
    Role(RoleId(7), "EditorProjectRestricted", EDITOR - {_P.EDIT_PROJECTS}),
    Role(RoleId(8), "ModelRegistryViewer", frozenset({_P.VIEW_WORKSPACE, _P.VIEW_MODELS})),
    Role(RoleId(9), "ClusterViewer", frozenset({_P.VIEW_CLUSTER}), is_for_workspace=False),
)
ROLES: Final[Mapping[RoleId, Role]] = {role.id: role for role in _ALL}
BY_NAME: Final[Mapping[str, Role]] = {role.name: role for role in _ALL}
