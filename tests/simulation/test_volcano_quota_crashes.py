"""Seeded random histories of Volcano Jobs that queue: pods end, jobs of higher priority come, users change sizes and
send commands, the store refuses writes and loses answers, and the controllers are killed at any point. Pods never take
more than their queue has; when all is quiet quota is what runs; and in the end every job is over and holds nothing."""

import asyncio
import random
from collections import Counter

import pytest
from tests.simulation import seeded
from tests.simulation.quota_platform import a_flavor, a_queue
from tests.simulation.test_batch_job_crashes import Moody
from tests.simulation.volcano_quota_platform import QUEUE, a_key, a_task, a_volcano_job

from muster.api import conditions, core, kueue, volcano
from muster.api.everything import REGISTRY
from muster.api.managing import take_in
from muster.api.objects import Object
from muster.api.raw import Document
from muster.controllers.garbage import GarbageCollector
from muster.controllers.jobs.volcano import VolcanoJobController
from muster.controllers.podgroups import PodGroupController
from muster.controllers.quota import QuotaController
from muster.controllers.quota.jobs import JobsController
from muster.controllers.quota.lifecycle import LifecycleController
from muster.jobs.volcano.vocabulary import OVER, phase_of
from muster.runtime.clock import VirtualClock
from muster.store.embedded import EmbeddedStore
from muster.store.protocol import Change, Create, Delete, Patch, Selection, write_one

QUOTA = 6
STEPS = 60
SEEDS = 6
AT_ONCE = 3
FINISHED = ("Succeeded", "Failed")
RESTARTS = [{"event": "PodFailed", "action": "RestartJob"}]


class History:
    def __init__(self, store: EmbeddedStore, clock: VirtualClock, chance: random.Random) -> None:
        self.store = store
        self.moody = Moody(store, chance)
        self.clock = clock
        self.chance = chance
        self.live: set[str] = set()
        """Pods that have not ended, and take one CPU each."""
        self.most = 0

    # What happens

    async def prepare(self) -> None:
        named = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": QUEUE}}
        urgent = {
            "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "urgent"}, "value": 9,
        }  # fmt: skip
        queue = a_queue(f"volcano-{QUEUE}", QUOTA, preemption={"withinClusterQueue": "LowerPriority"})
        for document in (a_flavor(), named, urgent, *queue):
            kind = REGISTRY.by_document(document["apiVersion"], document["kind"])
            await write_one(self.store, Create(kind, document))

    async def submit(self) -> None:
        listed = await self.jobs()
        if len(listed) >= 4:
            return
        tasks = []
        for name in ("a", "b")[: self.chance.randint(1, 2)]:
            replicas = self.chance.randint(1, 3)
            tasks.append(a_task(name, replicas, "true", minAvailable=self.chance.randint(0, replicas)))
        spec: Document = {"minAvailable": max(1, sum(task["minAvailable"] for task in tasks)), "maxRetry": 3}
        if self.chance.random() < 0.3:
            spec["priorityClassName"] = "urgent"
        if self.chance.random() < 0.4:
            spec["policies"] = RESTARTS
        await write_one(self.store, Create(volcano.JOB, a_volcano_job(f"j{len(listed)}", *tasks, **spec)))

    async def run_some(self, share: float = 0.6) -> None:
        for pod in await self.pods():
            view = pod.read(core.Pod)
            if not pod.is_terminating and view.status.phase == "Pending" and self.chance.random() < share:
                await self._say(pod, "Running")

    async def finish_some(self, failing: float = 0.1, share: float = 0.3) -> None:
        for pod in await self.pods():
            is_running = pod.read(core.Pod).status.phase == "Running"
            if is_running and not pod.is_terminating and self.chance.random() < share:
                job = (pod.meta.labels or {})["volcano.sh/job-name"]
                may_fail = any(
                    found.key.name == job and "policies" in found.document()["spec"] for found in await self.jobs()
                )
                is_failure = may_fail and self.chance.random() < failing
                await self._say(pod, "Failed" if is_failure else "Succeeded")

    async def _say(self, pod: Object, phase: str) -> None:
        # A pod that nobody has bound is deleted at once: these have a node, and end when the history says so.
        if not pod.read(core.Pod).spec.node_name:
            binding = Patch(core.POD, pod.key, {"spec": {"nodeName": "n"}})
            await self.store.write([binding])
        await self.store.write([Patch(core.POD, pod.key, {"status": {"phase": phase}}, subresource="status")])

    async def delete_one(self) -> None:
        pods = [pod for pod in await self.pods() if pod.read(core.Pod).status.phase not in FINISHED]
        if pods:
            await self.store.write([Delete(core.POD, self.chance.choice(pods).key)])

    async def end_terminating(self) -> None:
        for pod in await self.pods():
            if pod.is_terminating:
                await self.store.write([Delete(core.POD, pod.key, grace_seconds=0)])

    async def resize(self) -> None:
        jobs = [job for job in await self.jobs() if not is_over(job)]
        if jobs:
            job = self.chance.choice(jobs)
            tasks = job.document()["spec"]["tasks"]
            for task in tasks:
                task["replicas"] = self.chance.randint(1, 3)
                task["minAvailable"] = self.chance.randint(0, task["replicas"])
            least = max(1, sum(task["minAvailable"] for task in tasks))
            body = {"spec": {"tasks": tasks, "minAvailable": least}}
            await self.store.write([Patch(volcano.JOB, job.key, body)])

    async def command(self) -> None:
        jobs = [job for job in await self.jobs() if not is_over(job)]
        if jobs:
            job = self.chance.choice(jobs)
            actions = ["AbortJob", "ResumeJob", *(["RestartJob"] if "policies" in job.document()["spec"] else [])]
            await self.send(job, self.chance.choice(actions))

    async def send(self, job: Object, action: str) -> None:
        target = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": job.key.name}
        document = {"metadata": {"generateName": "c-", "namespace": "default"}, "target": target, "action": action}
        await write_one(self.store, Create(volcano.COMMAND, document))

    async def change_mood(self) -> None:
        self.moody.mood = self.chance.choice((0.0, 0.1, 0.4))

    # What is seen

    async def jobs(self) -> list[Object]:
        return list((await self.store.list(Selection(volcano.JOB))).items)

    async def pods(self) -> list[Object]:
        return list((await self.store.list(Selection(core.POD))).items)

    async def workloads(self) -> list[kueue.Workload]:
        return [found.read(kueue.Workload) for found in (await self.store.list(Selection(kueue.WORKLOAD))).items]

    async def watch_pods(self) -> None:
        async for events in self.store.watch(Selection(core.POD)):
            for event in events:
                assert event.object is not None
                is_over = event.object.read(core.Pod).status.phase in FINISHED
                if event.change is Change.DELETED or is_over:
                    self.live.discard(event.object.uid)
                else:
                    self.live.add(event.object.uid)
                self.most = max(self.most, len(self.live))
                assert len(self.live) <= QUOTA, f"{event.object.key} is one pod too many"

    async def check_quiet(self) -> None:
        """Nothing has happened for a while: every job runs on exactly the quota that it holds."""
        held: Counter[str] = Counter()
        for found in await self.workloads():
            listed = found.status.conditions
            if conditions.is_true(listed, "QuotaReserved") and not conditions.is_true(listed, "Finished"):
                done = sum(pods.count or 0 for pods in found.status.reclaimable_pods)
                held[found.metadata.owner_references[0].name] += sum(p.count or 0 for p in found.spec.pod_sets) - done
        live: Counter[str] = Counter()
        for pod in await self.pods():
            if pod.read(core.Pod).status.phase not in FINISHED:
                live[pod.meta.owner_references[0].name] += 1
        for job in await self.jobs():
            name, is_exact = job.key.name, "policies" not in job.document()["spec"]
            assert live[name] == held[name] if is_exact else live[name] <= held[name], (name, live, held)


