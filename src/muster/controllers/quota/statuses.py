"""Keeps the status of ClusterQueues, LocalQueues and Cohorts: whether they are active, how much is in use, who waits.

For people, not for decisions: what changed is gathered for a moment, and in a burst of admissions only so many are
written in a second, so that telling does not take from doing.
"""

import asyncio
import logging
from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

from muster.api import kueue
from muster.api.errors import ApiError
from muster.api.kinds import Kind
from muster.api.objects import Key, Object
from muster.controllers.quota.controller import QuotaController
from muster.controllers.quota.writer import status_patch
from muster.quota import figures
from muster.quota.engine import DEFAULT_QUEUE, Engine
from muster.quota.fair_admission import is_usage_based
from muster.quota.figures import Figures
from muster.quota.tallies import Tallies
from muster.runtime.clock import Clock
from muster.runtime.informers import Informer, all_synced
from muster.store.protocol import Change, Event, Patch, Refused, Selection, Store

_log = logging.getLogger(__name__)

GATHER_SECONDS: Final = 0.5
MOST_WRITES: Final = 100
"""In one go: the rest follows a moment later, those that have waited longest first."""
SWEEP_SECONDS: Final = 5.0
"""After which every queue is compared once more: the engine may have been behind when its queue was last written."""
LONGEST_SWEEP_SECONDS: Final = 60.0
"""The same, where nothing has happened for a while: each time it is waited for twice as long."""

Thing: TypeAlias = tuple[Kind, Key]
Told: TypeAlias = tuple[int | None, Figures | int | None]
"""The generation, and what its status says: of a cohort only its share."""
_SETUP: Final = (kueue.RESOURCE_FLAVOR, kueue.ADMISSION_CHECK, kueue.TOPOLOGY)
_KEPT: Final = (kueue.CLUSTER_QUEUE, kueue.LOCAL_QUEUE, kueue.COHORT)


class StatusController:
    """`quota`: whose engine is asked."""

    def __init__(self, store: Store, clock: Clock, quota: QuotaController) -> None:
        self._store = store
        self._clock = clock
        self._quota = quota

    async def run(self) -> None:
        await _Run(self._store, self._clock, self._quota).run()


