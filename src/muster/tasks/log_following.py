"""Readers of task logs, many at once: who reads the same from the same place shares one read, and who follows is woken.

Each reader takes its next page when it is ready for it, so that a slow one holds up nobody and costs one page. Pages do
not change once they are read: they are remembered, as many as fit.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Final, TypeAlias

from muster.records import Database
from muster.runtime.clock import Clock
from muster.tasks import log_records
from muster.tasks.log_filters import Filter
from muster.tasks.log_records import Encode, Page

_KEPT_BYTES: Final = 32 * 1024 * 1024
_OVERHEAD_BYTES: Final = 500
"""Of a page that has no lines."""
_LOOK_SECONDS: Final = 1.0
_TASKS_AT_ONCE: Final = 500
_Key: TypeAlias = tuple[str, int, Filter, Encode]
_log = logging.getLogger(__name__)
Spawn: TypeAlias = Callable[[Coroutine[None, None, None], str], None]


class Pages:
    """`spawn`: runs a read that does not end with the reader who happened to ask for it first."""

    def __init__(self, database: Database, spawn: Spawn, kept_bytes: int = _KEPT_BYTES) -> None:
        self._database = database
        self._spawn = spawn
        self._kept_bytes = kept_bytes
        self._kept: OrderedDict[_Key, Page] = OrderedDict()
        self._size = 0
        self._reading: dict[_Key, asyncio.Future[Page]] = {}

    async def after(self, task: str, after: int, chosen: Filter, encode: Encode) -> Page:
        key = (task, after, chosen, encode)
        found = self._kept.get(key)
        if found is not None:
            self._kept.move_to_end(key)
            return found
        reading = self._reading.get(key)
        if reading is None:
            reading = self._reading[key] = asyncio.get_running_loop().create_future()
            self._spawn(self._read(key, reading), f"read log of {task}")
        return await asyncio.shield(reading)

    async def _read(self, key: _Key, reading: "asyncio.Future[Page]") -> None:
        task, after, chosen, encode = key
        try:
            page = await self._database.read(
                lambda connection: log_records.page_after(connection, task, after, chosen, encode, 0)
            )
        except Exception as error:  # told to all who wait for it
            reading.set_exception(error)
            reading.exception()  # they may all have left
        else:
            reading.set_result(page)
            if page.next > after:
                # By the time it is used again more may have come.
                self._keep(key, replace(page, is_last=False))
        finally:
            del self._reading[key]
            reading.cancel()

    def forget(self, task: str) -> None:
        for key in [key for key in self._kept if key[0] == task]:
            self._drop(self._kept.pop(key))

    def _drop(self, page: Page) -> None:
        self._size -= page.bytes + _OVERHEAD_BYTES

    def _keep(self, key: _Key, page: Page) -> None:
        self._kept[key] = page
        self._size += page.bytes + _OVERHEAD_BYTES
        while self._size > self._kept_bytes:
            self._drop(self._kept.popitem(last=False)[1])


class Tail:
    """The end of one task's log, while somebody follows it."""

    def __init__(self) -> None:
        self.version = 0
        self.newest = 0
        self.end: int | None = None
        """The last chunk of all, once the task is over."""
        self.followers = 0
        self._changed = asyncio.Event()

    def change(self) -> None:
        self.version += 1
        self._changed.set()
        self._changed = asyncio.Event()

    async def changed_since(self, version: int) -> None:
        while self.version == version:
            await self._changed.wait()


class Tails:
    """`run` looks after all that are followed, in one go: for what other servers have written, and for tasks that are
    over. What this server writes, and whoever knows that a task has ended, does not wait for it to look."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._tails: dict[str, Tail] = {}

    @asynccontextmanager
    async def followed(self, task: str) -> AsyncIterator[Tail]:
        tail = self._tails.get(task)
        is_first = tail is None
        if tail is None:
            tail = self._tails[task] = Tail()
        tail.followers += 1
        try:
            if is_first:
                await self.look(task)
            yield tail
        finally:
            tail.followers -= 1
            if not tail.followers:
                del self._tails[task]

    def written(self, task: str) -> None:
        tail = self._tails.get(task)
        if tail is not None:
            tail.change()

    async def look(self, *tasks: str) -> None:
        found = await self._database.read(lambda connection: log_records.progress(connection, tasks))
        for task, progress in found.items():
            tail = self._tails.get(task)
            if tail is None:
                continue
            end = progress.newest if progress.is_over else None
            if (progress.newest, end) != (tail.newest, tail.end):
                tail.newest, tail.end = progress.newest, end
                tail.change()

    def is_followed(self, task: str) -> bool:
        return task in self._tails

    async def run(self) -> None:
        """For ever."""
        while True:
            await self._clock.sleep(_LOOK_SECONDS)
            tasks = list(self._tails)
            for start in range(0, len(tasks), _TASKS_AT_ONCE):
                try:
                    await self.look(*tasks[start : start + _TASKS_AT_ONCE])
                except Exception:  # the database may be back when we look again
                    _log.exception("cannot look after the logs that are followed")
