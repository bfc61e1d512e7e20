"""The ground that topologies stand on: nodes, and pods on them that no topology assignment accounts for.

Followed from the moment some flavor has a topology.
"""

import asyncio
from collections import deque
from typing import Final

from muster.api import core
from muster.api.objects import Object
from muster.cluster.state import FINISHED
from muster.quota.engine import Engine
from muster.runtime.clock import Clock
from muster.runtime.informers import Informer, all_synced
from muster.store.protocol import Change, Event, Selection, Store

_PLACED_BY_TOPOLOGY: Final = (
    "kueue.x-k8s.io/podset-required-topology",
    "kueue.x-k8s.io/podset-preferred-topology",
    "kueue.x-k8s.io/podset-unconstrained-topology",
    "kueue.x-k8s.io/podset-slice-required-topology",
)


class Ground:
    def __init__(self, store: Store, clock: Clock, engine: Engine, news: asyncio.Event) -> None:
        self._store = store
        self._clock = clock
        self._engine = engine
        self._news = news
        self._inbox: deque[Event] = deque()
        self._is_followed = False

    async def follow_if_needed(self, tasks: asyncio.TaskGroup) -> None:
        if self._is_followed or not self._engine.has_topologies:
            return
        self._is_followed = True
        informers = [Informer(self._store, Selection(kind), clock=self._clock) for kind in (core.NODE, core.POD)]
        for informer in informers:
            informer.on_event(self._heard)
            tasks.create_task(informer.run(), name=f"quota: {informer.selection.kind.plural}")
        await all_synced(informers)
        self.read()

    def _heard(self, event: Event) -> None:
        self._inbox.append(event)
        self._news.set()

    def read(self) -> None:
        has_room = False
        while self._inbox:
            event = self._inbox.popleft()
            assert event.object is not None
            is_gone = event.change is Change.DELETED
            has_room |= (
                self._node(event.object, is_gone)
                if event.object.kind is core.NODE
                else self._pod(event.object, is_gone)
            )
        if has_room:
            self._engine.room_on_nodes()

    def _node(self, found: Object, is_gone: bool) -> bool:
        cluster = self._engine.state.cluster
        if is_gone:
            cluster.node_removed(found.key.name)
            return True
        node = found.read(core.Node)
        slot = cluster.slots.get(found.key.name)
        known = cluster.nodes[slot] if slot is not None else None
        if known is not None and _means_the_same(known, node):
            return False
        cluster.node_changed(node)
        return True

    def _pod(self, found: Object, is_gone: bool) -> bool:
        """Whether it has left room behind."""
        cluster = self._engine.state.cluster
        pod = found.read(core.Pod)
        is_there = found.uid in cluster.pods
        counts = not is_gone and pod.spec.node_name and pod.status.phase not in FINISHED and not _is_accounted(pod)
        if counts and not is_there:
            cluster.assign(cluster.shapes.info(pod), pod.spec.node_name or "")
        elif is_there and not counts:
            cluster.release(found.uid)
            return True
        return False


def _is_accounted(pod: core.Pod) -> bool:
    annotations = pod.metadata.annotations or {}
    return any(name in annotations for name in _PLACED_BY_TOPOLOGY)


def _means_the_same(old: core.Node, new: core.Node) -> bool:
    """Heartbeats change a node every few seconds, and nothing that matters here."""
    return (
        old.metadata.labels == new.metadata.labels
        and old.spec == new.spec
        and old.status.allocatable == new.status.allocatable
        and [(found.type, found.status) for found in old.status.conditions]
        == [(found.type, found.status) for found in new.status.conditions]
    )
