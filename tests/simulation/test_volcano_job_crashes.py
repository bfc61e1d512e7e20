"""Seeded random histories of a few Volcano Jobs: pods succeed, fail and are deleted, users send commands and change
sizes, the store refuses writes and loses answers, and the controller is killed at any point. Pods are only made while
the job wants them and its group is admitted; versions and retries only grow; and in the end every job is over, with
nothing left of it that should be gone."""

import asyncio
import random
from bisect import bisect_right
from collections.abc import Sequence

import pytest
from tests.simulation import seeded
from tests.simulation.test_batch_job_crashes import Moody

from muster.api import core, volcano
from muster.api.objects import Object
from muster.api.raw import Document
from muster.controllers.garbage import GarbageCollector
from muster.controllers.jobs.volcano import VolcanoJobController
from muster.controllers.podgroups import PodGroupController
from muster.jobs.volcano import names
from muster.jobs.volcano.plugins import KeyPair
from muster.jobs.volcano.states import CHANGES
from muster.jobs.volcano.vocabulary import OVER, phase_of
from muster.runtime.clock import VirtualClock
from muster.store.embedded import EmbeddedStore
from muster.store.protocol import Bind, Change, Create, Delete, Patch, Selection, Write, write_one

SEEDS, AT_ONCE, STEPS = 12, 6, 60
FINISHED = ("Succeeded", "Failed")
MAKING = ("Pending", "Running", "Restarting", None)
ACTIONS = ("AbortJob", "RestartJob", "RestartTask", "RestartPod", "RestartPartition", "CompleteJob", "TerminateJob")


async def a_key() -> KeyPair:
    return KeyPair("private", "public")


