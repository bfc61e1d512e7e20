"""Time as an argument. Nothing else in the platform reads a clock or sleeps.

`SystemClock` is real time. `VirtualClock` lives on a `VirtualLoop`, which jumps to the next timer
whenever it would have to wait: days pass in milliseconds, in the same order every time.
"""

import asyncio
import selectors
import time
from typing import Protocol

from muster.api.meta import Instant


class Clock(Protocol):
    def now(self) -> Instant:
        """Wall time: for timestamps that people and other machines read."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go back: for durations and deadlines."""
        ...

    async def sleep(self, seconds: float) -> None: ...


class SystemClock:
    def now(self) -> Instant:
        return Instant(time.time())

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose time moves only when every task waits, and then jumps to the next timer."""

    def __init__(self) -> None:
        super().__init__(_JumpingSelector(self))
        self.virtual_time = 0.0

    def time(self) -> float:
        return self.virtual_time


class _JumpingSelector(selectors.DefaultSelector):
    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:  # type: ignore[explicit-any]
        ready = super().select(0 if timeout is not None else None)
        if not ready and timeout:
            self._loop.virtual_time += timeout
        return ready


class VirtualClock:
    """`start` is the wall time at which the virtual loop's time is zero; `jump` moves the wall alone (NTP does)."""

    def __init__(self, loop: VirtualLoop, start: float = 1_700_000_000.0) -> None:
        self._loop = loop
        self._wall_offset = start

    def now(self) -> Instant:
        return Instant(self._wall_offset + self._loop.virtual_time)

    def monotonic(self) -> float:
        return self._loop.virtual_time

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def jump(self, seconds: float) -> None:
        self._wall_offset += seconds


_: Clock = SystemClock()
