"""Roles: which there are, and who holds them where."""

from collections.abc import Iterable, Sequence

from muster.accounts import roles as books
from muster.accounts.authorizing import Authorizer
from muster.accounts.callers import UserId, WorkspaceId
from muster.accounts.groups import GroupId
from muster.accounts.permissions import CLUSTER_ONLY, ROLES, Permission, RoleId
from muster.accounts.permissions import Role as Held
from muster.accounts.roles import Assignment, Roles
from muster.api import errors
from muster.server.determined import acting, groups, paging, permission_names, users
from muster.server.determined.groups import GroupDetails
from muster.server.determined.paging import Id, Paged, Pagination
from muster.server.determined.routing import Call, Message, Nothing, Route, Rule, known, route
from muster.server.determined.users import User


class ScopeTypeMask(Message, frozen=True):
    cluster: bool = False
    workspace: bool = False


class PermissionShown(Message, frozen=True):
    id: str = ""
    name: str = ""
    scope_type_mask: ScopeTypeMask | None = None


class Role(Message, frozen=True):
    role_id: Id = 0
    name: str = ""
    permissions: Sequence[PermissionShown] = ()
    scope_type_mask: ScopeTypeMask | None = None


class RoleAssignment(Message, frozen=True):
    role: Role | None = None
    scope_workspace_id: Id | None = None
    scope_cluster: bool = False


class UserRoleAssignment(Message, frozen=True):
    user_id: Id = 0
    role_assignment: RoleAssignment | None = None


class GroupRoleAssignment(Message, frozen=True):
    group_id: Id = 0
    role_assignment: RoleAssignment | None = None


class ChangeAssignments(Message, frozen=True):
    user_role_assignments: Sequence[UserRoleAssignment] = ()
    group_role_assignments: Sequence[GroupRoleAssignment] = ()


class RoleWithAssignments(Message, frozen=True):
    role: Role
    user_role_assignments: Sequence[UserRoleAssignment]
    group_role_assignments: Sequence[GroupRoleAssignment]


class RoleAssignmentSummary(Message, frozen=True):
    role_id: int
    scope_cluster: bool
    scope_workspace_ids: Sequence[int]


class Summary(Message, frozen=True):
    """Roles, and where each is held: the lists go side by side."""

    roles: Sequence[Role]
    assignments: Sequence[RoleAssignmentSummary]


class ListRoles(Paged, frozen=True):
    pass


class SearchRoles(Paged, frozen=True):
    workspace_id: Id | None = None


class RolesReply(Message, frozen=True):
    roles: Sequence[Role]
    pagination: Pagination


class RolesById(Message, frozen=True):
    role_ids: Sequence[Id] = ()


class RolesWithAssignments(Message, frozen=True):
    roles: Sequence[RoleWithAssignments]


class OfUser(Message, frozen=True):
    user_id: Id = 0


class OfGroup(Message, frozen=True):
    group_id: Id = 0


class OfWorkspace(Message, frozen=True):
    workspace_id: Id = 0
    name: str = ""


class Members(Message, frozen=True):
    groups: Sequence[GroupDetails]
    users_assigned_directly: Sequence[User]
    assignments: Sequence[RoleWithAssignments]


class _Roles:
    def __init__(self, roles: Roles, authorizer: Authorizer) -> None:
        self._roles = roles
        self._authorizer = authorizer

    async def list(self, call: Call, asked: ListRoles) -> RolesReply:
        return _page(ROLES.values(), asked)

    async def search(self, call: Call, asked: SearchRoles) -> RolesReply:
        is_fit = [role for role in ROLES.values() if asked.workspace_id is None or role.is_for_workspace]
        return _page(is_fit, asked)

    async def by_ids(self, call: Call, asked: RolesById) -> RolesWithAssignments:
        wanted = [books.role(id) for id in asked.role_ids]
        held = await self._roles.of_roles([role.id for role in wanted])
        return RolesWithAssignments(roles=[_with_assignments(role, held) for role in wanted])

    async def of_user(self, call: Call, asked: OfUser) -> RolesWithAssignments:
        await acting.self_or(call, asked.user_id, self._authorizer, Permission.ADMINISTRATE_USERS)
        held = await self._roles.of_user(UserId(asked.user_id))
        return RolesWithAssignments(roles=[_with_assignments(role, held) for role in _roles_in(held)])

    async def of_group(self, call: Call, asked: OfGroup) -> Summary:
        """For its members and for administrators: it names workspaces that not everybody may know of."""
        group, caller = GroupId(asked.group_id), acting.person(call)
        if not await self._roles.is_member(caller.user, group):
            await self._authorizer.check(caller, Permission.ADMINISTRATE_USERS)
        return _summary(await self._roles.of_group(group))

    async def of_workspace(self, call: Call, asked: OfWorkspace) -> Members:
        found = await self._roles.members(WorkspaceId(asked.workspace_id), asked.name)
        return Members(
            groups=[groups.told(group, members) for group, members in found.groups],
            users_assigned_directly=[users.told(user) for user in found.users],
            assignments=[_with_assignments(role, found.assignments) for role in _roles_in(found.assignments)],
        )

    async def mine(self, call: Call, asked: Nothing) -> Summary:
        held = await self._roles.of_user(call.caller.user)
        if call.caller.is_admin:
            held = [*held, Assignment(RoleId(1), call.caller.user)]
        return _summary(held)

    async def assign(self, call: Call, asked: ChangeAssignments) -> Nothing:
        await self._roles.assign(acting.by(call), await self._wanted(call, asked))
        return Nothing()

    async def remove(self, call: Call, asked: ChangeAssignments) -> Nothing:
        await self._roles.remove(acting.by(call), await self._wanted(call, asked))
        return Nothing()

    async def _wanted(self, call: Call, asked: ChangeAssignments) -> Sequence[Assignment]:
        """Raises Forbidden where one of them is not the caller's to make: each workspace counts by itself."""
        wanted = list(_assignments(asked))
        if not wanted:
            raise errors.BadRequest("userRoleAssignments, groupRoleAssignments: one of them must name an assignment")
        for workspace in {assignment.workspace for assignment in wanted}:
            await self._authorizer.check(acting.person(call), Permission.ASSIGN_ROLES, workspace)
        return wanted


