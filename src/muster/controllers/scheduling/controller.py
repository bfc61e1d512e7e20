"""Feeds the placement engine with what the store shows, and hands its decisions to the binder.

The engine has one owner, this loop: informers only fill an inbox. Small decisions are taken between two turns of the
event loop; a large gang's on a thread, so that the API goes on answering meanwhile.
"""

import asyncio
import contextlib
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterator

from muster.api import core, policy, volcano
from muster.api.kinds import Kind
from muster.api.objects import Key, Object
from muster.cluster.state import FINISHED
from muster.controllers.extenders import ExtenderClient
from muster.controllers.scheduling.binder import Binder
from muster.controllers.scheduling.cycles import Cycles
from muster.controllers.scheduling.extended import Connect, Extenders
from muster.controllers.scheduling.holding import Holding
from muster.controllers.scheduling.reporter import Reporter
from muster.controllers.scheduling.volumes import VolumeBinder
from muster.placement.engine import Engine, Faulted
from muster.placement.logbook import Logbook
from muster.placement.queueing.entities import Queued
from muster.placement.scheduling import Decision
from muster.runtime.clock import Clock
from muster.runtime.informers import Informer, all_synced
from muster.runtime.recording import EventRecorder
from muster.store.protocol import Change, Event, Selection, Store

_log = logging.getLogger(__name__)

SLICE_SECONDS = 0.004
"""How long the loop may decide before others get their turn."""
_LARGE_GANG = 100  # pods: deciding on more takes tens of milliseconds, and goes to a thread
_LONGEST_SLEEP = 30.0

MakeEngine = Callable[[], Engine]


class SchedulingController:
    """`make_engine` gives a fresh engine for each run: everything in it is rebuilt from the store. `connect`: how its
    extenders are reached."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        make_engine: MakeEngine,
        *,
        uses_threads: bool = True,
        connect: Connect = ExtenderClient.of,
    ) -> None:
        self._store = store
        self._clock = clock
        self._make_engine = make_engine
        self._uses_threads = uses_threads
        self._connect = connect
        self._logbook: Logbook | None = None

    async def run(self) -> None:
        engine = self._make_engine()
        self._logbook = Logbook(engine)
        await _Run(self._store, self._clock, engine, self._uses_threads, self._connect).run()

    def decisions(self) -> Iterator[bytes]:
        """The log of this run's decisions, a line each, for `muster decisions`."""
        return iter(()) if self._logbook is None else self._logbook.lines()


