"""Users in the records: functions of a connection, which know nothing of caches and rights."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from sqlalchemy import ColumnElement, Connection, Row, Select, func, insert, select, update

from muster.accounts import names
from muster.accounts.callers import UserId
from muster.api import errors
from muster.api.meta import Instant
from muster.records.paging import WHOLE, Page, Window, select_page
from muster.records.tables_accounts import ROLE_ASSIGNMENTS, USERS

_HIGHEST: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class AgentUserGroup:
    """Under whom tasks run on a node."""

    uid: int | None = None
    gid: int | None = None
    user: str | None = None
    group: str | None = None


@dataclass(frozen=True, slots=True)
class User:
    id: UserId
    username: str
    display_name: str
    is_admin: bool
    is_active: bool
    is_remote: bool
    """Logs in through a provider, never with a password."""
    agent: AgentUserGroup | None
    modified: Instant
    last_login: Instant | None


@dataclass(frozen=True, slots=True)
class NewUser:
    username: str
    display_name: str = ""
    is_admin: bool = False
    is_active: bool = True
    is_remote: bool = False
    agent: AgentUserGroup | None = None


@dataclass(frozen=True, slots=True)
class UserPatch:
    """None leaves it as it is."""

    username: str | None = None
    display_name: str | None = None
    is_admin: bool | None = None
    is_active: bool | None = None
    is_remote: bool | None = None
    agent: AgentUserGroup | None = None


class UserOrder(StrEnum):
    ID = "id"
    DISPLAY_NAME = "display_name"
    USERNAME = "username"
    ADMIN = "admin"
    ACTIVE = "active"
    REMOTE = "remote"
    MODIFIED = "modified"
    LAST_LOGIN = "last_login"
    NAME = "name"
    """The display name, or the username of those who have none."""


@dataclass(frozen=True, slots=True)
class UserFilter:
    """`name`: a part of the username or the display name. `roles`: held by the user itself, in the whole cluster."""

    name: str = ""
    is_active: bool | None = None
    is_admin: bool | None = None
    roles: Sequence[int] = ()


def get(connection: Connection, user: int) -> User:
    """Raises NotFound."""
    row = connection.execute(select(USERS).where(USERS.c.id == user)).one_or_none()
    if row is None:
        raise errors.NotFound(f"user {user} not found")
    return of(row)


def named(connection: Connection, username: str) -> User:
    """Raises NotFound."""
    row = connection.execute(select(USERS).where(USERS.c.username == username.lower())).one_or_none()
    if row is None:
        raise errors.NotFound(f"user {username[: names.LONGEST]!r} not found")
    return of(row)


def listed(
    connection: Connection,
    chosen: UserFilter,
    order: UserOrder = UserOrder.ID,
    *,
    descending: bool = False,
    window: Window = WHOLE,
) -> Page[User]:
    query = _chosen(chosen)
    by: ColumnElement[object] = _name() if order is UserOrder.NAME else USERS.c[order.value]
    # Those who never logged in come last in PostgreSQL and first in SQLite, unless told.
    ordered = (by.desc().nulls_last(), USERS.c.id.desc()) if descending else (by.asc().nulls_first(), USERS.c.id)
    page = select_page(connection, query.order_by(*ordered), window)
    return Page(tuple(map(of, page.items)), page.start, page.total)


def matching(connection: Connection, chosen: UserFilter) -> list[UserId]:
    query = _chosen(chosen).with_only_columns(USERS.c.id).order_by(USERS.c.id)
    return [UserId(found) for found in connection.scalars(query)]


def create(connection: Connection, new: NewUser, password_hash: str, at: Instant, id: int | None = None) -> User:
    """Raises AlreadyExists."""
    username = names.checked_username("username", new.username)
    _must_be_free(connection, username)
    values = {
        "username": username,
        "display_name": _display_name(new.display_name),
        "password_hash": password_hash,
        "admin": new.is_admin,
        "active": new.is_active,
        "remote": new.is_remote,
        "created": at,
        "modified": at,
        **agent_columns(new.agent),
    }
    if id is not None:
        values["id"] = id
    made = connection.scalar(insert(USERS).values(values).returning(USERS.c.id))
    return get(connection, made or 0)


def patch(connection: Connection, user: int, wanted: UserPatch, at: Instant) -> User:
    """Raises NotFound, AlreadyExists, and BadRequest where nobody could administrate any more."""
    before = get(connection, user)
    values: dict[str, object] = {"modified": at}
    if wanted.username is not None:
        username = names.checked_username("username", wanted.username)
        if username != before.username:
            _must_be_free(connection, username)
        values["username"] = username
    if wanted.display_name is not None:
        values["display_name"] = _display_name(wanted.display_name)
    if wanted.agent is not None:
        values |= agent_columns(wanted.agent)
    flags = {"admin": wanted.is_admin, "active": wanted.is_active, "remote": wanted.is_remote}
    values |= {name: value for name, value in flags.items() if value is not None}
    if before.is_admin and before.is_active and (wanted.is_admin is False or wanted.is_active is False):
        _must_not_be_the_last_administrator(connection, before)
    connection.execute(update(USERS).where(USERS.c.id == user).values(values))
    return get(connection, user)


def password_hash(connection: Connection, user: int) -> str:
    return connection.scalar(select(USERS.c.password_hash).where(USERS.c.id == user)) or ""


def set_password_hash(connection: Connection, user: int, password_hash: str, at: Instant) -> None:
    connection.execute(update(USERS).where(USERS.c.id == user).values(password_hash=password_hash, modified=at))


def must_exist(connection: Connection, users: Sequence[int], field: str) -> None:
    """Raises NotFound with those that do not."""
    found = set(connection.scalars(select(USERS.c.id).where(USERS.c.id.in_(users))))
    missing = sorted(set(users) - found)
    if missing:
        raise errors.NotFound(f"{field}: users {', '.join(map(str, missing))} not found")


def agent_columns(agent: AgentUserGroup | None) -> dict[str, object]:
    """For users and for workspaces. Raises BadRequest."""
    agent = agent or AgentUserGroup()
    for field, number in (("agentUid", agent.uid), ("agentGid", agent.gid)):
        if number is not None and not 0 <= number <= _HIGHEST:
            raise errors.BadRequest(f"agentUserGroup.{field}: must be between 0 and {_HIGHEST}, found {number}")
    for field, text in (("agentUser", agent.user), ("agentGroup", agent.group)):
        if text:
            names.checked(f"agentUserGroup.{field}", text)
    return {
        "agent_uid": agent.uid,
        "agent_gid": agent.gid,
        "agent_user": agent.user or None,
        "agent_group": agent.group or None,
    }


def agent_of(row: Row[tuple[object, ...]]) -> AgentUserGroup | None:
    found = AgentUserGroup(row.agent_uid, row.agent_gid, row.agent_user, row.agent_group)
    return None if found == AgentUserGroup() else found


def of(row: Row[tuple[object, ...]]) -> User:
    return User(
        id=UserId(row.id),
        username=row.username,
        display_name=row.display_name,
        is_admin=row.admin,
        is_active=row.active,
        is_remote=row.remote,
        agent=agent_of(row),
        modified=row.modified,
        last_login=row.last_login,
    )


def _chosen(chosen: UserFilter) -> Select[tuple[object, ...]]:
    query: Select[tuple[object, ...]] = select(USERS)
    if chosen.name:
        part = chosen.name
        query = query.where(
            USERS.c.username.icontains(part, autoescape=True) | USERS.c.display_name.icontains(part, autoescape=True)
        )
    if chosen.is_active is not None:
        query = query.where(USERS.c.active.is_(chosen.is_active))
    if chosen.is_admin is not None:
        query = query.where(USERS.c.admin.is_(chosen.is_admin))
    if chosen.roles:
        held = select(ROLE_ASSIGNMENTS.c.user_id).where(
            ROLE_ASSIGNMENTS.c.role_id.in_(chosen.roles),
            ROLE_ASSIGNMENTS.c.workspace_id.is_(None),
            ROLE_ASSIGNMENTS.c.user_id.is_not(None),
        )
        query = query.where(USERS.c.id.in_(held))
    return query


def _name() -> ColumnElement[object]:
    return func.coalesce(func.nullif(USERS.c.display_name, ""), USERS.c.username)


def _display_name(value: str) -> str:
    return names.checked("displayName", value) if value.strip() else ""


def _must_be_free(connection: Connection, username: str) -> None:
    if connection.scalar(select(USERS.c.id).where(USERS.c.username == username)) is not None:
        raise errors.AlreadyExists(f"username: {username!r} is taken")


def _must_not_be_the_last_administrator(connection: Connection, user: User) -> None:
    others = select(func.count()).where(USERS.c.admin.is_(True), USERS.c.active.is_(True), USERS.c.id != user.id)
    if not connection.scalar(others):
        raise errors.BadRequest(
            f"{user.username!r} is the only active administrator: make another user one first, else nobody could be"
        )
