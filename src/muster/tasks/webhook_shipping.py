"""Delivers what waits in the queue: at least once, later and later where it fails, and at last as a dead letter.

What was taken is struck out only then: a crash in between sends it again, and receivers can tell by the event's id.
"""

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

from muster.api.meta import Instant
from muster.records import Database
from muster.runtime.clock import Clock
from muster.tasks import webhook_records
from muster.tasks.webhook_records import Besides, Delivery
from muster.tasks.webhook_rules import WebhookId
from muster.tasks.webhook_sending import NotNow, Outcome, Taken

MOST_ATTEMPTS: Final = 10
"""Which with these pauses take a working day."""
FIRST_PAUSE: Final = 5.0
LONGEST_PAUSE: Final = 4 * 3600.0
_FACTOR: Final = 3.0
_SPREAD: Final = 0.2
_AT_ONCE: Final = 8
_AT_ONCE_EACH: Final = 2
"""A receiver that is slow must not hold up the others."""
_AT_LEAST_EVERY: Final = 3600.0
_KEPT_DEAD: Final = 30 * 86_400.0
_log = logging.getLogger(__name__)
Send: TypeAlias = Callable[[Delivery, float], Awaitable[Outcome]]
"""The time is that of the attempt."""


class Shipper:
    def __init__(self, database: Database, clock: Clock, send: Send, entropy: random.Random) -> None:
        self._database = database
        self._clock = clock
        self._send = send
        self._entropy = entropy
        self._woken = asyncio.Event()
        self._flying: dict[int, WebhookId] = {}
        self._buried_at = float("-inf")
        self._tasks: asyncio.TaskGroup | None = None

    def wake(self) -> None:
        """There may be something new."""
        self._woken.set()

    async def run(self) -> None:
        """Until cancelled."""
        self._flying.clear()
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            while True:
                self._woken.clear()
                await self._bury()
                await self._start()
                await self._wait()

    async def _start(self) -> None:
        """As many as may fly, and no more than a few to one receiver."""
        assert self._tasks is not None
        while len(self._flying) < _AT_ONCE:
            now, besides = self._clock.now(), self._besides()
            most = _AT_ONCE - len(self._flying)
            found = await self._database.read(
                lambda connection, now=now, besides=besides, most=most: webhook_records.due(  # type: ignore[misc]
                    connection, now, most, besides
                )
            )
            if not found:
                return
            for delivery in found:
                if delivery.webhook not in self._besides().webhooks:
                    self._flying[delivery.id] = delivery.webhook
                    name = f"webhook {delivery.webhook}: event {delivery.event}"
                    self._tasks.create_task(self._deliver(delivery), name=name)

    async def _wait(self) -> None:
        """Until something has landed, is due, or may be new."""
        seconds = _AT_LEAST_EVERY
        if len(self._flying) < _AT_ONCE:
            besides = self._besides()
            at = await self._database.read(lambda connection: webhook_records.next_due(connection, besides))
            seconds = seconds if at is None else min(max(at - self._clock.now(), 0.0), seconds)
        try:
            async with asyncio.timeout(seconds):
                await self._woken.wait()
        except TimeoutError:
            return

    def _besides(self) -> Besides:
        busy = Counter(self._flying.values())
        return Besides(list(self._flying), [webhook for webhook, count in busy.items() if count >= _AT_ONCE_EACH])

    async def _deliver(self, delivery: Delivery) -> None:
        try:
            outcome = await self._send(delivery, self._clock.now())
            await self._note(delivery, outcome)
        finally:
            del self._flying[delivery.id]
            self._woken.set()

    async def _note(self, delivery: Delivery, outcome: Outcome) -> None:
        if isinstance(outcome, Taken):
            await self._database.write(lambda connection: webhook_records.delivered(connection, delivery.id))
            return
        again = self._again_at(delivery, outcome)
        _log.log(
            logging.WARNING if again is None else logging.INFO,
            "webhook %d: event %s was not taken (attempt %d): %s; %s",
            delivery.webhook,
            delivery.event,
            delivery.attempts + 1,
            outcome.error,
            "given up" if again is None else f"again in {again - self._clock.now():.0f} s",
        )
        await self._database.write(
            lambda connection: webhook_records.failed(connection, delivery.id, outcome.error, again)
        )

    def _again_at(self, delivery: Delivery, outcome: Outcome) -> Instant | None:
        if not isinstance(outcome, NotNow) or delivery.attempts + 1 >= MOST_ATTEMPTS:
            return None
        pause = max(pause_after(delivery.attempts + 1), min(outcome.after or 0.0, LONGEST_PAUSE))
        # Spread out, so that what failed together does not come together for ever.
        return Instant(self._clock.now() + pause * (1 + _SPREAD * self._entropy.random()))

    async def _bury(self) -> None:
        if self._clock.monotonic() - self._buried_at < _AT_LEAST_EVERY:
            return
        self._buried_at = self._clock.monotonic()
        before = Instant(self._clock.now() - _KEPT_DEAD)
        gone = await self._database.write(lambda connection: webhook_records.bury(connection, before))
        if gone:
            _log.info("%d events that no webhook took are forgotten", gone)


def pause_after(attempts: int) -> float:
    return min(FIRST_PAUSE * _FACTOR ** (attempts - 1), LONGEST_PAUSE)