class _Run:
    def __init__(self, store: Store, clock: Clock, quota: QuotaController) -> None:
        self._store = store
        self._clock = clock
        self._quota = quota
        self._tallies = Tallies(quota.engine.settings)
        self._touched: dict[Thing, None] = {}
        self._told: dict[Thing, Told] = {}  # as last written
        self._news = asyncio.Event()
        kinds = (*_KEPT, *_SETUP, kueue.WORKLOAD)
        self._informers = {kind: Informer(store, Selection(kind), clock=clock) for kind in kinds}
        self._informers[kueue.LOCAL_QUEUE].index_by("queue", lambda found: [_leads_to(found)])
        for kind in _KEPT:
            self._informers[kind].on_event(self._kept_changed)
        for kind in _SETUP:
            self._informers[kind].on_event(lambda _: self._touch_all())
        self._informers[kueue.WORKLOAD].on_event(self._workload_changed)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for kind, informer in self._informers.items():
                tasks.create_task(informer.run(), name=f"queue statuses: {kind.plural}")
            await all_synced(list(self._informers.values()))
            await self._keep()

    # What happened

    def _workload_changed(self, event: Event) -> None:
        found = event.object
        assert found is not None
        view = found.read(kueue.Workload)
        queues = self._count(found, is_gone=event.change is Change.DELETED)
        local = Key(found.key.namespace, view.spec.queue_name or "")
        door = self._informers[kueue.LOCAL_QUEUE].get(local)
        if door is not None:
            self._touch(kueue.LOCAL_QUEUE, [local])
            queues.add(_leads_to(door))
        elif not view.spec.queue_name:
            queues.add(DEFAULT_QUEUE)
        self._touch(kueue.CLUSTER_QUEUE, [Key("", name) for name in queues])

    def _count(self, found: Object, *, is_gone: bool) -> set[str]:
        if not is_gone:
            try:
                return self._tallies.put(found.read(kueue.Workload))
            except ValueError as error:  # an amount or time that is none
                _log.debug("%s does not count: %s", found.key, error)
        return self._tallies.drop(str(found.key))

    def _kept_changed(self, event: Event) -> None:
        """Our own writes come back as an echo: the generation stays."""
        found = event.object
        assert found is not None
        thing = found.kind, found.key
        told = self._told.get(thing)
        if event.change is Change.DELETED:
            self._told.pop(thing, None)
        elif told is not None and told[0] == found.meta.generation:
            return
        if found.kind is kueue.LOCAL_QUEUE:
            self._touch(kueue.LOCAL_QUEUE, [found.key])
            self._touch(kueue.CLUSTER_QUEUE, [Key("", _leads_to(found))])
        else:
            self._touch_all()  # quota and its lack reach through the whole tree

    def _touch(self, kind: Kind, keys: Iterable[Key]) -> None:
        for key in keys:
            self._touched.setdefault((kind, key))
        self._news.set()

    def _touch_all(self) -> None:
        for kind in _KEPT:
            self._touch(kind, [found.key for found in self._informers[kind].items()])

    # What follows

    async def _keep(self) -> None:
        engine, swept, pause = self._quota.engine, self._clock.monotonic(), SWEEP_SECONDS
        while True:
            await self._wait(swept + pause)
            await self._clock.sleep(GATHER_SECONDS)
            is_quiet = not self._touched and engine.pending.ledger is None
            if not is_quiet:
                pause = SWEEP_SECONDS
            if self._quota.engine is not engine or self._clock.monotonic() >= swept + pause:
                engine, swept = self._quota.engine, self._clock.monotonic()
                pause = min(2 * pause, LONGEST_SWEEP_SECONDS) if is_quiet else SWEEP_SECONDS
                self._touch_all()
            self._sample(engine)
            await self._write_some(engine)

    async def _wait(self, until: float) -> None:
        if not self._touched:
            self._news.clear()
            try:
                async with asyncio.timeout(max(0.0, until - self._clock.monotonic())):
                    await self._news.wait()
            except TimeoutError:
                return

    def _sample(self, engine: Engine) -> None:
        """Counts what local queues use into their past, where that decides the order and it is time."""
        ledger = engine.pending.ledger
        if ledger is None:
            return
        now = self._clock.now()
        for name, queue in engine.state.queues.items():
            if is_usage_based(queue.policy, engine.settings):
                for door in self._informers[kueue.LOCAL_QUEUE].by_index("queue", name):
                    key = str(door.key)
                    if ledger.sample(key, self._tallies.local_queue(key).used_by_resource(), now):
                        self._touch(kueue.LOCAL_QUEUE, [door.key])

    async def _write_some(self, engine: Engine) -> None:
        writing: list[tuple[Object, Told]] = []
        patches: list[Patch] = []
        early: list[Thing] = []
        while self._touched and len(patches) < MOST_WRITES:
            thing = next(iter(self._touched))
            del self._touched[thing]
            found = self._informers[thing[0]].get(thing[1])
            if found is None:
                continue
            if not self._is_known(engine, found):
                early.append(thing)
                continue
            told = found.meta.generation, self._figures(engine, found)
            if told == self._told.get(thing):
                continue
            if found.kind is kueue.CLUSTER_QUEUE:
                self._touch_cohorts(engine, found.key.name)
            patch = self._patch(found, told[1])
            if patch is None:
                self._told[thing] = told
            else:
                writing.append((found, told))
                patches.append(patch)
        self._touched |= dict.fromkeys(early)
        if patches:
            await self._write(writing, patches)

    def _is_known(self, engine: Engine, found: Object) -> bool:
        """To the engine, which may be about to read what is there."""
        if found.kind is kueue.COHORT:
            return found.key.name in engine.state.tree.cohorts
        name = found.key.name if found.kind is kueue.CLUSTER_QUEUE else _leads_to(found)
        return name in engine.state.queues or self._informers[kueue.CLUSTER_QUEUE].get(Key("", name)) is None

    def _figures(self, engine: Engine, found: Object) -> Figures | int | None:
        if found.kind is kueue.CLUSTER_QUEUE:
            return figures.of_queue(engine, found.key.name, self._tallies.queue(found.key.name))
        if found.kind is kueue.LOCAL_QUEUE:
            tally = self._tallies.local_queue(str(found.key))
            return figures.of_local_queue(engine, found.read(kueue.LocalQueue), tally)
        return figures.share_of_cohort(engine, found.key.name)

    def _patch(self, found: Object, told: Figures | int | None) -> Patch | None:
        """None where the status says so already."""
        document = found.document()
        if isinstance(told, Figures):
            made = figures.write(document, told, self._clock.now())
        elif told is not None:
            made = {**document, "status": {**(document.get("status") or {}), "fairSharing": {"weightedShare": told}}}
        else:
            return None
        return status_patch(found, made) if made.get("status") != document.get("status") else None

    def _touch_cohorts(self, engine: Engine, queue: str) -> None:
        if engine.settings.fair_sharing is not None:
            cohorts = engine.state.queues[queue].node.ancestors()
            self._touch(kueue.COHORT, [Key("", cohort.name) for cohort in cohorts])

    async def _write(self, writing: Sequence[tuple[Object, Told]], patches: Sequence[Patch]) -> None:
        try:
            results = await self._store.write(patches)
        except (ApiError, OSError) as error:
            _log.warning("statuses of queues could not be written: %s", error)
            self._touched |= dict.fromkeys((found.kind, found.key) for found, _ in writing)
            return
        for (found, told), result in zip(writing, results, strict=True):
            thing = found.kind, found.key
            if not isinstance(result, Refused):
                self._told[thing] = told
            elif result.error.retryable:
                self._touched.setdefault(thing)
            else:
                _log.debug("status of %s %s: %s", found.kind.name, found.key, result.error)


def _leads_to(local_queue: Object) -> str:
    return local_queue.read(kueue.LocalQueue).spec.cluster_queue
