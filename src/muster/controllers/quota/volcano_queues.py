"""Keeps what stands for Volcano's queues in the quota engine: ClusterQueues, Cohorts, LocalQueues and their flavor.

Users edit the Queue; these follow it and the nodes, and go with it. A LocalQueue is made in a namespace once something
there names the queue. Heartbeats and the queues' own status change all the time and mean nothing here; nodes that come
and go are gathered for a moment, so that a cluster that starts up is not shared out anew with each node.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from muster.api import core, errors, kueue, volcano
from muster.api.kinds import Kind
from muster.api.kueue.names import QUEUE_LABEL
from muster.api.objects import Key, Object
from muster.api.raw import Document
from muster.api.selectors import parse_labels
from muster.api.volcano.defaults import DEFAULT_QUEUE
from muster.api.volcano.queue_naming import FLAVOR, MANAGED_LABEL, quota_name
from muster.quota.volcano_queues import Translation, differing, flavor, local_queue, node_total, translate
from muster.runtime.clock import Clock
from muster.runtime.informers import Informer
from muster.runtime.keeping import keep
from muster.runtime.reconciling import Reconciler
from muster.runtime.recording import EventRecorder
from muster.store.protocol import Change, Create, Delete, Event, Options, Patch, Refused, Selection, Store, Write

GATHER_SECONDS: Final = 2.0
"""For so long changes of nodes are gathered."""
FIRST_SECONDS: Final = 0.1
"""The same, while there is nothing to share yet: whoever waits, waits for that."""
_OPTIONS: Final = Options(manager="muster-quota")
_MADE: Final = (kueue.RESOURCE_FLAVOR, kueue.COHORT, kueue.CLUSTER_QUEUE)
_USERS: Final = (volcano.JOB, volcano.POD_GROUP)
_ALL: Final = parse_labels(MANAGED_LABEL)


@dataclass(frozen=True, slots=True)
class Door:
    """A LocalQueue that leads to a queue."""

    namespace: str
    queue: str


@dataclass(frozen=True, slots=True)
class Tree:
    """Everything but the LocalQueues."""


_TREE: Final = Tree()


class VolcanoQuotaController:
    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def run(self) -> None:
        await _Run(self._store, self._clock).run()


class _Run:
    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._events = EventRecorder(store, clock, "muster-quota")
        self._reconciler: Reconciler[Tree | Door] = Reconciler("volcano quota", self._reconcile, clock=clock)
        self._queues = Informer(store, Selection(volcano.QUEUE), clock=clock)
        self._nodes = Informer(store, Selection(core.NODE), clock=clock)
        self._users = [Informer(store, Selection(kind), clock=clock) for kind in _USERS]
        self._made = {
            kind: Informer(store, Selection(kind, labels=_ALL), clock=clock) for kind in (*_MADE, kueue.LOCAL_QUEUE)
        }
        self._total: dict[str, dict[str, int]] = {}  # by node
        self._meant: dict[str, object] = {}  # by queue: what of it matters here, as last seen
        self._told: dict[str, str] = {}  # by queue: its problem, as last told
        self._queues.on_event(self._queue_changed)
        self._nodes.on_event(self._node_changed)
        for informer in self._users:
            informer.index_by("queue", lambda found: [name] if (name := _queue_of(found)) else [])
            informer.on_event(self._user_changed)
        for kind in _MADE:
            self._made[kind].on_event(lambda _: self._reconciler.queue.add(_TREE))
        self._made[kueue.LOCAL_QUEUE].on_event(self._door_changed)

    async def run(self) -> None:
        self._reconciler.queue.add(_TREE)
        informers = [self._queues, self._nodes, *self._users, *self._made.values()]
        await keep("volcano quota", informers, self._events.run, self._reconciler.run)

    # What happened

    def _queue_changed(self, event: Event) -> None:
        found = event.object
        assert found is not None
        name, is_gone = found.key.name, event.change is Change.DELETED
        view = found.read(volcano.Queue)
        meant = None if is_gone else (view.spec, view.status.state, view.metadata.annotations)
        if self._meant.get(name) == meant:
            return
        is_new = name not in self._meant
        if is_gone:
            self._meant.pop(name, None)
            self._told.pop(name, None)
        else:
            self._meant[name] = meant
        self._reconciler.queue.add(_TREE)
        if is_new or is_gone:
            users = [user for informer in self._users for user in informer.by_index("queue", name)]
            doors = [door for door in self._made[kueue.LOCAL_QUEUE].items() if door.key.name == quota_name(name)]
            for namespace in {user.key.namespace for user in (*users, *doors)}:
                self._reconciler.queue.add(Door(namespace, name))

    def _node_changed(self, event: Event) -> None:
        found = event.object
        assert found is not None
        known = self._total.get(found.key.name, {})
        now = {} if event.change is Change.DELETED else node_total([found.read(core.Node)])
        if now == known:
            return
        delay = GATHER_SECONDS if self._total else FIRST_SECONDS
        if now:
            self._total[found.key.name] = now
        else:
            del self._total[found.key.name]
        self._reconciler.queue.add_after(_TREE, delay)

    def _user_changed(self, event: Event) -> None:
        assert event.object is not None
        queue = _queue_of(event.object)
        if queue and event.change is not Change.DELETED:
            namespace = event.object.key.namespace
            if self._made[kueue.LOCAL_QUEUE].get(Key(namespace, quota_name(queue))) is None:
                self._reconciler.queue.add(Door(namespace, queue))

    def _door_changed(self, event: Event) -> None:
        """One that was deleted by hand is made again, if anybody needs it."""
        found = event.object
        assert found is not None
        if event.change is Change.DELETED:
            queue = found.key.name.removeprefix(quota_name(""))
            self._reconciler.queue.add(Door(found.key.namespace, queue))

    # What follows

    async def _reconcile(self, what: Tree | Door) -> float | None:
        if isinstance(what, Door):
            await self._keep_door(what)
        else:
            await self._keep_tree()
        return None

    async def _keep_door(self, door: Door) -> None:
        found = self._made[kueue.LOCAL_QUEUE].get(Key(door.namespace, quota_name(door.queue)))
        if self._queues.get(Key("", door.queue)) is None:
            if found is not None and not found.is_terminating:
                await self._write([_delete(found)])
        elif found is None and self._is_used(door):
            await self._write([Create(kueue.LOCAL_QUEUE, local_queue(door.namespace, door.queue), _OPTIONS)])

    def _is_used(self, door: Door) -> bool:
        users = (user for informer in self._users for user in informer.by_index("queue", door.queue))
        return any(user.key.namespace == door.namespace for user in users)

    async def _keep_tree(self) -> None:
        total: dict[str, int] = {}
        for amounts in self._total.values():
            for resource, amount in amounts.items():
                total[resource] = total.get(resource, 0) + amount
        found = translate([queue.read(volcano.Queue) for queue in self._queues.items()], total)
        self._tell(found)
        wanted: dict[Kind, dict[str, Document]] = {
            kueue.RESOURCE_FLAVOR: {FLAVOR: flavor()},
            kueue.COHORT: dict(found.cohorts),
            kueue.CLUSTER_QUEUE: dict(found.cluster_queues),
        }
        writes: list[Write] = []
        for kind, documents in wanted.items():
            writes += self._changes(kind, documents)
        for kind, documents in wanted.items():
            surplus = (made for made in self._made[kind].items() if made.key.name not in documents)
            writes += [_delete(made) for made in surplus if not made.is_terminating]
        await self._write(writes)

    def _changes(self, kind: Kind, documents: dict[str, Document]) -> Iterable[Write]:
        for name, document in documents.items():
            found = self._made[kind].get(Key("", name))
            if found is None:
                yield Create(kind, document, _OPTIONS)
            elif not found.is_terminating:  # when it is gone at last, it is made anew
                body = differing.patch(found.document(), document)
                if body is not None:
                    yield Patch(kind, found.key, body, options=_OPTIONS)

    def _tell(self, found: Translation) -> None:
        for name in [name for name in self._told if name not in found.problems]:
            del self._told[name]
        for name, problem in found.problems.items():
            queue = self._queues.get(Key("", name))
            if queue is not None and self._told.get(name) != problem:
                self._told[name] = problem
                self._events.record(queue, "Warning", "Misconfigured", f"nothing is admitted here: {problem}")

    async def _write(self, writes: Sequence[Write]) -> None:
        """What another has made under the same name is not touched: the queue says so, and the rest goes on."""
        if not writes:
            return
        lost: errors.ApiError | None = None
        for write, result in zip(writes, await self._store.write(writes), strict=True):
            if not isinstance(result, Refused) or isinstance(result.error, errors.NotFound):
                continue
            if isinstance(write, Create) and not result.error.retryable:
                self._refused(write, result.error)
            else:
                lost = result.error
        if lost is not None:
            raise lost

    def _refused(self, write: Create, error: errors.ApiError) -> None:
        name = write.document["metadata"]["name"]
        if self._made[write.kind].get(Key(write.document["metadata"].get("namespace", ""), name)) is not None:
            return  # ours, made a moment ago
        queue = self._queues.get(Key("", name.removeprefix(quota_name(""))))
        if queue is not None and self._told.get(queue.key.name) != error.message:
            self._told[queue.key.name] = error.message
            self._events.record(queue, "Warning", "NotInQuota", f"{write.kind.name} {name}: {error.message}")


def _queue_of(found: Object) -> str:
    """Of a job that names a LocalQueue itself, none of ours."""
    if QUEUE_LABEL in (found.meta.labels or {}):
        return ""
    if found.kind is volcano.JOB:
        return found.read(volcano.Job).spec.queue or DEFAULT_QUEUE
    return found.read(volcano.PodGroup).spec.queue or DEFAULT_QUEUE


def _delete(found: Object) -> Delete:
    return Delete(found.kind, found.key, uid=found.uid, options=_OPTIONS)
