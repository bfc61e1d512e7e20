"""A bell that many watchers wait for and one ring wakes.

Rings are spaced out as the crowd grows: waking a thousand watchers for every single change would
spend all time on waking. A lone watcher hears every ring at once.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

_SECONDS_PER_FOLLOWER = 100e-6  # some three times what waking one watcher and sending it a chunk costs
_LONGEST_WAIT = 0.25


class Bell:
    def __init__(self) -> None:
        self.rings = 0
        """How often it has rung: who remembers the number knows whether there was a ring since."""
        self._followers = 0
        self._waiting: list[asyncio.Future[None]] = []
        self._last = float("-inf")
        self._later: asyncio.TimerHandle | None = None

    @contextmanager
    def followed(self) -> Iterator[None]:
        """Counts one more in the crowd."""
        self._followers += 1
        try:
            yield
        finally:
            self._followers -= 1

    async def heard_since(self, rings: int) -> None:
        """Returns once it has rung after it had rung so often. A watcher that was busy while it rang does not wait; one
        that was not waits, even if there is news already, so that it gets the news of a whole interval at once."""
        if self.rings == rings:
            waiter = asyncio.get_running_loop().create_future()
            self._waiting.append(waiter)
            await waiter

    def ring(self) -> None:
        """Now, or as soon as the crowd has had time to deal with the ring before."""
        if self._later is not None:
            return
        loop = asyncio.get_running_loop()
        due = self._last + min(_LONGEST_WAIT, self._followers * _SECONDS_PER_FOLLOWER)
        if loop.time() >= due:
            self._ring_now(loop.time())
        else:
            self._later = loop.call_at(due, self._ring_now, due)

    def _ring_now(self, at: float) -> None:
        self._later = None
        self._last = at
        self.rings += 1
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            if not waiter.done():  # cancelled while it waited
                waiter.set_result(None)

    def close(self) -> None:
        """Wakes everybody a last time."""
        if self._later is not None:
            self._later.cancel()
        self._ring_now(self._last)
