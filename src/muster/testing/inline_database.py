"""Records without threads, for tests on virtual time: time does not pass while a change is made."""

import asyncio
from collections.abc import Callable
from typing import Final, TypeVar

from sqlalchemy import Connection, StaticPool, create_engine, event
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.pool import ConnectionPoolEntry

from muster.records import METADATA, Database, tables_accounts, tables_tasks

T = TypeVar("T")
TABLES: Final = (tables_accounts, tables_tasks)
"""Imported so that METADATA knows them."""


class InlineDatabase(Database):
    """In memory, and as durable as the object is: it outlives those who crash."""

    def __init__(self) -> None:
        self._engine = create_engine("sqlite://", poolclass=StaticPool, connect_args={"check_same_thread": False})
        event.listen(self._engine, "connect", _strict)
        METADATA.create_all(self._engine)
        self.writes = 0
        self.failures: list[Exception] = []
        """Raised by the next writes."""

    async def read(self, query: Callable[[Connection], T], *, is_long: bool = False) -> T:  # noqa: ARG002
        await asyncio.sleep(0)
        with self._engine.connect() as connection:
            return query(connection)

    async def write(self, change: Callable[[Connection], T]) -> T:
        await asyncio.sleep(0)
        if self.failures:
            raise self.failures.pop(0)
        self.writes += 1
        with self._engine.begin() as connection:
            return change(connection)

    async def close(self) -> None:
        self._engine.dispose()


def _strict(connection: DBAPIConnection, _entry: ConnectionPoolEntry) -> None:
    cursor = connection.cursor()
    cursor.execute("PRAGMA foreign_keys=ON")
    cursor.close()
