"""The journal in one SQLite file: WAL, one writer, one fsync per commit, one process at a time."""

import sqlite3
from collections.abc import Iterable, Sequence
from pathlib import Path

from muster.api import errors
from muster.api.objects import Key
from muster.store.journal import Journal, Row

_SCHEMA_VERSION = 1
_SCHEMA = """
CREATE TABLE objects (
    id INTEGER PRIMARY KEY, resource TEXT NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL, data BLOB NOT NULL
);
CREATE TABLE revisions (only INTEGER PRIMARY KEY CHECK (only = 1), last INTEGER NOT NULL);
INSERT INTO revisions VALUES (1, 0);
"""


class SqliteJournal:
    """Rows are found by an integer that memory remembers, so a write touches one b-tree and no index."""

    is_slow = True

    def __init__(self, path: Path) -> None:
        self._path = path
        self._ids: dict[tuple[str, Key], int] = {}
        self._next_id = 1
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._db = self._open(path)
        except sqlite3.OperationalError as error:
            if "locked" in str(error):
                raise errors.Unavailable(
                    f"another Muster process has {path} open; stop it, or start this one with another --data directory"
                ) from error
            raise errors.Unavailable(f"cannot open {path}: {error}") from error
        except sqlite3.DatabaseError as error:
            raise errors.InternalError(f"{path} is not a Muster store, or it is damaged: {error}") from error

    @staticmethod
    def _open(path: Path) -> sqlite3.Connection:
        db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=1.0)
        # Exclusive: a second writer would have an index of its own in memory and lose updates.
        db.execute("PRAGMA locking_mode = EXCLUSIVE")
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = FULL")
        db.execute("BEGIN IMMEDIATE")
        version = db.execute("PRAGMA user_version").fetchone()[0]
        if version == 0:
            for statement in filter(None, map(str.strip, _SCHEMA.split(";"))):
                db.execute(statement)
            db.execute(f"PRAGMA user_version = {_SCHEMA_VERSION}")
        db.execute("COMMIT")
        if version > _SCHEMA_VERSION:
            raise errors.Unavailable(
                f"{path} was written by a newer Muster (schema {version}, this one knows {_SCHEMA_VERSION}): upgrade"
            )
        return db

    def load(self) -> tuple[int, Iterable[Row]]:
        (revision,) = self._db.execute("SELECT last FROM revisions").fetchone()
        rows = []
        for row_id, resource, namespace, name, data in self._db.execute(
            "SELECT id, resource, namespace, name, data FROM objects"
        ):
            key = Key(namespace, name)
            self._ids[resource, key] = row_id
            self._next_id = max(self._next_id, row_id + 1)
            rows.append(Row(resource, key, data))
        return revision, rows

    def commit(self, rows: Sequence[Row], revision: int) -> None:
        # Several rows of one object in a group: the last one wins, and only it is written.
        latest = {(row.resource, row.key): row.data for row in rows}
        written, removed = [], []
        fresh: dict[tuple[str, Key], int] = {}
        for place, data in latest.items():
            row_id = self._ids.get(place)
            if data is None:
                if row_id is not None:
                    removed.append((row_id,))
                continue
            if row_id is None:
                row_id = fresh[place] = self._next_id + len(fresh)
            resource, (namespace, name) = place
            written.append((row_id, resource, namespace, name, data))
        self._db.execute("BEGIN IMMEDIATE")
        try:
            self._db.executemany("DELETE FROM objects WHERE id = ?", removed)
            self._db.executemany("INSERT OR REPLACE INTO objects VALUES (?, ?, ?, ?, ?)", written)
            self._db.execute("UPDATE revisions SET last = ?", (revision,))
            self._db.execute("COMMIT")
        except sqlite3.Error as error:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise errors.Unavailable(f"{self._path} could not be written: {error}") from error
        self._ids.update(fresh)
        self._next_id += len(fresh)
        for place, data in latest.items():
            if data is None:
                self._ids.pop(place, None)

    def close(self) -> None:
        self._db.close()


def _conforms(path: Path) -> Journal:
    return SqliteJournal(path)
