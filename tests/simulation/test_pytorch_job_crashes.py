"""Seeded random histories of one PyTorchJob: pods run, fail, succeed and are deleted, users suspend, resume and resize
it, the store refuses writes and loses answers, and the controller is killed at any point. No failure goes uncounted,
and in the end the job has succeeded with nothing left of it."""

import asyncio
import random

import pytest
from tests.simulation import seeded
from tests.simulation.test_batch_job_crashes import Moody

from muster.api import core, kubeflow, volcano
from muster.api.kinds import Kind
from muster.api.objects import Key, Object
from muster.api.raw import Document
from muster.controllers.garbage import GarbageCollector
from muster.controllers.jobs.pytorch import PyTorchJobController
from muster.jobs.pytorch import names
from muster.runtime.clock import VirtualClock
from muster.store.embedded import EmbeddedStore
from muster.store.protocol import Bind, Create, Delete, Patch, Selection, Write

SEEDS, STEPS = 6, 40
KEY = Key("default", "j")
PARTS = (core.POD, core.SERVICE, volcano.POD_GROUP)


def a_job() -> Document:
    template = {"spec": {"containers": [{"name": "pytorch", "image": "i"}]}}
    role = {"restartPolicy": "ExitCode", "template": template}
    roles = {"Master": role, "Worker": {**role, "replicas": 3}}
    policy = {"cleanPodPolicy": "All"}
    return {
        "metadata": {"name": "j", "namespace": "default"},
        "spec": {"pytorchReplicaSpecs": roles, "runPolicy": policy},
    }


class History:
    def __init__(self, store: EmbeddedStore, clock: VirtualClock, chance: random.Random) -> None:
        self.store = store
        self.moody = Moody(store, chance)
        self.clock = clock
        self.chance = chance
        self.failed: set[str] = set()
        """Pods that failed while nobody had told them to go."""
        self.told: set[str] = set()
        """Pods that somebody else than their failure may have ended."""

    async def all(self, kind: Kind) -> list[Object]:
        return list((await self.store.list(Selection(kind))).items)

    async def job(self) -> kubeflow.PyTorchJob:
        return (await self.store.get(kubeflow.PYTORCH_JOB, KEY)).read(kubeflow.PyTorchJob)

    async def patch(self, spec: Document) -> None:
        await self.store.write([Patch(kubeflow.PYTORCH_JOB, KEY, {"spec": spec})])

    async def move_pods(self, *, failing: float = 0.3, succeeding: float = 0.0) -> None:
        """Pending pods run, running ones end, those that are told to go are gone."""
        for found in await self.all(core.POD):
            if self.chance.random() < 0.5:
                continue
            phase = found.read(core.Pod).status.phase
            if found.is_terminating:
                await self.store.write([Delete(core.POD, found.key, grace_seconds=0)])
            elif not found.read(core.Pod).spec.node_name:
                await self.store.write([Bind(core.POD, found.key, "n"), self.status(found, "Running")])
            elif phase == "Running" and self.chance.random() < failing:
                self.failed.add(found.uid)
                await self.store.write([self.status(found, "Failed")])
            elif phase == "Running" and self.chance.random() < succeeding:
                await self.store.write([self.status(found, "Succeeded")])

    def status(self, pod: Object, phase: str) -> Write:
        state = {"terminated": {"exitCode": 137}} if phase == "Failed" else {"running": {}}
        status = {"phase": phase, "containerStatuses": [{"name": "pytorch", "restartCount": 0, "state": state}]}
        return Patch(core.POD, pod.key, {"status": status}, subresource="status")

    async def lose_a_pod(self) -> None:
        pods = await self.all(core.POD)
        if pods:
            lost = self.chance.choice(pods)
            self.told.add(lost.uid)
            await self.store.write([Delete(core.POD, lost.key, grace_seconds=0)])

    async def turn(self) -> None:
        self.told |= {pod.uid for pod in await self.all(core.POD)}
        await self.patch({"runPolicy": {"suspend": self.chance.random() < 0.5}})

    async def resize(self) -> None:
        self.told |= {pod.uid for pod in await self.all(core.POD)}
        await self.patch({"pytorchReplicaSpecs": {"Worker": {"replicas": self.chance.randint(0, 5)}}})

    async def change_mood(self) -> None:
        self.moody.mood = self.chance.choice((0.0, 0.1, 0.4))


async def live(world: History) -> None:
    chance, clock = world.chance, world.clock
    steps = [world.move_pods, world.move_pods, world.move_pods, world.lose_a_pod, world.turn, world.resize]
    await world.store.write([Create(kubeflow.PYTORCH_JOB, a_job())])
    async with asyncio.TaskGroup() as tasks:

        def start() -> asyncio.Task[None]:
            return tasks.create_task(PyTorchJobController(world.moody, clock).run())  # type: ignore[arg-type]

        garbage = tasks.create_task(GarbageCollector(world.store, clock).run())
        controller = start()
        for _ in range(STEPS):
            await chance.choice([*steps, world.change_mood])()
            if chance.random() < 0.2:  # killed in the middle of whatever it does, and started again
                controller.cancel()
                controller = start()
            for _ in range(chance.randrange(12)):
                await asyncio.sleep(0)
            if chance.random() < 0.5:
                await clock.sleep(chance.random() * 20)
        await come_to_an_end(world)
        controller.cancel()
        garbage.cancel()


async def come_to_an_end(world: History) -> None:
    world.moody.mood = 0.0
    await world.patch({"runPolicy": {"suspend": False}})
    for _ in range(60):
        await world.move_pods(failing=0.0, succeeding=0.3)
        await world.clock.sleep(15)
    job = await world.job()
    assert [found.type for found in job.status.conditions if found.status == "True"] == ["Created", "Succeeded"]
    gone = world.failed - world.told
    assert int((job.metadata.annotations or {}).get(names.RESTARTS, "0")) >= len(gone)
    for kind in PARTS:
        assert not await world.all(kind)
    assert not any(status.active for status in (job.status.replica_statuses or {}).values())


@pytest.mark.parametrize("seed", range(SEEDS))
def test_every_failure_is_counted_and_nothing_is_left(seed: int) -> None:
    seeded.live_through([seed], lambda *given: live(History(*given)))