class History:
    def __init__(self, store: EmbeddedStore, clock: VirtualClock, chance: random.Random) -> None:
        self.store = store
        self.moody = Moody(store, chance)
        self.clock = clock
        self.chance = chance
        self.count = 0
        self.phases: dict[str, list[tuple[int, str | None]]] = {}
        """By job: the revisions at which its phase changed."""
        self.groups: dict[str, list[tuple[int, bool]]] = {}
        """By job: when it had a group that was admitted."""
        self.made: list[tuple[str, int]] = []
        """Job and revision of each pod that was made."""
        self.last: dict[str, volcano.JobStatus] = {}

    # What happens

    async def submit(self) -> None:
        events = self.chance.sample(("PodFailed", "PodEvicted", "TaskCompleted"), self.chance.randint(0, 2))
        policies = [{"event": event, "action": self.chance.choice(ACTIONS)} for event in events]
        size = self.chance.randint(1, 2)
        tasks: list[Document] = [
            _task("a", 2 * size, partitionPolicy={"totalPartitions": 2, "partitionSize": size}, policies=policies),
            _task("b", self.chance.randint(1, 3)),
        ]
        if self.chance.random() < 0.3:
            tasks[1]["dependsOn"] = {"name": ["a"]}
        spec: Document = {"tasks": tasks, "maxRetry": self.chance.randint(1, 6)}
        if self.chance.random() < 0.5:
            spec["plugins"] = {"svc": [], "ssh": []}
        document = {"metadata": {"name": f"job{self.count}", "namespace": "default"}, "spec": spec}
        self.count += 1
        await write_one(self.store, Create(volcano.JOB, document))

    async def command(self) -> None:
        jobs = await self.jobs()
        if not jobs:
            return
        job = self.chance.choice(jobs)
        action = self.chance.choice(("AbortJob", "ResumeJob", "ResumeJob", "RestartJob"))
        target = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": job.key.name, "uid": job.uid}
        document = {"metadata": {"generateName": "c-", "namespace": "default"}, "action": action, "target": target}
        await write_one(self.store, Create(volcano.COMMAND, document))

    async def bind_some(self, share: float = 0.7) -> None:
        for pod in await self.pods():
            if not pod.read(core.Pod).spec.node_name and self.chance.random() < share:
                await self.store.write([Bind(core.POD, pod.key, "n"), _phase(pod, "Running")])

    async def finish_some(self, failing: float = 0.3, share: float = 0.3) -> None:
        for pod in await self.pods():
            if pod.read(core.Pod).status.phase == "Running" and self.chance.random() < share:
                await self.store.write([_phase(pod, "Failed" if self.chance.random() < failing else "Succeeded")])

    async def delete_one(self) -> None:
        pods = await self.pods()
        if pods:
            await self.store.write([Delete(core.POD, self.chance.choice(pods).key)])

    async def end_terminating(self) -> None:
        for pod in await self.pods():
            if pod.is_terminating:
                phase = pod.read(core.Pod).status.phase
                writes: list[Write] = [] if phase in FINISHED else [_phase(pod, "Failed")]
                await self.store.write([*writes, Delete(core.POD, pod.key, grace_seconds=0)])

    async def forgive_failures(self) -> None:
        """A task that waits for one that has failed would wait for ever, as it does with Volcano."""
        for job in await self.jobs():
            if not is_over(job) and any(task.depends_on for task in job.read(volcano.Job).spec.tasks):
                for pod in await self.pods():
                    is_failed = pod.read(core.Pod).status.phase == "Failed"
                    if is_failed and pod.meta.owner_references[0].name == job.key.name:
                        await self.store.write([Delete(core.POD, pod.key)])

    async def resize(self) -> None:
        jobs = [job for job in await self.jobs() if not is_over(job)]
        if jobs:
            job = self.chance.choice(jobs)
            tasks = job.document()["spec"]["tasks"]
            tasks[1] |= {"replicas": self.chance.randint(1, 3), "minAvailable": 1}
            least = sum(task["minAvailable"] for task in tasks)
            body = {"spec": {"tasks": tasks, "minAvailable": least}}
            await self.store.write([Patch(volcano.JOB, job.key, body)])

    async def change_mood(self) -> None:
        self.moody.mood = self.chance.choice((0.0, 0.1, 0.4))

    # What is seen

    async def jobs(self) -> Sequence[Object]:
        return (await self.store.list(Selection(volcano.JOB))).items

    async def pods(self) -> Sequence[Object]:
        return (await self.store.list(Selection(core.POD))).items

    async def watch_jobs(self) -> None:
        async for events in self.store.watch(Selection(volcano.JOB)):
            for event in events:
                assert event.object is not None
                self._note(event.object.key.name, event.object.read(volcano.Job), event.revision)

    def _note(self, name: str, job: volcano.Job, revision: int) -> None:
        status, before = job.status, self.last.get(name, volcano.JobStatus())
        assert (status.version or 0) >= (before.version or 0)
        assert 0 <= (status.retry_count or 0) - (before.retry_count or 0) <= 1
        old, new = phase_of(before.state.phase), phase_of(status.state.phase)
        assert old is new or (old, new) in CHANGES, (old, new)
        if (status.retry_count or 0) > (before.retry_count or 0):
            assert new.value == "Restarting"
        self.last[name] = status
        self.phases.setdefault(name, []).append((revision, status.state.phase))

    async def watch_groups(self) -> None:
        async for events in self.store.watch(Selection(volcano.POD_GROUP)):
            for event in events:
                assert event.object is not None
                group = event.object.read(volcano.PodGroup)
                is_there = event.change is not Change.DELETED and group.status.phase not in (None, "", "Pending")
                name = group.metadata.owner_references[0].name
                self.groups.setdefault(name, []).append((event.revision, is_there))

    async def watch_pods(self) -> None:
        async for events in self.store.watch(Selection(core.POD)):
            for event in events:
                assert event.object is not None
                if event.change is Change.ADDED:
                    self.made.append((event.object.meta.owner_references[0].name, event.revision))

    def check_made(self) -> None:
        for name, revision in self.made:
            assert _as_of(self.phases[name], revision) in MAKING
            assert _as_of(self.groups[name], revision), f"{name}: a pod was made at {revision} without a group"


def _as_of(history: Sequence[tuple[int, object]], revision: int) -> object:
    found = bisect_right([at for at, _ in history], revision)
    assert found, (history, revision)
    return history[found - 1][1]


