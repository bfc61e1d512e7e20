"""Where records live, and how they are read and written.

A change is a function of a connection. Changes that come at the same time share one transaction, each in a savepoint of
its own, and are acknowledged when it is on disk: many writers cost one commit. One that raises is undone alone.

A database that is away, or whose disk is full, may take the whole transaction with it, also what was in savepoints that
succeeded: then all who shared it are told so, with an error that is worth another try, and the next begin anew.
"""

import asyncio
import logging
import queue
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, InvalidStateError, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, Self, TypeVar

from sqlalchemy import Connection, Engine, create_engine, event, make_url
from sqlalchemy.engine import URL
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import DataError, DBAPIError, InterfaceError, OperationalError
from sqlalchemy.pool import ConnectionPoolEntry

from muster.api import errors
from muster.records.migrating import migrate

T = TypeVar("T")
_READERS: Final = 4
_REPORTERS: Final = 2
_MOST_TOGETHER: Final = 256
_BUSY_SECONDS: Final = 30
_MAPPED_BYTES: Final = 2**31 - 2**16
"""Of an SQLite file, at most, are read where the system has them in memory anyway: who looks through a hundred thousand
rows takes a third of the time that as many calls of `pread` take."""
_STOP: Final = None
_PATIENCE: Final = {"connect_timeout": "10", "keepalives_idle": "30", "tcp_user_timeout": "30000"}
"""How long libpq waits for a server that does not even refuse; seconds, the last one milliseconds."""
_ONE_MOMENT: Final[Mapping[str, str | bool]] = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
"""All statements of a query see the same records, as in SQLite; PostgreSQL would show each of them what is new."""
_PASSING: Final = frozenset(
    {
        sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_CANTOPEN,
    }
)  # fmt: skip
_PASSING_STATES: Final = frozenset({"08", "53", "57"})
"""Classes of PostgreSQL's states: no connection, no resources, an operator's intervention."""
_log = logging.getLogger(__name__)


