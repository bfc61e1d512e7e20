"""Allocations as pods, over any store: the embedded one, or a Kubernetes cluster.

A request becomes an Allocation object, which queues in the pool's ClusterQueue like every other job, and whose
controller makes the pods. All that this engine knows is in those objects: after a restart it reads what is there.
"""

import asyncio
import weakref
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence

from muster.api import core, errors, kueue, muster, timestamps
from muster.api.kinds import Kind
from muster.api.meta import Instant
from muster.api.muster.names import ALLOCATION_LABEL
from muster.api.objects import Key, Object
from muster.api.selectors import LabelSelector, Operator, Requirement
from muster.engines import pod_documents, pod_events, pod_reasons, sizing
from muster.engines.pod_documents import USUAL, Customs
from muster.engines.pod_events import Told
from muster.engines.protocol import (
    AllocationId,
    Caveat,
    Delayed,
    Event,
    Failed,
    Failure,
    Pool,
    Released,
    Request,
    ResourceId,
    ResourceManager,
)
from muster.engines.sizing import Auxiliary, Ground, Shape
from muster.runtime.clock import Clock
from muster.runtime.informers import Informer, all_synced
from muster.runtime.keeping import keep
from muster.store.protocol import (
    Change,
    Create,
    Delete,
    Options,
    Patch,
    Refused,
    Result,
    Selection,
    Store,
    Write,
)
from muster.store.protocol import Event as StoreEvent

_YOUNG_SECONDS = 60.0
"""What is younger may belong to a request that is just being made."""
_PAGE = 500
_OPTIONS = Options(manager="muster-engine")
_OF_ALLOCATIONS = LabelSelector((Requirement(ALLOCATION_LABEL, Operator.EXISTS, frozenset()),))


class _Followed:
    """An allocation that this process has asked for."""

    def __init__(self, key: Key) -> None:
        self.key = key
        self.told = Told()
        self.delay = ""
        """Why it does not run yet, as it was told."""
        self.is_releasing = False
        self.is_gone = False