def _assignments(asked: ChangeAssignments) -> Iterable[Assignment]:
    for number, of_user in enumerate(asked.user_role_assignments):
        role, workspace = _place(of_user.role_assignment, f"userRoleAssignments[{number}]")
        yield Assignment(role, user=UserId(of_user.user_id), workspace=workspace)
    for number, of_group in enumerate(asked.group_role_assignments):
        role, workspace = _place(of_group.role_assignment, f"groupRoleAssignments[{number}]")
        yield Assignment(role, group=GroupId(of_group.group_id), workspace=workspace)


def _place(assignment: RoleAssignment | None, field: str) -> tuple[RoleId, WorkspaceId | None]:
    if assignment is None or assignment.role is None:
        raise errors.BadRequest(f"{field}.roleAssignment.role: required")
    if assignment.scope_cluster and assignment.scope_workspace_id:
        raise errors.BadRequest(f"{field}.roleAssignment: is for the cluster or for a workspace, not for both")
    workspace = None if not assignment.scope_workspace_id else WorkspaceId(assignment.scope_workspace_id)
    return RoleId(assignment.role.role_id), workspace


def _told(role: Held) -> Role:
    return Role(
        role_id=role.id,
        name=role.name,
        permissions=[
            PermissionShown(
                id=name,
                name=permission.value,
                scope_type_mask=ScopeTypeMask(cluster=True, workspace=permission not in CLUSTER_ONLY),
            )
            for permission in Permission
            if permission in role.permissions
            for name in permission_names.names(permission)
        ],
        scope_type_mask=ScopeTypeMask(cluster=role.is_for_cluster, workspace=role.is_for_workspace),
    )


def _page(found: Iterable[Held], asked: Paged) -> RolesReply:
    page = paging.cut(list(found), asked)
    return RolesReply(roles=[_told(role) for role in page.items], pagination=paging.told(page, asked))


def _roles_in(held: Sequence[Assignment]) -> Sequence[Held]:
    return [ROLES[id] for id in sorted({assignment.role for assignment in held}) if id in ROLES]


def _with_assignments(role: Held, held: Sequence[Assignment]) -> RoleWithAssignments:
    mine = [assignment for assignment in held if assignment.role == role.id]
    shown = _told(role)
    return RoleWithAssignments(
        role=shown,
        user_role_assignments=[
            UserRoleAssignment(user_id=each.user, role_assignment=_scope(shown, each))
            for each in mine
            if each.user is not None
        ],
        group_role_assignments=[
            GroupRoleAssignment(group_id=each.group, role_assignment=_scope(shown, each))
            for each in mine
            if each.group is not None
        ],
    )


def _scope(role: Role, held: Assignment) -> RoleAssignment:
    return RoleAssignment(role=role, scope_workspace_id=held.workspace, scope_cluster=held.workspace is None)


def _summary(held: Sequence[Assignment]) -> Summary:
    found = _roles_in(held)
    return Summary(
        roles=[_told(role) for role in found],
        assignments=[
            RoleAssignmentSummary(
                role_id=role.id,
                scope_cluster=any(each.role == role.id and each.workspace is None for each in held),
                scope_workspace_ids=sorted(
                    {each.workspace for each in held if each.role == role.id and each.workspace is not None}
                ),
            )
            for role in found
        ],
    )


async def _workspace(call: Call, asked: OfWorkspace) -> WorkspaceId:
    return WorkspaceId(asked.workspace_id)


def routes(roles: Roles, authorizer: Authorizer) -> Sequence[Route]:
    handlers, here = _Roles(roles, authorizer), "/api/v1/roles"
    member = Rule(Permission.VIEW_WORKSPACE, _workspace)
    return (
        route("POST", f"{here}/search", ListRoles, RolesReply, known(), handlers.list),
        route("POST", f"{here}/search/by-assignability", SearchRoles, RolesReply, known(), handlers.search),
        route(
            "POST",
            f"{here}/search/by-ids",
            RolesById,
            RolesWithAssignments,
            Rule(Permission.ADMINISTRATE_USERS),
            handlers.by_ids,
        ),
        route("GET", f"{here}/search/by-user/{{userId}}", OfUser, RolesWithAssignments, known(), handlers.of_user),
        route("GET", f"{here}/search/by-group/{{groupId}}", OfGroup, Summary, known(), handlers.of_group),
        route("GET", f"{here}/workspace/{{workspaceId}}", OfWorkspace, Members, member, handlers.of_workspace),
        # Whose assignments they are to make depends on where they are for: the handlers ask for each.
        route("POST", f"{here}/add-assignments", ChangeAssignments, Nothing, known(), handlers.assign),
        route("POST", f"{here}/remove-assignments", ChangeAssignments, Nothing, known(), handlers.remove),
        route("GET", "/api/v1/permissions/summary", Nothing, Summary, known(), handlers.mine),
    )