class Database:
    """Use `open`. One owner closes it; everybody may read and write."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._reading = engine if self.is_sqlite else engine.execution_options(**_ONE_MOMENT)
        self._readers = ThreadPoolExecutor(_READERS, thread_name_prefix="records-reader")
        self._reporters = ThreadPoolExecutor(_REPORTERS, thread_name_prefix="records-reporter")
        self._changes: queue.SimpleQueue[_Change | None] = queue.SimpleQueue()
        self._writer = threading.Thread(target=self._write_all, name="records-writer", daemon=True)
        self._writer.start()

    @classmethod
    async def open(cls, url: str) -> Self:
        """`url`: as SQLAlchemy writes it; `sqlite:///path` or `postgresql://…`. Brings the schema up to date."""
        engine = await asyncio.to_thread(_engine, _with_driver(make_url(url)))
        try:
            await asyncio.to_thread(migrate, engine)
        except BaseException:
            engine.dispose()
            raise
        return cls(engine)

    @classmethod
    def connect(cls, url: str) -> Self:
        """As it is: its schema must be up to date."""
        return cls(_engine(_with_driver(make_url(url))))

    @classmethod
    async def at(cls, path: Path) -> Self:
        """An SQLite file."""
        return await cls.open(str(URL.create("sqlite", database=str(path))))

    @property
    def is_sqlite(self) -> bool:
        return self._engine.dialect.name == "sqlite"

    async def read(self, query: Callable[[Connection], T], *, is_long: bool = False) -> T:
        """What the query returns must not need the connection any more. All its statements see the same moment, with
        every change that was acknowledged before. `is_long`: it may take seconds, and waits for others of its kind
        instead of having all others wait for it. Raises Unavailable while the database is away."""
        readers = self._reporters if is_long else self._readers
        return await asyncio.get_running_loop().run_in_executor(readers, self._read, query)

    async def write(self, change: Callable[[Connection], T]) -> T:
        """Returns when the change is durable. Raises what the change raises, or Unavailable where it could not be
        written; then nothing of it has happened, unless the database went away in the very moment of its commit."""
        made: Future[T] = Future()
        self._changes.put(_Change(change, made))
        return await asyncio.wrap_future(made)

    async def close(self) -> None:
        """Changes that wait are made first."""
        self._changes.put(_STOP)
        await asyncio.to_thread(self._writer.join)
        self._readers.shutdown()
        self._reporters.shutdown()
        self._engine.dispose()

    def _read(self, query: Callable[[Connection], T]) -> T:
        with _told(), self._reading.connect() as connection:
            return query(connection)

    def _write_all(self) -> None:
        while (first := self._changes.get()) is not _STOP:
            together, is_last = self._gathered(first)
            while together:
                together = self._write_together(together)
            if is_last:
                return

    def _gathered(self, first: "_Change") -> tuple[list["_Change"], bool]:
        together = [first]
        while len(together) < _MOST_TOGETHER:
            try:
                following = self._changes.get_nowait()
            except queue.Empty:
                break
            if following is _STOP:
                return together, True
            together.append(following)
        return together, False

    def _write_together(self, together: "list[_Change]") -> "list[_Change]":
        """Returns those whose turn did not come because the transaction was lost before."""
        begun: list[_Change] = []
        try:
            with _told(), self._engine.begin() as connection:
                for change in together:
                    begun.append(change)
                    change.make(connection)
                    if not _is_whole(connection):
                        raise errors.Unavailable(_AWAY) from change.error
        except BaseException as error:  # nothing has happened
            _log.error("%d changes of the records are not made: %r", len(begun or together), _first(error))
            for change in begun or together:
                change.fail(error)
            return together[len(begun) :] if begun else []
        for change in begun:
            change.tell()
        return []


class _Change:
    """What came of it is told only when it is known that the transaction was written."""

    def __init__(self, change: Callable[[Connection], T], made: "Future[T]") -> None:
        self._change = change
        self._made = made
        self._result: object = None
        self.error: Exception | None = None

    def make(self, connection: Connection) -> None:
        if not self._made.set_running_or_notify_cancel():
            return  # whoever asked has gone before it began
        try:
            with _told(), connection.begin_nested():
                self._result = self._change(connection)
        except Exception as error:
            self.error = error

    def tell(self) -> None:
        if self.error is not None:
            self.fail(self.error)
            return
        with suppress(InvalidStateError):  # cancelled
            self._made.set_result(self._result)  # type: ignore[arg-type]

    def fail(self, error: BaseException) -> None:
        with suppress(InvalidStateError):
            self._made.set_exception(error)


def _first(error: BaseException) -> BaseException:
    """What it began with: a savepoint that cannot be undone any more is not the reason."""
    while error.__context__ is not None:
        error = error.__context__
    return error


def _is_whole(connection: Connection) -> bool:
    """Whether the transaction is still the one that was begun. SQLite rolls all of it back by itself where a disk is
    full, takes each further savepoint for a transaction of its own, and has no objection to a commit of nothing."""
    if connection.invalidated:
        return False
    driver = connection.connection.driver_connection
    return driver.in_transaction if isinstance(driver, sqlite3.Connection) else True


_AWAY: Final = "the records cannot be reached or written now; try again"
_UNSTORABLE: Final = "a text with a NUL character, or a number out of range, cannot be stored or looked for"


@contextmanager
def _told() -> Iterator[None]:
    """Whose fault it is. PostgreSQL knows no NUL in a text, and both bound their numbers: handlers check what they are
    sent, and what they miss is still the sender's mistake."""
    try:
        yield
    except (DataError, OverflowError) as error:
        raise errors.BadRequest(_UNSTORABLE) from error
    except (OperationalError, InterfaceError) as error:
        if not _is_passing(error):
            raise
        raise errors.Unavailable(_AWAY) from error


def _is_passing(error: DBAPIError) -> bool:
    """Whether it is about the database's health, not about what was asked of it."""
    if isinstance(error.orig, sqlite3.Error):
        return getattr(error.orig, "sqlite_errorcode", 0) & 0xFF in _PASSING
    state = getattr(error.orig, "sqlstate", None)
    return error.connection_invalidated or state is None or state[:2] in _PASSING_STATES


def _with_driver(url: URL) -> URL:
    if url.drivername in ("postgres", "postgresql"):
        return url.set(drivername="postgresql+psycopg")
    return url


def _engine(url: URL) -> Engine:
    size = _READERS + _REPORTERS + 1
    if url.get_backend_name() != "sqlite":
        patient = url.update_query_dict({name: value for name, value in _PATIENCE.items() if name not in url.query})
        return create_engine(patient, pool_pre_ping=True, pool_size=size)
    engine = create_engine(
        url, pool_size=size, connect_args={"timeout": _BUSY_SECONDS, "check_same_thread": False}
    )  # fmt: skip
    event.listen(engine, "connect", _prepare)
    event.listen(engine, "begin", _begin)
    return engine


def _prepare(connection: DBAPIConnection, _entry: ConnectionPoolEntry) -> None:
    connection.isolation_level = None  # transactions are begun by _begin: the driver's own rules break savepoints
    cursor = connection.cursor()
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON", f"mmap_size={_MAPPED_BYTES}"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _begin(connection: Connection) -> None:
    connection.exec_driver_sql("BEGIN")
