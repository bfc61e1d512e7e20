"""Whether a database's schema is up to date; where it is not, `upgrading` makes it so.

Alembic is loaded only then: it takes a good part of the time in which a server starts.
"""

import importlib
from importlib.resources import files
from typing import Final

from sqlalchemy import Engine, inspect, text

_TABLE: Final = "alembic_version"


def migrate(engine: Engine) -> None:
    if _revisions(engine) != {_newest()}:
        importlib.import_module("muster.records.upgrading").upgrade(engine)


def _revisions(engine: Engine) -> set[str]:
    """Those that the database is at; none for a new one."""
    with engine.connect() as connection:
        if not inspect(connection).has_table(_TABLE):
            return set()
        return set(connection.scalars(text(f"SELECT version_num FROM {_TABLE}")))  # noqa: S608  our own name


def _newest() -> str:
    """By the files' names, which begin with their number: `r0001_accounts.py`."""
    names = [found.name for found in (files("muster.records") / "migrations" / "versions").iterdir()]
    return max(name[1:].partition("_")[0] for name in names if name.startswith("r") and name.endswith(".py"))
