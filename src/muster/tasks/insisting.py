"""Doing what would be lost if it were given up: again and again, until it has succeeded."""

import logging
from collections.abc import Awaitable, Callable
from typing import Final

from muster.runtime.clock import Clock

_log = logging.getLogger(__name__)
_FIRST_PAUSE_SECONDS: Final = 0.5
_LONGEST_PAUSE_SECONDS: Final = 60.0


async def insist(what: str, act: Callable[[], Awaitable[None]], clock: Clock) -> None:
    """`what`: for the log, where it fails."""
    pause = _FIRST_PAUSE_SECONDS
    while True:
        try:
            return await act()
        except Exception:
            _log.exception("%s failed, and is tried again in %.1f s", what, pause)
        await clock.sleep(pause)
        pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)
