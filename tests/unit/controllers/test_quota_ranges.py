"""LimitRanges keep workloads out of quota, and let them in again."""

from tests.unit.controllers.quota_worlds import a_local_queue, a_queue, a_workload, a_world

from muster.api import core, node
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


# What pods ask for besides what their template says


def a_silent_workload(name: str = "w", **spec):
    made = a_workload(name)
    [pods] = made["spec"]["podSets"]
    pods["template"]["spec"]["containers"][0].pop("resources")
    pods["template"]["spec"] |= spec
    return made


def defaults(cpu: str):
    return {"spec": {"limits": [{"type": "Container", "defaultRequest": {"cpu": cpu}}]}}


async def held(world, name: str = "w"):
    admission = (await world.status(name=name))["admission"]
    return admission["podSetAssignments"][0]["resourceUsage"]


@on_virtual_time
async def test_who_says_nothing_counts_for_what_its_namespace_gives(clock: VirtualClock) -> None:
    async with a_world(clock) as world:
        made = a_range()
        await write_one(world.store, Create(core.LIMIT_RANGE, {**made, **defaults("3")}))
        await world.make(a_queue(cpu="4"), a_local_queue(), a_silent_workload("first"), a_silent_workload("second"))
        await clock.sleep(5)
        assert await world.is_admitted("first")
        assert await held(world, "first") == {"cpu": "3"}
        assert not await world.is_admitted("second")
        assert (await world.status(name="second"))["resourceRequests"] == [{"name": "main", "resources": {"cpu": "3"}}]
        # What waits is counted anew, what was admitted keeps what it was given.
        await write_one(world.store, Patch(core.LIMIT_RANGE, Key("default", "bounds"), defaults("1")))
        await clock.sleep(5)
        assert await world.is_admitted("second")
        assert await held(world, "second") == {"cpu": "1"}
        assert await held(world, "first") == {"cpu": "3"}


@on_virtual_time
async def test_a_default_limit_is_a_bound_like_any_other(clock: VirtualClock) -> None:
    async with a_world(clock) as world:
        limits = [{"type": "Container", "default": {"cpu": "1"}, "defaultRequest": {"cpu": "1"}}]
        await write_one(world.store, Create(core.LIMIT_RANGE, {**a_range(), "spec": {"limits": limits}}))
        await world.make(a_queue(), a_local_queue(), a_workload(cpu="2"))
        await clock.sleep(5)
        assert "requests must not exceed its limits" in await world.message("QuotaReserved")


@on_virtual_time
async def test_what_a_runtime_class_costs_counts_while_the_workload_waits(clock: VirtualClock) -> None:
    async with a_world(clock) as world:
        kata = {"metadata": {"name": "kata"}, "handler": "kata", "overhead": {"podFixed": {"cpu": "4"}}}
        await write_one(world.store, Create(node.RUNTIME_CLASS, kata))
        heavy = a_silent_workload(runtimeClassName="kata", resources={"requests": {"cpu": "1"}})
        paid = a_silent_workload("paid", runtimeClassName="kata", overhead={"cpu": "1"})
        await world.make(a_queue(cpu="4"), a_local_queue(), heavy, paid)
        await clock.sleep(5)
        assert await held(world, "paid") == {"cpu": "1"}, "an overhead that is there already stays"
        assert (await world.conditions())["QuotaReserved"][1] == "ExceedsMaxQuota"
        lighter = {"overhead": {"podFixed": {"cpu": "500m"}}}
        await write_one(world.store, Patch(node.RUNTIME_CLASS, Key("", "kata"), lighter))
        await clock.sleep(5)
        assert await held(world) == {"cpu": "1500m"}
