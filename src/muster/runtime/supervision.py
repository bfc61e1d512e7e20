"""Keeps a set of long-running components alive: one that fails is logged and started again, never silently gone."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping

from muster.api import errors
from muster.runtime.clock import Clock

_log = logging.getLogger(__name__)

FIRST_PAUSE_SECONDS = 0.1
LONGEST_PAUSE_SECONDS = 30.0
CALM_SECONDS = 60.0


async def supervise(components: Mapping[str, Callable[[], Awaitable[None]]], *, clock: Clock) -> None:
    """Run all components until cancelled. Each is called afresh for every start: it should build its state inside."""
    async with asyncio.TaskGroup() as group:
        for name, component in components.items():
            group.create_task(_keep(name, component, clock), name=name)


async def _keep(name: str, component: Callable[[], Awaitable[None]], clock: Clock) -> None:
    pause = FIRST_PAUSE_SECONDS
    while True:
        started = clock.monotonic()
        try:
            await component()
            _log.error("%s ended by itself; starting it again", name)
        except errors.Unavailable as error:
            # Somebody else is away for a moment: no fault of ours, and no trace of ours would help.
            _log.warning("%s cannot go on, and is started again: %s", name, error)
        except Exception:
            _log.exception("%s failed; starting it again", name)
        if _is_ending():
            # What a component raises while it is cancelled takes the place of the cancellation, which came only once.
            raise asyncio.CancelledError
        if clock.monotonic() - started >= CALM_SECONDS:
            pause = FIRST_PAUSE_SECONDS
        await clock.sleep(pause)
        pause = min(pause * 2, LONGEST_PAUSE_SECONDS)


def _is_ending() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
