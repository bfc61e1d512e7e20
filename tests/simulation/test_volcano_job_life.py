"""Volcano Jobs from submission to end on virtual time: real store, real scheduler, real agent; only processes are
pretended."""

import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from muster.agent.devices import Machine
from muster.agent.node import Agent, NodeConfig
from muster.api import core, errors, volcano
from muster.api.objects import Key
from muster.api.raw import JSON, Document
from muster.controllers.garbage import GarbageCollector
from muster.controllers.jobs.volcano import VolcanoJobController
from muster.controllers.nodes import NodeController
from muster.controllers.podgroups import PodGroupController
from muster.controllers.scheduling import SchedulingController
from muster.jobs.volcano.plugins import KeyPair
from muster.placement.engine import default_engine
from muster.runtime.clock import VirtualClock
from muster.store.embedded import EmbeddedStore
from muster.store.protocol import Create, Selection, write_one
from muster.testing.runtimes import PretendMachine, PretendRuntime
from muster.testing.staging import running
from muster.testing.virtual import on_virtual_time

KEY = Key("default", "j")


def a_task(name: str, replicas: int, *command: str, pod: Document | None = None, **fields: JSON) -> Document:
    container = {"name": "main", "image": "host", "command": list(command)}
    template = {"spec": {"restartPolicy": "Never", "containers": [container], **(pod or {})}}
    return {"name": name, "replicas": replicas, "template": template, **fields}


@dataclass
class Platform:
    store: EmbeddedStore
    clock: VirtualClock
    machine: PretendMachine

    async def submit(self, *tasks: Document, **spec: JSON) -> None:
        document = {"metadata": {"name": "j", "namespace": "default"}, "spec": {"tasks": list(tasks), **spec}}
        await write_one(self.store, Create(volcano.JOB, document))

    async def command(self, action: str) -> None:
        job = await self.store.get(volcano.JOB, KEY)
        target = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "j", "uid": job.uid}
        document = {
            "metadata": {"generateName": "j-", "namespace": "default"}, "action": action,
            "target": {**target, "controller": True, "blockOwnerDeletion": True},
        }  # fmt: skip
        await write_one(self.store, Create(volcano.COMMAND, document))

    async def job(self) -> volcano.Job:
        return (await self.store.get(volcano.JOB, KEY)).read(volcano.Job)

    async def phase(self) -> str | None:
        return (await self.job()).status.state.phase

    async def pods(self) -> dict[str, core.Pod]:
        found = [found.read(core.Pod) for found in (await self.store.list(Selection(core.POD))).items]
        return {pod.metadata.name: pod for pod in found}

    async def uids(self) -> dict[str, str]:
        return {name: pod.metadata.uid for name, pod in (await self.pods()).items()}

    async def phases(self) -> Counter[str]:
        return Counter(pod.status.phase or "" for pod in (await self.pods()).values())

    async def groups(self) -> list[volcano.PodGroup]:
        return [found.read(volcano.PodGroup) for found in (await self.store.list(Selection(volcano.POD_GROUP))).items]

    async def events(self) -> Counter[str]:
        found = [event.read(core.Event) for event in (await self.store.list(Selection(core.EVENT))).items]
        return Counter(event.reason or "" for event in found if event.involved_object.kind == "Job")


async def a_key() -> KeyPair:
    return KeyPair("private", "public")


@asynccontextmanager
async def a_platform(clock: VirtualClock, directory: Path) -> AsyncIterator[Platform]:
    machine = PretendMachine(clock)
    async with EmbeddedStore.in_memory(clock=clock, entropy=random.Random(1)) as store:
        agent = Agent(
            store,
            runtime=PretendRuntime(machine),
            clock=clock,
            entropy=random.Random(2),
            config=NodeConfig("n", directory, Machine(64_000, 2**36, 500, ()), address="10.0.0.1"),
        )
        scheduler = SchedulingController(store, clock, default_engine, uses_threads=False)
        parts = (
            VolcanoJobController(store, clock, a_key), PodGroupController(store, clock),
            GarbageCollector(store, clock), NodeController(store, clock),
        )  # fmt: skip
        async with running(agent.run, scheduler.run, *(part.run for part in parts)):
            await clock.sleep(1)
            yield Platform(store, clock, machine)


@on_virtual_time
async def test_two_tasks_run_to_their_end_and_the_job_goes_when_its_time_is_over(
    clock: VirtualClock, tmp_path: Path
) -> None:
    async with a_platform(clock, tmp_path) as platform:
        await platform.submit(
            a_task("ps", 1, "sleep", "5"), a_task("worker", 3, "sleep", "8"), ttlSecondsAfterFinished=60
        )
        await clock.sleep(3)
        job = await platform.job()
        assert (job.status.state.phase, job.status.running, job.status.min_available) == ("Running", 4, 4)
        assert await platform.phases() == {"Running": 4}
        (group,) = await platform.groups()
        assert group.spec.min_task_member == {"ps": 1, "worker": 3}
        await clock.sleep(10)
        job = await platform.job()
        assert (job.status.state.phase, job.status.succeeded) == ("Completed", 4)
        assert [condition.status for condition in job.status.conditions] == ["Pending", "Running", "Completed"]
        assert not await platform.groups()

        revision = platform.store.revision
        await clock.sleep(30)
        assert platform.store.revision - revision < 10, "leases apart, nothing is written when nothing changes"
        await clock.sleep(60)
        with pytest.raises(errors.NotFound):
            await platform.job()
        assert not await platform.pods()
