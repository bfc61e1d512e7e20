"""Requests that were refused, for the audit records. Whoever is refused must not be able to fill the disk or to slow
the server down by it: they are noted without waiting, written together, and only so many of them; the rest is counted.
"""

from typing import Final

from muster.accounts.audit import SYSTEM, Audit, By, Deed, Outcome
from muster.runtime.clock import Clock

_EVERY_SECONDS: Final = 1.0
_MOST_AT_ONCE: Final = 100


class Refusals:
    """`run` must be kept running."""

    def __init__(self, audit: Audit, clock: Clock) -> None:
        self._audit = audit
        self._clock = clock
        self._waiting: list[tuple[By, Deed]] = []
        self._further = 0

    def note(self, by: By, action: str, target: str, detail: str) -> None:
        """`detail` holds nothing that the request brought with it: that may be a secret."""
        if len(self._waiting) < _MOST_AT_ONCE:
            self._waiting.append((by, Deed(action, target, detail, Outcome.REFUSED)))
        else:
            self._further += 1

    async def run(self) -> None:
        """For ever."""
        while True:
            await self._clock.sleep(_EVERY_SECONDS)
            await self.once()

    async def once(self) -> None:
        if not self._waiting:
            return
        deeds, self._waiting = self._waiting, []
        if self._further:
            further, self._further = self._further, 0
            deeds.append((SYSTEM, Deed("request", "", f"{further} more were refused", Outcome.REFUSED)))
        await self._audit.add(deeds)
