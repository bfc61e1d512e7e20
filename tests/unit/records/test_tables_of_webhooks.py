"""The migration of webhooks makes what their tables say."""

from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Connection

from muster.records import METADATA, tables_webhooks
from muster.testing.databases import fresh_database

OURS = {table.name for table in vars(tables_webhooks).values() if getattr(table, "metadata", None) is METADATA}


def _table(difference: object) -> str:
    last = difference[-1] if isinstance(difference, tuple) else None
    return str(getattr(getattr(last, "table", last), "name", ""))


@pytest.mark.postgres
@pytest.mark.filterwarnings("ignore:autogenerate skipping metadata-specified expression-based index")
@pytest.mark.filterwarnings("ignore:Skipped unsupported reflection of expression-based index")
async def test_the_migrated_tables_of_webhooks_are_what_we_say(tmp_path: Path) -> None:
    def compare(connection: Connection) -> list[object]:
        options = {"include_name": lambda name, kind, parents: kind != "table" or name in OURS, "compare_type": True}
        return list(compare_metadata(MigrationContext.configure(connection, opts=options), METADATA))

    async with fresh_database(tmp_path) as database:
        different = [each for each in await database.read(compare) if _table(each) in OURS]
    assert different == []
    assert "webhooks" in OURS
