"""Carries out what `quota.lifecycle` plans for each workload, one look and one write at a time."""

import asyncio
from collections.abc import Iterable

from muster.api import errors, kueue
from muster.api.objects import Key, Object
from muster.controllers.quota.writer import OPTIONS, status_patch
from muster.quota import lifecycle
from muster.quota.engine import DEFAULT_QUEUE
from muster.quota.lifecycle import NOTHING, Place, Plan, QueueStanding
from muster.quota.settings import Settings
from muster.runtime.clock import Clock
from muster.runtime.informers import Informer, all_synced
from muster.runtime.reconciling import Reconciler
from muster.runtime.recording import EventRecorder
from muster.store.protocol import Change, Event, Patch, Revision, Selection, Store, write_one

WORKERS = 8


class LifecycleController:
    def __init__(self, store: Store, clock: Clock, settings: Settings | None = None) -> None:
        self._store = store
        self._clock = clock
        self._settings = settings or Settings()

    async def run(self) -> None:
        await _Run(self._store, self._clock, self._settings).run()


class _Run:
    def __init__(self, store: Store, clock: Clock, settings: Settings) -> None:
        self._store = store
        self._clock = clock
        self._settings = settings
        self._events = EventRecorder(store, clock, "muster-quota")
        self._reconciler: Reconciler[Key] = Reconciler("lifecycle", self._reconcile, clock=clock, workers=WORKERS)
        self._queues = Informer(store, Selection(kueue.CLUSTER_QUEUE), clock=clock)
        self._local_queues = Informer(store, Selection(kueue.LOCAL_QUEUE), clock=clock)
        self._workloads = Informer(store, Selection(kueue.WORKLOAD), clock=clock)
        self._local_queues.index_by("queue", lambda found: [found.read(kueue.LocalQueue).spec.cluster_queue])
        self._workloads.index_by("local queue", _local_queue_of)
        self._workloads.index_by("queue", _queue_of)
        self._is_synced = False
        self._standings: dict[str, QueueStanding] = {}
        self._versions: dict[str, tuple[str, int | None]] = {}  # of the policies in the standings
        self._doors: dict[Key, tuple[str, int | None]] = {}  # local queues as last seen
        self._queues.on_event(self._queue_changed)
        self._local_queues.on_event(self._local_queue_changed)
        self._workloads.on_event(self._workload_changed)

    async def run(self) -> None:
        informers = (self._queues, self._local_queues, self._workloads)
        async with asyncio.TaskGroup() as tasks:
            for informer in informers:
                tasks.create_task(informer.run(), name=f"lifecycle: {informer.selection.kind.plural}")
            tasks.create_task(self._events.run(), name="lifecycle: events")
            await all_synced(informers)
            self._is_synced = True
            tasks.create_task(self._reconciler.run(), name="lifecycle: reconciling")

    # What happened

    def _workload_changed(self, event: Event) -> None:
        """Most changes ask for nothing, which is cheaper to find out than to queue for."""
        found = event.object
        assert found is not None
        if event.change is not Change.DELETED and not (self._is_synced and self._is_idle(found)):
            self._reconciler.queue.add(found.key)

    def _is_idle(self, found: Object) -> bool:
        try:
            return self._plan(found) is NOTHING
        except ValueError:  # a time that is none: the reconciler tells of it, and goes on with others
            return False

    def _queue_changed(self, event: Event) -> None:
        found = event.object
        assert found is not None
        name = found.key.name
        known = self._standings.pop(name, None)
        version = found.uid, found.meta.generation
        if event.change is not Change.DELETED:
            # Usage and counts in its status change all the time, and mean nothing here.
            is_known = known is not None and self._versions[name] == version
            fresh = lifecycle.standing(found.read(kueue.ClusterQueue), known.policy if known and is_known else None)
            self._standings[name], self._versions[name] = fresh, version
            if known is not None and is_known and known.is_active == fresh.is_active:
                return
        self._look_at(self._workloads.by_index("queue", name))
        for door in self._local_queues.by_index("queue", name):
            self._look_at(self._workloads.by_index("local queue", str(door.key)))

    def _local_queue_changed(self, event: Event) -> None:
        found = event.object
        assert found is not None
        known = self._doors.pop(found.key, None)
        if event.change is not Change.DELETED:
            fresh = self._doors[found.key] = (found.uid, found.meta.generation)
            if known == fresh:
                return
        self._look_at(self._workloads.by_index("local queue", str(found.key)))

    def _look_at(self, workloads: Iterable[Object]) -> None:
        for found in workloads:
            self._reconciler.queue.add(found.key)

    # What follows

    async def _reconcile(self, key: Key) -> float | None:
        found = self._workloads.get(key)
        if found is None:
            return None
        plan = self._plan(found)
        if plan.deactivates or plan.changes:
            await self._carry_out(plan, found)
            return None
        return None if plan.look_again is None else max(plan.look_again - self._clock.now(), 0.0)

    def _plan(self, found: Object) -> Plan:
        view = found.read(kueue.Workload)
        return lifecycle.plan(view, self._place(view), self._settings, self._clock.now())

    def _place(self, view: kueue.Workload) -> Place:
        local = None
        if view.spec.queue_name:
            found = self._local_queues.get(Key(view.metadata.namespace, view.spec.queue_name))
            local = found.read(kueue.LocalQueue) if found is not None else None
        admission = view.status.admission
        if admission is not None:
            name = admission.cluster_queue
        elif view.spec.queue_name:
            name = local.spec.cluster_queue if local is not None else ""
        else:
            name = DEFAULT_QUEUE
        return Place(local, name, self._standings.get(name))

    async def _carry_out(self, plan: Plan, found: Object) -> None:
        document = found.document()
        made = plan.apply(document)
        patch = _deactivation(found) if plan.deactivates else status_patch(found, made)
        try:
            await write_one(self._store, patch)
        except errors.NotFound:
            return
        for event in plan.events:
            self._events.record(found, event.type, event.reason, event.message)


def _deactivation(found: Object) -> Patch:
    return Patch(found.kind, found.key, {"spec": {"active": False}}, based_on=Revision(found.revision), options=OPTIONS)


def _local_queue_of(found: Object) -> Iterable[str]:
    view = found.read(kueue.Workload)
    return [str(Key(view.metadata.namespace, view.spec.queue_name))] if view.spec.queue_name else []


def _queue_of(found: Object) -> Iterable[str]:
    """Where it holds quota. What names no queue belongs to the default one before it holds any."""
    view = found.read(kueue.Workload)
    if view.status.admission is not None:
        return [view.status.admission.cluster_queue]
    return [] if view.spec.queue_name else [DEFAULT_QUEUE]
