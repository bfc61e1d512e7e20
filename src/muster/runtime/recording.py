"""Events: what a component did to an object and why, told to people.

Recording never waits and never fails its caller: events are kept in memory, bounded, and written in batches.
The same thing said again of the same object raises the count of one Event instead of adding another.
"""

import asyncio
import hashlib
import logging
from collections import OrderedDict
from dataclasses import dataclass
from itertools import chain, islice
from typing import Literal, NamedTuple, TypeAlias

from muster.api import core, errors, timestamps
from muster.api.errors import ApiError
from muster.api.kinds import Kind
from muster.api.meta import Instant
from muster.api.objects import Key, Object
from muster.api.raw import Document
from muster.runtime.clock import Clock
from muster.store.protocol import Create, Options, Patch, Refused, Result, Store, Write

_log = logging.getLogger(__name__)

EventType: TypeAlias = Literal["Normal", "Warning"]

MOST_PENDING = 5000
MOST_REMEMBERED = 4096
FIRST_PAUSE_SECONDS = 0.1
MOST_PER_SECOND = 200
"""Events are for people: in a burst they must not take from the work that they tell of. So they come later, warnings
before the rest; and what is more than can wait is dropped."""
AT_ONCE = 100
TICK_SECONDS = 0.1
"""Events are written on the tick: what several components have to tell of the same job, they tell with one commit."""
LONGEST_PAUSE_SECONDS = 10.0
CLOSING_SECONDS = 2.0


class _Saying(NamedTuple):
    """What makes two events the same."""

    uid: str
    type: EventType
    reason: str
    message: str


class _Subject(NamedTuple):
    """What an event says of its object; the object itself may be large, and superseded long before this is written."""

    kind: Kind
    key: Key
    uid: str
    revision: int


@dataclass(slots=True)
class _Pending:
    subject: _Subject
    first: Instant
    last: Instant
    count: int


