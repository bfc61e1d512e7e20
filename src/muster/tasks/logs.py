"""Task logs: kept durably as they come, read with filters, followed by many.

Batches that come at the same time are written together and acknowledged when they are on disk. A batch that was sent
twice, because its sender did not hear the acknowledgement, is kept once.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Final, Self, TypeAlias

from muster.accounts.callers import WorkspaceId
from muster.api import errors
from muster.records import Database
from muster.runtime.clock import Clock
from muster.tasks import log_lines, log_records
from muster.tasks.log_filters import EVERYTHING, Filter
from muster.tasks.log_following import Pages, Tails
from muster.tasks.log_lines import Chunk, Level, Line, Origin, Piece
from muster.tasks.log_records import Encode, Fields, Page

MASTER: Final = Origin(source="master")
"""Of lines that the server itself writes into a task's log."""
_MOST_WAITING_BYTES: Final = 64 * 1024 * 1024
_MOST_CHUNKS: Final = 400
_INLINE_LINES: Final = 100
"""So few are packed at once instead of in a thread, which costs more than they do."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Appended:
    """Durable now, and seen for the first time."""

    task: str
    origin: Origin
    lines: Sequence[Line]


Observer: TypeAlias = Callable[[Appended], None]
"""Must not raise and not block."""


@dataclass(frozen=True, slots=True)
class Query:
    """`limit`: 0 for all. `is_followed`: goes on until the task has ended."""

    task: str
    chosen: Filter = EVERYTHING
    limit: int = 0
    is_newest_first: bool = False
    is_followed: bool = False


class TaskLogs:
    """Use as an async context manager."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._tails = Tails(database, clock)
        self._pages = Pages(database, self._spawn)
        self._writer = _Writer(database, clock)
        self._observers: list[Observer] = []
        self._stack = AsyncExitStack()
        self._group: asyncio.TaskGroup | None = None

    async def __aenter__(self) -> Self:
        self._group = await self._stack.enter_async_context(asyncio.TaskGroup())
        background = (
            self._group.create_task(self._tails.run(), name="watch followed logs"),
            self._group.create_task(self._writer.run(), name="write logs"),
        )
        self._stack.callback(self._close, background)
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self._group = None
        await self._stack.aclose()

    def _close(self, background: "Sequence[asyncio.Task[None]]") -> None:
        self._writer.close()
        for task in background:
            task.cancel()

    def observe(self, observer: Observer) -> None:
        """It is told of everything that is appended from now on."""
        self._observers.append(observer)

    # Writing

    async def append(self, task: str, pieces: Sequence[Piece]) -> None:
        """Returns when they are durable. Raises TooManyRequests where more comes in than can be written."""
        if sum(len(piece.lines) for piece in pieces) > _INLINE_LINES:
            chunks = await asyncio.to_thread(_packed, task, pieces)
        else:
            chunks = _packed(task, pieces)
        new = await self._writer.write(chunks)
        if not new:
            return
        self._tails.written(task)
        if self._observers:
            self._tell_observers(task, pieces, chunks, new)

    async def tell(self, task: str, text: str, level: Level = Level.INFO, origin: Origin = MASTER) -> None:
        """A line of the server's own."""
        at = round(self._clock.now() * 1_000_000)
        await self.append(task, [Piece(origin, [Line(at, log_lines.cut(text), level)], is_timed=False)])

    async def ended(self, task: str) -> None:
        """Says that the task's end is in the records: who follows it need not wait until that is noticed."""
        if self._tails.is_followed(task):
            await self._tails.look(task)

    def forget(self, task: str) -> None:
        """Its log was removed: what was read of it before must not be read again."""
        self._pages.forget(task)

    def _tell_observers(self, task: str, pieces: Sequence[Piece], chunks: Sequence[Chunk], new: frozenset[int]) -> None:
        place = 0
        for piece in pieces:
            told = 0
            while told < len(piece.lines):
                lines = chunks[place].lines
                if place in new:
                    appended = Appended(task, piece.origin, piece.lines[told : told + lines])
                    for observer in self._observers:
                        observer(appended)
                told, place = told + lines, place + 1

    # Reading

    async def read(self, query: Query, encode: Encode) -> AsyncIterator[bytes]:
        """Encoded lines, a few together. Raises BadRequest at the first step."""
        query.chosen.matches()
        if query.is_newest_first and query.is_followed:
            raise errors.BadRequest("orderBy: a log that is followed comes in ascending order")
        pages = self._forwards if not query.is_newest_first else self._backwards
        left = query.limit
        async for page in pages(query, encode):
            for sent in page.sent:
                yield sent
            left -= page.lines
            if query.limit and left <= 0:
                return

    async def workspace(self, task: str) -> WorkspaceId | None:
        """Of the task; None where it is in none. Raises NotFound."""
        return await self._database.read(lambda connection: log_records.workspace(connection, task))

    async def fields(self, task: str) -> Fields:
        return (await self._fields(task, 0))[0]

    async def _fields(self, task: str, after: int) -> tuple[Fields, int]:
        return await self._database.read(lambda connection: log_records.fields(connection, task, after))

    async def follow_fields(self, task: str) -> AsyncIterator[Fields]:
        """Again whenever there is more of them, until the task has ended."""
        told, after = None, 0
        async with self._tails.followed(task) as tail:
            while True:
                version, is_over = tail.version, tail.end is not None
                more, after = await self._fields(task, after)
                found = more if told is None else told.joined(more)
                if found != told:
                    told = found
                    yield found
                if is_over:
                    return
                await tail.changed_since(version)

    async def _forwards(self, query: Query, encode: Encode) -> AsyncIterator[Page]:
        if not query.is_followed:
            async for page in self._all(query, encode):
                yield page
            return
        async with self._tails.followed(query.task) as tail:
            after = left = 0
            while True:
                version, end = tail.version, tail.end
                page = await self._page(query, after, query.limit - left if query.limit else 0, encode)
                after, left = page.next, left + page.lines
                if page.lines:
                    yield page
                if page.is_last:
                    if end is not None and after >= end:
                        return
                    await tail.changed_since(version)

    async def _all(self, query: Query, encode: Encode) -> AsyncIterator[Page]:
        after = taken = 0
        while True:
            page = await self._page(query, after, query.limit - taken if query.limit else 0, encode)
            after, taken = page.next, taken + page.lines
            yield page
            if page.is_last:
                return

    async def _page(self, query: Query, after: int, most: int, encode: Encode) -> Page:
        if not query.limit:
            return await self._pages.after(query.task, after, query.chosen, encode)
        return await self._database.read(
            lambda connection: log_records.page_after(connection, query.task, after, query.chosen, encode, most)
        )

    async def _backwards(self, query: Query, encode: Encode) -> AsyncIterator[Page]:
        before = taken = 0
        while True:
            most, start = query.limit - taken if query.limit else 0, before
            page = await self._database.read(
                lambda connection, most=most, start=start: log_records.page_before(  # type: ignore[misc]
                    connection, query.task, start, query.chosen, encode, most
                )
            )
            before, taken = page.next, taken + page.lines
            yield page
            if page.is_last:
                return

    def _spawn(self, read: Coroutine[None, None, None], name: str) -> None:
        if self._group is None:
            read.close()
            raise errors.Unavailable("the server is shutting down")
        self._group.create_task(read, name=name)


