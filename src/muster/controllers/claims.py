"""Binds PersistentVolumeClaims to directories: of a file system that all nodes share at once, of a node as soon as the
first pod that uses the claim has been given one (see `api.storage.provisioning`).

The directories themselves are made and removed by agents (see `agent.claims`).
"""

from collections.abc import Mapping

from muster.api import core, storage
from muster.api.objects import Key, Object
from muster.api.raw import Document
from muster.api.storage import provisioning
from muster.api.storage.provisioning import LOCAL_FINALIZER, NODE_ANNOTATION, PATH_ANNOTATION, Unprovided
from muster.runtime.clock import Clock
from muster.runtime.informers import Informer
from muster.runtime.keeping import keep
from muster.runtime.reconciling import Reconciler
from muster.runtime.recording import EventRecorder, EventType
from muster.store.protocol import Change, Event, Options, Patch, Revision, Selection, Store, write_one

_OPTIONS = Options(manager="muster-claims")
_FINISHED = ("Succeeded", "Failed")
_WAITS = "waiting for first consumer to be created before binding"


class ClaimController:
    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def run(self) -> None:
        await _Binder(self._store, self._clock).run()


class _Binder:
    """The state of one run."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._events = EventRecorder(store, clock, _OPTIONS.manager)
        self._reconciler = Reconciler("claims", self._reconcile, clock=clock)
        self._claims = Informer(store, Selection(core.PERSISTENT_VOLUME_CLAIM), clock=clock)
        self._classes = Informer(store, Selection(storage.STORAGE_CLASS), clock=clock)
        self._nodes = Informer(store, Selection(core.NODE), clock=clock)
        self._pods = Informer(store, Selection(core.POD), clock=clock)
        self._pods.index_by("claim", _claims_in_use)
        self._said: dict[str, str] = {}
        """By a claim's uid: what it was last told."""
        self._claims.on_event(self._claim_changed)
        self._classes.on_event(self._look_at_all)
        self._nodes.on_event(self._node_changed)
        self._pods.on_event(self._pod_changed)

    async def run(self) -> None:
        informers = (self._claims, self._classes, self._nodes, self._pods)
        await keep("claims", informers, self._events.run, self._reconciler.run)

    def _claim_changed(self, event: Event) -> None:
        assert event.object is not None
        if event.change is Change.DELETED:
            self._said.pop(event.object.uid, None)
        self._reconciler.queue.add(event.object.key)

    def _pod_changed(self, event: Event) -> None:
        assert event.object is not None
        for name in core.claims_of(event.object.read(core.Pod).spec):
            self._reconciler.queue.add(Key(event.object.key.namespace, name))

    def _node_changed(self, event: Event) -> None:
        if event.change is Change.DELETED:
            self._look_at_all(event)

    def _look_at_all(self, _event: Event) -> None:
        for claim in self._claims.items():
            self._reconciler.queue.add(claim.key)

    async def _reconcile(self, key: Key) -> float | None:
        found = self._claims.get(key)
        if found is None:
            return None
        claim = found.read(core.PersistentVolumeClaim)
        if found.is_terminating:
            await self._let_go(found, claim)
        elif not provisioning.is_bound(claim):
            await self._provide(found, claim)
        elif claim.status.phase != "Bound":
            await write_one(self._store, _bound(found, claim))
        return None

    async def _provide(self, found: Object, claim: core.PersistentVolumeClaim) -> None:
        classes = {known.key.name: known.read(storage.StorageClass) for known in self._classes.items()}
        provided = provisioning.provide(claim, classes)
        if isinstance(provided, Unprovided):
            self._tell(found, "Warning", provided.reason, provided.message)
            return
        if provided.path:
            await self._bind(found, claim, {PATH_ANNOTATION: provided.path})
            return
        node = self._first_node(found.key)
        if node is None:
            self._tell(found, "Normal", "WaitForFirstConsumer", _WAITS)
        else:
            await self._bind(found, claim, {NODE_ANNOTATION: node})

    def _first_node(self, key: Key) -> str | None:
        pods = self._pods.by_index("claim", str(key))
        first = min(pods, key=lambda pod: (pod.meta.creation_timestamp or "", pod.key.name), default=None)
        return None if first is None else first.read(core.Pod).spec.node_name

    async def _bind(self, found: Object, claim: core.PersistentVolumeClaim, annotations: Mapping[str, str]) -> None:
        volume = {"volumeName": provisioning.volume_name(claim)}
        # Where the directory is, before it is said to be there: a pod that finds a bound claim looks for that.
        await write_one(self._store, _based(found, {"metadata": {"annotations": dict(annotations)}, "spec": volume}))
        await write_one(self._store, _bound(found, claim))
        self._said.pop(found.uid, None)

    async def _let_go(self, found: Object, claim: core.PersistentVolumeClaim) -> None:
        """A claim to a directory of a node that is gone for good: nobody else would."""
        node = provisioning.node_of(claim)
        if LOCAL_FINALIZER in claim.metadata.finalizers and (node is None or self._nodes.get(Key("", node)) is None):
            left = [name for name in claim.metadata.finalizers if name != LOCAL_FINALIZER]
            await write_one(self._store, _based(found, {"metadata": {"finalizers": left}}))

    def _tell(self, found: Object, type_: EventType, reason: str, message: str) -> None:
        if self._said.get(found.uid) != message:
            self._said[found.uid] = message
            self._events.record(found, type_, reason, message)


def _based(found: Object, body: Document) -> Patch:
    revision = Revision(found.revision)
    return Patch(core.PERSISTENT_VOLUME_CLAIM, found.key, body, based_on=revision, options=_OPTIONS)


def _bound(found: Object, claim: core.PersistentVolumeClaim) -> Patch:
    wanted = claim.spec.resources.requests or {}
    status: Document = {"phase": "Bound", "accessModes": list(claim.spec.access_modes), "capacity": dict(wanted)}
    body = {"metadata": {"uid": found.uid}, "status": status}
    return Patch(core.PERSISTENT_VOLUME_CLAIM, found.key, body, subresource="status", options=_OPTIONS)


def _claims_in_use(pod: Object) -> list[str]:
    """Of a pod that has a node and may still run there."""
    view = pod.read(core.Pod)
    if not view.spec.node_name or view.status.phase in _FINISHED:
        return []
    return [str(Key(pod.key.namespace, name)) for name in core.claims_of(view.spec)]
