"""Watches over nodes: one that falls silent is marked and kept free of new pods, and in the end its pods are given up.

Silence is measured by this process's own clock from when a sign of life last changed here. So neither skewed
clocks nor an outage of the server itself make living nodes look dead.
"""

from collections.abc import Sequence

from muster.api import conditions, coordination, core, errors
from muster.api.objects import Key, Object
from muster.controllers import losses
from muster.runtime.clock import EARLY_SECONDS, Clock
from muster.runtime.informers import Informer
from muster.runtime.keeping import keep
from muster.runtime.reconciling import Reconciler
from muster.runtime.recording import EventRecorder
from muster.store.protocol import Change, Event, Selection, Store, Write, Written, write_one

LEASES = "kube-node-lease"


class NodeController:
    """`grace_seconds` of silence make a node unreachable; `pod_eviction_seconds` later its pods have failed, unless
    they tolerate that for another time."""

    def __init__(
        self, store: Store, clock: Clock, *, grace_seconds: float = 40.0, pod_eviction_seconds: float = 60.0
    ) -> None:
        self._store = store
        self._clock = clock
        self._grace_seconds = grace_seconds
        self._pod_eviction_seconds = pod_eviction_seconds

    async def run(self) -> None:
        await _Watchman(self._store, self._clock, self._grace_seconds, self._pod_eviction_seconds).run()


class _Watchman:
    """The state of one run: signs of life, and when they were last new."""

    def __init__(self, store: Store, clock: Clock, grace_seconds: float, eviction_seconds: float) -> None:
        self._store = store
        self._clock = clock
        self._grace_seconds = grace_seconds
        self._eviction_seconds = eviction_seconds
        self._signs: dict[str, tuple[object, float]] = {}
        self._events = EventRecorder(store, clock, "muster-nodes")
        self._reconciler = Reconciler("nodes", self._reconcile, clock=clock, workers=2)
        self._nodes = Informer(store, Selection(core.NODE), clock=clock)
        self._leases = Informer(store, Selection(coordination.LEASE), clock=clock)  # all, as others who follow them
        self._pods = Informer(store, Selection(core.POD), clock=clock)
        self._pods.index_by("node", lambda pod: [pod.read(core.Pod).spec.node_name or ""])
        for informer in (self._nodes, self._leases):
            informer.on_event(self._node_changed)
        self._pods.on_event(self._pod_changed)

    async def run(self) -> None:
        informers = [self._leases, self._nodes, self._pods]
        await keep("nodes", informers, self._events.run, self._reconciler.run, self._look_for_silence)

    def _node_changed(self, event: Event) -> None:
        """A Node or the Lease of one: they share their name."""
        assert event.object is not None
        if event.object.key.namespace in ("", LEASES):
            self._hear(event.object.key.name)
        if event.object.kind is core.NODE:
            self._reconciler.queue.add(event.object.key.name)

    def _pod_changed(self, event: Event) -> None:
        assert event.object is not None
        node = event.object.read(core.Pod).spec.node_name
        # Pods of healthy nodes are nobody's business here, and they are most events.
        if node and event.change is not Change.DELETED and not self._is_healthy(node):
            self._reconciler.queue.add(node)

    def _is_healthy(self, name: str) -> bool:
        node = self._nodes.get(Key("", name))
        return node is not None and conditions.is_true(node.read(core.Node).status.conditions, "Ready")

    def _hear(self, name: str) -> None:
        node, lease = self._nodes.get(Key("", name)), self._leases.get(Key(LEASES, name))
        if node is None:
            self._signs.pop(name, None)
            return
        sign, known = _sign(node, lease), self._signs.get(name)
        if known is None or known[0] != sign:
            self._signs[name] = (sign, self._clock.monotonic())

    async def _reconcile(self, name: str) -> float | None:
        node = self._nodes.get(Key("", name))
        if node is None:
            await self._lose_orphans(name)
            return None
        quiet = self._clock.monotonic() - self._signs[name][1]
        if quiet >= self._grace_seconds and await self._is_silent(node):
            patch = losses.silenced(node, self._clock.now())
            if patch is not None:
                await write_one(self._store, patch)
                self._events.record(node, "Warning", "NodeNotReady", f"node {name} has stopped renewing its lease")
                return None  # the change comes back as an event
        patch = losses.tainted(node, self._clock.now())
        if patch is not None:
            await write_one(self._store, patch)
            return None
        if quiet < self._grace_seconds and not _says_not_ready(node):
            # Even a node that was lost before this run gets the time to be heard again: its pods may well be alive.
            return None
        reckoning = losses.reckon(node, self._pods_on(name), self._clock.now(), self._eviction_seconds)
        await self._write(reckoning.writes)
        return reckoning.again_after

    async def _look_for_silence(self) -> None:
        """One look over all nodes whenever the next of them could have been silent for too long. Not a timer for each:
        there may be ten thousand, and they are rarely late."""
        while True:
            now = self._clock.monotonic()
            ends = {name: heard + self._grace_seconds for name, (_, heard) in self._signs.items()}
            for name, end in ends.items():
                if end <= now:
                    self._reconciler.queue.add(name)
            soonest = min((end for end in ends.values() if end > now), default=now + self._grace_seconds)
            await self._clock.sleep(soonest - now + 2 * EARLY_SECONDS)  # not before it

    async def _is_silent(self, node: Object) -> bool:
        """Asks the store itself: the copy here may lag, and what follows costs users their work."""
        try:
            lease = await self._store.get(coordination.LEASE, Key(LEASES, node.key.name))
        except errors.NotFound:
            return True
        known = self._leases.get(lease.key)
        return known is not None and known.revision == lease.revision

    async def _lose_orphans(self, name: str) -> None:
        pods = self._pods_on(name)
        if not pods:
            return
        try:
            await self._store.get(core.NODE, Key("", name))
        except errors.NotFound:
            now = self._clock.now()
            await self._write([write for pod in pods for write in losses.lose(pod, f'node "{name}" was deleted', now)])

    def _pods_on(self, name: str) -> list[Object]:
        return sorted(self._pods.by_index("node", name), key=lambda pod: pod.key)

    async def _write(self, writes: Sequence[Write]) -> None:
        """Raises the first refusal that is worth another attempt."""
        if not writes:
            return
        lost_races = []
        for result in await self._store.write(writes):
            if isinstance(result, Written):
                why = result.object.read(core.Pod).status.message or "its node was lost"
                self._events.record(result.object, "Warning", "NodeLost", why)
            elif result.error.retryable:
                lost_races.append(result.error)
        if lost_races:
            raise lost_races[0]


def _says_not_ready(node: Object) -> bool:
    return conditions.is_false(node.read(core.Node).status.conditions, "Ready")


def _sign(node: Object, lease: Object | None) -> object:
    """Changes whenever the node's agent has done something."""
    ready = conditions.find(node.read(core.Node).status.conditions, "Ready")
    renewed = lease.read(coordination.Lease).spec.renew_time if lease is not None else None
    return (node.uid, renewed, ready.last_heartbeat_time if ready else None)
