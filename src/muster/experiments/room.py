"""Room for trials in their workspace: as many run as its quota of slots allows, and the others wait for that.

A search asks for more trials than may run. They are not refused, as a task would be that somebody waits for.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable
from typing import Final

from muster.accounts.callers import WorkspaceId
from muster.api import errors
from muster.records import Database
from muster.tasks import workspace_room
from muster.tasks.allocation_states import State
from muster.tasks.contract import Allocations, Launch

_LOOK_SECONDS: Final = 30.0
"""The quota may have been raised, or something else may have ended."""


class Room:
    def __init__(self, database: Database, allocations: Allocations) -> None:
        self._database = database
        self._allocations = allocations
        self._news = asyncio.Event()
        self._locks: defaultdict[WorkspaceId, asyncio.Lock] = defaultdict(asyncio.Lock)
        """One at a time looks and starts: two must not both find the last room."""
        allocations.on_change(self._changed)

    async def start(self, workspace: WorkspaceId, launch: Launch, is_called_off: Callable[[], bool]) -> bool:
        """Once there is room. False where it was called off before. Raises as `Allocations.start` does, and BadRequest
        where there never will be room."""
        while not is_called_off():
            news = self._news
            most = await self._most(workspace) if launch.request.slots else None
            if most is None:
                await self._allocations.start(launch)
                return True
            if launch.request.slots > most:
                raise errors.BadRequest(f"resources.slots_per_trial: its workspace may hold only {most} slots")
            async with self._locks[workspace]:
                held = await self._database.read(lambda connection: workspace_room.held(connection, workspace))
                if held + launch.request.slots <= most:
                    await self._allocations.start(launch)
                    return True
            await _heard(news)
        return False

    def wake(self) -> None:
        """Something was called off, or has ended."""
        self._news.set()
        self._news = asyncio.Event()

    def _changed(self, _task: str, state: State) -> None:
        if state.is_over:
            self.wake()

    async def _most(self, workspace: WorkspaceId) -> int | None:
        return await self._database.read(lambda connection: workspace_room.most(connection, workspace))


async def _heard(news: asyncio.Event) -> None:
    try:
        async with asyncio.timeout(_LOOK_SECONDS):
            await news.wait()
    except TimeoutError:
        return
