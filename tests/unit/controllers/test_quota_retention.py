"""Workloads that are over go when their time has come, and jobs that quota gave up on."""

from tests.unit.controllers.quota_worlds import a_local_queue, a_queue, a_workload, a_world

from muster.api import batch, errors, kueue, timestamps
from muster.api.objects import Key
from muster.controllers.quota.retention import RetentionController
from muster.quota.settings import Retention, Settings
from muster.runtime.clock import VirtualClock
from muster.store.protocol import Create, write_one
from muster.testing.staging import running
from muster.testing.virtual import on_virtual_time


async def is_there(world, kind, name) -> bool:
    try:
        await world.get(kind, name)
    except errors.NotFound:
        return False
    return True


async def say(world, type: str, reason: str, workload: str) -> None:
    at = timestamps.to_text(world.clock.now())
    said = {"type": type, "status": "True", "reason": reason, "message": "", "lastTransitionTime": at}
    await world.change(kueue.WORKLOAD, workload, {"status": {"conditions": [said]}}, is_status=True)


@on_virtual_time
async def test_a_finished_workload_goes_when_its_time_is_over_and_others_stay(clock: VirtualClock) -> None:
    settings = Settings(retention=Retention(finished=100.0))
    async with a_world(clock, settings) as world:
        await world.make(a_queue(), a_local_queue(), a_workload("done"), a_workload("works"))
        await clock.sleep(2)
        await say(world, "Finished", "Succeeded", "done")
        async with running(RetentionController(world.store, clock, settings).run):
            await clock.sleep(97)
            assert await is_there(world, kueue.WORKLOAD, "done")
            await clock.sleep(5)
            assert not await is_there(world, kueue.WORKLOAD, "done")
            assert await is_there(world, kueue.WORKLOAD, "works")
            assert (await world.events())["Deleted"] == 1


@on_virtual_time
async def test_what_quota_gave_up_on_goes_with_its_job_and_what_its_user_switched_off_stays(
    clock: VirtualClock,
) -> None:
    settings = Settings(retention=Retention(deactivated=50.0))
    async with a_world(clock, settings) as world:
        await world.make(a_queue(), a_local_queue())
        for name, seconds in (("late", 5), ("paused", None)):
            container = {"name": "m", "image": "host"}
            job = {"metadata": {"name": name, "namespace": "default"},
                   "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}}}  # fmt: skip
            made = await write_one(world.store, Create(batch.JOB, job))
            owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": made.uid, "controller": True}
            workload = a_workload(name)
            workload["spec"] |= {"maximumExecutionTimeSeconds": seconds} if seconds else {}
            workload["metadata"]["ownerReferences"] = [owner]
            await world.make(workload)
        await clock.sleep(2)
        await world.change(kueue.WORKLOAD, "paused", {"spec": {"active": False}})
        async with running(RetentionController(world.store, clock, settings).run):
            await clock.sleep(30)
            assert (await world.conditions(name="late"))["Evicted"] == (
                "True",
                "DeactivatedDueToMaximumExecutionTimeExceeded",
            )
            assert await is_there(world, batch.JOB, "late")
            await clock.sleep(60)
            assert not await is_there(world, batch.JOB, "late")
            assert await is_there(world, batch.JOB, "paused")
            assert (await world.store.get(batch.JOB, Key("default", "paused"))).meta.deletion_timestamp is None
