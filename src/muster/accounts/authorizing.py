"""May this caller do that? From the roles that the user holds, itself or through groups."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection, or_, select

from muster.accounts.caching import Cache
from muster.accounts.callers import Caller, UserId, WorkspaceId
from muster.accounts.permissions import CLUSTER_ONLY, ROLES, Permission
from muster.api import errors
from muster.records import Database
from muster.records.tables_accounts import GROUP_MEMBERS, ROLE_ASSIGNMENTS
from muster.runtime.clock import Clock

_NOTHING: Final[frozenset[Permission]] = frozenset()


@dataclass(frozen=True, slots=True)
class Rights:
    """`cluster` holds in every workspace."""

    cluster: frozenset[Permission]
    workspaces: Mapping[WorkspaceId, frozenset[Permission]]

    def allow(self, permission: Permission, workspace: WorkspaceId | None) -> bool:
        if permission in self.cluster:
            return True
        return workspace is not None and permission in self.workspaces.get(workspace, _NOTHING)


class Hidden(errors.NotFound):
    """It may be there, but not for who asks: they are told that it is not. The records know better."""


class Authorizer:
    """Remembers rights; whoever changes roles or groups tells it to `forget`. Another process that changes them is
    noticed within seconds."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._cache: Cache[UserId, Rights] = Cache(clock)

    async def check(self, caller: Caller, permission: Permission, workspace: WorkspaceId | None = None) -> None:
        """Raises Forbidden; or Hidden where the caller may not even know that the workspace is there. `workspace`: None
        where it must be held in the whole cluster."""
        if await self.allows(caller, permission, workspace):
            return
        if workspace is not None and not await self.allows(caller, Permission.VIEW_WORKSPACE, workspace):
            raise Hidden(not_found(workspace).message)
        where = "the whole cluster" if workspace is None else f"workspace {workspace}"
        raise errors.Forbidden(
            f"user {caller.username!r} may not {permission}; an administrator can assign a role in {where}"
        )

    async def allows(self, caller: Caller, permission: Permission, workspace: WorkspaceId | None = None) -> bool:
        if caller.is_admin:
            return True
        return bool(caller.user) and (await self.rights(caller.user)).allow(permission, workspace)

    async def workspaces(self, caller: Caller, permission: Permission) -> frozenset[WorkspaceId] | None:
        """Those in which it is allowed; None for all of them."""
        if caller.is_admin:
            return None
        rights = await self.rights(caller.user)
        if permission in rights.cluster:
            return None
        return frozenset(found for found, held in rights.workspaces.items() if permission in held)

    async def rights(self, user: UserId) -> Rights:
        found = self._cache.get(user)
        if found is not None:
            return found
        generation = self._cache.generation
        read = await self._database.read(lambda connection: rights_of(connection, user))
        self._cache.put(user, read, generation)
        return read

    def forget(self) -> None:
        """All of it: rights change rarely, and one change of a group may concern anybody."""
        self._cache.clear()


def rights_of(connection: Connection, user: UserId) -> Rights:
    groups = select(GROUP_MEMBERS.c.group_id).where(GROUP_MEMBERS.c.user_id == user)
    held = connection.execute(
        select(ROLE_ASSIGNMENTS.c.role_id, ROLE_ASSIGNMENTS.c.workspace_id).where(
            or_(ROLE_ASSIGNMENTS.c.user_id == user, ROLE_ASSIGNMENTS.c.group_id.in_(groups))
        )
    )
    cluster: frozenset[Permission] = _NOTHING
    workspaces: dict[WorkspaceId, frozenset[Permission]] = {}
    for role_id, workspace in held:
        role = ROLES.get(role_id)
        if role is None:
            continue  # of a newer version
        if workspace is None:
            cluster |= role.permissions
        else:
            workspaces[workspace] = workspaces.get(workspace, _NOTHING) | (role.permissions - CLUSTER_ONLY)
    return Rights(cluster, workspaces)


def not_found(workspace: int) -> errors.NotFound:
    """The same whether it is not there or not to be seen."""
    return errors.NotFound(f"workspace {workspace} not found")
