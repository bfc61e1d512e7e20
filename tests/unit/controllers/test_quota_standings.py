"""Who waits, read off the objects, is who waits for the engine, in the same order."""

import asyncio

from tests.unit.controllers.quota_worlds import World, a_local_queue, a_queue, a_workload, a_world

from muster.api import kueue
from muster.api.objects import Key
from muster.api.raw import Document
from muster.controllers.quota.standings import Standings
from muster.controllers.quota.visibility import Visibility
from muster.quota.settings import Settings
from muster.quota.workloads import QUEUED_SINCE
from muster.runtime.clock import VirtualClock
from muster.store.protocol import Delete, Patch, write_one
from muster.testing.virtual import on_virtual_time


async def with_a_line(world: World) -> None:
    """One that runs, and four that wait: by priority, and then as they came, or as somebody has said."""
    await world.make(a_queue(cpu="1"), a_local_queue(), a_local_queue("other"), a_workload("runs"))
    await world.clock.sleep(2)
    for name, queue, priority in (("a", "lq", 0), ("b", "other", 0), ("c", "lq", 7), ("d", "other", 0)):
        await world.make(a_workload(name, queue=queue, priority=priority))
        await world.clock.sleep(2)
    moved: Document = {"metadata": {"annotations": {QUEUED_SINCE: "1970-01-01T00:00:00Z"}}}
    await write_one(world.store, Patch(kueue.WORKLOAD, Key("default", "d"), moved))
    await world.clock.sleep(2)


@on_virtual_time
async def test_the_order_is_that_of_the_engine(clock: VirtualClock) -> None:
    async with a_world(clock) as world, asyncio.TaskGroup() as tasks:
        standings = Standings(world.store, clock, Settings())
        running = tasks.create_task(standings.run())
        await with_a_line(world)
        visibility = Visibility(world.quota, clock)
        decided = list(await visibility.in_cluster_queue("cq", 0, 100) or ())
        read = list(await standings.in_cluster_queue("cq", 0, 100) or ())
        assert [item["metadata"]["name"] for item in read] == ["c", "d", "a", "b"]
        assert read == decided
        assert list(await standings.in_cluster_queue("cq", 1, 2) or ()) == decided[1:3]
        running.cancel()


@on_virtual_time
async def test_who_is_gone_or_cannot_get_there_does_not_wait(clock: VirtualClock) -> None:
    async with a_world(clock) as world, asyncio.TaskGroup() as tasks:
        standings = Standings(world.store, clock, Settings())
        running = tasks.create_task(standings.run())
        await with_a_line(world)
        await write_one(world.store, Delete(kueue.WORKLOAD, Key("default", "a")))
        closed: Document = {"spec": {"stopPolicy": "Hold"}}
        await write_one(world.store, Patch(kueue.LOCAL_QUEUE, Key("default", "other"), closed))
        await world.clock.sleep(2)
        names = [item["metadata"]["name"] for item in await standings.in_cluster_queue("cq", 0, 100) or ()]
        assert names == ["c"]
        assert await standings.in_cluster_queue("nowhere", 0, 100) is None
        running.cancel()
