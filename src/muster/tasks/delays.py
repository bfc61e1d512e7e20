"""Tells people, in the log of their task, why it does not run yet: what has changed of that, and not too often."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from muster.engines.protocol import AllocationId
from muster.runtime.clock import Clock
from muster.runtime.reconciling import Reconciler

_PATIENCE_SECONDS: Final = 1.0
"""What runs sooner is not explained."""
_FIRST_PAUSE_SECONDS: Final = 60.0
_LONGEST_PAUSE_SECONDS: Final = 3600.0
"""Who holds what, and how many are ahead, changes all the time: a task that waits for days needs no page of it."""


@dataclass(slots=True)
class _Delay:
    latest: str
    told: str = ""
    not_before: float = 0.0
    pause: float = _FIRST_PAUSE_SECONDS


class Delays:
    """`run` must be kept running. `tell`: writes a line for an allocation."""

    def __init__(self, clock: Clock, tell: Callable[[AllocationId, str], Awaitable[None]]) -> None:
        self._clock = clock
        self._tell = tell
        self._delays: dict[AllocationId, _Delay] = {}
        self._due: Reconciler[AllocationId] = Reconciler("allocations: delays", self._look, clock=clock)

    async def run(self) -> None:
        await self._due.run()

    def heard(self, allocation: AllocationId, reason: str) -> None:
        now = self._clock.monotonic()
        found = self._delays.get(allocation)
        if found is None:
            found = self._delays[allocation] = _Delay(reason, not_before=now + _PATIENCE_SECONDS)
        found.latest = reason
        self._due.queue.add_after(allocation, max(0.0, found.not_before - now))

    def forget(self, allocation: AllocationId) -> None:
        """It runs, or never will."""
        self._delays.pop(allocation, None)

    async def _look(self, allocation: AllocationId) -> None:
        found, now = self._delays.get(allocation), self._clock.monotonic()
        if found is None or found.latest == found.told or now < found.not_before:
            return
        found.told, found.not_before = found.latest, now + found.pause
        found.pause = min(found.pause * 2, _LONGEST_PAUSE_SECONDS)
        await self._tell(allocation, f"waits: {found.told}")
