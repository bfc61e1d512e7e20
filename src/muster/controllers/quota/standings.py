"""Who waits in which queue, read off the objects: for a process beside the one that decides.

In the order in which the engine looks at them (see `quota.queueing`). What only the engine knows is not in it: for whom
others are being preempted, and the past usage of local queues, where that is to count.
"""

from collections.abc import Iterator

from muster.api import kueue
from muster.api.objects import Key
from muster.api.raw import Document
from muster.controllers.quota.visibility import items, lined_up
from muster.quota.queueing.lanes import order
from muster.quota.queueing.standing import line_up
from muster.quota.queues import Stop
from muster.quota.settings import Settings
from muster.quota.workloads import WorkloadInfo
from muster.runtime.clock import Clock
from muster.runtime.informers import Informer, all_synced
from muster.runtime.keeping import keep
from muster.store.protocol import Change, Event, Selection, Store


class Standings:
    """`run` must be kept running. Whoever asks waits until all that is there has been seen."""

    def __init__(self, store: Store, clock: Clock, settings: Settings) -> None:
        self._settings = settings
        self._queues = Informer(store, Selection(kueue.CLUSTER_QUEUE), clock=clock)
        self._local_queues = Informer(store, Selection(kueue.LOCAL_QUEUE), clock=clock)
        self._workloads = Informer(store, Selection(kueue.WORKLOAD), clock=clock)
        self._waiting: dict[Key, WorkloadInfo] = {}
        """All that could be admitted if there were room."""
        self._workloads.on_event(self._heard)

    async def run(self) -> None:
        await keep("standings in queues", (self._queues, self._local_queues, self._workloads))

    async def in_cluster_queue(self, name: str, offset: int, limit: int) -> Iterator[Document] | None:
        """None where there is no such queue."""
        await all_synced((self._queues, self._local_queues, self._workloads))
        if self._queues.get(Key("", name)) is None:
            return None
        ways = {
            str(found.key) for found in self._local_queues.items() if _leads_to(found.read(kueue.LocalQueue)) == name
        }
        everyone = [info for info in self._waiting.values() if info.local_queue in ways]
        standing = await lined_up(line_up(everyone, lambda info: order(info, 0)))
        return items(standing.page(offset, limit))

    def _heard(self, event: Event) -> None:
        found = event.object
        assert found is not None
        self._waiting.pop(found.key, None)
        if event.change is Change.DELETED:
            return
        info = WorkloadInfo(found.read(kueue.Workload), "", self._settings)
        if info.is_queueable(self._settings):
            self._waiting[found.key] = info


def _leads_to(queue: kueue.LocalQueue) -> str:
    """The ClusterQueue; empty while the way there is closed."""
    is_open = (queue.spec.stop_policy or Stop.NONE) == Stop.NONE
    return queue.spec.cluster_queue or "" if is_open else ""
