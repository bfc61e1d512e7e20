"""Brings a database's schema up to date, with Alembic."""

from importlib.resources import files

from alembic import command
from alembic.config import Config
from sqlalchemy import Engine


def migrate(engine: Engine) -> None:
    with engine.begin() as connection:
        configuration = Config()
        configuration.set_main_option("script_location", str(files("muster.records") / "migrations"))
        configuration.attributes["connection"] = connection
        command.upgrade(configuration, "head")
