"""LimitRanges keep workloads out of quota, and let them in again."""

from tests.unit.controllers.quota_worlds import a_local_queue, a_queue, a_workload, a_world

from muster.api import core
from muster.api.objects import Key
from muster.runtime.clock import VirtualClock
from muster.store.protocol import Create, Delete, Patch, write_one
from muster.testing.virtual import on_virtual_time


def a_range(**item):
    return {"metadata": {"name": "bounds", "namespace": "default"}, "spec": {"limits": [{"type": "Pod", **item}]}}


@on_virtual_time
async def test_what_asks_for_more_than_its_namespace_allows_waits_until_it_may(clock: VirtualClock) -> None:
    async with a_world(clock) as world:
        await write_one(world.store, Create(core.LIMIT_RANGE, a_range(max={"cpu": "1"})))
        await world.make(a_queue(), a_local_queue(), a_workload(cpu="2"))
        await clock.sleep(5)
        assert not await world.is_admitted()
        assert "above the limitRange max" in await world.message("QuotaReserved")
        wider = {"spec": {"limits": [{"type": "Pod", "max": {"cpu": "3"}}]}}
        await write_one(world.store, Patch(core.LIMIT_RANGE, Key("default", "bounds"), wider))
        await clock.sleep(5)
        assert await world.is_admitted()


@on_virtual_time
async def test_without_its_range_a_namespace_has_no_bounds(clock: VirtualClock) -> None:
    async with a_world(clock) as world:
        await write_one(world.store, Create(core.LIMIT_RANGE, a_range(min={"cpu": "4"})))
        await world.make(a_queue(), a_local_queue(), a_workload(cpu="2"))
        await clock.sleep(5)
        assert not await world.is_admitted()
        await write_one(world.store, Delete(core.LIMIT_RANGE, Key("default", "bounds")))
        await clock.sleep(5)
        assert await world.is_admitted()
