"""Who holds which role where. The roles themselves are fixed: see `permissions`."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, Connection, delete, insert, or_, select

from muster.accounts import groups, users
from muster.accounts.audit import By, Deed, note
from muster.accounts.authorizing import Authorizer, not_found
from muster.accounts.callers import UserId, WorkspaceId
from muster.accounts.groups import Group, GroupId
from muster.accounts.permissions import ROLES, Role, RoleId
from muster.accounts.users import User
from muster.api import errors
from muster.records import Database
from muster.records.tables_accounts import GROUP_MEMBERS, GROUPS, ROLE_ASSIGNMENTS, USERS, WORKSPACES
from muster.runtime.clock import Clock


@dataclass(frozen=True, slots=True)
class Assignment:
    """Of a role to a user or to a group. `workspace`: None for the whole cluster."""

    role: RoleId
    user: UserId | None = None
    group: GroupId | None = None
    workspace: WorkspaceId | None = None

    def __str__(self) -> str:
        name = ROLES[self.role].name if self.role in ROLES else str(self.role)
        whom = f"user {self.user}" if self.user is not None else f"group {self.group}"
        return f"{name} to {whom}" + (f" in workspace {self.workspace}" if self.workspace is not None else "")


@dataclass(frozen=True, slots=True)
class Members:
    """Who holds roles in a workspace, itself or as a group."""

    users: Sequence[User]
    groups: Sequence[tuple[Group, Sequence[User]]]
    assignments: Sequence[Assignment]


class Roles:
    def __init__(self, database: Database, clock: Clock, authorizer: Authorizer) -> None:
        self._database = database
        self._clock = clock
        self._authorizer = authorizer

    async def assign(self, by: By, wanted: Sequence[Assignment]) -> None:
        """All or none of them. Raises NotFound and BadRequest; one that is held already stays."""

        def change(connection: Connection) -> None:
            for assignment in wanted:
                _check(connection, assignment)
                assign(connection, assignment)
                note(connection, self._clock.now(), by, Deed("role.assign", str(assignment)))

        await self._database.write(change)
        self._authorizer.forget()

    async def remove(self, by: By, wanted: Sequence[Assignment]) -> None:
        """All or none of them. Raises NotFound where one is not held."""

        def change(connection: Connection) -> None:
            for assignment in wanted:
                if not connection.execute(delete(ROLE_ASSIGNMENTS).where(_is(assignment))).rowcount:
                    raise errors.NotFound(f"there is no assignment of {assignment}")
                note(connection, self._clock.now(), by, Deed("role.remove", str(assignment)))

        await self._database.write(change)
        self._authorizer.forget()

    async def of_user(self, user: UserId) -> list[Assignment]:
        """Also those of the groups that the user is in."""

        def read(connection: Connection) -> list[Assignment]:
            users.get(connection, user)
            mine = select(GROUP_MEMBERS.c.group_id).where(GROUP_MEMBERS.c.user_id == user)
            held = or_(ROLE_ASSIGNMENTS.c.user_id == user, ROLE_ASSIGNMENTS.c.group_id.in_(mine))
            return _assignments(connection, held)

        return await self._database.read(read)

    async def of_group(self, group: GroupId) -> list[Assignment]:
        def read(connection: Connection) -> list[Assignment]:
            groups.get(connection, group)
            return _assignments(connection, ROLE_ASSIGNMENTS.c.group_id == group)

        return await self._database.read(read)

    async def is_member(self, user: UserId, group: GroupId) -> bool:
        is_it = (GROUP_MEMBERS.c.group_id == group) & (GROUP_MEMBERS.c.user_id == user)
        query = select(GROUP_MEMBERS.c.user_id).where(is_it).limit(1)
        return await self._database.read(lambda connection: connection.scalar(query) is not None)

    async def of_roles(self, wanted: Sequence[RoleId]) -> list[Assignment]:
        return await self._database.read(
            lambda connection: _assignments(connection, ROLE_ASSIGNMENTS.c.role_id.in_(wanted))
        )

    async def members(self, workspace: WorkspaceId, name: str = "") -> Members:
        """`name`: a part of the user's or the group's."""
        return await self._database.read(lambda connection: _members(connection, workspace, name))


def role(id: int) -> Role:
    """Raises NotFound."""
    found = ROLES.get(RoleId(id))
    if found is None:
        raise errors.NotFound(f"role {id} not found")
    return found


def assign(connection: Connection, assignment: Assignment) -> None:
    """Once: the second time changes nothing."""
    if connection.scalar(select(ROLE_ASSIGNMENTS.c.id).where(_is(assignment))) is None:
        connection.execute(
            insert(ROLE_ASSIGNMENTS).values(
                role_id=assignment.role,
                user_id=assignment.user,
                group_id=assignment.group,
                workspace_id=assignment.workspace,
            )
        )


def _check(connection: Connection, assignment: Assignment) -> None:
    wanted = role(assignment.role)
    if assignment.workspace is None and not wanted.is_for_cluster:
        raise errors.BadRequest(f"role {wanted.name!r} can only be held in a workspace")
    if assignment.workspace is not None:
        if not wanted.is_for_workspace:
            raise errors.BadRequest(f"role {wanted.name!r} can only be held in the whole cluster")
        if connection.scalar(select(WORKSPACES.c.id).where(WORKSPACES.c.id == assignment.workspace)) is None:
            raise not_found(assignment.workspace)
    if assignment.user is not None:
        users.get(connection, assignment.user)
    if assignment.group is not None:
        groups.get(connection, assignment.group)


def _is(assignment: Assignment) -> ColumnElement[bool]:
    return (
        (ROLE_ASSIGNMENTS.c.role_id == assignment.role)
        & ROLE_ASSIGNMENTS.c.user_id.is_not_distinct_from(assignment.user)
        & ROLE_ASSIGNMENTS.c.group_id.is_not_distinct_from(assignment.group)
        & ROLE_ASSIGNMENTS.c.workspace_id.is_not_distinct_from(assignment.workspace)
    )


def _assignments(connection: Connection, which: ColumnElement[bool]) -> list[Assignment]:
    rows = connection.execute(select(ROLE_ASSIGNMENTS).where(which).order_by(ROLE_ASSIGNMENTS.c.id))
    return [Assignment(row.role_id, row.user_id, row.group_id, row.workspace_id) for row in rows]


def _members(connection: Connection, workspace: WorkspaceId, name: str) -> Members:
    held = _assignments(connection, ROLE_ASSIGNMENTS.c.workspace_id == workspace)
    holders = select(USERS).where(USERS.c.id.in_(_present(assignment.user for assignment in held)))
    theirs = select(GROUPS).where(GROUPS.c.id.in_(_present(assignment.group for assignment in held)))
    if name:
        holders = holders.where(
            USERS.c.username.icontains(name, autoescape=True) | USERS.c.display_name.icontains(name, autoescape=True)
        )
        theirs = theirs.where(GROUPS.c.name.icontains(name, autoescape=True))
    people = [users.of(row) for row in connection.execute(holders.order_by(USERS.c.id))]
    found = [Group(row.id, row.name) for row in connection.execute(theirs.order_by(GROUPS.c.id))]
    shown_users, shown_groups = {user.id for user in people}, {group.id for group in found}
    return Members(
        people,
        [(group, groups.members(connection, group.id)) for group in found],
        [each for each in held if each.user in shown_users or each.group in shown_groups],
    )


def _present(ids: Iterable[int | None]) -> list[int]:
    return [id for id in ids if id is not None]
