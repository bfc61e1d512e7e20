"""The newest lines of this process's own log, kept for those who ask from afar, and told to those who follow.

May be written from any thread; followers live in one event loop. Bounded: old lines make room for new ones.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Final

from muster.api.meta import Instant

MOST: Final = 10_000
_LONGEST: Final = 16 * 1024


@dataclass(frozen=True, slots=True)
class LogLine:
    """`id` counts up from 1, without gaps."""

    id: int
    at: Instant
    level: int
    message: str


class LogRing(logging.Handler):
    def __init__(self, most: int = MOST) -> None:
        super().__init__()
        self._lines: deque[LogLine] = deque(maxlen=most)
        self._count = 0
        self._followers: set[asyncio.Event] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self.setFormatter(logging.Formatter("%(name)s: %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        try:
            message = self.format(record)[:_LONGEST]
        except Exception:  # a handler must not raise: whoever logs has other things to do
            self.handleError(record)
            return
        self._count += 1
        self._lines.append(LogLine(self._count, Instant(record.created), record.levelno, message))
        loop = self._loop
        if self._followers and loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._wake)

    def lines(self, after: int = 0) -> list[LogLine]:
        """Those that are still kept, with a larger id, oldest first."""
        self.acquire()
        try:
            return [line for line in self._lines if line.id > after]
        finally:
            self.release()

    async def follow(self, after: int) -> AsyncGenerator[list[LogLine], None]:
        """What comes after a line, as it comes, for ever."""
        self._loop = asyncio.get_running_loop()
        news = asyncio.Event()
        self._followers.add(news)
        try:
            while True:
                news.clear()
                found = self.lines(after)
                if found:
                    after = found[-1].id
                    yield found
                else:
                    await news.wait()
        finally:
            self._followers.discard(news)

    def _wake(self) -> None:
        for news in self._followers:
            news.set()
