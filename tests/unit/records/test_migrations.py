"""Migrations make the schema that the tables describe, in every database, and can be undone."""

import importlib
import os
import pkgutil
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Connection, inspect, select

from muster import records
from muster.api import errors
from muster.records import METADATA, Database
from muster.records import tables_accounts as tables
from muster.records.paging import Window
from muster.records.upgrading import configuration
from muster.testing.databases import VARIABLE, fresh_database

pytestmark = pytest.mark.postgres


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    async with fresh_database(tmp_path) as found:
        yield found


# SQLite cannot be asked what an index over expressions is made of.
@pytest.mark.filterwarnings("ignore:autogenerate skipping metadata-specified expression-based index")
@pytest.mark.filterwarnings("ignore:Skipped unsupported reflection of expression-based index")
async def test_the_migrated_schema_is_what_the_tables_say(database: Database) -> None:
    for module in pkgutil.iter_modules(records.__path__):
        importlib.import_module(f"{records.__name__}.{module.name}")  # METADATA has the tables that are imported

    def compare(connection: Connection) -> list[object]:
        return list(compare_metadata(MigrationContext.configure(connection, opts={"compare_type": True}), METADATA))

    assert await database.read(compare) == []
    found = await database.read(lambda connection: set(inspect(connection).get_table_names()))
    assert METADATA.tables.keys() <= found


async def test_all_can_be_undone_and_done_again(database: Database) -> None:
    def there_and_back(connection: Connection) -> set[str]:
        command.downgrade(configuration(connection), "base")
        left = set(inspect(connection).get_table_names())
        command.upgrade(configuration(connection), "head")
        return left

    before = await database.read(lambda connection: set(inspect(connection).get_table_names()))
    assert await database.write(there_and_back) == {"alembic_version"}
    assert await database.read(lambda connection: set(inspect(connection).get_table_names())) == before


async def test_it_is_the_database_that_was_asked_for(database: Database) -> None:
    assert database.is_sqlite == (not os.environ.get(VARIABLE))


@pytest.mark.parametrize("value", [2**70, -(2**70), "a\0b"])
async def test_what_cannot_be_stored_is_the_senders_mistake_or_is_not_there(database: Database, value: object) -> None:
    column = tables.USERS.c.username if isinstance(value, str) else tables.USERS.c.id
    query = select(tables.USERS.c.id).where(column == value)
    for ask in (database.read, database.write):
        with suppress(errors.BadRequest):
            assert await ask(lambda connection: connection.scalar(query)) is None
    assert await database.read(lambda connection: connection.scalar(select(1))) == 1


@pytest.mark.parametrize(
    ("offset", "limit", "page"),
    [
        (0, 0, (0, 5)), (0, 2, (0, 2)), (4, 2, (4, 5)), (5, 2, (5, 5)), (9, 2, (5, 5)), (0, -1, (0, 5)),
        (0, -2, (0, 0)), (-2, 0, (3, 5)), (-9, 3, (0, 3)), (2, 100, (2, 5)),
    ],
)  # fmt: skip
def test_where_a_page_begins_and_ends(offset: int, limit: int, page: tuple[int, int]) -> None:
    assert Window(offset, limit).within(5) == page
