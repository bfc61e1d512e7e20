"""Who did what, when, from where, and how it went: of logins, and of changes to accounts and rights.

A change and its record are written together: there is no one without the other.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from sqlalchemy import Connection, Row, delete, insert, select

from muster.accounts.callers import Caller, UserId
from muster.api.meta import Instant
from muster.records import Database
from muster.records.paging import WHOLE, Page, Window, select_page
from muster.records.tables_accounts import AUDIT
from muster.runtime.clock import Clock

_LONGEST: Final = 254
_LONGEST_DETAIL: Final = 4096


class Outcome(StrEnum):
    DONE = "done"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class By:
    """Who acts, and from where."""

    caller: Caller
    remote: str = ""


SYSTEM: Final = By(Caller(UserId(0), "system"))
"""The server itself."""


@dataclass(frozen=True, slots=True)
class Deed:
    """`action`: as in `user.create`. `detail`: which fields, never a secret value."""

    action: str
    target: str
    detail: str = ""
    outcome: Outcome = Outcome.DONE


@dataclass(frozen=True, slots=True)
class Entry:
    id: int
    at: Instant
    user: UserId | None
    username: str
    remote: str
    deed: Deed


def note(connection: Connection, at: Instant, by: By, deed: Deed) -> None:
    connection.execute(
        insert(AUDIT).values(
            at=at,
            user_id=by.caller.user or None,
            username=_plain(by.caller.username),
            action=deed.action,
            target=_plain(deed.target),
            outcome=deed.outcome.value,
            remote=_plain(by.remote),
            detail=_plain(deed.detail, _LONGEST_DETAIL),
        )
    )


class Audit:
    """Reads the records, and takes those that belong to no change."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def add(self, deeds: Sequence[tuple[By, Deed]]) -> None:
        def write(connection: Connection) -> None:
            for by, deed in deeds:
                note(connection, self._clock.now(), by, deed)

        await self._database.write(write)

    async def entries(self, *, username: str = "", action: str = "", window: Window = WHOLE) -> Page[Entry]:
        """Latest first. `action`: also only its beginning, as in `user.`."""

        def read(connection: Connection) -> Page[Entry]:
            query = select(AUDIT).order_by(AUDIT.c.id.desc())
            if username:
                query = query.where(AUDIT.c.username == username)
            if action:
                query = query.where(AUDIT.c.action.startswith(action, autoescape=True))
            page = select_page(connection, query, window)
            return Page(tuple(map(_entry, page.items)), page.start, page.total)

        return await self._database.read(read)

    async def forget(self, before: Instant) -> int:
        """How many are gone."""
        return await self._database.write(
            lambda connection: connection.execute(delete(AUDIT).where(AUDIT.c.at < before)).rowcount
        )


def _entry(row: Row[tuple[object, ...]]) -> Entry:
    deed = Deed(row.action, row.target, row.detail, Outcome(row.outcome))
    return Entry(row.id, row.at, row.user_id, row.username, row.remote, deed)


def _plain(text: str, longest: int = _LONGEST) -> str:
    """Also of those who sent nonsense: one line, so that nobody can write lines of their own into a log of this."""
    return "".join(character if character.isprintable() else "?" for character in text[:longest])
