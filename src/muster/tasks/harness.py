"""What a running task may say and ask of its own allocation: Determined's harness, seen from the server."""

import asyncio
import ipaddress
from typing import Final, TypeVar

from muster.api import errors
from muster.api.raw import JSON
from muster.engines.protocol import AllocationId, ResourceId
from muster.records import Database
from muster.runtime.clock import Clock
from muster.tasks import allocation_records as records
from muster.tasks import meeting
from muster.tasks.allocating import AllocationService
from muster.tasks.allocation_records import Accelerators
from muster.tasks.allocation_states import (
    Acknowledged,
    BecameDaemon,
    ProxyTold,
    Readied,
    Signal,
    Signalled,
    State,
    Waited,
)
from muster.tasks.live import Live
from muster.tasks.log_lines import Level
from muster.tasks.meeting import Gathered, Meeting

T = TypeVar("T")
PATIENCE_SECONDS: Final = 600.0
"""After so long those who wait for others are told, in their log, whom for."""
LONGEST_POLL_SECONDS: Final = 300.0


class Harness:
    """Everything raises NotFound for an allocation that is over or unknown, but where it says otherwise."""

    def __init__(self, allocations: AllocationService, database: Database, clock: Clock) -> None:
        self._allocations = allocations
        self._database = database
        self._clock = clock
        allocations.on_change(self._look)

    async def known(self, allocation: AllocationId) -> None:
        """Nothing is said but that it runs."""
        await self._allocations.find(allocation)

    async def ready(self, allocation: AllocationId) -> None:
        """What it serves can be used."""
        await self._allocations.send(await self._allocations.find(allocation), Readied(self._clock.now()))

    async def waiting(self, allocation: AllocationId) -> None:
        await self._allocations.send(await self._allocations.find(allocation), Waited(self._clock.now()))

    async def daemon(self, allocation: AllocationId, resource: ResourceId) -> None:
        """This part only serves the others."""
        live = await self._allocations.find(allocation)
        _part_of(live, resource)
        await self._allocations.send(live, BecameDaemon(self._clock.now(), resource))

    async def proxy_address(self, allocation: AllocationId, address: str) -> None:
        """Raises BadRequest: it may only name itself, since the server will connect there for others; and Unavailable
        as long as nobody knows where that is."""
        live = await self._allocations.find(allocation)
        known = {part.resource.address for part in live.state.parts if part.resource.address}
        try:
            wanted = str(ipaddress.ip_address(address))
        except ValueError as error:
            raise errors.BadRequest(f"proxyAddress: {address!r} is not an IP address") from error
        if not known:
            raise errors.Unavailable("it is not known yet where this allocation runs; ask again")
        if wanted not in known:
            raise errors.BadRequest(f"proxyAddress: {wanted} is not an address of this allocation")
        if live.kept.proxies:
            await self._allocations.send(live, ProxyTold(self._clock.now(), wanted))

    async def accelerators(self, allocation: AllocationId, found: Accelerators) -> None:
        """Also of one that has ended by now."""
        await self._database.write(lambda connection: records.set_accelerators(connection, allocation, found))

    # Preemption

    async def should_stop(self, allocation: AllocationId, seconds: float) -> bool:
        """Whether it is to stop: as soon as it is, or else after so many seconds. False for one that is unknown."""
        try:
            live = await self._allocations.find(allocation)
        except errors.NotFound:
            return False
        if live.asked.is_set() or not seconds > 0:  # nor NaN
            return live.asked.is_set()
        try:
            async with asyncio.timeout(min(seconds, LONGEST_POLL_SECONDS)):
                await live.asked.wait()
        except TimeoutError:
            return False
        return True

    async def acknowledge(self, allocation: AllocationId) -> None:
        await self._allocations.send(await self._allocations.find(allocation), Acknowledged(self._clock.now()))

    async def preemption_is_near(self, allocation: AllocationId) -> None:
        """What runs it has said so to the task: it need not be ready for that."""
        live = await self._allocations.find(allocation)
        reason = "the platform that it runs on needs its resources"
        await self._allocations.send(live, Signalled(self._clock.now(), Signal.PREEMPT, reason, is_forced=True))

    # Meeting the others

    async def rendezvous(self, allocation: AllocationId, resource: ResourceId) -> Meeting:
        """Where all parts of it are, once all of them run and have asked. Raises BadRequest, and Conflict for a call
        that the same part has made again, or when the allocation ends."""
        live = await self._allocations.find(allocation)
        _part_of(live, resource)
        if not self._has_met(live.state):
            waiting = live.rendezvous.join(resource)
            try:
                self._look(live.task, live.state)
                await self._patiently(live, waiting)
            finally:
                live.rendezvous.leave(resource, waiting)
        return meeting.met(live.state.parts, resource)

    @staticmethod
    def _has_met(state: State) -> bool:
        """Durable before the first was told: who was not told before a restart, or lost the answer, asks again."""
        return state.is_ready and all(part.is_over or meeting.is_there(part) for part in state.parts)

    def _look(self, _task: str, state: State) -> None:
        live = self._allocations.known(state.id)
        if live is not None and not state.is_over and live.rendezvous.is_complete(state.parts):
            self._allocations.spawn(self._met(live), f"rendezvous of {live.id}")

    async def _met(self, live: Live) -> None:
        if not live.state.is_ready:
            await self._allocations.send(live, Readied(self._clock.now()))
        live.rendezvous.complete()

    async def all_gather(self, allocation: AllocationId, peer: str, peers: int, data: JSON) -> Gathered:
        """What all of so many peers bring, once they are there. Raises BadRequest, and Conflict for a call that the
        same peer has made again, or when the allocation ends."""
        live = await self._allocations.find(allocation)
        waiting = live.gather.join(peer, peers, data)
        try:
            if live.gather.is_complete:
                await self._allocations.send(live, Readied(self._clock.now()))
                if live.gather.is_complete:  # nobody has gone meanwhile
                    live.gather.complete()
            return await self._patiently(live, waiting)
        finally:
            live.gather.leave(peer, waiting)

    async def _patiently(self, live: Live, waiting: "asyncio.Future[T]") -> T:
        while True:
            try:
                async with asyncio.timeout(PATIENCE_SECONDS):
                    return await asyncio.shield(waiting)
            except TimeoutError:
                now = self._clock.monotonic()
                if now < live.rendezvous.complained_at + PATIENCE_SECONDS / 2:
                    continue  # another of its parts has said so
                live.rendezvous.complained_at = now
                missing = [*live.rendezvous.missing(live.state.parts)] if not live.gather.present else []
                whom = f": {', '.join(missing)} did not ask yet" if missing else ""
                text = f"parts of this task have waited for others for {PATIENCE_SECONDS / 60:.0f} minutes{whom}"
                await self._allocations.effects.tell(live, text, Level.WARNING)


def _part_of(live: Live, resource: ResourceId) -> None:
    """Raises BadRequest."""
    if live.state.part(resource) is None:
        raise errors.BadRequest(f"resourcesId: {resource} is no part of allocation {live.id}")
