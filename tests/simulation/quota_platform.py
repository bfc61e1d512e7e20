"""A platform on virtual time where quota decides what runs: real store, controllers, scheduler and agents; only
processes are pretended."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from muster.agent.devices import Machine
from muster.agent.node import Agent, NodeConfig
from muster.api import batch, conditions, core, kueue
from muster.api.everything import REGISTRY
from muster.api.kinds import Kind
from muster.api.managing import take_in
from muster.api.objects import Key, Object
from muster.api.raw import JSON, Document
from muster.controllers.garbage import GarbageCollector
from muster.controllers.jobs.batch import BatchJobController
from muster.controllers.nodes import NodeController
from muster.controllers.quota import QuotaController
from muster.controllers.quota.default_queue import DefaultQueueController
from muster.controllers.quota.failures import FailuresController
from muster.controllers.quota.jobs import JobsController
from muster.controllers.quota.lifecycle import LifecycleController
from muster.controllers.quota.pods import PodsController
from muster.controllers.quota.ungating import UngatingController
from muster.controllers.scheduling import SchedulingController
from muster.placement.engine import default_engine
from muster.quota.settings import Settings
from muster.runtime.clock import VirtualClock
from muster.store.embedded import EmbeddedStore
from muster.store.protocol import Create, Delete, Patch, Selection, write_one
from muster.testing.runtimes import PretendMachine, PretendRuntime
from muster.testing.staging import running


@dataclass
class Platform:
    store: EmbeddedStore
    clock: VirtualClock
    machine: PretendMachine
    group: asyncio.TaskGroup
    settings: Settings
    agents: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    quota: list[asyncio.Task[None]] = field(default_factory=list)

    def crash(self, node: str) -> None:
        """Its agent is gone, with all that it ran."""
        self.agents[node].cancel()

    def start_quota(self) -> None:
        store, clock, settings = self.store, self.clock, self.settings
        parts: list[_Runs] = [
            QuotaController(store, clock, settings),
            JobsController(store, clock, settings=settings),
            PodsController(store, clock, settings),
            UngatingController(store, clock),
            FailuresController(store, clock, settings),
            LifecycleController(store, clock, settings),
            DefaultQueueController(store, clock),
        ]
        self.quota = [self.group.create_task(_run(part)) for part in parts]

    def stop_quota(self) -> None:
        for task in self.quota:
            task.cancel()

    async def make(self, *documents: Document) -> None:
        for document in documents:
            kind = REGISTRY.by_document(document["apiVersion"], document["kind"])
            await write_one(self.store, Create(kind, document))

    async def patch(self, kind: Kind, name: str, body: JSON, namespace: str = "default") -> None:
        await write_one(self.store, Patch(kind, Key(namespace if kind.namespaced else "", name), body))

    async def patch_node(self, name: str, labels: Mapping[str, str]) -> None:
        await self.patch(core.NODE, name, {"metadata": {"labels": dict(labels)}})

    async def delete(self, kind: Kind, name: str, namespace: str = "default") -> None:
        await write_one(self.store, Delete(kind, Key(namespace if kind.namespaced else "", name)))

    async def submit(
        self, name: str, *command: str, queue: str = "", cpu: int = 1, metadata: Document | None = None, **spec: JSON
    ) -> None:
        await self.make(a_job(name, *command, queue=queue, cpu=cpu, metadata=metadata, **spec))

    async def job(self, name: str) -> batch.Job:
        return (await self.store.get(batch.JOB, Key("default", name))).read(batch.Job)

    async def pods(self, job: str = "") -> list[core.Pod]:
        listed = [found.read(core.Pod) for found in (await self.store.list(Selection(core.POD))).items]
        label = "batch.kubernetes.io/job-name"
        return [pod for pod in listed if not job or (pod.metadata.labels or {}).get(label) == job]

    async def phases(self, job: str = "") -> Counter[str]:
        return Counter(pod.status.phase or "" for pod in await self.pods(job))

    async def workloads(self) -> dict[str, Object]:
        return {found.key.name: found for found in (await self.store.list(Selection(kueue.WORKLOAD))).items}

    async def workload(self, job: str) -> kueue.Workload:
        """The newest that the job owns."""
        owned = [
            found.read(kueue.Workload)
            for found in (await self.workloads()).values()
            if any(owner.name == job for owner in found.meta.owner_references)
        ]
        return max(owned, key=lambda found: int(found.metadata.resource_version))

    async def true(self, job: str) -> dict[str, str]:
        """Conditions of the job's workload that hold, with their reasons."""
        listed = (await self.workload(job)).status.conditions
        return {found.type: found.reason or "" for found in listed if found.status == conditions.TRUE}

    async def events(self, about: str) -> Counter[str]:
        found = [event.read(core.Event) for event in (await self.store.list(Selection(core.EVENT))).items]
        return Counter(event.reason or "" for event in found if event.involved_object.name == about)


