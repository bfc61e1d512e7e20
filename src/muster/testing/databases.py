"""Fresh records for a test: SQLite, or PostgreSQL where a server's URL is in MUSTER_TEST_POSTGRES.

The schema is made once and copied for each test: a copy costs a few milliseconds, the migrations a hundred.
"""

import itertools
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from sqlalchemy import create_engine, text
from sqlalchemy.engine import URL, make_url

from muster.records import Database

VARIABLE: Final = "MUSTER_TEST_POSTGRES"
_numbers = itertools.count(1)
_templates: dict[str, Path | str] = {}


@asynccontextmanager
async def fresh_database(folder: Path) -> AsyncIterator[Database]:
    """With the schema, and nothing in it. `folder`: for the test alone; also where its parent is, things are kept."""
    server = os.environ.get(VARIABLE, "")
    async with _postgres(server) if server else _sqlite(folder) as found:
        yield found


@asynccontextmanager
async def _sqlite(folder: Path) -> AsyncIterator[Database]:
    template = _templates.get("")
    if not isinstance(template, Path):
        template = folder.parent / f"records-template-{os.getpid()}.db"
        await (await Database.at(template)).close()
        _templates[""] = template
    path = folder / f"records-{next(_numbers)}.db"
    shutil.copyfile(template, path)
    database = Database.connect(str(URL.create("sqlite", database=str(path))))
    try:
        yield database
    finally:
        await database.close()


@asynccontextmanager
async def _postgres(server: str) -> AsyncIterator[Database]:
    template = _templates.get(server)
    if not isinstance(template, str):
        template = f"template_{os.getpid()}"
        _execute(server, f"CREATE DATABASE {template}")
        await (await Database.open(_named(server, template))).close()
        _templates[server] = template
    name = f"test_{os.getpid()}_{next(_numbers)}"
    _execute(server, f"CREATE DATABASE {name} TEMPLATE {template}")
    database = Database.connect(_named(server, name))
    try:
        yield database
    finally:
        await database.close()
        _execute(server, f"DROP DATABASE {name}")


def _named(server: str, database: str) -> str:
    return make_url(server).set(database=database).render_as_string(hide_password=False)


def _execute(server: str, statement: str) -> None:
    url: URL = make_url(server).set(drivername="postgresql+psycopg")
    engine = create_engine(url, isolation_level="AUTOCOMMIT")
    try:
        with engine.connect() as connection:
            connection.execute(text(statement))
    finally:
        engine.dispose()
