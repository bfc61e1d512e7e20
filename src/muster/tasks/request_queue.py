"""What is asked of an engine, a few at a time: creations and deletions, of each key in the order they were asked for.

A creation that still waits is called off by a deletion of the same key; one that is under way is finished first, and
the deletion parked until then. Creations are bounded: more than can be made soon are refused rather than hoarded.
Deletions are not, since they make room, and are tried again until they succeed.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, field
from typing import Final, Generic, TypeAlias, TypeVar

from muster.api import errors
from muster.runtime.clock import Clock

_log = logging.getLogger(__name__)
K = TypeVar("K", bound=Hashable)
Act: TypeAlias = Callable[[], Awaitable[None]]

WORKERS: Final = 8
MOST_WAITING: Final = 10_000
_FIRST_PAUSE_SECONDS: Final = 0.1
_LONGEST_PAUSE_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True)
class Counts:
    """`waiting`, `parked` and `under_way` are of this moment; the others have only grown since the start."""

    waiting: int
    parked: int
    under_way: int
    created: int
    deleted: int
    called_off: int
    refused: int
    failed: int
    retried: int
    longest_wait_seconds: float
    """Of what waits now."""


@dataclass(eq=False, slots=True)
class _Work(Generic[K]):
    key: K
    act: Act
    asked_at: float
    made: "asyncio.Future[bool] | None" = None
    """Of a creation: whether it was begun."""
    is_called_off: bool = False
    failures: int = 0


@dataclass(slots=True)
class _Key(Generic[K]):
    """What there is of one key."""

    creation: _Work[K] | None = None
    """That waits."""
    is_under_way: bool = False
    parked: deque[_Work[K]] = field(default_factory=deque)

    @property
    def is_idle(self) -> bool:
        return self.creation is None and not self.is_under_way and not self.parked


class RequestQueue(Generic[K]):
    def __init__(self, clock: Clock, *, workers: int = WORKERS, most_waiting: int = MOST_WAITING) -> None:
        self._clock = clock
        self._workers = workers
        self._most_waiting = most_waiting
        self._waiting: deque[_Work[K]] = deque()
        self._keys: dict[K, _Key[K]] = {}
        self._news = asyncio.Event()
        self._blank = self._under_way = self._parked = self._created = self._deleted = 0
        self._called_off = self._refused = self._failed = self._retried = 0

    async def create(self, key: K, act: Act) -> bool:
        """Once it is done; False where it was called off, and nothing was done. Raises what `act` raises, AlreadyExists
        where a creation of this key waits, and TooManyRequests."""
        state = self._keys.setdefault(key, _Key())
        if state.creation is not None:
            raise errors.AlreadyExists(f"{key} is waiting to be made already")
        if len(self._waiting) - self._blank >= self._most_waiting:
            self._refused += 1
            self._tidy(key)
            raise errors.TooManyRequests(f"{self._most_waiting} requests wait to be made already; try again later")
        made: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        state.creation = work = _Work(key, act, self._clock.monotonic(), made)
        self._put(work)
        try:
            return await made
        except asyncio.CancelledError:
            if state.creation is work:
                self._call_off(state)  # whoever asked has gone
            raise

    def delete(self, key: K, act: Act) -> None:
        """Done as soon as may be, and until it succeeds."""
        state = self._keys.setdefault(key, _Key())
        self._call_off(state)
        self._put(_Work(key, act, self._clock.monotonic()))

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(self._workers):
                group.create_task(self._work(group), name=f"requests-{number}")

    def counts(self) -> Counts:
        oldest = next((work.asked_at for work in self._waiting if not work.is_called_off), None)
        return Counts(
            len(self._waiting) - self._blank,
            self._parked,
            self._under_way,
            self._created,
            self._deleted,
            self._called_off,
            self._refused,
            self._failed,
            self._retried,
            0.0 if oldest is None else self._clock.monotonic() - oldest,
        )

    def _put(self, work: _Work[K]) -> None:
        self._waiting.append(work)
        self._news.set()

    def _call_off(self, state: _Key[K]) -> None:
        """It stays where it is, blank: taking it out of the middle would cost a search."""
        work = state.creation
        if work is None:
            return
        state.creation = None
        work.is_called_off = True
        self._blank += 1
        self._called_off += 1
        if work.made is not None and not work.made.done():
            work.made.set_result(False)

    async def _work(self, group: asyncio.TaskGroup) -> None:
        while True:
            while not self._waiting:
                self._news.clear()
                await self._news.wait()
            await self._take(self._waiting.popleft(), group)

    async def _take(self, work: _Work[K], group: asyncio.TaskGroup) -> None:
        if work.is_called_off:
            self._blank -= 1
            self._tidy(work.key)
            return
        state = self._keys.setdefault(work.key, _Key())
        if state.is_under_way:
            state.parked.append(work)
            self._parked += 1
            if work is state.creation:
                state.creation = None  # too late to call it off: what is under way decides
            return
        if work is state.creation:
            state.creation = None
        state.is_under_way = True
        self._under_way += 1
        try:
            await self._do(work, group)
        finally:
            self._under_way -= 1
            state.is_under_way = False
            if state.parked:
                self._parked -= 1
                self._waiting.appendleft(state.parked.popleft())
                self._news.set()
            self._tidy(work.key)

    async def _do(self, work: _Work[K], group: asyncio.TaskGroup) -> None:
        try:
            await work.act()
        except Exception as error:
            self._failed += 1
            if work.made is not None:
                if not work.made.done():
                    work.made.set_exception(error)
                return
            _log.warning("deleting %s failed, and is tried again: %s", work.key, error)
            group.create_task(self._again(work), name=f"requests-again-{work.key}")
            return
        if work.made is None:
            self._deleted += 1
            return
        self._created += 1
        if not work.made.done():
            work.made.set_result(True)

    async def _again(self, work: _Work[K]) -> None:
        pause = min(_FIRST_PAUSE_SECONDS * 2.0 ** min(work.failures, 20), _LONGEST_PAUSE_SECONDS)
        work.failures += 1
        self._retried += 1
        await self._clock.sleep(pause)
        self._put(work)

    def _tidy(self, key: K) -> None:
        state = self._keys.get(key)
        if state is not None and state.is_idle:
            del self._keys[key]
