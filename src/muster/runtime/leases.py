"""Leader election by a Lease: of several equal processes one leads, and another takes over when it cannot.

Nobody compares wall clocks: a candidate waits until it has itself seen the lease unchanged for its whole
duration, and a leader counts from before it sent its last successful renewal. So the leader gives up first.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from muster.api import coordination, errors, timestamps
from muster.api.errors import ApiError
from muster.api.objects import Key, Object
from muster.api.raw import Document
from muster.runtime.clock import EARLY_SECONDS, Clock
from muster.store.protocol import Create, Patch, Revision, Store, write_one

_log = logging.getLogger(__name__)


class LeaderElector:
    """`identity` must be unique to the process. What leads must end within a third of the lease once cancelled."""

    def __init__(
        self, store: Store, clock: Clock, *, name: str, namespace: str, identity: str, lease_seconds: int = 15
    ) -> None:
        self.identity = identity
        self._store = store
        self._clock = clock
        self._key = Key(namespace, name)
        self._lease_seconds = lease_seconds
        self._renew_seconds = lease_seconds * 2 / 3  # without a renewal for so long, the leader steps down
        self._retry_seconds = lease_seconds / 8
        self._held_until: float | None = None
        self._seen = Revision(-1)
        self._seen_at = 0.0

    @property
    def is_leading(self) -> bool:
        """False as soon as another could lead, even if this process was stopped and has not noticed yet."""
        return self._held_until is not None and self._clock.monotonic() < self._held_until

    async def run(self, lead: Callable[[], Awaitable[None]]) -> None:
        """Call `lead` each time leadership is won, cancel it when it is lost. Returns when `lead` does."""
        while True:
            await self._win()
            _log.info("%s leads by lease %s", self.identity, self._key)
            try:
                if await self._hold(lead):
                    return
            finally:
                await self._release()
            _log.warning("%s no longer leads by lease %s", self.identity, self._key)

    async def _win(self) -> None:
        while True:
            await self._attempt(self._lease_seconds)
            if self.is_leading:
                return
            await self._clock.sleep(self._retry_seconds)

    async def _hold(self, lead: Callable[[], Awaitable[None]]) -> bool:
        """True when `lead` ended by itself, False when leadership was lost."""
        async with asyncio.TaskGroup() as group:
            leading = group.create_task(_call(lead), name=f"lead-{self._key.name}")
            renewing = group.create_task(self._renew(leading), name=f"renew-{self._key.name}")
            await asyncio.wait([leading])
            renewing.cancel()
        return not leading.cancelled()

    async def _renew(self, leading: asyncio.Task[None]) -> None:
        while self._seconds_left() > 0:
            await self._clock.sleep(min(self._retry_seconds, self._seconds_left()))
            if self._seconds_left() > 0:
                await self._attempt(self._seconds_left())
        leading.cancel()

    def _seconds_left(self) -> float:
        """Until the leader must step down, unless it renews."""
        if self._held_until is None:
            return 0.0
        left = self._held_until - self._lease_seconds + self._renew_seconds - self._clock.monotonic()
        return left if left > EARLY_SECONDS else 0.0

    async def _attempt(self, seconds: float) -> None:
        """Try once to take or renew the lease: `_held_until` moves on, stays, or is cleared if another holds it."""
        started = self._clock.monotonic()
        try:
            async with asyncio.timeout(seconds):
                took = await self._take()
        except TimeoutError:
            return
        except (ApiError, OSError) as error:
            _log.debug("lease %s: %s", self._key, error)
            return
        self._held_until = started + self._lease_seconds if took else None

    async def _take(self) -> bool:
        try:
            found = await self._store.get(coordination.LEASE, self._key)
        except errors.NotFound:
            made = Create(coordination.LEASE, {"metadata": _metadata(self._key), "spec": self._claim(None)})
            self._saw(await write_one(self._store, made))
            return True
        self._saw(found)
        lease = found.read(coordination.Lease).spec
        duration = max(self._lease_seconds, lease.lease_duration_seconds or 0)
        is_fresh = self._clock.monotonic() < self._seen_at + duration
        if lease.holder_identity and lease.holder_identity != self.identity and is_fresh:
            return False
        claim = Patch(coordination.LEASE, self._key, {"spec": self._claim(lease)}, based_on=Revision(found.revision))
        self._saw(await write_one(self._store, claim))
        return True

    def _saw(self, found: Object) -> None:
        if found.revision != self._seen:
            self._seen = Revision(found.revision)
            self._seen_at = self._clock.monotonic()

    def _claim(self, previous: coordination.LeaseSpec | None) -> Document:
        now = timestamps.to_micro_text(self._clock.now())
        claim: Document = {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": self._lease_seconds,
            "renewTime": now,
        }
        if previous is None or previous.holder_identity != self.identity:
            claim["acquireTime"] = now
            claim["leaseTransitions"] = (previous.lease_transitions or 0) + 1 if previous else 0
        return claim

    async def _release(self) -> None:
        """Let the next leader start at once. Best effort: otherwise it has to wait the lease out."""
        if not self.is_leading:
            self._held_until = None
            return
        self._held_until = None
        try:
            async with asyncio.timeout(self._retry_seconds):
                while not await self._let_go():
                    pass  # a renewal that was under way has landed after all
        except (TimeoutError, ApiError, OSError) as error:
            _log.debug("lease %s was not released: %s", self._key, error)

    async def _let_go(self) -> bool:
        found = await self._store.get(coordination.LEASE, self._key)
        if found.read(coordination.Lease).spec.holder_identity != self.identity:
            return True
        gone: Document = {"spec": {"holderIdentity": "", "leaseDurationSeconds": 1}}
        try:
            await write_one(self._store, Patch(coordination.LEASE, self._key, gone, based_on=Revision(found.revision)))
        except errors.Conflict:
            return False
        return True


async def _call(lead: Callable[[], Awaitable[None]]) -> None:
    await lead()


def _metadata(key: Key) -> Document:
    return {"namespace": key.namespace, "name": key.name}
