"""Seeded random histories of a few jobs: pods succeed, fail and are deleted, users change their minds, the store
refuses writes and loses answers, and the controller is killed at any point. At no time are there more pods than
allowed, and in the end every pod has been counted once."""

import asyncio
import random
from collections import Counter
from collections.abc import Sequence

import pytest
from tests.simulation import seeded
from tests.unit.controllers.scheduler_worlds import Spy

from muster.api import batch, core, errors
from muster.api.objects import Object
from muster.api.raw import JSON, Document
from muster.controllers.garbage import GarbageCollector
from muster.controllers.jobs.batch import BatchJobController
from muster.runtime.clock import VirtualClock
from muster.store.embedded import EmbeddedStore
from muster.store.protocol import Bind, Change, Create, Delete, Patch, Result, Selection, Store, Write, write_one

SEEDS, AT_ONCE, STEPS = 12, 6, 60
FINISHED = ("Succeeded", "Failed")


class Moody(Spy):
    """Refuses some writes, takes others but loses the answer, and makes its caller wait. Watches lag behind."""

    def __init__(self, inner: EmbeddedStore, chance: random.Random) -> None:
        super().__init__(inner)
        self.chance = chance
        self.mood = 0.0
        self.refuse = self._refuse

    def _refuse(self, write: Write) -> errors.ApiError | None:
        if self.chance.random() >= self.mood:
            return None
        return self.chance.choice((errors.Conflict("changed meanwhile"), errors.Unavailable("not now")))

    async def write(self, writes: Sequence[Write]) -> Sequence[Result]:
        for _ in range(self.chance.randrange(4)):
            await asyncio.sleep(0)
        results = await super().write(writes)
        if self.chance.random() < self.mood / 2:
            raise OSError("connection reset")
        for _ in range(self.chance.randrange(4)):
            await asyncio.sleep(0)
        return results

    async def watch(self, selection: Selection, **options: JSON):
        async for events in self.inner.watch(selection, **options):
            if self.chance.random() < self.mood:
                await asyncio.sleep(self.chance.random() * 0.2)
            yield events


class History:
    def __init__(self, store: EmbeddedStore, clock: VirtualClock, chance: random.Random) -> None:
        self.store = store
        self.moody = Moody(store, chance)
        self.clock = clock
        self.chance = chance
        self.fates: dict[str, dict[str, str]] = {}
        """By job: uid of a pod and how it ended: Succeeded, Failed, deleted; or either, where it was deleted but then
        succeeded, so that it depends on who looks when."""
        self.is_steady: dict[str, bool] = {}
        """By job: nobody made it give up pods, so that all failures are the pods' own."""
        self.most: dict[str, int] = {}
        """By job: how many pods it may have had at any time lately."""

    # What happens

    async def submit(self) -> None:
        name = f"job{len(self.fates)}"
        many = self.chance.randint(1, 6)
        spec: Document = {"completions": many, "parallelism": self.chance.randint(1, many), "backoffLimit": 1000}
        if self.chance.random() < 0.5:
            spec["completionMode"] = "Indexed"
            if self.chance.random() < 0.5:
                spec["backoffLimitPerIndex"] = 1000
        if self.chance.random() < 0.3:
            spec["podReplacementPolicy"] = "Failed"
        template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "host"}]}}
        document = {"metadata": {"name": name, "namespace": "default"}, "spec": {"template": template, **spec}}
        self.fates[name], self.is_steady[name], self.most[name] = {}, True, spec["parallelism"]
        await write_one(self.store, Create(batch.JOB, document))

    async def bind_some(self) -> None:
        for pod in await self.pods():
            if not pod.read(core.Pod).spec.node_name and self.chance.random() < 0.7:
                await self.store.write([Bind(core.POD, pod.key, "n"), _phase(pod, "Running")])

    async def finish_some(self, failing: float = 0.4, share: float = 0.4) -> None:
        """Also one that is on its way out: it may still say how it ended."""
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

    async def change_parallelism(self) -> None:
        await self._change("parallelism", self.chance.randint(0, 4))

    async def suspend_or_resume(self) -> None:
        await self._change("suspend", self.chance.random() < 0.5)

    async def _change(self, field: str, value: JSON) -> None:
        jobs = [job for job in await self.jobs() if not _is_over(job)]
        if jobs:
            job = self.chance.choice(jobs)
            self.is_steady[job.key.name] = False
            self.most[job.key.name] = max(self.most[job.key.name], value)
            await self.store.write([Patch(batch.JOB, job.key, {"spec": {field: value}})])

    async def change_mood(self) -> None:
        self.moody.mood = self.chance.choice((0.0, 0.1, 0.4))

    # What is seen

    async def jobs(self) -> Sequence[Object]:
        return (await self.store.list(Selection(batch.JOB))).items

    async def pods(self) -> Sequence[Object]:
        return (await self.store.list(Selection(core.POD))).items

    async def watch(self) -> None:
        """Notes how every pod ended, and that at no moment there are too many."""
        there: dict[str, dict[str, core.Pod]] = {}
        async for events in self.store.watch(Selection(core.POD)):
            for event in events:
                assert event.object is not None
                pod = event.object.read(core.Pod)
                name = pod.metadata.owner_references[0].name
                crew = there.setdefault(name, {})
                if event.change is Change.DELETED:
                    crew.pop(pod.metadata.uid, None)
                else:
                    crew[pod.metadata.uid] = pod
                self._note(name, pod)
                self._check(name, [pod for pod in crew.values() if _is_active(pod)])

    def _note(self, name: str, pod: core.Pod) -> None:
        fate, uid = self.fates[name], pod.metadata.uid
        if not pod.metadata.finalizers:
            return
        if pod.status.phase in FINISHED:
            is_late = fate.get(uid) == "deleted" and pod.status.phase == "Succeeded"
            fate[uid] = "either" if is_late else fate.get(uid) or pod.status.phase or ""
        elif pod.metadata.deletion_timestamp is not None:
            fate.setdefault(uid, "deleted")

    def _check(self, name: str, active: Sequence[core.Pod]) -> None:
        assert len(active) <= self.most[name], (name, [pod.metadata.name for pod in active])
        indexes = Counter((pod.metadata.labels or {}).get("batch.kubernetes.io/job-completion-index") for pod in active)
        indexes.pop(None, None)
        assert all(count == 1 for count in indexes.values()), (name, indexes)


