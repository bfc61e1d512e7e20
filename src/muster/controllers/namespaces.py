"""Ends namespaces: everything in a terminating one is deleted, then the namespace itself is let go."""

import asyncio

from muster.api import core, errors
from muster.api.everything import REGISTRY
from muster.api.objects import Key, Object
from muster.api.registry import Registry
from muster.runtime.clock import Clock
from muster.runtime.informers import Informer, all_synced
from muster.runtime.reconciling import Reconciler
from muster.store.protocol import Delete, Event, Options, Patch, Refused, Revision, Selection, Store, write_one

FINALIZER = "kubernetes"
_OPTIONS = Options(manager="muster-namespaces")
_LOOK_AGAIN_SECONDS = 0.5


class NamespaceController:
    def __init__(self, store: Store, clock: Clock, registry: Registry = REGISTRY) -> None:
        self._store = store
        self._clock = clock
        self._kinds = [kind for kind in registry if kind.namespaced]

    async def run(self) -> None:
        reconciler = Reconciler("namespaces", self._reconcile, clock=self._clock, workers=2)
        informer = Informer(self._store, Selection(core.NAMESPACE), clock=self._clock)

        def changed(event: Event) -> None:
            assert event.object is not None
            if event.object.is_terminating:
                reconciler.queue.add(event.object.key)

        informer.on_event(changed)
        async with asyncio.TaskGroup() as group:
            group.create_task(informer.run(), name="namespaces-informer")
            await all_synced([informer])
            group.create_task(reconciler.run(), name="namespaces-reconciler")

    async def _reconcile(self, key: Key) -> float | None:
        try:
            namespace = await self._store.get(core.NAMESPACE, key)
        except errors.NotFound:
            return None
        if not namespace.is_terminating:
            return None
        await self._delete([found for found in await self._content(key.name) if not found.is_terminating])
        if await self._content(key.name):
            # Held by finalizers, or pods that are given time to end: others are at work on those.
            return _LOOK_AGAIN_SECONDS
        await self._let_go(namespace)
        return None

    async def _content(self, name: str) -> list[Object]:
        pages = [await self._store.list(Selection(kind, namespace=name)) for kind in self._kinds]
        return [found for page in pages for found in page.items]

    async def _delete(self, found: list[Object]) -> None:
        writes = [Delete(item.kind, item.key, "Background", uid=item.uid, options=_OPTIONS) for item in found]
        for result in await self._store.write(writes):
            if isinstance(result, Refused) and not isinstance(result.error, errors.NotFound):
                raise result.error

    async def _let_go(self, namespace: Object) -> None:
        finalizers = namespace.document().get("spec", {}).get("finalizers") or []
        body = {"spec": {"finalizers": [name for name in finalizers if name != FINALIZER]}}
        if FINALIZER in finalizers:
            await write_one(
                self._store,
                Patch(core.NAMESPACE, namespace.key, body, based_on=Revision(namespace.revision), options=_OPTIONS),
            )
