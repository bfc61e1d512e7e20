"""Requests that were refused, for the audit records. Whoever is refused must not be able to fill the disk or to slow
the server down by it: they are noted without waiting, written together, and only so many of them, at once and in the
long run; the rest is counted.
"""

from typing import Final

from muster.accounts.audit import SYSTEM, Audit, By, Deed, Outcome
from muster.runtime.clock import Clock

_EVERY_SECONDS: Final = 1.0
_MOST_AT_ONCE: Final = 100
_IN_THE_LONG_RUN: Final = 2.0
"""A second: at most some 30 MB of records a day."""


class Refusals:
    """`run` must be kept running."""

    def __init__(self, audit: Audit, clock: Clock) -> None:
        self._audit = audit
        self._clock = clock
        self._waiting: list[tuple[By, Deed]] = []
        self._further = 0
        self._room, self._room_at = float(_MOST_AT_ONCE), clock.monotonic()

    def note(self, by: By, action: str, target: str, detail: str) -> None:
        """`detail` holds nothing that the request brought with it: that may be a secret."""
        now = self._clock.monotonic()
        self._room = min(float(_MOST_AT_ONCE), self._room + (now - self._room_at) * _IN_THE_LONG_RUN)
        self._room_at = now
        if self._room < 1:
            self._further += 1
            return
        self._room -= 1
        self._waiting.append((by, Deed(action, target, detail, Outcome.REFUSED)))

    async def run(self) -> None:
        """For ever."""
        while True:
            await self._clock.sleep(_EVERY_SECONDS)
            await self.once()

    async def once(self) -> None:
        if not self._waiting and not self._further:
            return
        deeds, self._waiting = self._waiting, []
        if self._further:
            further, self._further = self._further, 0
            deeds.append((SYSTEM, Deed("request", "", f"{further} more were refused", Outcome.REFUSED)))
        await self._audit.add(deeds)
