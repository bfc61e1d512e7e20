"""A platform on virtual time for tests of allocations: real store, quota, scheduler and controllers; only the nodes are
pretended."""

import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from muster.api import core, kueue, muster
from muster.api.managing import take_in
from muster.api.objects import Key
from muster.api.raw import JSON, Document
from muster.controllers.allocations import AllocationController
from muster.controllers.garbage import GarbageCollector
from muster.controllers.podgroups import PodGroupController
from muster.controllers.quota import QuotaController
from muster.controllers.quota.default_queue import DefaultQueueController
from muster.controllers.quota.jobs import JobsController
from muster.controllers.quota.lifecycle import LifecycleController
from muster.controllers.scheduling import SchedulingController
from muster.placement.engine import default_engine
from muster.quota.settings import Settings
from muster.runtime.clock import VirtualClock
from muster.store.embedded import EmbeddedStore
from muster.store.protocol import Create, Delete, Patch, Selection, write_one
from muster.testing.builders import NodeBuilder, a_node
from muster.testing.nodes import SimulatedNodes
from muster.testing.staging import running


def an_allocation(name: str = "t.1", pods: int = 1, cpu: int = 1, queue: str = "", **spec: JSON) -> Document:
    container = {
        "name": "main",
        "image": "host",
        "command": ["true"],
        "resources": {"requests": {"cpu": str(cpu)}, "limits": {"cpu": str(cpu)}},
    }
    return {
        "apiVersion": "muster.dev/v1",
        "kind": "Allocation",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "taskId": name.rpartition(".")[0] or name,
            "taskType": "COMMAND",
            "pods": pods,
            "template": {"spec": {"containers": [container]}},
            **({"queueName": queue} if queue else {}),
            **spec,
        },
    }


def a_cluster_queue(name: str, cpu: int, **spec: JSON) -> list[Document]:
    quotas = [{"name": "plain", "resources": [{"name": "cpu", "nominalQuota": str(cpu)}]}]
    group = "kueue.x-k8s.io/v1beta2"
    return [
        {"apiVersion": group, "kind": "ResourceFlavor", "metadata": {"name": "plain"}, "spec": {}},
        {
            "apiVersion": group,
            "kind": "ClusterQueue",
            "metadata": {"name": name},
            "spec": {
                "namespaceSelector": {},
                "resourceGroups": [{"coveredResources": ["cpu"], "flavors": quotas}],
                **spec,
            },
        },
        {
            "apiVersion": group,
            "kind": "LocalQueue",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"clusterQueue": name},
        },
    ]


@dataclass
class World:
    store: EmbeddedStore
    clock: VirtualClock
    nodes: SimulatedNodes
    components: Sequence[Callable[[], Awaitable[None]]] = field(default_factory=list)

    async def make(self, *documents: Document) -> None:
        kinds = {kind.name: kind for kind in (*kueue.KINDS, *muster.KINDS, *core.KINDS)}
        for document in documents:
            await write_one(self.store, Create(kinds[document["kind"]], document))

    async def allocation(self, name: str = "t.1") -> muster.Allocation:
        return (await self.store.get(muster.ALLOCATION, Key("default", name))).read(muster.Allocation)

    async def phase(self, name: str = "t.1") -> str:
        return (await self.allocation(name)).status.phase or ""

    async def pods(self) -> dict[str, core.Pod]:
        return {found.key.name: found.read(core.Pod) for found in (await self.store.list(Selection(core.POD))).items}

    async def workloads(self) -> list[kueue.Workload]:
        return [found.read(kueue.Workload) for found in (await self.store.list(Selection(kueue.WORKLOAD))).items]

    async def finish(self, *names: str, code: int = 0) -> None:
        await self.nodes.finish({Key("default", name): code for name in names})

    async def suspend(self, name: str = "t.1") -> None:
        await self.patch(name, {"spec": {"suspend": True}})

    async def patch(self, name: str, body: JSON) -> None:
        await write_one(self.store, Patch(muster.ALLOCATION, Key("default", name), body))

    async def delete(self, name: str = "t.1") -> None:
        await write_one(self.store, Delete(muster.ALLOCATION, Key("default", name), "Foreground"))

    async def delete_pod(self, name: str) -> None:
        await write_one(self.store, Delete(core.POD, Key("default", name)))


@asynccontextmanager
async def a_store(clock: VirtualClock) -> AsyncIterator[EmbeddedStore]:
    async with EmbeddedStore.in_memory(clock=clock, entropy=random.Random(7), take_in=take_in) as store:
        yield store


def controllers(store: EmbeddedStore, clock: VirtualClock) -> list[Callable[[], Awaitable[None]]]:
    """All that stand between an allocation and its pods, but the controller of allocations."""
    settings = Settings()
    quota = QuotaController(store, clock, settings)
    return [
        quota.run,
        SchedulingController(store, clock, default_engine).run,
        PodGroupController(store, clock).run,
        JobsController(store, clock, settings=settings).run,
        LifecycleController(store, clock, settings).run,
        DefaultQueueController(store, clock).run,
        GarbageCollector(store, clock).run,
    ]


@asynccontextmanager
async def a_world(clock: VirtualClock, *nodes: NodeBuilder, with_allocations: bool = True) -> AsyncIterator[World]:
    async with a_store(clock) as store:
        simulated = SimulatedNodes(store, clock, nodes or [a_node("n1").cpu(4).memory("16Gi")])
        await simulated.register()
        parts = [*controllers(store, clock), simulated.run]
        if with_allocations:
            parts.append(AllocationController(store, clock).run)
        async with running(*parts):
            await clock.sleep(1)
            yield World(store, clock, simulated, parts)
