"""Deletes workloads, and jobs that quota gave up on, when their time is over. Does nothing unless it was told to."""

from muster.api import errors, kueue
from muster.api.everything import REGISTRY
from muster.api.meta import OwnerReference
from muster.api.objects import Key, Object
from muster.quota import retention
from muster.quota.retention import Due
from muster.quota.settings import Settings
from muster.runtime.clock import Clock
from muster.runtime.informers import Informer
from muster.runtime.keeping import keep
from muster.runtime.reconciling import Reconciler
from muster.runtime.recording import EventRecorder
from muster.store.protocol import Change, Delete, Event, Options, Selection, Store, write_one

_OPTIONS = Options(manager="muster-quota")


class RetentionController:
    def __init__(self, store: Store, clock: Clock, settings: Settings | None = None) -> None:
        self._store = store
        self._clock = clock
        self._settings = settings or Settings()

    async def run(self) -> None:
        await _Keeper(self._store, self._clock, self._settings).run()


class _Keeper:
    """The state of one run."""

    def __init__(self, store: Store, clock: Clock, settings: Settings) -> None:
        self._store = store
        self._clock = clock
        self._retention = settings.retention
        self._events = EventRecorder(store, clock, "muster-quota")
        self._reconciler: Reconciler[Key] = Reconciler("retention", self._reconcile, clock=clock)
        self._workloads = Informer(store, Selection(kueue.WORKLOAD), clock=clock)
        self._workloads.on_event(self._changed)

    async def run(self) -> None:
        await keep("retention", [self._workloads], self._events.run, self._reconciler.run)

    def _changed(self, event: Event) -> None:
        found = event.object
        assert found is not None
        if event.change is not Change.DELETED and self._due(found) is not None:
            self._reconciler.queue.add(found.key)

    def _due(self, found: Object) -> Due | None:
        return retention.due(found.read(kueue.Workload), self._retention)

    async def _reconcile(self, key: Key) -> float | None:
        found = self._workloads.get(key)
        due = self._due(found) if found is not None else None
        if found is None or due is None:
            return None
        left = due.at - self._clock.now()
        if left > 0:
            return left
        for owner in due.owners:
            await self._delete_owner(owner, key.namespace)
        if not due.owners:
            await self._delete(Delete(kueue.WORKLOAD, key, uid=found.uid, options=_OPTIONS))
        self._events.record(found, "Normal", "Deleted", due.end)
        return None

    async def _delete_owner(self, owner: OwnerReference, namespace: str) -> None:
        try:
            kind = REGISTRY.by_document(owner.api_version, owner.kind)
        except errors.NotFound:
            return
        key = Key(namespace, owner.name)
        await self._delete(Delete(kind, key, "Background", uid=owner.uid, options=_OPTIONS))

    async def _delete(self, write: Delete) -> None:
        try:
            await write_one(self._store, write)
        except (errors.NotFound, errors.Conflict):  # gone, or another one of that name
            return
