"""Feeds the admission engine with what the store shows, and hands its decisions to the writer.

The engine has one owner, this loop: informers only fill an inbox. Nodes and pods are followed only once some flavor
has a topology: nothing else about them matters to quota.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping
from typing import TypeVar

from muster.api import core, kueue, node
from muster.api.kinds import Kind
from muster.api.meta import Instant, Resource
from muster.api.objects import Key, Object
from muster.api.raw import Document
from muster.controllers.quota.ground import Ground
from muster.controllers.quota.metrics import QuotaMetrics
from muster.controllers.quota.waiting import Waiting
from muster.controllers.quota.writer import Writer
from muster.quota.engine import Engine
from muster.quota.limits import read_limit_ranges
from muster.quota.settings import Settings
from muster.runtime.clock import Clock
from muster.runtime.informers import Informer, all_synced
from muster.runtime.metrics import Registry
from muster.runtime.recording import EventRecorder
from muster.store.protocol import Change, Event, Selection, Store

_log = logging.getLogger(__name__)
V = TypeVar("V", bound=Resource)

SLICE_SECONDS = 0.004
"""How long the loop may decide before others get their turn."""
_MOST_SLICES = 25
_LONGEST_SLEEP = 30.0
KINDS = (
    core.NAMESPACE,
    core.LIMIT_RANGE,
    node.RUNTIME_CLASS,
    kueue.TOPOLOGY,
    kueue.RESOURCE_FLAVOR,
    kueue.ADMISSION_CHECK,
    kueue.COHORT,
    kueue.CLUSTER_QUEUE,
    kueue.LOCAL_QUEUE,
    kueue.WORKLOAD,
)
"""In the order in which they are read first: workloads last, when all that they need is known."""
_BY_SPEC = frozenset({kueue.TOPOLOGY, kueue.RESOURCE_FLAVOR, kueue.COHORT, kueue.CLUSTER_QUEUE, kueue.LOCAL_QUEUE})
"""Whose status and finalizers are ours, and no news: they change all the time."""


class QuotaController:
    """`engine`: of the present run, for whoever wants to look. It is rebuilt from the store when a run begins.
    `metrics`: where it counts; `counted`: through which others count what they do for it."""

    def __init__(
        self, store: Store, clock: Clock, settings: Settings | None = None, metrics: Registry | None = None
    ) -> None:
        self._store = store
        self._clock = clock
        self._settings = settings or Settings()
        self.engine = Engine(self._settings)
        self._run: _Run | None = None
        self.metrics = metrics or Registry()
        self.counted = QuotaMetrics(self.metrics, lambda: self.engine)

    @property
    def has_read(self) -> bool:
        """Whether the engine knows all that is there: a run is under way, and past its beginning."""
        return self._run is not None and self._run.has_read

    async def run(self) -> None:
        self.engine = Engine(self._settings)
        self._run = _Run(self._store, self._clock, self.engine, self.counted)
        try:
            await self._run.run()
        finally:
            self._run = None


class _Run:
    def __init__(self, store: Store, clock: Clock, engine: Engine, metrics: QuotaMetrics) -> None:
        self._clock = clock
        self._engine = engine
        self._metrics = metrics
        self._inbox: deque[Event] = deque()
        self._last: dict[tuple[Kind, Key], Object] = {}
        self._news = asyncio.Event()
        self._informers = [Informer(store, Selection(kind), clock=clock) for kind in KINDS]
        for informer in self._informers:
            informer.on_event(self._heard)
        self._events = EventRecorder(store, clock, "muster-quota")
        self._waiting = Waiting(store, clock, engine, self._events, self._workload)
        self._writer = Writer(store, engine, self._events, self._workload, self._news, metrics)
        self._ground = Ground(store, clock, engine, self._news)
        self._takers = _takers(engine)
        self.has_read = False

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for informer in self._informers:
                tasks.create_task(informer.run(), name=f"quota: {informer.selection.kind.plural}")
            tasks.create_task(self._events.run(), name="quota: events")
            await all_synced(self._informers)
            await self._read_first(tasks)
            tasks.create_task(self._writer.run(), name="quota: writing")
            tasks.create_task(self._waiting.run(), name="quota: reasons")
            await self._decide_for_ever(tasks)

    def _workload(self, key: str) -> Object | None:
        namespace, _, name = key.partition("/")
        return self._last.get((kueue.WORKLOAD, Key(namespace, name)))

    # What happened

    def _heard(self, event: Event) -> None:
        found = event.object
        assert found is not None
        known = self._last.pop((found.kind, found.key), None)
        self._metrics.heard(event, known)
        if event.change is not Change.DELETED:
            self._last[found.kind, found.key] = found
            if known is not None and found.kind in _BY_SPEC and _means_the_same(known, found):
                return
        self._inbox.append(event)
        self._news.set()

    async def _read_first(self, tasks: asyncio.TaskGroup) -> None:
        """All that was there before, and nothing is decided until it is known: what runs counts."""
        self._inbox = deque(sorted(self._inbox, key=_first_things_first))
        while self._inbox:
            self._read_inbox()
            await asyncio.sleep(0)
        await self._ground.follow_if_needed(tasks)
        self.has_read = True

    def _read_inbox(self) -> None:
        until = self._clock.monotonic() + SLICE_SECONDS
        now = self._clock.now()
        while self._inbox:
            event = self._inbox.popleft()
            assert event.object is not None
            try:
                self._takers[event.object.kind](event, now)
            except ValueError as error:  # a time or quantity that is none: that object is left out, others go on
                _log.error("%s %s cannot be read: %s", event.object.kind.name, event.object.key, error)
                self._events.record(event.object, "Warning", "Unreadable", f"left out of admission: {error}")
            if self._clock.monotonic() > until:
                return

    # What follows

    async def _catch_up(self) -> None:
        """What is decided from old news is decided twice. But news may come for ever."""
        for _ in range(_MOST_SLICES):
            self._read_inbox()
            if not self._inbox:
                return
            await asyncio.sleep(0)

    async def _decide_for_ever(self, tasks: asyncio.TaskGroup) -> None:
        while True:
            self._news.clear()
            await self._catch_up()
            await self._ground.follow_if_needed(tasks)
            self._ground.read()
            self._writer.read_answers(self._clock.now())
            until = self._clock.monotonic() + SLICE_SECONDS
            now = self._clock.now()
            while self._engine.has_work(now):
                began = self._clock.monotonic()
                step = self._engine.step(now)
                if step.is_attempt:
                    self._metrics.attempted(step, self._clock.monotonic() - began)
                self._writer.take(step.decisions)
                self._waiting.take(step)
                if self._clock.monotonic() > until or self._inbox:
                    break
            self._writer.flush()
            if self._writer.is_behind:
                await self._writer.catch_up()
            if self._engine.has_work(now) or self._inbox:
                await asyncio.sleep(0)
            else:
                await self._wait()

    async def _wait(self) -> None:
        due = self._engine.next_due()
        seconds = _LONGEST_SLEEP if due is None else min(max(due - self._clock.now(), 0.0), _LONGEST_SLEEP)
        try:
            async with asyncio.timeout(max(seconds, 0.001)):
                await self._news.wait()
        except TimeoutError:
            return


Taker = Callable[[Event, Instant], None]


def _takers(engine: Engine) -> Mapping[Kind, Taker]:
    """By kind, what a change of an object, or its end, means to the engine."""
    return {
        core.NAMESPACE: _taker(core.Namespace, _timeless(engine.namespace_changed), engine.namespace_removed),
        core.LIMIT_RANGE: _range_taker(engine),
        node.RUNTIME_CLASS: _runtime_class_taker(engine),
        kueue.TOPOLOGY: _taker(kueue.Topology, _timeless(engine.topology_changed), engine.topology_removed),
        kueue.RESOURCE_FLAVOR: _taker(kueue.ResourceFlavor, _timeless(engine.flavor_changed), engine.flavor_removed),
        kueue.ADMISSION_CHECK: _taker(kueue.AdmissionCheck, _timeless(engine.check_changed), engine.check_removed),
        kueue.COHORT: _taker(kueue.Cohort, _timeless(engine.cohort_changed), engine.cohort_removed),
        kueue.CLUSTER_QUEUE: _taker(kueue.ClusterQueue, engine.queue_changed, engine.queue_removed),
        kueue.LOCAL_QUEUE: _taker(kueue.LocalQueue, engine.local_queue_changed, engine.local_queue_removed),
        kueue.WORKLOAD: _taker(kueue.Workload, engine.workload_changed, engine.workload_removed),
    }


def _taker(view: type[V], changed: Callable[[V, Instant], None], removed: Callable[[str], None]) -> Taker:
    def take(event: Event, now: Instant) -> None:
        found = event.object
        assert found is not None
        if event.change is Change.DELETED:
            removed(f"{found.key.namespace}/{found.key.name}" if found.kind.namespaced else found.key.name)
        else:
            changed(found.read(view), now)

    return take


def _range_taker(engine: Engine) -> Taker:
    """The LimitRanges of a namespace count together."""
    known: dict[str, dict[str, Document]] = {}

    def take(event: Event, now: Instant) -> None:
        found = event.object
        assert found is not None
        here = known.setdefault(found.key.namespace, {})
        if event.change is Change.DELETED:
            here.pop(found.key.name, None)
        else:
            here[found.key.name] = found.document()
        by_name = [here[name] for name in sorted(here)]
        engine.ranges_changed(found.key.namespace, read_limit_ranges(by_name), now)

    return take


def _runtime_class_taker(engine: Engine) -> Taker:
    def take(event: Event, now: Instant) -> None:
        found = event.object
        assert found is not None
        if event.change is Change.DELETED:
            engine.runtime_class_removed(found.key.name, now)
        else:
            engine.runtime_class_changed(found.read(node.RuntimeClass), now)

    return take


def _timeless(changed: Callable[[V], None]) -> Callable[[V, Instant], None]:
    return lambda view, _: changed(view)


def _means_the_same(old: Object, new: Object) -> bool:
    return old.meta.generation == new.meta.generation and old.meta.annotations == new.meta.annotations


def _first_things_first(event: Event) -> tuple[int, str, int]:
    found = event.object
    assert found is not None
    return KINDS.index(found.kind), found.meta.creation_timestamp or "", found.revision
