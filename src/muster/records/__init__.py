"""The relational records: users, tasks, metrics, logs. SQLite by default, PostgreSQL by one URL."""

from muster.records.database import Database
from muster.records.tables import METADATA

__all__ = ["METADATA", "Database"]
