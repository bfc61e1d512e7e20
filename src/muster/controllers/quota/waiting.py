"""Tells a workload why it waits: in its condition and as an event, when the reason changes.

Not at once: most workloads start a moment later, and what is written about thousands of others is not urgent.
"""

import asyncio
import heapq
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
from muster.quota.explaining import Explainer, Explanation, explained
from muster.quota.queueing import Position
from muster.quota.workloads import QUOTA_RESERVED, WorkloadInfo
from muster.runtime.clock import Clock
from muster.runtime.recording import EventRecorder
from muster.store.protocol import Patch, Refused, Store

_log = logging.getLogger(__name__)
PATIENCE_SECONDS = 1.0
"""A workload that starts sooner is told nothing."""
_FIRST_PAUSE = 5.0
_LONGEST_PAUSE = (
    60.0  # between two reports on one workload: who holds what, and how many are ahead, changes all the time
)
_BATCH = 8
_BATCH_SECONDS = 0.1  # with the above: nobody is told late where few wait, and thousands cost little


@dataclass(frozen=True, slots=True)
class _Wait:
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
        self._times: list[tuple[float, str]] = []
        """When whom to tell, the earliest first. Whoever is no longer due is passed over."""
        self._told: dict[str, tuple[float, float]] = {}  # when last, and how long until the next
        self._requeues: dict[str, Requeue] = {}  # the last of each that others may refer to
        self._news = asyncio.Event()

    def take(self, step: Step) -> None:
        for decision in step.decisions:
            self._forget(decision.info.key)
        for requeue in step.waits:
            self._requeues[requeue.info.key] = requeue
            self._add(_Wait(requeue.info, requeue))
        for info, verdict in step.moved:
            like = self._requeues.get(verdict.key)
            if like is not None:
                self._add(_Wait(info, like))

    def _forget(self, key: str) -> None:
        self._due.pop(key, None)
        self._told.pop(key, None)
        self._requeues.pop(key, None)

    def _add(self, wait: _Wait) -> None:
        key = wait.info.key
        if key not in self._due:
            now = self._clock.monotonic()
            last, pause = self._told.get(key, (now, PATIENCE_SECONDS))
            if not _says_so(wait):
                last, pause = now, PATIENCE_SECONDS
            heapq.heappush(self._times, (max(now, last + pause), key))
            self._news.set()
        self._due[key] = wait

    async def run(self) -> None:
        while True:
            if not self._times:
                self._news.clear()
                await self._news.wait()
            await self._clock.sleep(max(_BATCH_SECONDS, self._times[0][0] - self._clock.monotonic()))
            await self._report()

    async def _report(self) -> None:
        now = self._clock.monotonic()
        writing: list[tuple[_Wait, Object]] = []
        patches: list[Patch] = []
        positions: dict[str, dict[str, Position]] = {}
        explainer = Explainer(self._engine, self._clock.now())
        while self._times and self._times[0][0] <= now and len(patches) < _BATCH:
            _, key = heapq.heappop(self._times)
            wait, found = self._due.pop(key, None), self._workload(key)
            if wait is None:
                continue
            if found is None or self._engine.pending.get(key) is None:
                self._forget(key)
                continue
            explanation = explainer.explain(wait.info, self._position(wait.info, positions))
            made = self._made(found, wait, explanation)
            if made != found.document():
                _, pause = self._told.get(key, (now, _FIRST_PAUSE / 2))
                self._told[key] = now, min(2 * pause, _LONGEST_PAUSE)
                writing.append((wait, found))
                patches.append(status_patch(found, made))
            await asyncio.sleep(0)
        if patches:
            await self._write(writing, patches)

    def _position(self, info: WorkloadInfo, known: dict[str, dict[str, Position]]) -> Position | None:
        if info.queue not in known:
            known[info.queue] = {found.info.key: found for found in self._engine.pending.positions(info.queue)}
        return known[info.queue].get(info.key)

    def _made(self, found: Object, wait: _Wait, explanation: Explanation) -> Document:
        document = found.document()
        entry, now, gates = wait.requeue.entry, self._clock.now(), self._engine.settings.gates
        if wait.requeue.info.key == wait.info.key:
            made = wait.requeue.apply(document)
        else:
            made = status.pending(document, entry.pending_reason, entry.message, now, gates, requested(wait.info))
        return explained(made, explanation, now)

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


def _says_so(wait: _Wait) -> bool:
    """Its condition gives that reason already; only the rest of the text may be old."""
    told = wait.info.conditions.get(QUOTA_RESERVED)
    return told is not None and told.status == "False" and told.reason == wait.requeue.entry.pending_reason
