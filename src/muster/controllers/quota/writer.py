"""Writes what the engine has decided, many decisions to one commit, and tells it which the store refused.

A decision is applied to the workload as it is now and written on that revision: whoever changed it meanwhile wins, and
the workload is decided about again.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence

from muster.api import errors, kueue, patching
from muster.api.errors import ApiError
from muster.api.meta import Instant
from muster.api.objects import Key, Object
from muster.api.raw import Document
from muster.controllers.quota.metrics import QuotaMetrics
from muster.quota.decisions import WARNING, Admission, Eviction, Replacement
from muster.quota.engine import Engine
from muster.runtime.recording import EventRecorder
from muster.store.protocol import Options, Patch, Refused, Result, Revision, Store

_log = logging.getLogger(__name__)
OPTIONS = Options(manager="muster-quota")
_BATCH = 256
_MOST_UNDER_WAY = 4
_RETRY_SECONDS = 0.2
_MOST_AHEAD = 512  # decisions that wait to be written: what is decided from is then still much like the store

Decision = Admission | Eviction | Replacement


class Writer:
    def __init__(
        self,
        store: Store,
        engine: Engine,
        events: EventRecorder,
        workload: Callable[[str], Object | None],
        news: asyncio.Event,
        metrics: QuotaMetrics,
    ) -> None:
        self._store = store
        self._engine = engine
        self._events = events
        self._workload = workload
        self._news = news
        self._metrics = metrics
        self._due: list[Decision] = []
        self._refused: list[str] = []
        self._outrun: dict[str, int] = {}  # refused because of a change that is not known here yet: what is known
        self._filled = asyncio.Event()
        self._emptied = asyncio.Event()

    @property
    def is_behind(self) -> bool:
        return len(self._due) >= _MOST_AHEAD

    async def catch_up(self) -> None:
        """Until there is little left to write."""
        while self.is_behind:
            self._emptied.clear()
            await self._emptied.wait()

    def take(self, decisions: Sequence[Decision]) -> None:
        self._due.extend(decisions)

    def flush(self) -> None:
        if self._due:
            self._filled.set()

    def read_answers(self, now: Instant) -> None:
        """Tells the engine what was refused. Called by the engine's owner."""
        refused, self._refused = self._refused, []
        for key in [*refused, *self._outrun]:
            found = self._workload(key)
            if found is not None and self._outrun.get(key) == found.revision:
                continue  # deciding from the same again would only be refused again
            self._outrun.pop(key, None)
            self._engine.refused(key, found.read(kueue.Workload) if found is not None else None, now)

    async def run(self) -> None:
        """Several batches are under way at a time: a decision does not wait until the one before it is on disk."""
        places = asyncio.Semaphore(_MOST_UNDER_WAY)
        async with asyncio.TaskGroup() as tasks:
            while True:
                await self._filled.wait()
                await places.acquire()
                batch, self._due = self._due[:_BATCH], self._due[_BATCH:]
                if not self._due:
                    self._filled.clear()
                self._emptied.set()
                tasks.create_task(self._write(batch)).add_done_callback(lambda _: places.release())

    async def _write(self, batch: Sequence[Decision]) -> None:
        writing: list[tuple[Decision, Object]] = []
        patches: list[Patch] = []
        for decision in batch:
            found = self._workload(decision.info.key)
            if found is None or found.uid != decision.info.uid:
                self._refused.append(decision.info.key)
                continue
            writing.append((decision, found))
            patches.append(status_patch(found, decision.apply(found.document())))
        try:
            results: Sequence[Result] = await self._store.write(patches)
        except (ApiError, OSError) as error:
            _log.warning("admissions could not be written: %s", error)
            results = [Refused(errors.Unavailable(str(error)))] * len(patches)
        if any(isinstance(result, Refused) and not _is_outrun(result.error) for result in results):
            # The store is away. What is decided again at once is refused again at once, and nothing else gets done.
            await asyncio.sleep(_RETRY_SECONDS)
        for (decision, found), result in zip(writing, results, strict=True):
            if isinstance(result, Refused):
                _log.debug("%s: %s", decision.info.key, result.error)
                if _is_outrun(result.error):
                    self._outrun[decision.info.key] = found.revision
                else:
                    self._refused.append(decision.info.key)
            else:
                self._tell(decision, found)
        if self._refused or self._outrun:
            self._news.set()

    def _tell(self, decision: Decision, found: Object) -> None:
        if isinstance(decision, Eviction) and decision.target is not None and decision.entry.queue is not None:
            self._metrics.preempted(decision.entry.queue.name, decision.target.reason)
        for event in decision.events():
            about = found if event.about == decision.info.key else self._workload(event.about)
            if about is not None:
                self._events.record(
                    about, "Warning" if event.type == WARNING else "Normal", event.reason, event.message
                )


def _is_outrun(error: ApiError) -> bool:
    """Somebody has changed the workload: there will be news of it."""
    return isinstance(error, errors.Conflict | errors.NotFound)


def status_patch(found: Object, made: Document) -> Patch:
    """What makes the stored status the one in `made`, if nobody was faster."""
    changed = patching.difference(found.document().get("status") or {}, made.get("status") or {})
    return Patch(
        found.kind,
        Key(found.key.namespace, found.key.name),
        {"status": changed},
        subresource="status",
        based_on=Revision(found.revision),
        options=OPTIONS,
    )
