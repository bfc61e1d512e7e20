"""What belongs to the cluster as a whole: its id, and the message that its administrators show to everybody."""

from dataclasses import dataclass
from typing import Final
from uuid import uuid4

import msgspec
from sqlalchemy import Connection, delete, insert, select

from muster.accounts.audit import By, Deed, note
from muster.api.meta import Instant
from muster.records import Database
from muster.records.tables_accounts import SERVER_KEYS
from muster.runtime.clock import Clock

_ID: Final = "cluster.id"
_MESSAGE: Final = "cluster.message"


@dataclass(frozen=True, slots=True)
class ClusterMessage:
    """Shown from `starts` until `ends`; None for ever."""

    text: str
    starts: Instant
    ends: Instant | None
    created: Instant


class ClusterFacts:
    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def id(self) -> str:
        """Made on first use, and never changed."""
        return await self._database.write(_id)

    async def check(self) -> None:
        """Raises Unavailable where the records cannot be read."""
        await self._database.read(lambda connection: _get(connection, _ID))

    async def message(self) -> ClusterMessage | None:
        """The one that is set, also where its time has not come; not where it is over."""
        found = await self._database.read(lambda connection: _get(connection, _MESSAGE))
        message = None if found is None else msgspec.json.decode(found, type=ClusterMessage)
        is_over = message is not None and message.ends is not None and message.ends <= self._clock.now()
        return None if is_over else message

    async def shown(self) -> ClusterMessage | None:
        """What everybody sees now."""
        message = await self.message()
        return message if message is not None and message.starts <= self._clock.now() else None

    async def set_message(self, by: By, text: str, starts: Instant, ends: Instant | None) -> None:
        """Instead of any before it."""
        now = self._clock.now()
        encoded = msgspec.json.encode(ClusterMessage(text, starts, ends, now))

        def change(connection: Connection) -> None:
            connection.execute(delete(SERVER_KEYS).where(SERVER_KEYS.c.name == _MESSAGE))
            connection.execute(insert(SERVER_KEYS).values(name=_MESSAGE, value=encoded))
            note(connection, now, by, Deed("cluster.message", "cluster", "set"))

        await self._database.write(change)

    async def clear_message(self, by: By) -> None:
        def change(connection: Connection) -> None:
            connection.execute(delete(SERVER_KEYS).where(SERVER_KEYS.c.name == _MESSAGE))
            note(connection, self._clock.now(), by, Deed("cluster.message", "cluster", "cleared"))

        await self._database.write(change)


def _id(connection: Connection) -> str:
    found = _get(connection, _ID)
    if found is None:
        found = str(uuid4()).encode()
        connection.execute(insert(SERVER_KEYS).values(name=_ID, value=found))
    return found.decode()


def _get(connection: Connection, name: str) -> bytes | None:
    return connection.scalar(select(SERVER_KEYS.c.value).where(SERVER_KEYS.c.name == name))
