"""Runs muster.dev Allocations: carries out what `muster.jobs.allocations` decides.

It decides only on what it knows to be current (`currency`), and a pod is named after its rank: so no rank has two. The
status is written first: it is refused where the allocation has changed meanwhile, and then nothing of the plan is done.
"""

from collections.abc import Iterator, Sequence

from muster.api import core, errors, muster, volcano
from muster.api.muster.names import QUEUE_PRIORITY
from muster.api.objects import Key, Object
from muster.api.raw import Document
from muster.controllers.belonging import owner_key, owner_of
from muster.controllers.jobs.currency import Currency
from muster.controllers.refusals import check
from muster.jobs.allocations import Plan, Seen, make_pods, plan, urgency
from muster.runtime.clock import Clock
from muster.runtime.informers import Informer
from muster.runtime.keeping import keep
from muster.runtime.reconciling import Reconciler
from muster.runtime.recording import EventRecorder
from muster.store.protocol import (
    Change,
    Create,
    Delete,
    Event,
    Options,
    Patch,
    Refused,
    Result,
    Revision,
    Selection,
    Store,
    Write,
)

GATHER_SECONDS = 0.002
"""Pods of a gang change together: their changes are gathered for so long, and longer where there are many to count."""
GATHER_SECONDS_PER_POD = 100e-6
_OPTIONS = Options(manager="muster-allocations")
_WORKERS = 8


class AllocationController:
    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def run(self) -> None:
        await _Keeper(self._store, self._clock).run()


class _Keeper:
    """The state of one run."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._clock = clock
        self._events = EventRecorder(store, clock, "muster-allocations")
        self._reconciler = Reconciler("allocations", self._reconcile, clock=clock, workers=_WORKERS)
        self._allocations = Informer(store, Selection(muster.ALLOCATION), clock=clock)
        self._pods = Informer(store, Selection(core.POD), clock=clock)
        self._groups = Informer(store, Selection(volcano.POD_GROUP), clock=clock)
        self._current = Currency(store, self._allocations, self._pods, _allocation_of, [self._groups])
        self._gone: dict[Key, dict[str, Object]] = {}
        """By allocation: pods as they were in the end, until its status says so."""
        self._allocations.on_event(self._allocation_changed)
        for informer in (self._pods, self._groups):
            informer.index_by("owner", lambda part: [uid] if (uid := owner_of(part, muster.ALLOCATION).uid) else [])
            informer.on_event(self._part_changed)

    async def run(self) -> None:
        informers = [self._allocations, self._pods, self._groups]
        await keep("allocations", informers, self._events.run, self._reconciler.run)

    # What happens

    def _allocation_changed(self, event: Event) -> None:
        assert event.object is not None
        self._reconciler.queue.add(event.object.key)

    def _part_changed(self, event: Event) -> None:
        part = event.object
        assert part is not None
        key = _allocation_of(part)
        if key is None:
            return
        if event.change is Change.DELETED and part.kind is core.POD:
            self._gone.setdefault(key, {})[part.uid] = part
        count = len(self._pods.by_index("owner", owner_of(part, muster.ALLOCATION).uid))
        self._reconciler.queue.add_after(key, GATHER_SECONDS + GATHER_SECONDS_PER_POD * count if count > 1 else 0.0)

    # What is done about it

    async def _reconcile(self, key: Key) -> float | None:
        delay = await self._current.wait_for(key)
        if delay:
            return delay
        found = self._allocations.get(key)
        if found is None:
            self._current.forget(key)
            self._gone.pop(key, None)
            return None
        seen = self._seen(found)
        decided = plan(seen, self._clock.now())
        if decided.status is not None:
            check(await self._current.write(key, [_status(found, decided.status)]))
        self._forget_gone(key, seen.gone)
        writes = [*_deletes(seen, decided), *_reranks(seen, decided), *_creates(found, seen, decided)]
        results = await self._current.write(key, writes)
        self._tell(found, writes, results)
        check(results)
        return decided.again_after

    def _seen(self, found: Object) -> Seen:
        owned = self._pods.by_index("owner", found.uid)
        gone = [
            pod for pod in self._gone.get(found.key, {}).values() if owner_of(pod, muster.ALLOCATION).uid == found.uid
        ]
        group = next((g for g in self._groups.by_index("owner", found.uid) if g.key == found.key), None)
        return Seen(
            found.read(muster.Allocation),
            found.document(),
            [pod.read(core.Pod) for pod in (*sorted(owned, key=lambda pod: pod.key), *gone)],
            frozenset(pod.uid for pod in gone),
            group.read(volcano.PodGroup) if group is not None else None,
        )

    def _forget_gone(self, key: Key, uids: frozenset[str]) -> None:
        """What is written down need not be remembered."""
        kept = {uid: pod for uid, pod in self._gone.pop(key, {}).items() if uid not in uids}
        if kept:
            self._gone[key] = kept

    def _tell(self, found: Object, writes: Sequence[Write], results: Sequence[Result]) -> None:
        for write, result in zip(writes, results, strict=True):
            if not isinstance(write, Create) or write.kind is not core.POD:
                continue
            name = write.document["metadata"]["name"]
            if not isinstance(result, Refused):
                self._events.record(found, "Normal", "SuccessfulCreatePod", f"Created pod: {name}")
            elif not isinstance(result.error, errors.AlreadyExists):
                message = f"Error creating pod {name}: {result.error.message}"
                self._events.record(found, "Warning", "FailedCreatePod", message)


def _creates(found: Object, seen: Seen, decided: Plan) -> Iterator[Write]:
    """The gang before its members: a pod alone would be placed alone."""
    if decided.group_created is not None:
        yield Create(volcano.POD_GROUP, decided.group_created, _OPTIONS)
    if decided.created:
        for pod in make_pods(seen.allocation, found.document(), decided.created):
            yield Create(core.POD, pod, _OPTIONS)


def _reranks(seen: Seen, decided: Plan) -> Iterator[Write]:
    said = {QUEUE_PRIORITY: None, **urgency(seen.allocation)}
    for pod in decided.reranked:
        body = {"metadata": {"uid": pod.metadata.uid, "annotations": said}}
        yield Patch(core.POD, Key(pod.metadata.namespace, pod.metadata.name), body, options=_OPTIONS)


def _deletes(seen: Seen, decided: Plan) -> Iterator[Write]:
    namespace = seen.allocation.metadata.namespace
    if decided.is_group_deleted and seen.group is not None:
        meta = seen.group.metadata
        yield Delete(volcano.POD_GROUP, Key(namespace, meta.name), uid=meta.uid, options=_OPTIONS)
    for pod in decided.ended:
        yield Delete(core.POD, Key(namespace, pod.metadata.name), uid=pod.metadata.uid, options=_OPTIONS)


def _status(found: Object, status: Document) -> Patch:
    body, based_on = {"status": status}, Revision(found.revision)
    return Patch(muster.ALLOCATION, found.key, body, subresource="status", based_on=based_on, options=_OPTIONS)


def _allocation_of(part: Object) -> Key | None:
    return owner_key(part, muster.ALLOCATION)
