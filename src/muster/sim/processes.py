"""Processes of controllers: real ones, under real supervision and election, that can be made to die at any moment."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeAlias

from muster.controllers.quota import QuotaController
from muster.controllers.scheduling import SchedulingController
from muster.runtime.clock import Clock
from muster.runtime.informers import Shared
from muster.runtime.leases import LeaderElector
from muster.runtime.supervision import supervise
from muster.sim.connections import Connection
from muster.store.protocol import Store

MakeScheduler: TypeAlias = Callable[[Store], SchedulingController]
"""Makes a scheduler on a connection."""
Component: TypeAlias = Callable[[], Awaitable[None]]
Assemble: TypeAlias = Callable[[Store, Clock, SchedulingController, QuotaController], Mapping[str, Component]]
"""Puts a control plane together: `assembly.controlling.controllers`, which this package may not name."""


class Crashed(Exception):
    """By order of the plan."""


class _Part:
    """A component that can be made to fail."""

    def __init__(self, component: Component) -> None:
        self._component = component
        self._task: asyncio.Task[None] | None = None

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            self._task = tasks.create_task(_await(self._component))
            await asyncio.wait([self._task])
        if self._task.cancelled():
            raise Crashed

    def crash(self) -> None:
        if self._task is not None:
            self._task.cancel()


class Process:
    """`is_elected`: it works only while it leads; else it always does."""

    def __init__(
        self,
        identity: str,
        connection: Connection,
        clock: Clock,
        assemble: Assemble,
        make_scheduler: MakeScheduler,
        *,
        is_elected: bool,
    ) -> None:
        self.connection = connection
        store = Shared(connection)
        self.quota = QuotaController(store, clock)
        components = assemble(store, clock, make_scheduler(store), self.quota)
        self._parts = {name: _Part(component) for name, component in components.items()}
        self._clock = clock
        self._elector: LeaderElector | None = None
        if is_elected:
            self._elector = LeaderElector(
                connection, clock, name="muster-controllers", namespace="kube-system", identity=identity
            )

    @property
    def is_leading(self) -> bool:
        return self._elector is None or self._elector.is_leading

    async def run(self) -> None:
        if self._elector is None:
            await self._work()
        else:
            await self._elector.run(self._work)

    async def _work(self) -> None:
        await supervise({name: part.run for name, part in self._parts.items()}, clock=self._clock)

    def crash_part(self, number: int) -> str:
        """Returns its name."""
        name = list(self._parts)[number % len(self._parts)]
        self._parts[name].crash()
        return name


async def _await(component: Component) -> None:
    await component()
