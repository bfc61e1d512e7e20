"""Cron jobs on virtual time: hours of runs in a moment, with the real store and the real controller."""

import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from muster.api import core, errors, timestamps, volcano
from muster.api.objects import Key
from muster.api.raw import JSON, Document
from muster.controllers.jobs.cron import CronJobController
from muster.runtime.clock import VirtualClock
from muster.store.embedded import EmbeddedStore
from muster.store.protocol import Create, Patch, Selection, write_one
from muster.testing.staging import running
from muster.testing.virtual import on_virtual_time

KEY = Key("default", "c")


@dataclass
class World:
    store: EmbeddedStore
    clock: VirtualClock

    async def submit(self, **spec: JSON) -> None:
        template = {"spec": {"containers": [{"name": "main", "image": "host", "command": ["true"]}]}}
        job: Document = {"spec": {"tasks": [{"name": "t", "replicas": 1, "template": template}]}}
        document = {"metadata": {"name": "c", "namespace": "default"}, "spec": {"jobTemplate": job, **spec}}
        await write_one(self.store, Create(volcano.CRON_JOB, document))

    async def change(self, **spec: JSON) -> None:
        await write_one(self.store, Patch(volcano.CRON_JOB, KEY, {"spec": spec}))

    async def jobs(self) -> list[str]:
        return sorted(job.key.name for job in (await self.store.list(Selection(volcano.JOB))).items)

    async def end(self, name: str, phase: str = "Completed") -> None:
        state = {"phase": phase, "lastTransitionTime": timestamps.to_text(self.clock.now())}
        patch = Patch(volcano.JOB, Key("default", name), {"status": {"state": state}}, subresource="status")
        await write_one(self.store, patch)

    async def status(self) -> volcano.CronJobStatus:
        return (await self.store.get(volcano.CRON_JOB, KEY)).read(volcano.CronJob).status

    async def events(self) -> Counter[str]:
        found = [event.read(core.Event) for event in (await self.store.list(Selection(core.EVENT))).items]
        return Counter(event.reason or "" for event in found)


@asynccontextmanager
async def a_world(clock: VirtualClock) -> AsyncIterator[World]:
    async with (
        EmbeddedStore.in_memory(clock=clock, entropy=random.Random(1)) as store,
        running(CronJobController(store, clock).run),
    ):
        await clock.sleep(60 - clock.now() % 60 + 1)  # a second past a whole minute
        yield World(store, clock)


@on_virtual_time
async def test_a_job_a_time_and_only_so_many_are_kept(clock: VirtualClock) -> None:
    async with a_world(clock) as world:
        await world.submit(schedule="*/10 * * * *", successfulJobsHistoryLimit=2)
        made: set[str] = set()
        for _ in range(12):
            await clock.sleep(600)
            fresh = [name for name in await world.jobs() if name not in made]
            assert len(fresh) == 1, "one run each ten minutes"
            assert [reference.name for reference in (await world.status()).active] == fresh
            made.update(fresh)
            await world.end(fresh[0])
            await clock.sleep(1)
        assert await world.jobs() == sorted(made)[-2:]
        status = await world.status()
        assert status.active == ()
        assert status.last_successful_time is not None
        counted = await world.events()
        assert (counted["SuccessfulCreate"], counted["SuccessfulDelete"]) == (12, 10)
        assert clock.now() // 600 == int(sorted(made)[-1].removeprefix("c-")) * 60 // 600


@on_virtual_time
async def test_what_happens_when_the_last_one_still_runs(clock: VirtualClock) -> None:
    async with a_world(clock) as world:
        await world.submit(schedule="* * * * *", concurrencyPolicy="Forbid")
        await clock.sleep(185)
        assert len(await world.jobs()) == 1
        assert (await world.events())["JobAlreadyActive"] == 1
        await world.change(concurrencyPolicy="Replace")
        before = await world.jobs()
        await clock.sleep(60)
        after = await world.jobs()
        assert len(after) == 1
        assert after != before
        await world.change(concurrencyPolicy="Allow")
        await clock.sleep(120)
        assert len(await world.jobs()) == 3
        await world.change(suspend=True)
        await clock.sleep(300)
        assert len(await world.jobs()) == 3
        await world.change(suspend=False)
        await clock.sleep(5)
        assert len(await world.jobs()) == 4, "the last one that was missed is made up for"


@on_virtual_time
async def test_a_controller_that_was_away_makes_up_for_one_run(clock: VirtualClock) -> None:
    async with EmbeddedStore.in_memory(clock=clock, entropy=random.Random(1)) as store:
        world = World(store, clock)
        await world.submit(schedule="* * * * *")
        await clock.sleep(3 * 3600)
        async with running(CronJobController(store, clock).run):
            await clock.sleep(1)
            assert len(await world.jobs()) == 1
        assert (await world.events())["TooManyMissedTimes"] == 1
        # Made, but not noted: as if the answer had been lost.
        (name,) = await world.jobs()
        status = {"active": None, "lastScheduleTime": None}
        await write_one(store, Patch(volcano.CRON_JOB, KEY, {"status": status}, subresource="status"))
        async with running(CronJobController(store, clock).run):
            await clock.sleep(1)
        assert await world.jobs() == [name]
        assert [reference.name for reference in (await world.status()).active] == [name]


@on_virtual_time
async def test_a_run_whose_name_is_taken_is_told_and_the_next_one_comes(clock: VirtualClock) -> None:
    async with a_world(clock) as world:
        await world.submit(schedule="* * * * *")
        taken = f"c-{int(clock.now()) // 60 + 1}"
        template = {"spec": {"containers": [{"name": "main", "image": "host"}]}}
        job = {
            "metadata": {"name": taken, "namespace": "default"},
            "spec": {"tasks": [{"name": "x", "template": template}]},
        }
        await write_one(world.store, Create(volcano.JOB, job))
        await clock.sleep(90)
        assert (await world.events())["JobNameTaken"] == 1
        assert taken not in [reference.name for reference in (await world.status()).active]
        await clock.sleep(60)
        assert len(await world.jobs()) == 2
        try:
            await world.store.get(volcano.JOB, Key("default", f"c-{int(clock.now()) // 60}"))
        except errors.NotFound:
            raise AssertionError("the next run was not made") from None
