"""What all tables share. Each area has a module of its own, which puts its tables into METADATA."""

from typing import Final

from sqlalchemy import MetaData

METADATA: Final = MetaData(
    # Named, so that migrations can speak of them in every database.
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)
