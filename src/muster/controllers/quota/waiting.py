"""Tells a workload why it waits: in its condition and as an event, when the reason changes.

Not at once: most workloads start a moment later, and what is written about thousands of others is not urgent.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from muster.api import kueue
from muster.api.errors import ApiError
from muster.api.objects import Object
from muster.api.raw import Document
from muster.controllers.quota.writer import status_patch
from muster.quota import status
from muster.quota.decisions import Requeue, requested
from muster.quota.engine import Engine, Step
from muster.quota.explaining import explained
from muster.quota.queueing import Position
from muster.quota.workloads import WorkloadInfo
from muster.runtime.clock import Clock
from muster.runtime.recording import EventRecorder
from muster.store.protocol import Patch, Refused, Store

_log = logging.getLogger(__name__)
PATIENCE_SECONDS = 1.0
_BATCH = 128


@dataclass(frozen=True, slots=True)
class _Wait:
    since: float
    info: WorkloadInfo
    requeue: Requeue
    """Of the workload itself, or of the one like it that was looked at."""


class Waiting:
    def __init__(
        self,
        store: Store,
        clock: Clock,
        engine: Engine,
        events: EventRecorder,
        workload: Callable[[str], Object | None],
    ) -> None:
        self._store = store
        self._clock = clock
        self._engine = engine
        self._events = events
        self._workload = workload
        self._due: dict[str, _Wait] = {}
        self._requeues: dict[str, Requeue] = {}  # the last of each that others may refer to
        self._news = asyncio.Event()

    def take(self, step: Step) -> None:
        now = self._clock.monotonic()
        for decision in step.decisions:
            self._due.pop(decision.info.key, None)
            self._requeues.pop(decision.info.key, None)
        for requeue in step.waits:
            self._requeues[requeue.info.key] = requeue
            self._add(_Wait(now, requeue.info, requeue))
        for info, verdict in step.moved:
            like = self._requeues.get(verdict.key)
            if like is not None:
                self._add(_Wait(now, info, like))

    def _add(self, wait: _Wait) -> None:
        known = self._due.get(wait.info.key)
        since = wait.since if known is None else known.since
        self._due[wait.info.key] = _Wait(since, wait.info, wait.requeue)
        self._news.set()

    async def run(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            while self._due:
                await self._clock.sleep(self._pause())
                await self._report()

    def _pause(self) -> float:
        """Until the one that has waited longest has waited long enough."""
        first = next(iter(self._due.values()))
        return max(0.02, first.since + PATIENCE_SECONDS - self._clock.monotonic())

    async def _report(self) -> None:
        ripe = self._clock.monotonic() - PATIENCE_SECONDS
        writing: list[tuple[_Wait, Object]] = []
        patches: list[Patch] = []
        positions: dict[str, dict[str, Position]] = {}
        for key, wait in list(self._due.items()):
            if wait.since > ripe or len(patches) == _BATCH:
                break
            del self._due[key]
            found = self._workload(key)
            if found is None or self._engine.pending.get(key) is None:
                self._requeues.pop(key, None)
                continue
            made = self._made(found, wait, self._position(wait.info, positions))
            if made != found.document():
                writing.append((wait, found))
                patches.append(status_patch(found, made))
        if patches:
            await self._write(writing, patches)

    def _position(self, info: WorkloadInfo, known: dict[str, dict[str, Position]]) -> Position | None:
        if info.queue not in known:
            known[info.queue] = {found.info.key: found for found in self._engine.pending.positions(info.queue)}
        return known[info.queue].get(info.key)

    def _made(self, found: Object, wait: _Wait, position: Position | None) -> Document:
        document = found.document()
        entry, now, gates = wait.requeue.entry, self._clock.now(), self._engine.settings.gates
        if wait.requeue.info.key == wait.info.key:
            made = wait.requeue.apply(document)
        else:
            made = status.pending(document, entry.pending_reason, entry.message, now, gates, requested(wait.info))
        return explained(made, self._engine, wait.info, position, now)

    async def _write(self, writing: Sequence[tuple[_Wait, Object]], patches: Sequence[Patch]) -> None:
        try:
            results = await self._store.write(patches)
        except (ApiError, OSError) as error:
            _log.warning("reasons could not be written: %s", error)
            return
        for (wait, found), result in zip(writing, results, strict=True):
            if isinstance(result, Refused):
                if result.error.retryable and self._engine.pending.get(wait.info.key) is not None:
                    self._add(wait)
            else:
                self._tell(wait, found)

    def _tell(self, wait: _Wait, found: Object) -> None:
        before = found.read(kueue.Workload).status.conditions
        reason = status.shown_reason(wait.requeue.entry.pending_reason, self._engine.settings.gates)
        message = status.shortened(wait.requeue.entry.message, status.MOST_EVENT_TEXT)
        if not any(told.message == message for told in before):
            self._events.record(found, "Warning", reason, message)
