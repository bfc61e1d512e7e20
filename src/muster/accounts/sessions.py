"""Sessions and access tokens in the records: functions of a connection."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from sqlalchemy import ColumnElement, Connection, Row, delete, insert, or_, select, update

from muster.accounts import names, tokens
from muster.accounts.callers import Caller, UserId
from muster.api import errors
from muster.api.meta import Instant
from muster.records.paging import WHOLE, Page, Window, select_page
from muster.records.tables_accounts import SESSIONS, USERS


class SessionKind(StrEnum):
    LOGIN = "login"
    ACCESS = "access"
    """Made by a user, for programs."""
    TASK = "task"
    """What a task holds to act as its user."""
    ALLOCATION = "allocation"
    """What a task holds to speak for itself."""


@dataclass(frozen=True, slots=True)
class NewSession:
    user: UserId
    kind: SessionKind
    expires: Instant | None
    description: str = ""
    task: str = ""
    allocation: str = ""


@dataclass(frozen=True, slots=True)
class AccessToken:
    """Without the token itself: nobody has it but who asked for it."""

    id: int
    user: UserId
    created: Instant
    expires: Instant | None
    is_revoked: bool
    description: str


@dataclass(frozen=True, slots=True)
class Shown:
    """A token that was shown and is known: for whom it speaks, and how long it does."""

    caller: Caller
    expires: Instant | None


class TokenOrder(StrEnum):
    ID = "id"
    USER = "user_id"
    EXPIRES = "expires"
    CREATED = "created"
    KIND = "kind"
    REVOKED = "revoked"
    DESCRIPTION = "description"


@dataclass(frozen=True, slots=True)
class TokenFilter:
    user: UserId | None = None
    ids: Sequence[int] = ()
    with_inactive: bool = False


def open(connection: Connection, new: NewSession, at: Instant) -> tuple[int, str]:
    """Its id, and the token."""
    token = tokens.mint()
    made = connection.scalar(
        insert(SESSIONS)
        .values(
            user_id=new.user,
            kind=new.kind.value,
            digest=tokens.digest(token),
            created=at,
            expires=new.expires,
            description=names.checked_text("description", new.description, longest=1000),
            task=new.task,
            allocation=new.allocation,
        )
        .returning(SESSIONS.c.id)
    )
    assert made is not None
    return made, token


def find(connection: Connection, digest: bytes, now: Instant) -> Shown | None:
    """None where it is unknown, revoked, expired, or its user is not active."""
    query = (
        select(
            SESSIONS, USERS.c.username, USERS.c.admin,
        )
        .join(USERS, USERS.c.id == SESSIONS.c.user_id)
        .where(SESSIONS.c.digest == digest, _is_valid(now), USERS.c.active.is_(True))
    )  # fmt: skip
    row = connection.execute(query).one_or_none()
    if row is None:
        return None
    is_allocation = row.kind == SessionKind.ALLOCATION
    caller = Caller(
        UserId(row.user_id),
        row.username,
        row.admin,
        row.id,
        row.allocation if is_allocation else "",
        row.task if is_allocation else "",
    )
    return Shown(caller, row.expires)


def close(connection: Connection, session: int, kind: SessionKind) -> None:
    connection.execute(delete(SESSIONS).where(SESSIONS.c.id == session, SESSIONS.c.kind == kind.value))


def close_logins(connection: Connection, user: int) -> None:
    connection.execute(delete(SESSIONS).where(SESSIONS.c.user_id == user, SESSIONS.c.kind == SessionKind.LOGIN.value))


def close_of_task(connection: Connection, task: str, allocation: str = "") -> frozenset[int]:
    """All that a task holds, or what one of its runs does. Returns which they were."""
    query = delete(SESSIONS).where(SESSIONS.c.task == task, SESSIONS.c.task != "")
    if allocation:
        query = query.where(SESSIONS.c.allocation == allocation)
    return frozenset(connection.scalars(query.returning(SESSIONS.c.id)))


def purge(connection: Connection, now: Instant) -> int:
    """Sessions that are over. Access tokens stay: their list shows also those that were."""
    return connection.execute(
        delete(SESSIONS).where(SESSIONS.c.kind != SessionKind.ACCESS.value, SESSIONS.c.expires <= now)
    ).rowcount


def listed(
    connection: Connection,
    chosen: TokenFilter,
    now: Instant,
    order: TokenOrder = TokenOrder.ID,
    *,
    descending: bool = False,
    window: Window = WHOLE,
) -> Page[AccessToken]:
    query = select(SESSIONS).where(SESSIONS.c.kind == SessionKind.ACCESS.value)
    if chosen.user is not None:
        query = query.where(SESSIONS.c.user_id == chosen.user)
    if chosen.ids:
        query = query.where(SESSIONS.c.id.in_(chosen.ids))
    if not chosen.with_inactive:
        query = query.where(_is_valid(now))
    by = SESSIONS.c[order.value]
    ordered = (by.desc().nulls_first(), SESSIONS.c.id.desc()) if descending else (by.asc().nulls_last(), SESSIONS.c.id)
    page = select_page(connection, query.order_by(*ordered), window)
    return Page(tuple(map(_token, page.items)), page.start, page.total)


def access_token(connection: Connection, token: int) -> AccessToken:
    """Raises NotFound."""
    row = connection.execute(
        select(SESSIONS).where(SESSIONS.c.id == token, SESSIONS.c.kind == SessionKind.ACCESS.value)
    ).one_or_none()
    if row is None:
        raise no_such_token(token)
    return _token(row)


def no_such_token(token: int) -> errors.NotFound:
    return errors.NotFound(f"token {token} not found")


def patch(connection: Connection, token: int, description: str | None, revoke: bool, at: Instant) -> AccessToken:
    """Raises NotFound. What is revoked stays so."""
    before = access_token(connection, token)
    values: dict[str, object] = {}
    if description is not None:
        values["description"] = names.checked_text("description", description, longest=1000)
    if revoke and not before.is_revoked:
        values["revoked"] = at
    if values:
        connection.execute(update(SESSIONS).where(SESSIONS.c.id == token).values(values))
    return access_token(connection, token)


def _is_valid(now: Instant) -> ColumnElement[bool]:
    return SESSIONS.c.revoked.is_(None) & or_(SESSIONS.c.expires.is_(None), SESSIONS.c.expires > now)


def _token(row: Row[tuple[object, ...]]) -> AccessToken:
    return AccessToken(
        row.id, UserId(row.user_id), row.created, row.expires, row.revoked is not None, row.description
    )  # fmt: skip
