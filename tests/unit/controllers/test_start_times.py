"""Suspended jobs of a cluster's own controller."""

import asyncio

from muster.api import batch
from muster.api.objects import Key
from muster.controllers.jobs.start_times import StartTimeController
from muster.runtime.clock import VirtualClock
from muster.store.embedded import EmbeddedStore
from muster.store.protocol import Create, Patch, write_one
from muster.testing.virtual import on_virtual_time

KEY = Key("default", "j")


@on_virtual_time
async def test_the_start_time_is_taken_back_once_the_jobs_controller_has_seen_the_suspension(
    clock: VirtualClock,
) -> None:
    async with EmbeddedStore.in_memory(clock=clock) as store, asyncio.TaskGroup() as tasks:
        template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "x"}]}}
        job = {"metadata": {"name": "j", "namespace": "default"}, "spec": {"suspend": True, "template": template}}
        await write_one(store, Create(batch.JOB, job))
        running = tasks.create_task(StartTimeController(store, clock).run())

        async def say(**status: object) -> None:
            await write_one(store, Patch(batch.JOB, KEY, {"status": status}, subresource="status"))
            await clock.sleep(1)

        async def started() -> bool:
            return (await store.get(batch.JOB, KEY)).read(batch.Job).status.start_time is not None

        await say(startTime="2026-01-01T00:00:00Z", active=2)
        assert await started()
        await say(active=0)
        assert await started(), "its controller may still make pods"
        await say(conditions=[{"type": "Suspended", "status": "True"}])
        assert not await started()
        running.cancel()
