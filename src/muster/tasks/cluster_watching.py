"""A copy of what the views of the cluster are made of: nodes, pods, queues, and what stands in them."""

from collections.abc import Iterable, Sequence
from typing import Final

from muster.api import core, kueue, muster
from muster.api.objects import Key, Object
from muster.engines.sizing import Ground
from muster.runtime.clock import Clock
from muster.runtime.informers import Informer, all_synced, by_owner
from muster.runtime.keeping import keep
from muster.store.protocol import Selection, Store

_NODE: Final = "node"
_OWNER: Final = "owner"
_PATIENCE_SECONDS: Final = 2.0
_LOOK_SECONDS: Final = 0.005


class ClusterWatch:
    """`run` must be kept running. Whoever asks waits until the copy is complete."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._clock = clock
        self._nodes = Informer(store, Selection(core.NODE), clock=clock)
        self._pods = Informer(store, Selection(core.POD), clock=clock)
        self._queues = Informer(store, Selection(kueue.CLUSTER_QUEUE), clock=clock)
        self._flavors = Informer(store, Selection(kueue.RESOURCE_FLAVOR), clock=clock)
        self._allocations = Informer(store, Selection(muster.ALLOCATION), clock=clock)
        self._workloads = Informer(store, Selection(kueue.WORKLOAD), clock=clock)
        self._local_queues = Informer(store, Selection(kueue.LOCAL_QUEUE), clock=clock)
        self._pods.index_by(_NODE, _node_of)
        self._workloads.index_by(_OWNER, by_owner)

    @property
    def _all(self) -> Sequence[Informer]:
        queues = (self._queues, self._flavors, self._local_queues)
        return (self._nodes, self._pods, *queues, self._allocations, self._workloads)

    async def run(self) -> None:
        await keep("cluster views", self._all)

    async def ready(self) -> None:
        await all_synced(self._all)

    async def shows(self, node: Object) -> None:
        """Returns once the copy of it is at least as new; or after a while all the same."""
        deadline = self._clock.monotonic() + _PATIENCE_SECONDS
        while (seen := self.node(node.key.name)) is not None and seen.revision < node.revision:
            if self._clock.monotonic() > deadline:
                return
            await self._clock.sleep(_LOOK_SECONDS)

    def ground(self) -> Ground:
        """What pools are made of."""
        return Ground(
            [found.read(kueue.ClusterQueue) for found in self._queues.items()],
            {found.key.name: found.read(kueue.ResourceFlavor) for found in self._flavors.items()},
            self.nodes(),
        )

    def nodes(self) -> list[core.Node]:
        """By name."""
        return [found.read(core.Node) for found in sorted(self._nodes.items(), key=lambda node: node.key.name)]

    def node(self, name: str) -> Object | None:
        return self._nodes.get(Key("", name))

    def pods_on(self, node: str) -> list[core.Pod]:
        return [found.read(core.Pod) for found in self._pods.by_index(_NODE, node)]

    def allocations(self) -> list[muster.Allocation]:
        return [found.read(muster.Allocation) for found in self._allocations.items()]

    def workloads(self) -> list[kueue.Workload]:
        return [found.read(kueue.Workload) for found in self._workloads.items()]

    def workload_of(self, owner_uid: str) -> kueue.Workload | None:
        found = next(iter(self._workloads.by_index(_OWNER, owner_uid)), None)
        return None if found is None else found.read(kueue.Workload)

    def local_queues(self) -> dict[str, str]:
        """By namespace and name, as `namespace/name`: the ClusterQueue that they lead to."""
        return {
            str(found.key): found.read(kueue.LocalQueue).spec.cluster_queue or ""
            for found in self._local_queues.items()
        }


def _node_of(pod: Object) -> Iterable[str]:
    name = pod.read(core.Pod).spec.node_name
    return [name] if name else []