def is_over(job: Object) -> bool:
    return phase_of(job.read(volcano.Job).status.state.phase) in OVER


async def live(world: History) -> None:
    chance, clock = world.chance, world.clock
    steps = [
        world.submit, world.submit, world.run_some, world.run_some, world.finish_some, world.delete_one,
        world.end_terminating, world.end_terminating, world.resize, world.command, world.change_mood,
    ]  # fmt: skip
    await world.prepare()
    async with asyncio.TaskGroup() as tasks:

        def start() -> list[asyncio.Task[None]]:
            parts = (
                VolcanoJobController(world.moody, clock, a_key),  # type: ignore[arg-type]
                JobsController(world.moody, clock),  # type: ignore[arg-type]
            )
            return [tasks.create_task(part.run()) for part in parts]

        steady = (QuotaController, PodGroupController, LifecycleController, GarbageCollector)
        others = [tasks.create_task(kind(world.store, clock).run()) for kind in steady]
        others.append(tasks.create_task(world.watch_pods()))
        controllers = start()
        for number in range(STEPS):
            await chance.choice(steps)()
            if chance.random() < 0.2:  # killed in the middle of whatever it does, and started again
                victim = chance.randrange(2)
                controllers[victim].cancel()
                for _ in range(chance.randrange(4)):
                    await asyncio.sleep(0)
                fresh = start()
                controllers[victim] = fresh[victim]
                fresh[1 - victim].cancel()
            for _ in range(chance.randrange(12)):
                await asyncio.sleep(0)
            if chance.random() < 0.5:
                await clock.sleep(chance.random() * 20)
            if number % 20 == 19:
                await settle(world)
                await world.check_quiet()
        await come_to_an_end(world)
        for task in (*controllers, *others):
            task.cancel()


async def settle(world: History) -> None:
    world.moody.mood = 0.0
    for _ in range(6):
        await world.clock.sleep(20)
        await world.end_terminating()
    await world.clock.sleep(20)


async def come_to_an_end(world: History) -> None:
    for _ in range(30):
        for job in await world.jobs():
            if job.read(volcano.Job).status.state.phase == "Aborted":
                await world.send(job, "ResumeJob")
        await settle(world)
        await world.run_some(share=1.0)
        await world.finish_some(failing=0.0, share=1.0)
        if all(map(is_over, await world.jobs())):
            break
    await settle(world)
    for job in await world.jobs():
        assert is_over(job), job.document()["status"]
    for found in await world.workloads():
        assert conditions.is_true(found.status.conditions, "Finished"), found
    assert not world.live


@pytest.mark.parametrize("first", range(0, SEEDS, AT_ONCE))
def test_pods_never_take_more_than_the_queue_has(first: int) -> None:
    seeded.live_through(range(first, first + AT_ONCE), lambda *given: live(History(*given)), take_in)
