"""Garbage collection by owner references: what belonged to something that is gone goes as well.

Background: dependents whose owners are all gone are deleted. Foreground: an owner waits, held by a finalizer, until
its dependents are gone. Orphan: dependents lose the reference and stay. Nothing is deleted on the word of a
cache alone: an owner that is merely absent here is asked for at the store.
"""

import asyncio
import logging
from collections.abc import Sequence
from enum import Enum

from muster.api import core, errors
from muster.api.everything import REGISTRY
from muster.api.kinds import Kind
from muster.api.meta import OwnerReference
from muster.api.objects import Key, Object
from muster.api.registry import Registry
from muster.api.selectors import FieldRequirement, FieldSelector
from muster.controllers import ownership
from muster.controllers.ownership import FOREGROUND, ORPHAN, OwnershipGraph
from muster.runtime.clock import Clock
from muster.runtime.informers import Informer, all_synced
from muster.runtime.reconciling import Reconciler
from muster.runtime.recording import EventRecorder
from muster.store.protocol import (
    Change,
    Delete,
    Event,
    Options,
    Patch,
    Propagation,
    Refused,
    Revision,
    Selection,
    Store,
    Write,
)

_log = logging.getLogger(__name__)

_OPTIONS = Options(manager="muster-garbage")


class _Owner(Enum):
    LIVES = "lives"
    WAITS = "waits"  # is itself being deleted, and waits for its dependents
    GONE = "gone"
    INVALID = "invalid"  # cannot be an owner: it lives in another namespace


class GarbageCollector:
    def __init__(self, store: Store, clock: Clock, registry: Registry = REGISTRY) -> None:
        self._store = store
        self._clock = clock
        self._registry = registry

    async def run(self) -> None:
        await _Collector(self._store, self._clock, self._registry).run()