class PodsEngine:
    """`run` must run for requests to be taken: they wait until all that is there has been seen. `customs`: of the
    cluster that the store is of."""

    def __init__(
        self, store: Store, clock: Clock, auxiliary: Auxiliary | None = None, *, customs: Customs = USUAL
    ) -> None:
        self._store = store
        self._clock = clock
        self._customs = customs
        self._ours = LabelSelector((customs.ours(),))
        self._auxiliary = auxiliary or Auxiliary()
        self._allocations = Informer(store, Selection(muster.ALLOCATION, labels=self._ours), clock=clock)
        self._queues = Informer(store, Selection(kueue.CLUSTER_QUEUE), clock=clock)
        self._flavors = Informer(store, Selection(kueue.RESOURCE_FLAVOR), clock=clock)
        self._nodes = Informer(store, Selection(core.NODE), clock=clock)
        self._workloads = Informer(store, Selection(kueue.WORKLOAD), clock=clock)
        self._pods = Informer(store, Selection(core.POD, labels=_OF_ALLOCATIONS), clock=clock)
        self._informers = (
            self._allocations, self._queues, self._flavors, self._nodes, self._workloads, self._pods
        )  # fmt: skip
        self._allocations.index_by("id", lambda found: [found.key.name])
        self._allocations.on_event(self._changed)
        for informer in (self._workloads, self._pods):
            informer.on_event(self._held_up)
        self._followed: dict[AllocationId, _Followed] = {}
        self._inboxes: weakref.WeakSet[asyncio.Queue[Event]] = weakref.WeakSet()
        """Weak: what nobody reads any more must not fill without end."""

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(keep("pods engine", self._informers), name="pods engine: copies")
            await all_synced(self._informers)
            await self._reap()

    # What is asked

    async def check(self, request: Request) -> Sequence[Caveat]:
        return (await self._shape(request)).caveats

    async def allocate(self, request: Request, secrets: Mapping[str, str], *, is_restored: bool = False) -> None:
        await all_synced(self._informers)
        if is_restored:
            self._take_up(request.allocation)
            return
        if request.allocation in self._followed:
            return
        present = self._find(request.allocation)
        if present is None:
            present = await self._make(request, await self._shape(request), secrets)
            if request.allocation in self._followed:
                return  # asked twice at the same time
        followed = self._followed[request.allocation] = _Followed(Key(request.namespace, request.allocation))
        if present is not None:
            followed.key = present.key
            self._tell(followed, present, is_recovered=True)
            return
        # It may have gone far already while the answer was on its way.
        seen = self._allocations.get(followed.key)
        if seen is not None:
            self._tell(followed, seen)

    async def kill(self, allocation: AllocationId, resources: Collection[ResourceId]) -> None:
        await all_synced(self._informers)
        found = self._find(allocation)
        if found is None or not resources:
            return
        namespace = found.key.namespace
        writes: list[Write] = [
            Delete(core.POD, Key(namespace, name), options=_OPTIONS)  # with the time that its template gives it
            for name in sorted(resources)
        ]
        _check(await self._store.write(writes))

    async def release(self, allocation: AllocationId) -> None:
        await all_synced(self._informers)
        found = self._find(allocation)
        followed = self._followed.setdefault(
            allocation, _Followed(found.key if found is not None else Key("", allocation))
        )
        followed.is_releasing = True
        if found is not None:
            # In the foreground: Released must mean that none of its pods is left.
            delete = Delete(muster.ALLOCATION, found.key, "Foreground", uid=found.uid, options=_OPTIONS)
            _check(await self._store.write([delete]))
        elif not followed.key.namespace or followed.is_gone or await self._is_missing(followed.key):
            self._released(allocation)

    async def held(self) -> Collection[AllocationId]:
        await all_synced(self._informers)
        return [AllocationId(found.key.name) for found in self._allocations.items()]

    async def pools(self) -> Sequence[Pool]:
        await all_synced(self._informers)
        return sizing.pools(self._ground())

    def events(self) -> AsyncIterator[Event]:
        inbox: asyncio.Queue[Event] = asyncio.Queue()
        self._inboxes.add(inbox)
        return self._read(inbox)

    async def _read(self, inbox: asyncio.Queue[Event]) -> AsyncIterator[Event]:
        while True:
            yield await inbox.get()

    def _take_up(self, id: AllocationId) -> None:
        found = self._find(id)
        if found is None:
            raise errors.NotFound(f"nothing is left of allocation {id}")
        # What this process was told of it before may never have reached whoever asks now.
        followed = self._followed[id] = _Followed(found.key)
        self._tell(followed, found, is_recovered=True)

    # What is made

    async def _make(self, request: Request, shape: Shape, secrets: Mapping[str, str]) -> Object | None:
        """None where it is new; else what was there already."""
        pool = request.pool or sizing.DEFAULT_POOL
        # In one batch, and so embedded in one commit: there is never one without the other.
        queue, priority, made, *beside = await self._store.write(
            [
                Create(kueue.LOCAL_QUEUE, pod_documents.local_queue(request.namespace, pool), _OPTIONS),
                Create(kueue.WORKLOAD_PRIORITY_CLASS, pod_documents.priority_class(request.priority), _OPTIONS),
                Create(muster.ALLOCATION, pod_documents.allocation(request, shape, secrets, self._customs), _OPTIONS),
                *self._beside(request, secrets),
            ]
        )
        refused = [result.error for result in (queue, priority) if isinstance(result, Refused)]
        trouble = [error for error in refused if not isinstance(error, errors.AlreadyExists)]
        if isinstance(made, Refused):
            if isinstance(made.error, errors.AlreadyExists):
                return await self._store.get(muster.ALLOCATION, Key(request.namespace, request.allocation))
            trouble.append(made.error)
        else:
            trouble += [result.error for result in beside if isinstance(result, Refused)]
        if trouble:
            await self._undo([made, *beside])
            raise trouble[0]
        assert not isinstance(made, Refused)
        owned = pod_documents.owned_by(made.object.uid, request.allocation)
        found = [result.object for result in beside if not isinstance(result, Refused)]
        _check(await self._store.write([Patch(each.kind, each.key, owned, options=_OPTIONS) for each in found]))
        return None

    def _beside(self, request: Request, secrets: Mapping[str, str]) -> Iterator[Write]:
        """What belongs to an allocation, and goes with it."""
        yield Create(core.SECRET, pod_documents.secret(request, secrets, self._customs), _OPTIONS)
        if self._customs.has_services and request.services:
            yield Create(core.SERVICE, pod_documents.service(request, self._customs), _OPTIONS)

    async def _undo(self, results: Sequence[Result]) -> None:
        written = [result.object for result in results if not isinstance(result, Refused)]
        await self._store.write([Delete(found.kind, found.key, uid=found.uid, options=_OPTIONS) for found in written])

    async def _reap(self) -> None:
        """What a crash has left of requests that came to nothing."""
        kinds = (core.SECRET, core.SERVICE) if self._customs.has_services else (core.SECRET,)
        before = timestamps.to_text(Instant(self._clock.now() - _YOUNG_SECONDS))
        for kind in kinds:
            left = [
                Delete(kind, found.key, uid=found.uid, options=_OPTIONS)
                async for found in self._made(kind)
                if not self._find(AllocationId((found.meta.labels or {}).get(ALLOCATION_LABEL, "")))
                and (found.meta.creation_timestamp or "") < before
            ]
            _check(await self._store.write(left))

    async def _made(self, kind: Kind) -> AsyncIterator[Object]:
        """By this engine. In pages: asked for once, and without a copy of all Secrets of a cluster."""
        page = await self._store.list(Selection(kind, labels=self._ours), limit=_PAGE)
        while True:
            for found in page.items:
                yield found
            if not page.token:
                return
            page = await self._store.list(Selection(kind, labels=self._ours), limit=_PAGE, token=page.token)

    async def _shape(self, request: Request) -> Shape:
        await all_synced(self._informers)
        return sizing.shape(request, self._ground(), self._auxiliary)

    def _ground(self) -> Ground:
        return Ground(
            [found.read(kueue.ClusterQueue) for found in self._queues.items()],
            {found.key.name: found.read(kueue.ResourceFlavor) for found in self._flavors.items()},
            [found.read(core.Node) for found in self._nodes.items()],
        )

    # What happens

    def _changed(self, event: StoreEvent) -> None:
        found = event.object
        assert found is not None
        id = AllocationId(found.key.name)
        followed = self._followed.get(id)
        if followed is None or followed.key != found.key:
            return
        if event.change is not Change.DELETED:
            self._tell(followed, found)
        elif followed.is_releasing:
            self._released(id)
        else:
            self._vanished(id, followed)

    def _tell(self, followed: _Followed, found: Object, *, is_recovered: bool = False) -> None:
        for event in pod_events.news(found.read(muster.Allocation), followed.told, is_recovered=is_recovered):
            self._publish(event)

    def _held_up(self, event: StoreEvent) -> None:
        """One that runs is not looked at: its pods change often."""
        found = event.object
        assert found is not None
        for owner in found.meta.owner_references:
            followed = self._followed.get(AllocationId(owner.name))
            if owner.kind != muster.ALLOCATION.name or followed is None or followed.told.is_running:
                continue
            reason = _reason(found)
            if reason and reason != followed.delay:
                followed.delay = reason
                self._publish(Delayed(AllocationId(owner.name), reason))

    def _vanished(self, id: AllocationId, followed: _Followed) -> None:
        followed.is_gone = True
        for event in pod_events.vanished(id, followed.told):
            self._publish(event)
        if not followed.told.is_granted:
            self._publish(Failed(id, Failure.RESOURCES_ABORTED, "its allocation was deleted by somebody else"))

    def _released(self, id: AllocationId) -> None:
        if self._followed.pop(id, None) is not None:
            self._publish(Released(id))

    def _publish(self, event: Event) -> None:
        for inbox in self._inboxes:
            inbox.put_nowait(event)

    def _find(self, id: AllocationId) -> Object | None:
        return next(iter(self._allocations.by_index("id", id)), None)

    async def _is_missing(self, key: Key) -> bool:
        """The copy may not show yet what was only just made."""
        try:
            found = await self._store.get(muster.ALLOCATION, key)
        except errors.NotFound:
            return True
        delete = Delete(muster.ALLOCATION, key, "Foreground", uid=found.uid, options=_OPTIONS)
        _check(await self._store.write([delete]))
        return False


def _reason(found: Object) -> str:
    if found.kind is core.POD:
        return pod_reasons.of_pod(found.read(core.Pod))
    return pod_reasons.of_workload(found.read(kueue.Workload))


def _check(results: Sequence[Result]) -> None:
    """What is gone already need not be ended."""
    for result in results:
        if isinstance(result, Refused) and not isinstance(result.error, errors.NotFound):
            raise result.error


_conforms: type[ResourceManager] = PodsEngine
