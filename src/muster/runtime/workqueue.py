"""Keys that want work: each at most once in the queue, and never with two workers at a time.

A key that is added while it is being worked on comes back after `done`. Retries back off
exponentially, each key on its own. Single-threaded: only the event loop may touch a queue.
"""

import asyncio
import heapq
from collections import deque
from collections.abc import Hashable
from typing import Generic, TypeVar

from muster.runtime.clock import EARLY_SECONDS, Clock

K = TypeVar("K", bound=Hashable)


class WorkQueue(Generic[K]):
    def __init__(self, clock: Clock, *, base_delay: float = 0.005, max_delay: float = 60.0) -> None:
        self._clock = clock
        self._base_delay = base_delay
        self._max_delay = max_delay
        self._ready: deque[K] = deque()
        self._dirty: set[K] = set()  # wants work: in `_ready`, or in `_active` and to come back
        self._active: set[K] = set()
        self._due: dict[K, float] = {}
        self._timers: list[tuple[float, int, K]] = []  # entries that `_due` no longer agrees with are stale
        self._serial = 0  # keys need not be comparable
        self._failures: dict[K, int] = {}
        self._waiting: deque[asyncio.Future[None]] = deque()  # workers without work, the one that waits longest first
        self._alarm: asyncio.TimerHandle | None = None  # while somebody waits: for when the next key is due
        self._alarm_at = 0.0  # by the loop's time; kept here, since uvloop's handles of what is due already do not tell
        self.adds = 0
        self.retries = 0

    @property
    def depth(self) -> int:
        """Keys that a worker could take now."""
        return len(self._ready)

    def add(self, key: K) -> None:
        if key in self._dirty:
            return
        self._dirty.add(key)
        self.adds += 1
        if key not in self._active:
            self._ready.append(key)
            self._wake_one()

    def add_after(self, key: K, seconds: float) -> None:
        """Add `key` once `seconds` have passed; of several such wishes the earliest counts."""
        if seconds <= 0:
            self.add(key)
            return
        # Not so soon that it would be due at once: whoever asks for the rest of a time again would never see it pass.
        due = self._clock.monotonic() + max(seconds, 2 * EARLY_SECONDS)
        if due >= self._due.get(key, float("inf")):
            return
        self._due[key] = due
        self._serial += 1
        heapq.heappush(self._timers, (due, self._serial, key))
        if self._waiting:
            self._set_alarm()

    def retry(self, key: K) -> float:
        """Add `key` after its backoff, which doubles with each call until `forget`. Answers the delay."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        self.retries += 1
        delay = min(self._base_delay * 2.0 ** min(failures, 60), self._max_delay)
        self.add_after(key, delay)
        return delay

    def forget(self, key: K) -> None:
        """The key's work succeeded: its next failure backs off from the start."""
        if self._failures:
            self._failures.pop(key, None)

    async def get(self) -> K:
        """The next key, once there is one. The caller owes a `done(key)`."""
        while True:
            self._ripen()
            if self._ready:
                key = self._ready.popleft()
                self._dirty.discard(key)
                self._active.add(key)
                return key
            await self._news()

    def done(self, key: K) -> None:
        self._active.discard(key)
        if key in self._dirty:
            self._ready.append(key)
            self._wake_one()

    def _ripen(self) -> None:
        now = self._clock.monotonic() + EARLY_SECONDS
        while self._timers and self._timers[0][0] <= now:
            due, _, key = heapq.heappop(self._timers)
            if self._due.get(key) == due:
                del self._due[key]
                self.add(key)

    async def _news(self) -> None:
        """Until there is a key for this worker. Only one wakes for each: to wake all of them would cost more than the
        work itself."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        self._set_alarm()
        try:
            await waiter
        except asyncio.CancelledError:
            if not waiter.cancelled():
                self._wake_one()  # it was woken for a key, which is now another's
            raise

    def _wake_one(self) -> None:
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    def _set_alarm(self) -> None:
        if not self._timers:
            return
        loop = asyncio.get_running_loop()
        due = loop.time() + max(self._timers[0][0] - self._clock.monotonic(), 0.0)
        if self._alarm is not None:
            if self._alarm_at <= due:
                return
            self._alarm.cancel()
        self._alarm, self._alarm_at = loop.call_at(due, self._ring), due

    def _ring(self) -> None:
        self._alarm = None
        self._ripen()
        if self._waiting:
            self._set_alarm()
