"""A query of several statements, and a change that comes between two of them."""

import asyncio
import threading
from pathlib import Path

import pytest
from sqlalchemy import Connection, text

from muster.testing.databases import fresh_database

pytestmark = pytest.mark.postgres


async def test_what_is_written_meanwhile_is_not_half_seen(tmp_path: Path) -> None:
    begun, changed = threading.Event(), threading.Event()

    def count(connection: Connection) -> int:
        return int(connection.scalar(text("SELECT count(*) FROM things")) or 0)

    def counted_twice(connection: Connection) -> tuple[int, int]:
        first = count(connection)
        begun.set()
        assert changed.wait(5)
        return first, count(connection)

    async with fresh_database(tmp_path) as database:
        await database.write(lambda connection: connection.execute(text("CREATE TABLE things (id INTEGER)")))
        reading = asyncio.create_task(database.read(counted_twice))
        await asyncio.to_thread(begun.wait, 5)
        await database.write(lambda connection: connection.execute(text("INSERT INTO things VALUES (1)")))
        changed.set()
        assert await reading == (0, 0)
        assert await database.read(count) == 1
