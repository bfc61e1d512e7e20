"""Brings a database's schema up to date, with Alembic. Loaded only where there is something to do."""

from importlib.resources import files

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, Engine


def upgrade(engine: Engine) -> None:
    with engine.begin() as connection:
        command.upgrade(configuration(connection), "head")


def configuration(connection: Connection) -> Config:
    """For Alembic's commands on this connection."""
    found = Config()
    found.set_main_option("script_location", str(files("muster.records") / "migrations"))
    found.attributes["connection"] = connection
    return found
