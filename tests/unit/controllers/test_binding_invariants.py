"""A small cluster lives through arrivals, ends, closed nodes and restarts of the scheduler; and nothing breaks."""

import asyncio
import random
from collections import Counter

import pytest

from muster.api import core
from muster.api.objects import Key, Object
from muster.controllers.binding import BindingController
from muster.runtime.clock import VirtualClock, run_virtual
from muster.store.embedded import EmbeddedStore
from muster.store.protocol import Change, Delete, Patch, Selection
from muster.testing.builders import a_node, a_pod, a_pod_group
from muster.testing.staging import stage

GPUS = 4
FINISHED = ("Succeeded", "Failed")


class World:
    def __init__(self, store: EmbeddedStore, clock: VirtualClock, chance: random.Random) -> None:
        self.store, self.clock, self.chance = store, clock, chance
        self.gangs = 0
        self.minimum: dict[str, int] = {}
        self.started: set[str] = set()

    async def watch_gangs_start_whole(self) -> None:
        """A gang's first binds are seen together, and they are at least its minimum."""
        async for events in self.store.watch(Selection(core.POD)):
            bound = Counter(
                event.object.key.name.partition("-")[0]
                for event in events
                if event.object is not None and event.change is Change.MODIFIED and _has_node(event.object)
            )
            for gang, count in bound.items():
                assert gang in self.started or count >= self.minimum[gang], gang
            self.started |= set(bound)

    async def pods(self) -> list[Object]:
        return list((await self.store.list(Selection(core.POD))).items)

    async def submit(self) -> None:
        number, size = self.gangs, self.chance.randint(1, 5)
        self.gangs += 1
        minimum = self.chance.randint(1, size)
        self.minimum[f"g{number}"] = minimum
        gpus = self.chance.randint(1, GPUS)
        members = [a_pod(f"g{number}-{index}").gpus(gpus).in_group(f"g{number}") for index in range(size)]
        parts = [a_pod_group(f"g{number}").min_member(minimum), *members]
        self.chance.shuffle(parts)
        for part in parts:
            await stage(self.store, part)
            if self.chance.random() < 0.3:
                await self.clock.sleep(self.chance.random())

    async def finish_some(self) -> None:
        for pod in await self.pods():
            view = pod.read(core.Pod)
            if view.spec.node_name and view.status.phase not in FINISHED and self.chance.random() < 0.4:
                phase = {"status": {"phase": self.chance.choice(FINISHED)}}
                await self.store.write([Patch(core.POD, pod.key, phase, subresource="status")])

    async def delete_one(self) -> None:
        pods = await self.pods()
        if pods:
            await self.store.write([Delete(core.POD, self.chance.choice(pods).key, grace_seconds=0)])

    async def flip_node(self) -> None:
        key = Key("", f"n{self.chance.randrange(4)}")
        cordoned = self.chance.random() < 0.5
        await self.store.write([Patch(core.NODE, key, {"spec": {"unschedulable": cordoned or None}})])

    async def check(self) -> None:
        used: Counter[str] = Counter()
        for pod in await self.pods():
            view = pod.read(core.Pod)
            if view.spec.node_name and view.status.phase not in FINISHED:
                used[view.spec.node_name] += core.pod_requests(view.spec).get("nvidia.com/gpu", 0)
        assert all(count <= GPUS for count in used.values()), used


@pytest.mark.parametrize("seed", range(12))
def test_no_node_over_capacity_no_gang_in_part_and_none_forgotten(seed: int) -> None:
    async def main(clock: VirtualClock) -> None:
        chance = random.Random(seed)
        async with EmbeddedStore.in_memory(clock=clock) as store, asyncio.TaskGroup() as group:
            world = World(store, clock, chance)
            await stage(store, *(a_node(f"n{number}").gpus(GPUS) for number in range(4)))
            scheduler = group.create_task(BindingController(store, clock).run(), name="scheduler")
            watcher = group.create_task(world.watch_gangs_start_whole(), name="watcher")
            for _ in range(60):
                step = chance.choice([world.submit, world.submit, world.finish_some, world.delete_one, world.flip_node])
                await step()
                if chance.random() < 0.2:  # killed in the middle of whatever it does, and started again
                    scheduler.cancel()
                    for _ in range(chance.randrange(4)):
                        await asyncio.sleep(0)
                    scheduler = group.create_task(BindingController(store, clock).run(), name="scheduler")
                for _ in range(chance.randrange(20)):
                    await asyncio.sleep(0)
                await world.check()
                if chance.random() < 0.5:
                    await clock.sleep(chance.random() * 10)
            for number in range(4):
                await store.write([Patch(core.NODE, Key("", f"n{number}"), {"spec": {"unschedulable": None}})])
            for _ in range(200):
                await clock.sleep(5)
                await world.finish_some()
                await world.check()
            waiting = [pod for pod in await world.pods() if not _has_node(pod)]
            for pod in waiting:
                (condition,) = pod.read(core.Pod).status.conditions
                # Only gangs that lost members to `delete_one` may still wait, and gangs larger than the cluster.
                assert "needs" in (condition.message or "") or "of the" in (condition.message or ""), condition
            assert len(world.started) > 10
            scheduler.cancel()
            watcher.cancel()

    run_virtual(main)


def _has_node(pod: Object) -> bool:
    return bool(pod.read(core.Pod).spec.node_name)