class _Collector:
    """The state of one run."""

    def __init__(self, store: Store, clock: Clock, registry: Registry) -> None:
        self._store = store
        self._registry = registry
        self._graph = OwnershipGraph()
        self._events = EventRecorder(store, clock, "muster-garbage")
        self._reconciler = Reconciler("garbage", self._reconcile, clock=clock, workers=4)
        # Events neither own nor are owned, and there are many of them.
        kinds = [kind for kind in registry if kind is not core.EVENT]
        self._informers = [Informer(store, Selection(kind), clock=clock) for kind in kinds]
        for informer in self._informers:
            informer.on_event(self._changed)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for informer in self._informers:
                group.create_task(informer.run(), name=f"garbage-{informer.selection.kind.resource}")
            group.create_task(self._events.run(), name="garbage-events")
            await all_synced(self._informers)
            group.create_task(self._reconciler.run(), name="garbage-reconciler")

    def _changed(self, event: Event) -> None:
        found = event.object
        assert found is not None
        before = self._graph.find(found.uid)
        queue = self._reconciler.queue
        if event.change is Change.DELETED:
            for dependent in self._graph.dependents(found.uid):
                queue.add(dependent.uid)
            self._graph.remove(found.uid)
        else:
            self._graph.put(found)
            if self._needs_care(found):
                queue.add(found.uid)
        for owner in ownership.lost_owners(before, None if event.change is Change.DELETED else found):
            queue.add(owner.uid)  # it may have waited for this

    def _needs_care(self, found: Object) -> bool:
        """False for the many objects that have no owner or whose owners are alive and well."""
        if found.is_terminating:
            return ownership.is_orphaning(found) or ownership.is_deleting_dependents(found)
        owners = [self._graph.find(owner.uid) for owner in found.meta.owner_references]
        return any(
            owner is None or ownership.is_deleting_dependents(owner) or _is_elsewhere(owner, found) for owner in owners
        )

    async def _reconcile(self, uid: str) -> float | None:
        found = self._graph.find(uid)
        if found is None:
            return None
        if ownership.is_orphaning(found):
            await self._orphan(found)
        elif ownership.is_deleting_dependents(found):
            await self._delete_dependents(found)
        elif not found.is_terminating and found.meta.owner_references:
            await self._judge(found)
        return None

    async def _orphan(self, owner: Object) -> None:
        await self._write([_disowned(dependent, [owner.uid]) for dependent in self._graph.dependents(owner.uid)])
        await self._write([_released(owner, ORPHAN)])

    async def _delete_dependents(self, owner: Object) -> None:
        dependents = self._graph.dependents(owner.uid)
        for dependent in dependents:
            if not dependent.is_terminating:
                self._reconciler.queue.add(dependent.uid)
        if not any(ownership.blocks(dependent, owner.uid) for dependent in dependents):
            await self._write([_released(owner, FOREGROUND)])

    async def _judge(self, found: Object) -> None:
        """Delete an object that no living owner holds; strike out the owners that are gone where one does."""
        states = {owner.uid: await self._state(found, owner) for owner in found.meta.owner_references}
        unheld = [uid for uid, state in states.items() if state in (_Owner.GONE, _Owner.WAITS)]
        if not unheld:
            return
        if _Owner.LIVES in states.values():
            await self._write([_disowned(found, unheld)])
            return
        is_waited_for = _Owner.WAITS in states.values()
        propagation: Propagation = "Foreground" if is_waited_for and self._has_blockers(found) else "Background"
        await self._write(
            [
                Delete(
                    found.kind,
                    found.key,
                    propagation,
                    uid=found.uid,
                    based_on=Revision(found.revision),
                    options=_OPTIONS,
                )
            ]
        )

    def _has_blockers(self, found: Object) -> bool:
        # One that is itself waiting closes a circle of owners; waiting for it would never end.
        return any(
            ownership.blocks(dependent, found.uid) and not ownership.is_deleting_dependents(dependent)
            for dependent in self._graph.dependents(found.uid)
        )

    async def _state(self, found: Object, reference: OwnerReference) -> _Owner:
        owner = self._graph.find(reference.uid)
        if owner is not None:
            if _is_elsewhere(owner, found):
                return self._refuse(found, reference)
            return _Owner.WAITS if ownership.is_deleting_dependents(owner) else _Owner.LIVES
        if self._graph.is_gone(reference.uid):
            return _Owner.GONE
        try:
            kind = self._registry.by_document(reference.api_version, reference.kind)
        except errors.NotFound:
            _log.debug("%s is owned by a %s, which is not known here: it stays", found, reference.kind)
            return _Owner.LIVES
        if kind.namespaced and not found.kind.namespaced:
            return self._refuse(found, reference)
        return await self._ask(found, reference, kind)

    async def _ask(self, found: Object, reference: OwnerReference, kind: Kind) -> _Owner:
        key = Key(found.key.namespace if kind.namespaced else "", reference.name)
        try:
            if (await self._store.get(kind, key)).uid == reference.uid:
                return _Owner.LIVES
        except errors.NotFound:
            pass
        named = FieldSelector((FieldRequirement("metadata.name", reference.name),))
        page = await self._store.list(Selection(kind, fields=named))
        if any(namesake.uid == reference.uid for namesake in page.items):
            return self._refuse(found, reference)
        self._graph.mark_gone(reference.uid)
        return _Owner.GONE

    def _refuse(self, found: Object, reference: OwnerReference) -> _Owner:
        self._events.record(
            found,
            "Warning",
            "OwnerRefInvalidNamespace",
            f"the owner {reference.kind} {reference.name} (uid {reference.uid}) is not in namespace "
            f'"{found.key.namespace}" and cannot own this object; the reference is ignored',
        )
        return _Owner.INVALID

    async def _write(self, writes: Sequence[Write]) -> None:
        """What is not there any more is as wanted. Raises the first other refusal, so that the key is tried again."""
        for result in await self._store.write(writes):
            if isinstance(result, Refused) and not isinstance(result.error, errors.NotFound):
                raise result.error


def _is_elsewhere(owner: Object, dependent: Object) -> bool:
    return owner.kind.namespaced and owner.key.namespace != dependent.key.namespace


def _disowned(found: Object, uids: Sequence[str]) -> Patch:
    body = {"metadata": {"ownerReferences": ownership.without_owners(found, uids) or None}}
    return Patch(found.kind, found.key, body, based_on=Revision(found.revision), options=_OPTIONS)


def _released(found: Object, finalizer: str) -> Patch:
    kept = [name for name in found.meta.finalizers if name != finalizer]
    body = {"metadata": {"finalizers": kept or None}}
    return Patch(found.kind, found.key, body, based_on=Revision(found.revision), options=_OPTIONS)
