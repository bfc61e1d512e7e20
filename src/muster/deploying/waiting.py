"""Waiting for the API server: it takes its time to establish what it was told of, and to let go of what it was."""

from collections.abc import Awaitable, Callable
from typing import Final

from muster.api import errors
from muster.api.kinds import Kind
from muster.api.objects import Key
from muster.runtime.clock import Clock
from muster.store.protocol import Store

PATIENCE_SECONDS: Final = 60.0
_LOOK_SECONDS: Final = 0.2


async def until(clock: Clock, is_so: Callable[[], Awaitable[bool]], otherwise: str) -> None:
    """Raises Timeout with the words of `otherwise`."""
    deadline = clock.monotonic() + PATIENCE_SECONDS
    while not await is_so():
        if clock.monotonic() > deadline:
            raise errors.Timeout(f"{otherwise} after {PATIENCE_SECONDS:g} s; `kubectl describe` tells why")
        await clock.sleep(_LOOK_SECONDS)


async def until_gone(store: Store, clock: Clock, kind: Kind, key: Key) -> None:
    """Of what is being deleted. Raises Timeout that names it."""

    async def is_gone() -> bool:
        try:
            return not (await store.get(kind, key)).is_terminating
        except errors.NotFound:
            return True

    await until(clock, is_gone, f"{kind.name.lower()}/{key.name}: still being deleted")
