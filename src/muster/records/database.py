"""Where records live, and how they are read and written.

A change is a function of a connection. Changes that come at the same time share one transaction, each in a savepoint of
its own, and are acknowledged when it is on disk: many writers cost one commit. One that raises is undone alone.
"""

import asyncio
import queue
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Self, TypeVar

from sqlalchemy import Connection, Engine, create_engine, event, make_url
from sqlalchemy.engine import URL
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import DataError
from sqlalchemy.pool import ConnectionPoolEntry

from muster.api import errors
from muster.records.migrating import migrate

T = TypeVar("T")
_READERS: Final = 4
_MOST_TOGETHER: Final = 256
_BUSY_SECONDS: Final = 30
_STOP: Final = None


class Database:
    """Use `open`. One owner closes it; everybody may read and write."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._readers = ThreadPoolExecutor(_READERS, thread_name_prefix="records-reader")
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

    async def read(self, query: Callable[[Connection], T]) -> T:
        """What the query returns must not need the connection any more. Sees every change that was acknowledged."""
        return await asyncio.get_running_loop().run_in_executor(self._readers, self._read, query)

    async def write(self, change: Callable[[Connection], T]) -> T:
        """Returns when the change is durable. Raises what the change raises; then nothing of it has happened."""
        made: Future[T] = Future()
        self._changes.put(_Change(change, made))
        return await asyncio.wrap_future(made)

    async def close(self) -> None:
        """Changes that wait are made first."""
        self._changes.put(_STOP)
        await asyncio.to_thread(self._writer.join)
        self._readers.shutdown()
        self._engine.dispose()

    def _read(self, query: Callable[[Connection], T]) -> T:
        with self._engine.connect() as connection, _unstorable():
            return query(connection)

    def _write_all(self) -> None:
        while (first := self._changes.get()) is not _STOP:
            together, is_last = self._gathered(first)
            self._write_together(together)
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

    def _write_together(self, together: "list[_Change]") -> None:
        made: list[_Change] = []
        try:
            with self._engine.begin() as connection:
                made = [change for change in together if change.make(connection)]
        except BaseException as error:  # of the commit itself: nothing has happened
            for change in together:
                change.fail(error)
            return
        for change in made:
            change.acknowledge()


class _Change:
    def __init__(self, change: Callable[[Connection], T], made: "Future[T]") -> None:
        self._change = change
        self._made = made
        self._result: object = None

    def make(self, connection: Connection) -> bool:
        if not self._made.set_running_or_notify_cancel():
            return False  # whoever asked has gone before it began
        try:
            with connection.begin_nested(), _unstorable():
                self._result = self._change(connection)
        except Exception as error:
            self._made.set_exception(error)
            return False
        return True

    def acknowledge(self) -> None:
        self._made.set_result(self._result)  # type: ignore[arg-type]

    def fail(self, error: BaseException) -> None:
        if not self._made.done():
            self._made.set_exception(error)


@contextmanager
def _unstorable() -> Iterator[None]:
    """PostgreSQL knows no NUL in a text, and both bound their numbers. Handlers check what they are sent; what
    they miss is still the sender's mistake."""
    try:
        yield
    except (DataError, OverflowError) as error:
        told = "a text with a NUL character, or a number out of range, cannot be stored or looked for"
        raise errors.BadRequest(told) from error


def _with_driver(url: URL) -> URL:
    if url.drivername in ("postgres", "postgresql"):
        return url.set(drivername="postgresql+psycopg")
    return url


def _engine(url: URL) -> Engine:
    if url.get_backend_name() != "sqlite":
        return create_engine(url, pool_pre_ping=True, pool_size=_READERS + 1)
    engine = create_engine(url, connect_args={"timeout": _BUSY_SECONDS, "check_same_thread": False})
    event.listen(engine, "connect", _prepare)
    event.listen(engine, "begin", _begin)
    return engine


def _prepare(connection: DBAPIConnection, _entry: ConnectionPoolEntry) -> None:
    connection.isolation_level = None  # transactions are begun by _begin: the driver's own rules break savepoints
    cursor = connection.cursor()
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _begin(connection: Connection) -> None:
    connection.exec_driver_sql("BEGIN")
