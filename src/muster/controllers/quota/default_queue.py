"""Keeps the ClusterQueue that jobs go to which name no queue. It is made where it is missing, and then an
administrator's to change: as made, it lets everything in."""

import asyncio

from muster.api import errors, kueue
from muster.api.raw import Document
from muster.quota.engine import DEFAULT_QUEUE
from muster.quota.queues import UNDECLARED_ANNOTATION
from muster.runtime.clock import Clock
from muster.runtime.informers import Informer
from muster.runtime.reconciling import Reconciler
from muster.store.protocol import Create, Event, Options, Selection, Store, write_one

_OPTIONS = Options(manager="muster-quota")


def default_queue() -> Document:
    return {
        "metadata": {"name": DEFAULT_QUEUE, "annotations": {UNDECLARED_ANNOTATION: "free"}},
        "spec": {"namespaceSelector": {}},
    }


class DefaultQueueController:
    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def run(self) -> None:
        queues = Informer(self._store, Selection(kueue.CLUSTER_QUEUE), clock=self._clock)
        reconciler = Reconciler("quota: default queue", self._ensure, clock=self._clock)

        def heard(event: Event) -> None:
            if event.object is not None and event.object.key.name == DEFAULT_QUEUE:
                reconciler.queue.add(DEFAULT_QUEUE)

        queues.on_event(heard)
        reconciler.queue.add(DEFAULT_QUEUE)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(queues.run(), name="quota default queue: clusterqueues")
            tasks.create_task(reconciler.run(), name="quota default queue: reconciler")

    async def _ensure(self, _name: str) -> None:
        try:
            await write_one(self._store, Create(kueue.CLUSTER_QUEUE, default_queue(), _OPTIONS))
        except errors.AlreadyExists:
            return
