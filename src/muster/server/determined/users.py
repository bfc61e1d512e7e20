"""Users: who is there, and what each of them is."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Final

from muster.accounts import user_settings
from muster.accounts import users as people
from muster.accounts.authorizing import Authorizer
from muster.accounts.permissions import Permission
from muster.accounts.projects import Projects
from muster.accounts.service import Accounts, Password
from muster.accounts.users import NewUser, UserFilter, UserOrder, UserPatch
from muster.api import errors
from muster.server.determined import acting, paging
from muster.server.determined.ordering import OrderBy
from muster.server.determined.paging import Id, Paged, Pagination
from muster.server.determined.routing import Call, Message, Nothing, Route, Rule, known, route


class AgentUserGroup(Message, frozen=True):
    agent_uid: int | None = None
    agent_gid: int | None = None
    agent_user: str | None = None
    agent_group: str | None = None

    def wanted(self) -> people.AgentUserGroup:
        return people.AgentUserGroup(self.agent_uid, self.agent_gid, self.agent_user, self.agent_group)


class User(Message, frozen=True):
    id: Id = 0
    username: str = ""
    admin: bool = False
    active: bool = False
    agent_user_group: AgentUserGroup | None = None
    display_name: str = ""
    modified_at: str | None = None
    remote: bool = False
    last_auth_at: str | None = None


class UserReply(Message, frozen=True):
    user: User


class SortBy(StrEnum):
    UNSPECIFIED = "SORT_BY_UNSPECIFIED"
    DISPLAY_NAME = "SORT_BY_DISPLAY_NAME"
    USER_NAME = "SORT_BY_USER_NAME"
    ADMIN = "SORT_BY_ADMIN"
    ACTIVE = "SORT_BY_ACTIVE"
    MODIFIED_TIME = "SORT_BY_MODIFIED_TIME"
    NAME = "SORT_BY_NAME"
    LAST_AUTH_TIME = "SORT_BY_LAST_AUTH_TIME"
    REMOTE = "SORT_BY_REMOTE"


_ORDERS: Final[Mapping[SortBy, UserOrder]] = {
    SortBy.UNSPECIFIED: UserOrder.ID,
    SortBy.DISPLAY_NAME: UserOrder.DISPLAY_NAME,
    SortBy.USER_NAME: UserOrder.USERNAME,
    SortBy.ADMIN: UserOrder.ADMIN,
    SortBy.ACTIVE: UserOrder.ACTIVE,
    SortBy.MODIFIED_TIME: UserOrder.MODIFIED,
    SortBy.NAME: UserOrder.NAME,
    SortBy.LAST_AUTH_TIME: UserOrder.LAST_LOGIN,
    SortBy.REMOTE: UserOrder.REMOTE,
}


class GetUsers(Paged, frozen=True):
    sort_by: SortBy = SortBy.UNSPECIFIED
    order_by: OrderBy = OrderBy.UNSPECIFIED
    name: str = ""
    active: bool | None = None
    admin: bool | None = None
    role_id_assigned_directly_to_user: Sequence[Id] = ()


class GetUsersReply(Message, frozen=True):
    users: Sequence[User]
    pagination: Pagination


class UserAsked(Message, frozen=True):
    user_id: Id = 0


class UserNamed(Message, frozen=True):
    username: str = ""


class PostUser(Message, frozen=True):
    user: User | None = None
    password: str = ""
    is_hashed: bool = False


class PatchUser(Message, frozen=True):
    user_id: Id = 0
    username: str | None = None
    admin: bool | None = None
    active: bool | None = None
    display_name: str | None = None
    agent_user_group: AgentUserGroup | None = None
    remote: bool | None = None
    password: str | None = None
    is_hashed: bool = False


class UserFilters(Message, frozen=True):
    name: str = ""
    admin: bool | None = None


class PatchUsers(Message, frozen=True):
    user_ids: Sequence[Id] = ()
    activate: bool = False
    filters: UserFilters | None = None


class UserActionResult(Message, frozen=True):
    id: int
    error: str


class PatchUsersReply(Message, frozen=True):
    results: Sequence[UserActionResult]


class SetPassword(Message, frozen=True):
    user_id: Id = 0
    password: str = ""


class Setting(Message, frozen=True):
    key: str = ""
    value: str | None = None
    storage_path: str = ""


class Settings(Message, frozen=True):
    settings: Sequence[Setting] = ()


class ActivityType(StrEnum):
    UNSPECIFIED = "ACTIVITY_TYPE_UNSPECIFIED"
    GET = "ACTIVITY_TYPE_GET"


class EntityType(StrEnum):
    UNSPECIFIED = "ENTITY_TYPE_UNSPECIFIED"
    PROJECT = "ENTITY_TYPE_PROJECT"


class PostActivity(Message, frozen=True):
    activity_type: ActivityType = ActivityType.UNSPECIFIED
    entity_type: EntityType = EntityType.UNSPECIFIED
    entity_id: Id = 0


def told(user: people.User) -> User:
    return User(
        id=user.id,
        username=user.username,
        admin=user.is_admin,
        active=user.is_active,
        agent_user_group=told_agent(user.agent),
        display_name=user.display_name,
        modified_at=acting.time(user.modified),
        remote=user.is_remote,
        last_auth_at=acting.time(user.last_login),
    )


def told_agent(agent: people.AgentUserGroup | None) -> AgentUserGroup | None:
    if agent is None:
        return None
    return AgentUserGroup(agent_uid=agent.uid, agent_gid=agent.gid, agent_user=agent.user, agent_group=agent.group)


class _Users:
    def __init__(self, accounts: Accounts, authorizer: Authorizer, projects: Projects) -> None:
        self._accounts = accounts
        self._authorizer = authorizer
        self._projects = projects

    async def list(self, call: Call, asked: GetUsers) -> GetUsersReply:
        chosen = UserFilter(asked.name, asked.active, asked.admin, asked.role_id_assigned_directly_to_user)
        descending = asked.order_by is OrderBy.DESC
        page = await self._accounts.users(chosen, _ORDERS[asked.sort_by], descending=descending, window=asked.window)
        return GetUsersReply(users=[told(user) for user in page.items], pagination=paging.told(page, asked))

    async def get(self, call: Call, asked: UserAsked) -> UserReply:
        return UserReply(user=told(await self._accounts.user(asked.user_id)))

    async def by_name(self, call: Call, asked: UserNamed) -> UserReply:
        return UserReply(user=told(await self._accounts.user_named(asked.username)))

    async def me(self, call: Call, asked: Nothing) -> User:
        return told(await self._accounts.me(call.caller))

    async def create(self, call: Call, asked: PostUser) -> UserReply:
        if asked.user is None:
            raise errors.BadRequest("user: required")
        new = NewUser(
            asked.user.username,
            asked.user.display_name,
            asked.user.admin,
            asked.user.active,
            asked.user.remote,
            asked.user.agent_user_group.wanted() if asked.user.agent_user_group else None,
        )
        made = await self._accounts.create_user(acting.by(call), new, Password(asked.password, asked.is_hashed))
        return UserReply(user=told(made))

    async def patch(self, call: Call, asked: PatchUser) -> UserReply:
        await acting.self_or(call, asked.user_id, self._authorizer, Permission.ADMINISTRATE_USERS)
        patch = UserPatch(
            asked.username,
            asked.display_name,
            asked.admin,
            asked.active,
            asked.remote,
            asked.agent_user_group.wanted() if asked.agent_user_group else None,
        )
        if patch != UserPatch(display_name=patch.display_name):
            await self._authorizer.check(call.caller, Permission.ADMINISTRATE_USERS, None)
        password = None if asked.password is None else Password(asked.password, asked.is_hashed)
        return UserReply(user=told(await self._accounts.patch_user(acting.by(call), asked.user_id, patch, password)))

    async def patch_many(self, call: Call, asked: PatchUsers) -> PatchUsersReply:
        chosen = None if asked.filters is None else UserFilter(asked.filters.name, is_admin=asked.filters.admin)
        done = await self._accounts.activate_many(acting.by(call), chosen, asked.user_ids, asked.activate)
        return PatchUsersReply(results=[UserActionResult(id=id, error=error) for id, error in done.items()])

    async def set_password(self, call: Call, asked: SetPassword) -> UserReply:
        await acting.self_or(call, asked.user_id, self._authorizer, Permission.ADMINISTRATE_USERS)
        password = Password(asked.password)
        return UserReply(
            user=told(await self._accounts.patch_user(acting.by(call), asked.user_id, UserPatch(), password))
        )

    async def settings(self, call: Call, asked: Nothing) -> Settings:
        found = await self._accounts.settings(call.caller.user)
        return Settings(
            settings=[Setting(key=each.key, value=each.value, storage_path=each.storage_path) for each in found]
        )

    async def set_settings(self, call: Call, asked: Settings) -> Nothing:
        wanted = [user_settings.Setting(each.key, each.value, each.storage_path) for each in asked.settings]
        await self._accounts.set_settings(acting.person(call).user, wanted)
        return Nothing()

    async def reset_settings(self, call: Call, asked: Nothing) -> Nothing:
        await self._accounts.reset_settings(acting.person(call).user)
        return Nothing()

    async def visit(self, call: Call, asked: PostActivity) -> Nothing:
        if asked.entity_type is EntityType.PROJECT:
            project = await self._projects.get(asked.entity_id)
            await self._authorizer.check(call.caller, Permission.VIEW_WORKSPACE, project.workspace)
            await self._projects.visit(acting.person(call).user, project.id)
        return Nothing()


def routes(accounts: Accounts, authorizer: Authorizer, projects: Projects) -> Sequence[Route]:
    users = _Users(accounts, authorizer, projects)
    here = "/api/v1/users"
    return (
        route("GET", here, GetUsers, GetUsersReply, known(), users.list),
        route("POST", here, PostUser, UserReply, Rule(Permission.ADMINISTRATE_USERS), users.create),
        route("PATCH", here, PatchUsers, PatchUsersReply, Rule(Permission.ADMINISTRATE_USERS), users.patch_many),
        route("GET", f"{here}/setting", Nothing, Settings, known(), users.settings),
        route("POST", f"{here}/setting", Settings, Nothing, known(), users.set_settings),
        route("POST", f"{here}/setting/reset", Nothing, Nothing, known(), users.reset_settings),
        route("POST", f"{here}/activity", PostActivity, Nothing, known(), users.visit),
        route("GET", f"{here}/{{userId}}", UserAsked, UserReply, known(), users.get),
        # Each may change their own password and display name; the handlers ask for more where more is wanted.
        route("PATCH", f"{here}/{{userId}}", PatchUser, UserReply, known(), users.patch),
        route(
            "POST", f"{here}/{{userId}}/password", SetPassword, UserReply, known(), users.set_password, body="password"
        ),
        route("GET", f"{here}/{{username}}/by-username", UserNamed, UserReply, known(), users.by_name),
        route("GET", "/users/me", Nothing, User, known(), users.me),
    )
