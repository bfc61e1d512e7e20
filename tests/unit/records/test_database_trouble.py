"""What writers and readers hear when the disk is full, or when the database goes away and comes back."""

import asyncio
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from sqlalchemy import Column, Connection, Integer, LargeBinary, MetaData, String, Table, insert, select, text

from muster.api import errors
from muster.records import Database
from muster.testing.databases import VARIABLE, fresh_database

THINGS = Table(
    "things", MetaData(),
    Column("id", Integer, primary_key=True), Column("name", String, unique=True), Column("body", LargeBinary),
)  # fmt: skip
needs_postgres = pytest.mark.skipif(not os.environ.get(VARIABLE), reason="needs a PostgreSQL")


def add(name: str, size: int = 1) -> Callable[[Connection], str]:
    def change(connection: Connection) -> str:
        connection.execute(insert(THINGS).values(name=name, body=b"x" * size))
        return name

    return change


def names(connection: Connection) -> list[str]:
    return list(connection.scalars(select(THINGS.c.name).order_by(THINGS.c.name)))


async def together(database: Database, changes: Sequence[Callable[[Connection], object]]) -> list[object]:
    """What each of them comes to, in one transaction as far as that goes."""
    wall = threading.Event()
    held = asyncio.create_task(database.write(lambda connection: wall.wait(5)))
    asked = [asyncio.create_task(database.write(change)) for change in changes]
    await asyncio.sleep(0.02)
    wall.set()
    _, *told = await asyncio.gather(held, *asked, return_exceptions=True)
    return told


async def test_what_a_full_disk_takes_with_it_is_not_acknowledged(tmp_path: Path) -> None:
    database = await Database.at(tmp_path / "records.db")
    await database.write(THINGS.create)

    def little_room(connection: Connection) -> None:
        pages = connection.scalar(text("PRAGMA page_count")) or 0
        connection.execute(text(f"PRAGMA max_page_count={pages + 40}"))

    await database.write(little_room)
    told = await together(database, [add("a"), add("b"), add("large", 4_000_000), add("c")])
    assert [type(each) for each in told] == [errors.Unavailable, errors.Unavailable, errors.Unavailable, str]
    assert await database.read(names) == ["c"]
    assert await database.write(add("a")) == "a"
    await database.close()


async def test_who_gives_up_while_the_database_is_away_does_not_stop_the_others(tmp_path: Path) -> None:
    database = Database.connect(f"sqlite:///{tmp_path}/not/there.db")
    asked = [asyncio.create_task(database.write(add(str(number)))) for number in range(50)]
    await asyncio.sleep(0)
    for task in asked[::2]:
        task.cancel()
    told = await asyncio.gather(*asked, return_exceptions=True)
    assert {type(each) for each in told[1::2]} == {errors.Unavailable}
    (tmp_path / "not").mkdir()
    await database.write(THINGS.create)
    assert await database.write(add("a")) == "a"
    await database.close()


async def test_what_is_wrong_with_a_question_is_no_trouble_of_the_database(tmp_path: Path) -> None:
    database = await Database.at(tmp_path / "records.db")
    with pytest.raises(Exception, match="no such table") as caught:
        await database.read(names)
    assert not isinstance(caught.value, errors.ApiError)
    await database.close()


async def test_long_readers_do_not_hold_up_the_others(tmp_path: Path) -> None:
    async with fresh_database(tmp_path) as database:
        wall = threading.Event()
        long = [asyncio.create_task(database.read(lambda _: wall.wait(5), is_long=True)) for _ in range(20)]
        await asyncio.sleep(0.01)
        assert await asyncio.wait_for(database.read(lambda connection: connection.scalar(select(1))), 2) == 1
        wall.set()
        await asyncio.gather(*long)


@needs_postgres
@pytest.mark.postgres
async def test_a_connection_that_breaks_takes_only_its_transaction_with_it(tmp_path: Path) -> None:
    async with fresh_database(tmp_path) as database:
        await database.write(THINGS.create)

        def cut(connection: Connection) -> None:
            connection.execute(text("SELECT pg_terminate_backend(pg_backend_pid())"))

        told = await together(database, [add("a"), cut, add("b")])
        assert [type(each) for each in told] == [errors.Unavailable, errors.Unavailable, str]
        assert await database.read(names) == ["b"]


@needs_postgres
@pytest.mark.postgres
async def test_a_server_that_was_away_is_found_again(tmp_path: Path) -> None:
    async with fresh_database(tmp_path) as database:
        await database.write(THINGS.create)
        await database.write(add("a"))
        await asyncio.gather(*(database.read(names) for _ in range(8)))

        def cut_all(connection: Connection) -> None:
            others = "pid <> pg_backend_pid() AND datname = current_database()"
            connection.execute(text(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {others}"))

        await database.write(cut_all)
        assert await asyncio.gather(*(database.read(names) for _ in range(8))) == [["a"]] * 8
    away = Database.connect("postgresql://muster@/postgres?host=/nowhere")
    for ask in (away.read, away.write):
        with pytest.raises(errors.Unavailable):
            await ask(names)
    await away.close()