def _packed(task: str, pieces: Sequence[Piece]) -> list[Chunk]:
    return [chunk for piece in pieces for chunk in log_lines.chunks(task, piece)]


@dataclass(frozen=True, slots=True)
class _Waiting:
    chunks: Sequence[Chunk]
    made: "asyncio.Future[frozenset[int]]"


class _Writer:
    """While one change is written, what comes in gathers for the next: at any rate there are few commits."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._waiting: list[_Waiting] = []
        self._bytes = 0
        self._arrived = asyncio.Event()
        self._is_closed = False

    async def write(self, chunks: Sequence[Chunk]) -> frozenset[int]:
        """Which of them were new, by their place."""
        if self._is_closed:
            raise errors.Unavailable("the server is shutting down; send the lines again")
        size = sum(len(chunk.body) for chunk in chunks)
        if self._bytes + size > _MOST_WAITING_BYTES:
            raise errors.TooManyRequests("logs come in faster than they can be written; send them again in a second")
        self._bytes += size
        waiting = _Waiting(chunks, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        self._arrived.set()
        try:
            return await waiting.made
        finally:
            self._bytes -= size

    async def run(self) -> None:
        """For ever."""
        while True:
            await self._arrived.wait()
            await self._write(self._taken())

    def close(self) -> None:
        self._is_closed = True
        _refuse(self._waiting, errors.Unavailable("the server is shutting down; send the lines again"))

    def _taken(self) -> list[_Waiting]:
        together: list[_Waiting] = []
        chunks = 0
        while self._waiting and chunks < _MOST_CHUNKS:
            together.append(self._waiting.pop(0))
            chunks += len(together[-1].chunks)
        if not self._waiting:
            self._arrived.clear()
        return together

    async def _write(self, together: Sequence[_Waiting]) -> None:
        now = round(self._clock.now() * 1_000_000)
        chunks = [chunk for waiting in together for chunk in waiting.chunks]
        try:
            new = await self._database.write(lambda connection: log_records.add(connection, chunks, now))
        except BaseException as error:  # each sender hears of it, and sends again
            _log.warning("task logs could not be written: %r", error)
            _refuse(together, errors.Unavailable("the lines could not be written; send them again"))
            if not isinstance(error, Exception):
                raise
            return
        start = 0
        for waiting in together:
            end = start + len(waiting.chunks)
            if not waiting.made.done():
                waiting.made.set_result(frozenset(place - start for place in new if start <= place < end))
            start = end


def _refuse(together: Sequence[_Waiting], error: errors.ApiError) -> None:
    for waiting in together:
        if not waiting.made.done():
            waiting.made.set_exception(error)