class _Run:
    def __init__(self, store: Store, clock: Clock, engine: Engine, uses_threads: bool, connect: Connect) -> None:
        self._clock = clock
        self._engine = engine
        self._uses_threads = uses_threads
        self._inbox: OrderedDict[str, tuple[Object | None, Object | None]] = OrderedDict()  # by uid: was, is
        self._last: dict[tuple[Kind, Key], Object] = {}
        self._news = asyncio.Event()
        self._informers = [Informer(store, Selection(kind), clock=clock) for kind in engine.kinds]
        for informer in self._informers:
            informer.on_event(self._heard)
        self._events = EventRecorder(store, clock, "muster-scheduler")
        self._reporter = Reporter(store, clock, self._events, self._pod)
        self._extenders = Extenders.of(engine, clock, self._last, uses_threads, connect)
        volumes = VolumeBinder(store, clock, self._last) if engine.cluster.claims.are_foreign else None
        cycles = Cycles(engine.scheduler.profile_of, self._extenders, volumes)
        self._binder = Binder(store, clock, engine, self._reporter, cycles, self._last, self._news)
        self._holding = Holding(engine, clock, self._reporter)

    async def run(self) -> None:
        async with self._extenders or contextlib.nullcontext(), asyncio.TaskGroup() as tasks:
            for informer in self._informers:
                tasks.create_task(informer.run(), name=f"scheduler: {informer.selection.kind.plural}")
            tasks.create_task(self._events.run(), name="scheduler: events")
            await all_synced(self._informers)
            await self._read_first()
            tasks.create_task(self._binder.run(), name="scheduler: binding")
            tasks.create_task(self._reporter.run(), name="scheduler: reasons")
            await self._decide_for_ever()

    def _pod(self, key: Key) -> Object | None:
        return self._last.get((core.POD, key))

    # What happened

    def _heard(self, event: Event) -> None:
        found = event.object
        assert found is not None
        place = (found.kind, found.key)
        old = self._last.get(place)
        if event.change is Change.DELETED:
            self._last.pop(place, None)
            self._put(old or found, None)
        else:
            if old is not None and old.uid != found.uid:
                self._put(old, None)  # gone and made again, between two looks
                old = None
            self._last[place] = found
            self._put(old, found)
        self._news.set()

    def _put(self, old: Object | None, new: Object | None) -> None:
        """What becomes of one object between two looks is one change: a victim is told why and gone in one turn."""
        found = new or old
        assert found is not None
        if found.uid in self._inbox:
            old, _ = self._inbox[found.uid]
        if old is None and new is None:
            del self._inbox[found.uid]  # came and went
        else:
            self._inbox[found.uid] = (old, new)

    async def _read_first(self) -> None:
        """All that was there before, and nothing is decided until it is known: pods that run count. In an order that
        does not depend on which list came first: pods that run before those that wait, and these by age, so that
        a restart costs nobody his place."""
        self._inbox = OrderedDict(sorted(self._inbox.items(), key=self._first_things_first))
        while self._inbox:
            self._read_inbox()
            await asyncio.sleep(0)

    def _first_things_first(self, entry: tuple[str, tuple[Object | None, Object | None]]) -> tuple[int, bool, str, int]:
        _, (old, new) = entry
        found = new or old
        assert found is not None
        is_pending = found.kind is core.POD and not found.read(core.Pod).spec.node_name
        order = self._engine.kinds.index(found.kind)
        return order, is_pending, found.meta.creation_timestamp or "", found.revision

    def _read_inbox(self) -> None:
        now = self._clock.monotonic()
        while self._inbox:
            _, (old, new) = self._inbox.popitem(last=False)
            self._take(old, new, now)
            if self._clock.monotonic() > now + SLICE_SECONDS:
                return

    def _take(self, old: Object | None, new: Object | None, now: float) -> None:
        self._engine.take(old, new, now)
        found = new or old
        assert found is not None
        if found.kind is core.POD:
            if new is None or _has_ended(new):
                self._binder.pod_ended(found.uid)
                self._reporter.ended(found.uid)
            elif new.read(core.Pod).spec.node_name:
                self._binder.pod_bound(new)
            self._holding.heard(old, new)
        elif found.kind is volcano.POD_GROUP:
            self._holding.heard(old, new)
        elif found.kind is policy.POD_DISRUPTION_BUDGET:
            self._binder.budget_changed(old, new)

    # What follows

    async def _decide_for_ever(self) -> None:
        while True:
            self._news.clear()
            self._read_inbox()
            until = self._clock.monotonic() + SLICE_SECONDS
            while (attempt := self._engine.queue.pop(self._clock.monotonic())) is not None:
                self._carry_out(await self._decide(attempt))
                if self._clock.monotonic() > until or self._inbox:
                    break
            self._holding.tell()
            self._binder.flush()
            if attempt is not None or self._inbox:
                await asyncio.sleep(0)
            else:
                await self._wait()

    async def _decide(self, attempt: Queued) -> Decision | Faulted:
        if self._extenders is not None and self._extenders.have_say(attempt):
            self._binder.flush()  # it may take a while
            return await self._extenders.decide(attempt)
        now = self._clock.monotonic()
        if self._uses_threads and len(attempt.pods) > _LARGE_GANG:
            return await asyncio.to_thread(self._engine.decide, attempt, now)
        return self._engine.decide(attempt, now)

    def _carry_out(self, outcome: Decision | Faulted) -> None:
        if isinstance(outcome, Faulted):
            _log.error("plugin %s failed on %s: %s", outcome.plugin, outcome.attempt.key, outcome.error)
            message = f'running plugin "{outcome.plugin}": {outcome.error}'
            self._reporter.waits([pod.key for pod in outcome.attempt.pods], message, "SchedulerError")
            return
        self._binder.take(outcome)
        if outcome.refusal is not None:
            self._reporter.waits([pod.key for pod in outcome.refusal.pods], outcome.refusal.message, "Unschedulable")

    async def _wait(self) -> None:
        now = self._clock.monotonic()
        times = (self._engine.queue.next_time(now), self._binder.next_time(), self._holding.next_time())
        due = min((time for time in times if time is not None), default=now + _LONGEST_SLEEP)
        seconds = max(0.0, min(due - now, _LONGEST_SLEEP))
        try:
            async with asyncio.timeout(max(seconds, 0.001)):
                await self._news.wait()
        except TimeoutError:
            return


def _has_ended(pod: Object) -> bool:
    return pod.read(core.Pod).status.phase in FINISHED