def _task(name: str, replicas: int, **fields: object) -> Document:
    pod = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "host"}]}
    return {"name": name, "replicas": replicas, "template": {"spec": pod}, **fields}


def _phase(pod: Object, phase: str) -> Patch:
    return Patch(core.POD, pod.key, {"status": {"phase": phase}}, subresource="status")


def is_over(job: Object) -> bool:
    return phase_of(job.read(volcano.Job).status.state.phase) in OVER


async def live(world: History) -> None:
    chance, clock = world.chance, world.clock
    steps = [
        world.submit, world.bind_some, world.bind_some, world.finish_some, world.finish_some, world.delete_one,
        world.end_terminating, world.resize, world.command, world.change_mood,
    ]  # fmt: skip

    async with asyncio.TaskGroup() as tasks:

        def start() -> asyncio.Task[None]:
            return tasks.create_task(VolcanoJobController(world.moody, clock, a_key).run())  # type: ignore[arg-type]

        others = [
            tasks.create_task(run())
            for run in (
                world.watch_jobs, world.watch_groups, world.watch_pods, GarbageCollector(world.store, clock).run,
                PodGroupController(world.store, clock).run,
            )
        ]  # fmt: skip
        controller = start()
        for _ in range(STEPS):
            await chance.choice(steps)()
            if chance.random() < 0.2:  # killed in the middle of whatever it does, and started again
                controller.cancel()
                for _ in range(chance.randrange(4)):
                    await asyncio.sleep(0)
                controller = start()
            for _ in range(chance.randrange(12)):
                await asyncio.sleep(0)
            if chance.random() < 0.5:
                await clock.sleep(chance.random() * 20)
        await come_to_an_end(world)
        for task in (controller, *others):
            task.cancel()


async def come_to_an_end(world: History) -> None:
    """Everything is well again: then every job comes to its end, and keeps nothing that it should not."""
    world.moody.mood = 0.0
    for _ in range(40):
        for job in await world.jobs():
            if job.read(volcano.Job).status.state.phase == "Aborted":
                target = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": job.key.name}
                document = {"metadata": {"generateName": "c-", "namespace": "default"}, "target": target}
                await write_one(world.store, Create(volcano.COMMAND, {**document, "action": "ResumeJob"}))
        await world.forgive_failures()
        await world.clock.sleep(100)
        await world.bind_some(share=1.0)
        await world.clock.sleep(1)
        await world.finish_some(failing=0.0, share=1.0)
        await world.clock.sleep(1)
        await world.end_terminating()
        await world.clock.sleep(2)
        if all(map(is_over, await world.jobs())):
            break
    await world.end_terminating()
    await world.clock.sleep(2)
    world.check_made()
    for job in await world.jobs():
        await check_over(world, job)


async def check_over(world: History, job: Object) -> None:
    view = job.read(volcano.Job)
    status = view.status
    assert is_over(job), job.document()["status"]
    pods = [pod.read(core.Pod) for pod in await world.pods() if pod.meta.owner_references[0].uid == job.uid]
    assert all(pod.status.phase in FINISHED for pod in pods), [(pod.metadata.name, pod.status.phase) for pod in pods]
    assert not any((status.pending, status.running, status.terminating)), status
    assert not status.controlled_resources
    groups = (await world.store.list(Selection(volcano.POD_GROUP))).items
    assert not any(group.meta.owner_references[0].uid == job.uid for group in groups)
    for kind, name in ((core.CONFIG_MAP, f"{job.key.name}-svc"), (core.SECRET, f"{job.key.name}-ssh")):
        assert not [found for found in (await world.store.list(Selection(kind))).items if found.key.name == name]
    assert (status.retry_count or 0) <= (view.spec.max_retry or 0)
    versions = [int((pod.metadata.annotations or {})[names.JOB_VERSION]) for pod in pods]
    assert all(version <= (status.version or 0) for version in versions)


@pytest.mark.parametrize("first", range(0, SEEDS, AT_ONCE))
def test_pods_only_while_they_are_wanted_and_nothing_left_in_the_end(first: int) -> None:
    seeded.live_through(range(first, first + AT_ONCE), lambda *given: live(History(*given)))
