"""Time as an argument. Nothing else in the platform reads a clock or sleeps.

`SystemClock` is real time. `VirtualClock` lives on a `VirtualLoop`, which jumps to the next timer
whenever it would have to wait: days pass in milliseconds, in the same order every time. The loop's own
timers (`asyncio.timeout`, `call_later`) keep the same time as the clock, so code may use both.
"""

import asyncio
import heapq
import selectors
import time
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Protocol, TypeVar, TypeVarTuple

from muster.api.meta import Instant

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

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
_MOST_CANCELLED = 100
"""Timers that are kept until their time has come though nobody wants them."""


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose time moves only when every task waits, and then jumps to the next timer.

    `patience`: real seconds that a worker thread may take, once nothing else is left to do, before it
    counts as a deadlock. Time does not wait for threads: simulations should have none.

    It takes its turns by itself: most of what a usual loop does between two of them is to ask the system, and to
    compare its timers in Python. A simulated job takes some hundred turns.
    """

    _ready: deque[asyncio.Handle]
    _selector: selectors.BaseSelector
    _stopping: bool

    def __init__(self, patience: float = 5.0) -> None:
        super().__init__()
        self.virtual_time = 0.0
        self._patience = patience
        self._turns = 0  # at this instant
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []  # those due at the same time in their order
        self._serial = 0
        self._cancelled = 0

    def time(self) -> float:
        return self.virtual_time

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        self._serial += 1
        heapq.heappush(self._timers, (when, self._serial, timer))
        return timer

    def _timer_handle_cancelled(self, _: asyncio.TimerHandle) -> None:
        """Called by the timer."""
        self._cancelled += 1
        if self._cancelled > _MOST_CANCELLED and self._cancelled * 2 > len(self._timers):
            self._timers = [entry for entry in self._timers if not entry[2].cancelled()]
            heapq.heapify(self._timers)
            self._cancelled = 0

    def _run_once(self) -> None:
        """Called by `run_forever` until the loop is stopped: one turn."""
        ready = self._ready
        self._turns += 1
        if not ready:
            self._wait()
        elif self._turns % _TURNS_A_QUESTION == 0:  # to ask the system with every turn is dear
            self._ask(0)
        if self._turns > MOST_TURNS:
            self._turns = 0
            raise Livelock(f"{MOST_TURNS} turns at {self.virtual_time:g} s")
        timers, due = self._timers, self.virtual_time + EARLY_SECONDS
        while timers and timers[0][0] < due:
            ready.append(heapq.heappop(timers)[2])
        for _ in range(len(ready)):
            handle = ready.popleft()
            if not handle.cancelled():
                handle._run()

    def _wait(self) -> None:
        """Nobody has anything to do: let time pass, unless the system or a thread has news."""
        while self._timers and self._timers[0][2].cancelled():
            heapq.heappop(self._timers)
        if self._stopping:
            return
        if self._timers:
            if not self._ask(0):
                self.virtual_time = max(self.virtual_time, self._timers[0][0])
                self._turns = 0
        elif len(self._selector.get_map()) > 1:
            self._ask(None)
        elif not self._ask(self._patience):  # only the pipe that `call_soon_threadsafe` writes to is open
            raise Deadlock(_describe(self))

    def _ask(self, timeout: float | None) -> bool:
        """Whether the system had news."""
        news = self._selector.select(timeout)
        self._process_events(news)  # type: ignore[attr-defined]  # of the loop that this one is
        return bool(news)


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