def a_job(
    name: str, *command: str, queue: str = "", cpu: int = 1, metadata: Document | None = None, **spec: JSON
) -> Document:
    container = {
        "name": "main",
        "image": "host",
        "command": list(command),
        "resources": {"requests": {"cpu": str(cpu)}, "limits": {"cpu": str(cpu)}},
    }
    head: Document = {"name": name, "namespace": "default", **(metadata or {})}
    if queue:
        head["labels"] = {**head.get("labels", {}), "kueue.x-k8s.io/queue-name": queue}
    template = {
        "metadata": spec.pop("pod_metadata", {}),
        "spec": {"restartPolicy": "Never", "containers": [container]},
    }
    spec = {"template": template, **spec}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": head, "spec": spec}


def a_flavor(name: str = "plain", **spec: JSON) -> Document:
    return {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": name}, "spec": spec}


def a_queue(name: str, cpu: int, flavors: Sequence[str] = ("plain",), **spec: JSON) -> list[Document]:
    """A ClusterQueue with so many CPUs of each flavor, and a LocalQueue of the same name that leads to it."""
    quotas = [{"name": flavor, "resources": [{"name": "cpu", "nominalQuota": str(cpu)}]} for flavor in flavors]
    groups = [{"coveredResources": ["cpu"], "flavors": quotas}]
    return [
        {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "ClusterQueue",
            "metadata": {"name": name},
            "spec": {"namespaceSelector": {}, "resourceGroups": groups, **spec},
        },
        {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "LocalQueue",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"clusterQueue": name},
        },
    ]


def a_class(name: str, value: int) -> Document:
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "WorkloadPriorityClass",
        "metadata": {"name": name},
        "value": value,
    }


@asynccontextmanager
async def a_platform(
    clock: VirtualClock,
    directory: Path,
    nodes: Mapping[str, Mapping[str, str]] | None = None,
    settings: Settings | None = None,
    cpus: int = 64,
) -> AsyncIterator[Platform]:
    """`nodes`: names, and labels of each."""
    machine = PretendMachine(clock)
    async with EmbeddedStore.in_memory(clock=clock, entropy=random.Random(1), take_in=take_in) as store:
        agents = {
            name: Agent(
                store,
                runtime=PretendRuntime(machine),
                clock=clock,
                entropy=random.Random(number),
                config=NodeConfig(
                    name, directory / name, Machine(cpus * 1000, 2**36, 500, ()), labels, address="10.0.0.1"
                ),
            )
            for number, (name, labels) in enumerate((nodes or {"n": {}}).items())
        }
        scheduler = SchedulingController(store, clock, default_engine, uses_threads=False)
        parts = (BatchJobController(store, clock), GarbageCollector(store, clock), NodeController(store, clock))
        async with running(scheduler.run, *(part.run for part in parts)), asyncio.TaskGroup() as group:
            platform = Platform(store, clock, machine, group, settings or Settings())
            platform.agents = {name: group.create_task(_run(agent)) for name, agent in agents.items()}
            platform.start_quota()
            await clock.sleep(1)
            yield platform
            platform.stop_quota()
            for task in platform.agents.values():
                task.cancel()


class _Runs(Protocol):
    async def run(self) -> None: ...


async def _run(part: _Runs) -> None:
    await part.run()
