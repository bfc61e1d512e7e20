"""What must be thrown away now and then: sessions that are over, audit records that are old enough."""

from typing import Final

from muster.accounts import sessions
from muster.accounts.audit import Audit
from muster.api.meta import Instant
from muster.records import Database
from muster.runtime.clock import Clock

_EVERY: Final = 3600.0
_DAY: Final = 86_400.0


class Upkeep:
    """`audit_days`: how long audit records are kept."""

    def __init__(self, database: Database, clock: Clock, audit: Audit, *, audit_days: float = 365.0) -> None:
        self._database = database
        self._clock = clock
        self._audit = audit
        self._audit_days = audit_days

    async def run(self) -> None:
        """For ever."""
        while True:
            await self.once()
            await self._clock.sleep(_EVERY)

    async def once(self) -> None:
        now = self._clock.now()
        await self._database.write(lambda connection: sessions.purge(connection, now))
        await self._audit.forget(Instant(now - self._audit_days * _DAY))
