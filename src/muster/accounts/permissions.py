"""What one may be allowed to do. Roles are sets of these, held in the whole cluster or in one workspace."""

from enum import StrEnum
from typing import Final


class Permission(StrEnum):
    ADMINISTRATE_USERS = "administrate users"
    ADMINISTRATE_CLUSTER = "administrate the cluster"
    VIEW_CLUSTER = "view the cluster"
    CREATE_WORKSPACES = "create workspaces"
    VIEW_WORKSPACE = "view the workspace"
    EDIT_WORKSPACE = "edit the workspace"
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
VIEWER: Final = frozenset({_P.VIEW_WORKSPACE, _P.VIEW_TASKS, _P.VIEW_EXPERIMENTS, _P.VIEW_MODELS, _P.VIEW_TEMPLATES})
EDITOR: Final = VIEWER | {
    _P.CREATE_TASKS,
    _P.EDIT_TASKS,
    _P.CREATE_EXPERIMENTS,
    _P.EDIT_EXPERIMENTS,
    _P.EDIT_MODELS,
    _P.EDIT_TEMPLATES,
}
WORKSPACE_ADMIN: Final = EDITOR | {_P.EDIT_WORKSPACE, _P.ASSIGN_ROLES, _P.EDIT_WEBHOOKS}
CLUSTER_ADMIN: Final = frozenset(Permission)