class EventRecorder:
    """`run` writes what `record` gathers, until cancelled, and then what is left."""

    def __init__(self, store: Store, clock: Clock, component: str) -> None:
        self._store = store
        self._clock = clock
        self._component = component
        self._options = Options(manager=component)
        self._pending: dict[_Saying, _Pending] = {}
        self._counts: OrderedDict[_Saying, int] = OrderedDict()
        self._wake = asyncio.Event()
        self.dropped = 0

    def record(self, subject: Object, type: EventType, reason: str, message: str) -> None:
        saying = _Saying(subject.uid, type, reason, message)
        now = self._clock.now()
        known = self._pending.get(saying)
        if known is not None:
            known.count += 1
            known.last = now
        elif len(self._pending) < MOST_PENDING:
            told = _Subject(subject.kind, subject.key, subject.uid, subject.revision)
            self._pending[saying] = _Pending(told, now, now, 1)
            self._wake.set()
        else:
            self.dropped += 1

    async def run(self) -> None:
        pause = FIRST_PAUSE_SECONDS
        try:
            while True:
                await self._wake.wait()
                await self._clock.sleep(TICK_SECONDS - self._clock.monotonic() % TICK_SECONDS)
                self._wake.clear()
                try:
                    written = await self._write_some()
                    pause = FIRST_PAUSE_SECONDS
                    await self._clock.sleep(written / MOST_PER_SECOND)
                except (ApiError, OSError) as error:
                    _log.debug("events of %s wait: %s", self._component, error)
                    await self._clock.sleep(pause)
                    pause = min(pause * 2, LONGEST_PAUSE_SECONDS)
                    self._wake.set()
        finally:
            await self._finish()

    async def _finish(self) -> None:
        try:
            async with asyncio.timeout(CLOSING_SECONDS):
                await self.flush()
        except (ApiError, OSError, TimeoutError) as error:
            _log.warning("%d events of %s are lost: %s", len(self._pending), self._component, error)

    async def flush(self) -> None:
        """Write everything recorded so far. Raises when the store cannot be reached; nothing is lost then."""
        while self._pending:
            await self._write_some()

    async def _write_some(self) -> int:
        """Of what has gathered; how much that was."""
        batch = self._take_some()
        if not batch:
            return 0
        writes = [self._write(saying, pending) for saying, pending in batch.items()]
        try:
            results = await self._store.write(writes)
        except BaseException:
            for saying, pending in batch.items():
                self._put_back(saying, pending)
            raise
        for (saying, pending), write, result in zip(batch.items(), writes, results, strict=True):
            await self._settle(saying, pending, write, result)
        return len(batch)

    def _take_some(self) -> dict[_Saying, _Pending]:
        """Warnings first, else in the order in which they came."""
        if len(self._pending) <= AT_ONCE:
            batch, self._pending = self._pending, {}
            return batch
        warnings = (saying for saying in self._pending if saying.type == "Warning")
        others = (saying for saying in self._pending if saying.type != "Warning")
        first = list(islice(chain(warnings, others), AT_ONCE))
        self._wake.set()
        return {saying: self._pending.pop(saying) for saying in first}

    def _write(self, saying: _Saying, pending: _Pending) -> Write:
        known = self._counts.get(saying)
        key = self._key(saying, pending.subject)
        if known is None:
            return Create(core.EVENT, self._document(key, saying, pending), self._options)
        body = {"count": known + pending.count, "lastTimestamp": timestamps.to_text(pending.last)}
        return Patch(core.EVENT, key, body, options=self._options)

    async def _settle(self, saying: _Saying, pending: _Pending, write: Write, result: Result) -> None:
        if not isinstance(result, Refused):
            self._remember(saying, self._counts.get(saying, 0) + pending.count)
        elif isinstance(result.error, errors.AlreadyExists):
            # Recorded by an earlier life of this component: go on counting where it stopped.
            self._remember(saying, await self._count(self._key(saying, pending.subject)))
            self._put_back(saying, pending)
        elif isinstance(write, Patch) and isinstance(result.error, errors.NotFound):
            self._counts.pop(saying, None)
            self._put_back(saying, pending)
        else:
            _log.debug("event %s of %s was refused: %s", saying.reason, pending.subject, result.error)

    async def _count(self, key: Key) -> int:
        try:
            found = await self._store.get(core.EVENT, key)
        except errors.NotFound:
            return 0
        return found.read(core.Event).count or 0

    def _remember(self, saying: _Saying, count: int) -> None:
        self._counts[saying] = count
        self._counts.move_to_end(saying)
        if len(self._counts) > MOST_REMEMBERED:
            self._counts.popitem(last=False)

    def _put_back(self, saying: _Saying, pending: _Pending) -> None:
        newer = self._pending.get(saying)
        if newer is not None:
            pending.count += newer.count
            pending.last = newer.last
        self._pending[saying] = pending

    def _key(self, saying: _Saying, subject: _Subject) -> Key:
        # The name follows from what is said, so that a restarted component finds its own events again.
        told = "\0".join((self._component, *saying))
        digest = hashlib.blake2b(told.encode(), digest_size=8).hexdigest()
        return Key(subject.key.namespace or "default", f"{subject.key.name[:200]}.{digest}")

    def _document(self, key: Key, saying: _Saying, pending: _Pending) -> Document:
        subject = pending.subject
        involved: Document = {
            "apiVersion": subject.kind.api_version,
            "kind": subject.kind.name,
            "name": subject.key.name,
            "uid": subject.uid,
            "resourceVersion": str(subject.revision),
        }
        if subject.key.namespace:
            involved["namespace"] = subject.key.namespace
        return {
            "metadata": {"namespace": key.namespace, "name": key.name},
            "involvedObject": involved,
            "type": saying.type,
            "reason": saying.reason,
            "message": saying.message[:1024],
            "source": {"component": self._component},
            "reportingComponent": self._component,
            "reportingInstance": "",
            "firstTimestamp": timestamps.to_text(pending.first),
            "lastTimestamp": timestamps.to_text(pending.last),
            "count": pending.count,
        }
