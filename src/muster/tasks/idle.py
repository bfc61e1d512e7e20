"""Services that nobody uses: ended after the time that their configuration gives them.

Used is what was asked through the proxy, or says itself that it is. Before it is ready nothing counts as idle: a
service that starts slowly must not be ended for that.
"""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from muster.api.meta import Instant
from muster.engines.protocol import AllocationId
from muster.runtime.clock import Clock
from muster.tasks.proxies import ProxyTable

_log = logging.getLogger(__name__)
_PERIOD_SECONDS: Final = 5.0


@dataclass(slots=True)
class _Watched:
    allocation: AllocationId
    seconds: float
    reported: Instant | None = None


class IdleWatch:
    """`run` must be kept running. `is_ready`: whether it can be used. `end`: called once for each that is idle, with
    the reason."""

    def __init__(
        self,
        proxies: ProxyTable,
        clock: Clock,
        is_ready: Callable[[AllocationId], bool],
        end: Callable[[AllocationId, str], Awaitable[None]],
    ) -> None:
        self._proxies = proxies
        self._clock = clock
        self._is_ready = is_ready
        self._end = end
        self._watched: dict[str, _Watched] = {}

    def watch(self, task: str, allocation: AllocationId, seconds: float | None) -> None:
        if seconds:
            self._watched[task] = _Watched(allocation, seconds)

    def forget(self, task: str) -> None:
        self._watched.pop(task, None)

    def busy(self, task: str) -> None:
        """It says so itself."""
        found = self._watched.get(task)
        if found is not None:
            found.reported = self._clock.now()

    async def run(self) -> None:
        while True:
            await self._clock.sleep(_PERIOD_SECONDS)
            await self.look()

    async def look(self) -> None:
        now = self._clock.now()
        for task, watched in list(self._watched.items()):
            requested = self._proxies.last_requested(task)
            if requested is None:
                continue
            if not self._is_ready(watched.allocation):
                watched.reported = now
                continue
            used = max(requested, watched.reported or requested)
            if now - used <= watched.seconds:
                continue
            _log.info("task %s is idle for more than %g s", task, watched.seconds)
            await self._end(watched.allocation, f"being idle for more than {watched.seconds:g} s")
            self.forget(task)
