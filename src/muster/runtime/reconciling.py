"""The reconcile loop: workers take keys from a queue and bring each closer to what it should be.

One of the three places where any exception is survived: it is logged with its key, and the key backs off.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Generic

from muster.api.errors import ApiError
from muster.runtime.clock import Clock
from muster.runtime.workqueue import K, WorkQueue

_log = logging.getLogger(__name__)


class Reconciler(Generic[K]):
    """`reconcile(key)` answers after how many seconds it wants to see the key again, or None: when it changes."""

    def __init__(
        self,
        name: str,
        reconcile: Callable[[K], Awaitable[float | None]],
        *,
        clock: Clock,
        workers: int = 1,
        max_delay: float = 60.0,
    ) -> None:
        self.name = name
        self.queue: WorkQueue[K] = WorkQueue(clock, max_delay=max_delay)
        self._reconcile = reconcile
        self._workers = workers

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(self._workers):
                group.create_task(self._work(), name=f"{self.name}-{number}")

    async def _work(self) -> None:
        while True:
            key = await self.queue.get()
            try:
                await self._once(key)
            finally:
                self.queue.done(key)

    async def _once(self, key: K) -> None:
        try:
            again_after = await self._reconcile(key)
        except Exception as error:
            delay = self.queue.retry(key)
            if isinstance(error, ApiError) and error.retryable:
                # A lost race, or a store that is away for a moment: the next attempt reads afresh.
                _log.debug("%s: %s: again in %.3f s: %s", self.name, key, delay, error)
            else:
                _log.exception("%s: %s failed; again in %.3f s", self.name, key, delay)
            return
        self.queue.forget(key)
        if again_after is not None:
            self.queue.add_after(key, again_after)
