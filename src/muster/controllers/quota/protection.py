"""Keeps what is in use from vanishing: a flavor that a queue lists, a queue in which quota is held, a topology that a
flavor uses.

Each carries a finalizer of ours from the start. What is deleted stays, marked as terminating, until its last user is
gone; then the finalizer goes, and the object with it.
"""

from collections.abc import Iterable
from functools import partial
from typing import Final, TypeAlias

from muster.api import conditions, errors, kueue
from muster.api.kinds import Kind
from muster.api.objects import Key, Object
from muster.quota.workloads import FINISHED, QUOTA_RESERVED
from muster.runtime.clock import Clock
from muster.runtime.informers import Informer
from muster.runtime.keeping import keep
from muster.runtime.reconciling import Reconciler
from muster.store.protocol import Event, Options, Patch, Revision, Selection, Store, write_one

FINALIZER: Final = "kueue.x-k8s.io/resource-in-use"
_OPTIONS: Final = Options(manager="muster-quota")
_PROTECTED: Final = (kueue.RESOURCE_FLAVOR, kueue.CLUSTER_QUEUE, kueue.TOPOLOGY)
Thing: TypeAlias = tuple[Kind, str]


class ProtectionController:
    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def run(self) -> None:
        await _Run(self._store, self._clock).run()


class _Run:
    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._reconciler: Reconciler[Thing] = Reconciler("protection", self._reconcile, clock=clock)
        self._informers = {
            kind: Informer(store, Selection(kind), clock=clock) for kind in (*_PROTECTED, kueue.WORKLOAD)
        }
        self._users = {
            kueue.RESOURCE_FLAVOR: self._informers[kueue.CLUSTER_QUEUE],
            kueue.CLUSTER_QUEUE: self._informers[kueue.WORKLOAD],
            kueue.TOPOLOGY: self._informers[kueue.RESOURCE_FLAVOR],
        }
        for kind, informer in self._users.items():
            informer.index_by(kind.name, _USES[kind])
        for kind in _PROTECTED:
            self._informers[kind].on_event(self._changed)
        for kind, informer in self._users.items():
            informer.on_event(partial(self._user_changed, kind))
        self._used: dict[tuple[Kind, Key], frozenset[str]] = {}  # by user, what it used when last seen

    async def run(self) -> None:
        await keep("protection", list(self._informers.values()), self._reconciler.run)

    def _changed(self, event: Event) -> None:
        assert event.object is not None
        self._reconciler.queue.add((event.object.kind, event.object.key.name))

    def _user_changed(self, kind: Kind, event: Event) -> None:
        """Who stops using something may have been the last."""
        found = event.object
        assert found is not None
        is_there = self._informers[found.kind].get(found.key) is not None
        now = frozenset(_USES[kind](found)) if is_there else frozenset()
        before = self._used.pop((found.kind, found.key), frozenset())
        if now:
            self._used[found.kind, found.key] = now
        for name in before - now:
            self._reconciler.queue.add((kind, name))

    async def _reconcile(self, thing: Thing) -> float | None:
        kind, name = thing
        found = self._informers[kind].get(Key("", name))
        if found is None:
            return None
        finalizers = list(found.meta.finalizers or ())
        if not found.is_terminating:
            wanted = finalizers if FINALIZER in finalizers else [*finalizers, FINALIZER]
        elif self._users[kind].by_index(kind.name, name):
            return None
        else:
            wanted = [other for other in finalizers if other != FINALIZER]
        if wanted != finalizers:
            await self._write(found, wanted)
        return None

    async def _write(self, found: Object, finalizers: list[str]) -> None:
        body = {"metadata": {"finalizers": finalizers or None}}
        patch = Patch(found.kind, found.key, body, based_on=Revision(found.revision), options=_OPTIONS)
        try:
            await write_one(self._store, patch)
        except errors.NotFound:
            return


def _flavors_of(found: Object) -> Iterable[str]:
    groups = found.read(kueue.ClusterQueue).spec.resource_groups
    return {flavor.name for group in groups for flavor in group.flavors}


def _queue_of(found: Object) -> Iterable[str]:
    status = found.read(kueue.Workload).status
    holds = conditions.is_true(status.conditions, QUOTA_RESERVED) and not conditions.is_true(
        status.conditions, FINISHED
    )
    return [status.admission.cluster_queue] if holds and status.admission is not None else []


def _topology_of(found: Object) -> Iterable[str]:
    name = found.read(kueue.ResourceFlavor).spec.topology_name
    return [name] if name else []


_USES: Final = {
    kueue.RESOURCE_FLAVOR: _flavors_of,
    kueue.CLUSTER_QUEUE: _queue_of,
    kueue.TOPOLOGY: _topology_of,
}
"""By what is protected: which of it a user uses."""
