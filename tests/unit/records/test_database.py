"""Changes together and alone, and what a crash leaves."""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import Column, Connection, Integer, MetaData, String, Table, event, insert, select, text
from sqlalchemy.exc import IntegrityError

from muster.records import Database

THINGS = Table("things", MetaData(), Column("id", Integer, primary_key=True), Column("name", String, unique=True))


async def a_database(path: Path) -> Database:
    found = await Database.at(path / "records.db")
    await found.write(lambda connection: THINGS.create(connection, checkfirst=True))
    return found


def add(name: str) -> Callable[[Connection], int]:
    def change(connection: Connection) -> int:
        made = connection.execute(insert(THINGS).values(name=name)).inserted_primary_key
        assert made is not None
        return int(made[0])

    return change


def names(connection: Connection) -> list[str]:
    return list(connection.scalars(select(THINGS.c.name).order_by(THINGS.c.id)))


async def test_what_was_acknowledged_is_there_also_for_the_next_to_open_it(tmp_path: Path) -> None:
    database = await a_database(tmp_path)
    first = await database.write(add("a"))
    assert (first, await database.read(names)) == (1, ["a"])
    await database.close()
    again = await a_database(tmp_path)
    assert await again.read(names) == ["a"]
    await again.close()


async def test_a_change_that_fails_is_undone_alone(tmp_path: Path) -> None:
    database = await a_database(tmp_path)
    wall = threading.Event()
    held = asyncio.create_task(database.write(lambda connection: wall.wait(5)))

    def half(connection: Connection) -> None:
        connection.execute(insert(THINGS).values(name="half"))
        raise ValueError("no")

    others = [asyncio.create_task(database.write(change)) for change in (add("a"), half, add("a"), add("b"))]
    await asyncio.sleep(0)
    wall.set()
    await held
    results = await asyncio.gather(*others, return_exceptions=True)
    assert [type(result) for result in results] == [int, ValueError, IntegrityError, int]
    assert await database.read(names) == ["a", "b"]
    await database.close()


async def test_changes_that_wait_share_one_commit(tmp_path: Path) -> None:
    database = await a_database(tmp_path)
    commits: list[object] = []
    event.listen(database._engine, "commit", commits.append)
    wall = threading.Event()
    held = asyncio.create_task(database.write(lambda connection: wall.wait(5)))
    many = [asyncio.create_task(database.write(add(f"n{number}"))) for number in range(200)]
    await asyncio.sleep(0)
    wall.set()
    await asyncio.gather(held, *many)
    assert len(await database.read(names)) == 200
    assert len(commits) <= 3
    await database.close()


async def test_foreign_keys_hold_and_the_log_is_synchronous(tmp_path: Path) -> None:
    database = await a_database(tmp_path)
    for pragma, value in (("foreign_keys", 1), ("synchronous", 2), ("journal_mode", "wal")):
        asked = text(f"PRAGMA {pragma}")
        assert await database.read(lambda connection, asked=asked: connection.scalar(asked)) == value  # type: ignore[misc]
    await database.close()


async def test_a_url_that_names_no_database_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="nosuch"):
        await Database.open("nosuch://here")
