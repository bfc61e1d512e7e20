"""What tasks have written: lines in chunks as they came, and what is known of each task's log as a whole.

A chunk is a batch of lines that share where they come from. It is written once and never changed, so that readers may
keep what they have made of it. Lines have no rows of their own: packed, they take a tenth of the room, and are written
and thrown away a thousand at a time. Times are microseconds since 1970, as lines have them.
"""

from typing import Final

from sqlalchemy import BigInteger, Column, Index, Integer, LargeBinary, String, Table, Text

from muster.records.tables import METADATA

_NAME: Final = 254
_Big: Final = BigInteger().with_variant(Integer, "sqlite")  # only an INTEGER counts by itself there


def _name(column: str) -> "Column[str]":
    return Column(column, String(_NAME), nullable=False)


TASK_LOGS: Final = Table(
    "task_logs", METADATA,
    Column("task_id", String(_NAME), primary_key=True),
    Column("newest", BigInteger, nullable=False),  # when its last chunk came
    Column("lines", BigInteger, nullable=False),
    Column("retention_days", Integer),  # NULL: as the cluster does; -1: for ever
    Index("ix_task_logs_newest", "newest"),
)  # fmt: skip

TASK_LOG_CHUNKS: Final = Table(
    "task_log_chunks", METADATA,
    Column("id", _Big, primary_key=True),
    _name("task_id"),
    Column("digest", LargeBinary(16)),  # of what was sent: a batch that comes again is known by it. NULL: cannot be
    _name("allocation_id"),
    _name("container_id"),
    _name("agent_id"),
    _name("source"),
    # What its lines have of each, so that a chunk without what is looked for need not be opened.
    Column("ranks", Text, nullable=False),
    Column("stdtypes", Text, nullable=False),
    Column("levels", Integer, nullable=False),
    Column("oldest", BigInteger, nullable=False),
    Column("newest", BigInteger, nullable=False),
    Column("lines", Integer, nullable=False),
    Column("body", LargeBinary, nullable=False),
    Index("ix_task_log_chunks_task_id_id", "task_id", "id"),
    Index("ix_task_log_chunks_digest", "digest", unique=True),
    sqlite_autoincrement=True,  # followers go by it: an id is never given twice
)  # fmt: skip
