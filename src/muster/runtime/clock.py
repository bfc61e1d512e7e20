"""Time as an argument. Nothing else in the platform reads a clock or sleeps.

`SystemClock` is real time. `VirtualClock` lives on a `VirtualLoop`, which jumps to the next timer
whenever it would have to wait: days pass in milliseconds, in the same order every time. The loop's own
timers (`asyncio.timeout`, `call_later`) keep the same time as the clock, so code may use both.
"""

import asyncio
import selectors
import time
from collections.abc import Callable, Coroutine
from typing import Protocol, TypeVar

from muster.api.meta import Instant

T = TypeVar("T")

EARLY_SECONDS = 1e-6
"""A loop may wake so much before a timer is due. To wait for the rest could take no time at all, for ever."""


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


class Deadlock(RuntimeError):
    """On a virtual loop: no task can ever run again, and what was waited for is not done."""


class Livelock(RuntimeError):
    """On a virtual loop: tasks keep each other busy, and no time passes."""


MOST_TURNS = 200_000
"""Turns of a virtual loop at one instant that count as a livelock. Honest work takes some thousands."""

_TURNS_A_QUESTION = 64


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose time moves only when every task waits, and then jumps to the next timer.

    `patience`: real seconds that a worker thread may take, once nothing else is left to do, before it
    counts as a deadlock. Time does not wait for threads: simulations should have none.
    """

    def __init__(self, patience: float = 5.0) -> None:
        self.virtual_time = 0.0
        super().__init__(_JumpingSelector(self, patience))
        # How far ahead of a timer the loop counts it as due. The system's nanosecond vanishes in a float once
        # virtual months have passed, and a timer due exactly now would then never fire.
        self._clock_resolution = EARLY_SECONDS

    def time(self) -> float:
        return self.virtual_time


class _JumpingSelector(selectors.DefaultSelector):
    def __init__(self, loop: VirtualLoop, patience: float) -> None:
        super().__init__()
        self._loop = loop
        self._patience = patience
        self._turns = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:  # type: ignore[explicit-any]
        is_alone = self._is_waiting_for_threads_only()
        if timeout is None and is_alone:
            ready = super().select(self._patience)
            if not ready:
                raise Deadlock(_describe(self._loop))
            return ready
        self._turns += 1
        # To ask the system with every turn whether a thread has something to say is dear.
        is_asked = timeout != 0 or not is_alone or self._turns % _TURNS_A_QUESTION == 0
        ready = super().select(None if timeout is None else 0) if is_asked else []
        if not ready and timeout:
            self._loop.virtual_time += timeout
            self._turns = 0
        if self._turns > MOST_TURNS:
            self._turns = 0
            raise Livelock(f"{MOST_TURNS} turns at {self._loop.virtual_time:g} s")
        return ready

    def _is_waiting_for_threads_only(self) -> bool:
        # The loop's self-pipe, which call_soon_threadsafe writes to, is always registered.
        return len(self.get_map()) <= 1


def _describe(loop: asyncio.AbstractEventLoop) -> str:
    waiting = []
    for task in sorted(asyncio.all_tasks(loop), key=lambda task: task.get_name()):
        stack = task.get_stack(limit=1)
        where = f"{stack[0].f_code.co_filename}:{stack[0].f_lineno}" if stack else "not started"
        waiting.append(f"{task.get_name()} at {where}")
    return f"nothing is scheduled and no I/O is open, yet these tasks wait: {'; '.join(waiting) or 'none'}"


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


def run_virtual(main: Callable[[VirtualClock], Coroutine[None, None, T]], *, patience: float = 5.0) -> T:
    """Run `main(clock)` to its end on a fresh virtual loop. Raises Deadlock instead of waiting for ever."""
    loop = VirtualLoop(patience)
    found: list[T] = []

    async def run() -> None:
        # Not as the task's own result: the runner has its task described when it ends, result and all.
        found.append(await main(VirtualClock(loop)))

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(run())
    return found[0]


_: Clock = SystemClock()
