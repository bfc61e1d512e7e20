"""A bell that many watchers wait for and one ring wakes.

Rings are spaced out as the crowd grows: waking a thousand watchers for every single change would
spend all time on waking. A lone watcher hears every ring at once.
"""

import asyncio

_SECONDS_PER_LISTENER = 50e-6  # about what waking one watcher and sending it a chunk costs
_LONGEST_WAIT = 0.1


class Bell:
    def __init__(self) -> None:
        self._rung: asyncio.Future[None] | None = None
        self._listeners = 0
        self._last = float("-inf")
        self._later: asyncio.TimerHandle | None = None

    async def heard(self) -> None:
        """Returns after the next ring."""
        if self._rung is None:
            self._rung = asyncio.get_running_loop().create_future()
        self._listeners += 1
        try:
            await asyncio.shield(self._rung)
        finally:
            self._listeners -= 1

    def ring(self) -> None:
        if self._rung is None or self._later is not None:
            return
        loop = asyncio.get_running_loop()
        due = self._last + min(_LONGEST_WAIT, self._listeners * _SECONDS_PER_LISTENER)
        if loop.time() >= due:
            self._ring_now(loop.time())
        else:
            self._later = loop.call_at(due, self._ring_now, due)

    def _ring_now(self, at: float) -> None:
        self._later = None
        self._last = at
        if self._rung is not None:
            self._rung.set_result(None)
            self._rung = None

    def silence(self) -> None:
        """Forget a delayed ring: the loop is about to close."""
        if self._later is not None:
            self._later.cancel()
            self._later = None