def _phase(pod: Object, phase: str) -> Patch:
    return Patch(core.POD, pod.key, {"status": {"phase": phase}}, subresource="status")


def _is_active(pod: core.Pod) -> bool:
    return pod.status.phase not in FINISHED and pod.metadata.deletion_timestamp is None


def _is_over(job: Object) -> bool:
    return any(c.type in ("Complete", "Failed") for c in job.read(batch.Job).status.conditions)


async def live(world: History) -> None:
    chance, clock = world.chance, world.clock
    store: Store = world.moody  # type: ignore[assignment]
    steps = [
        world.submit, world.bind_some, world.bind_some, world.finish_some, world.finish_some, world.delete_one,
        world.end_terminating, world.change_parallelism, world.suspend_or_resume, world.change_mood,
    ]  # fmt: skip
    async with asyncio.TaskGroup() as tasks:
        watcher = tasks.create_task(world.watch())
        garbage = tasks.create_task(GarbageCollector(world.store, clock).run())
        controller = tasks.create_task(BatchJobController(store, clock).run())
        for _ in range(STEPS):
            await chance.choice(steps)()
            if chance.random() < 0.2:  # killed in the middle of whatever it does, and started again
                controller.cancel()
                for _ in range(chance.randrange(4)):
                    await asyncio.sleep(0)
                controller = tasks.create_task(BatchJobController(store, clock).run())
            for _ in range(chance.randrange(12)):
                await asyncio.sleep(0)
            if chance.random() < 0.5:
                await clock.sleep(chance.random() * 20)
        await come_to_an_end(world)
        for task in (controller, garbage, watcher):
            task.cancel()


async def come_to_an_end(world: History) -> None:
    """Everything is well again: then every job completes, and every pod was counted."""
    world.moody.mood = 0.0
    for job in await world.jobs():
        body: Document = {"spec": {"suspend": False}}
        if not job.read(batch.Job).spec.parallelism:
            body["spec"]["parallelism"] = 1
            world.most[job.key.name] = max(world.most[job.key.name], 1)
        await world.store.write([Patch(batch.JOB, job.key, body)])
    for _ in range(60):
        await world.clock.sleep(700)  # longer than any wait for another try
        await world.bind_some()
        await world.finish_some(failing=0.0, share=1.0)
        await world.end_terminating()
        await world.clock.sleep(2)
        if all(map(_is_over, await world.jobs())):
            break
    for job in await world.jobs():
        check_counts(job, world.fates[job.key.name], is_steady=world.is_steady[job.key.name])
    assert not any(pod.meta.finalizers for pod in await world.pods())


def check_counts(job: Object, fates: dict[str, str], *, is_steady: bool) -> None:
    view = job.read(batch.Job)
    assert _is_over(job), job.document()["status"]
    status = view.status
    ends = Counter(fates.values())
    succeeded, failed = status.succeeded or 0, status.failed or 0
    assert not status.active
    assert not status.uncounted_terminated_pods or not any(
        (status.uncounted_terminated_pods.failed, status.uncounted_terminated_pods.succeeded)
    )
    if view.spec.completion_mode == "Indexed":
        assert succeeded == view.spec.completions
    else:
        assert ends["Succeeded"] <= succeeded <= ends["Succeeded"] + ends["either"], (ends, status)
        assert succeeded >= (view.spec.completions or 0)
    if is_steady:
        lost = ends["Failed"] + ends["deleted"]
        assert lost <= failed <= lost + ends["either"], (ends, status)
        assert view.spec.completion_mode == "Indexed" or succeeded + failed == len(fates), (ends, status)


@pytest.mark.parametrize("first", range(0, SEEDS, AT_ONCE))
def test_no_pod_too_many_and_none_counted_twice_or_never(first: int) -> None:
    seeded.live_through(range(first, first + AT_ONCE), lambda *given: live(History(*given)))
