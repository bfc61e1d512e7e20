"""Who waits in which queue, and why: read off the engine for those who ask through the API.

The engine is asked in the loop that owns it, in steps that do not take long.
"""

import asyncio
from collections.abc import Generator, Iterable, Iterator

from muster.api import errors, kueue
from muster.api.raw import Document
from muster.controllers.quota.controller import QuotaController
from muster.quota.engine import Engine
from muster.quota.explaining import explain
from muster.quota.gates import Gate
from muster.quota.queueing import Position, Standing
from muster.quota.situation import State
from muster.runtime.clock import Clock


class Visibility:
    """Without an answer (None) where there is no such queue, or the workload does not wait. Raises Unavailable while
    the engine does not know yet what there is."""

    def __init__(self, quota: QuotaController, clock: Clock) -> None:
        self._quota = quota
        self._clock = clock

    @property
    def is_served(self) -> bool:
        return Gate.VISIBILITY_ON_DEMAND in self._quota.engine.settings.gates

    async def in_cluster_queue(self, name: str, offset: int, limit: int) -> Iterator[Document] | None:
        pending = self._engine().pending.queues.get(name)
        return None if pending is None else items((await lined_up(pending.line_up())).page(offset, limit))

    async def in_local_queue(self, namespace: str, name: str, offset: int, limit: int) -> Iterator[Document] | None:
        engine, key = self._engine(), f"{namespace}/{name}"
        if key not in engine.state.local_queues:
            return None
        pending = engine.pending.queues.get(engine.pending.leads_to(key))
        return items(() if pending is None else (await lined_up(pending.line_up())).local_page(key, offset, limit))

    async def explain(self, namespace: str, name: str) -> Document | None:
        engine, key = self._engine(), f"{namespace}/{name}"
        info = engine.pending.get(key)
        pending = engine.pending.queues.get(info.queue) if info is not None else None
        if pending is not None:
            await lined_up(pending.line_up())  # remembered there: its position costs nothing then
        found = explain(engine, key, self._clock.now())
        return None if found is None else {**found.to_document(), "state": State.WAITING.value}

    def _engine(self) -> Engine:
        if not self._quota.has_read:
            raise errors.Unavailable("queues and workloads are still being read; ask again in a moment")
        return self._quota.engine


async def lined_up(steps: Generator[None, None, Standing]) -> Standing:
    while True:
        try:
            next(steps)
        except StopIteration as done:
            standing: Standing = done.value
            return standing
        await asyncio.sleep(0)


def items(positions: Iterable[Position]) -> Iterator[Document]:
    """As Kueue's visibility API writes them; made as they are taken."""
    for position in positions:
        view = position.info.view
        yield {
            "metadata": _metadata(view),
            "priority": position.info.base_priority,
            "localQueueName": view.spec.queue_name or "",
            "positionInClusterQueue": position.in_queue,
            "positionInLocalQueue": position.in_local_queue,
        }


def _metadata(view: kueue.Workload) -> Document:
    meta = view.metadata
    made: Document = {
        "name": meta.name,
        "namespace": meta.namespace,
        "creationTimestamp": meta.creation_timestamp,
    }
    if meta.owner_references:
        made["ownerReferences"] = [
            {"apiVersion": owner.api_version, "kind": owner.kind, "name": owner.name, "uid": owner.uid}
            for owner in meta.owner_references
        ]
    return made
