"""A busy cluster that small pods would keep busy for ever: does a gang that needs whole nodes get its turn?"""

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import TypeAlias

import pytest
from tests.unit.controllers.scheduler_worlds import World

from muster.api import core, volcano
from muster.api.objects import Key
from muster.runtime.clock import VirtualClock, run_virtual
from muster.store.embedded import EmbeddedStore
from muster.store.protocol import Delete, Selection
from muster.testing.builders import PodBuilder, a_node, a_pod, a_pod_group

NODES, GPUS = 4, 8
RESERVE_AFTER = 60.0
LONGEST_RUN = 120.0
BOUND = RESERVE_AFTER + LONGEST_RUN + 30.0
"""The gang is overtaken until nodes are held back for it; then what runs there comes to its end. Half a minute for the
rests between two tries."""


class Town(World):
    """There are always more small pods than fit, each of which runs for a while of its own."""

    def __init__(self, store: EmbeddedStore, clock: VirtualClock, seed: int, reserve_after: float | None) -> None:
        super().__init__(store, clock, reserve_after=reserve_after)
        self.chance = random.Random(seed)
        self.made = 0
        self.ends: dict[str, float] = {}

    async def live(self) -> None:
        while True:
            pods = [pod for pod in await self.pods() if pod.key.name.startswith("small")]
            waiting = [pod for pod in pods if not pod.read(core.Pod).spec.node_name]
            for pod in pods:
                if not pod.read(core.Pod).spec.node_name:
                    continue
                until = self.ends.setdefault(pod.uid, self.clock.monotonic() + self.chance.uniform(20, LONGEST_RUN))
                if self.clock.monotonic() >= until:
                    await self.store.inner.write([Delete(core.POD, pod.key, grace_seconds=0)])
            for _ in range(12 - len(waiting)):
                self.made += 1
                await self.stage(a_pod(f"small-{self.made}").gpus(self.chance.choice((1, 1, 2))))
            await self.clock.sleep(1)

    async def has_started(self, gang: str) -> bool:
        members = [node for name, node in (await self.nodes()).items() if name.startswith(f"{gang}-")]
        return bool(members) and all(members)

    async def wait_for(self, gang: str, most: float) -> float | None:
        """How long until the gang started; None where it did not in time."""
        since = self.clock.monotonic()
        while self.clock.monotonic() < since + most:
            if await self.has_started(gang):
                return self.clock.monotonic() - since
            await self.clock.sleep(1)
        return None

    async def submit(self, gang: str, *members: PodBuilder) -> None:
        await self.stage(a_pod_group(gang).min_member(len(members)), *(member.in_group(gang) for member in members))


Scenario: TypeAlias = Callable[[Town], Coroutine[None, None, None]]


def in_town(seed: int, reserve_after: float | None = RESERVE_AFTER) -> Callable[[Scenario], None]:
    """Runs the scenario in a town that has been busy for five minutes."""

    def decorate(scenario: Scenario) -> None:
        async def main(clock: VirtualClock) -> None:
            async with EmbeddedStore.in_memory(clock=clock) as store:
                town = Town(store, clock, seed, reserve_after)
                await town.stage(*(a_node(f"n{n}").gpus(GPUS) for n in range(NODES)))
                async with town.scheduling(), asyncio.TaskGroup() as tasks:
                    living = tasks.create_task(town.live())
                    await clock.sleep(300)
                    await scenario(town)
                    await town.check_capacity()
                    living.cancel()

        run_virtual(main)

    return decorate


@pytest.mark.parametrize("seed", range(3))
def test_a_gang_of_whole_nodes_starts_within_the_bound(seed: int) -> None:
    @in_town(seed)
    async def scenario(town: Town) -> None:
        await town.submit("big", *(a_pod(f"big-{n}").gpus(GPUS) for n in range(3)))
        took = await town.wait_for("big", BOUND)
        assert took is not None
        assert took > RESERVE_AFTER, "it would have started anyway: this proves nothing"


@pytest.mark.parametrize("seed", range(3))
def test_without_holding_nodes_back_it_is_overtaken_all_the_time(seed: int) -> None:
    @in_town(seed, reserve_after=None)
    async def scenario(town: Town) -> None:
        await town.submit("big", *(a_pod(f"big-{n}").gpus(GPUS) for n in range(3)))
        assert await town.wait_for("big", 2 * BOUND) is None


def test_small_pods_are_told_of_the_nodes_held_back_and_go_on_elsewhere() -> None:
    @in_town(7)
    async def scenario(town: Town) -> None:
        await town.submit("big", *(a_pod(f"big-{n}").gpus(GPUS) for n in range(2)))
        await town.clock.sleep(RESERVE_AFTER + 20)
        placed = town.made
        await town.clock.sleep(60)
        assert town.made > placed, "the other nodes are not held"
        waiting = [name for name, node in (await town.nodes()).items() if name.startswith("small") and not node]
        messages = [(await town.reason(name))[1] for name in waiting]
        assert any("held back for podgroup/default/big" in message for message in messages), messages


@pytest.mark.parametrize("seed", range(30, 33))
def test_a_pod_of_a_whole_node_starts_within_the_bound(seed: int) -> None:
    @in_town(seed)
    async def scenario(town: Town) -> None:
        await town.stage(a_pod("lone-0").gpus(GPUS))
        took = await town.wait_for("lone", BOUND)
        assert took is not None
        assert took > RESERVE_AFTER, "it would have started anyway: this proves nothing"
        await town.clock.sleep(2)
        assert len([node for node in (await town.nodes()).values() if node]) > NODES, "and the others go on"


def test_without_holding_a_node_back_a_large_pod_is_overtaken_all_the_time() -> None:
    @in_town(30, reserve_after=None)
    async def scenario(town: Town) -> None:
        await town.stage(a_pod("lone-0").gpus(GPUS))
        assert await town.wait_for("lone", 2 * BOUND) is None


def test_pods_are_told_of_the_node_held_back_for_a_large_one() -> None:
    @in_town(31)
    async def scenario(town: Town) -> None:
        await town.stage(a_pod("lone-0").gpus(GPUS))
        await town.clock.sleep(RESERVE_AFTER + 40)
        waiting = [name for name, node in (await town.nodes()).items() if name.startswith("small") and not node]
        messages = [(await town.reason(name))[1] for name in waiting]
        assert any("held back for pod/default/lone-0" in message for message in messages), messages


def test_large_pods_and_gangs_have_their_turn_one_after_another() -> None:
    @in_town(37)
    async def scenario(town: Town) -> None:
        await town.stage(a_pod("lone-0").gpus(GPUS))
        await town.submit("big", *(a_pod(f"big-{n}").gpus(GPUS) for n in range(3)))
        await town.stage(a_pod("last-0").gpus(GPUS), a_pod("huge-0").gpus(GPUS + 1))

        async def run(name: str) -> float | None:
            took = await town.wait_for(name, 3 * BOUND)
            for pod in [found for found in await town.nodes() if found.startswith(f"{name}-")]:
                await town.delete(pod)
            return took

        assert None not in await asyncio.gather(*map(run, ("lone", "big", "last")))
        assert not await town.has_started("huge")


def test_a_gang_of_unlike_pods_starts_within_the_bound() -> None:
    @in_town(11)
    async def scenario(town: Town) -> None:
        await town.submit("mix", a_pod("mix-a").gpus(GPUS), a_pod("mix-b").gpus(GPUS), a_pod("mix-c").gpus(6))
        assert await town.wait_for("mix", BOUND) is not None


def test_a_gang_larger_than_the_cluster_does_not_keep_others_from_their_turn() -> None:
    @in_town(13)
    async def scenario(town: Town) -> None:
        await town.submit("huge", *(a_pod(f"huge-{n}").gpus(GPUS) for n in range(NODES + 1)))
        await town.submit("big", *(a_pod(f"big-{n}").gpus(GPUS) for n in range(3)))
        assert await town.wait_for("big", BOUND) is not None
        assert not await town.has_started("huge")


def test_gangs_that_wait_have_their_turn_one_after_another() -> None:
    @in_town(17)
    async def scenario(town: Town) -> None:
        for gang in "abc":
            await town.submit(gang, *(a_pod(f"{gang}-{n}").gpus(GPUS) for n in range(3)))

        async def run(gang: str) -> float | None:
            took = await town.wait_for(gang, 3 * BOUND)
            for n in range(3):
                await town.delete(f"{gang}-{n}")
            return took

        took = await asyncio.gather(*map(run, "abc"))
        assert None not in took


@pytest.mark.parametrize("seed", range(20, 24))
def test_a_gang_that_must_be_in_one_rack_starts_within_the_bound(seed: int) -> None:
    @in_town(seed)
    async def scenario(town: Town) -> None:
        for n in range(2):
            exact = [{"type": "Node", "selector": {"exactMatch": {"name": f"n{n + 2 * m}"}}} for m in range(2)]
            await town.stage(
                {
                    "apiVersion": "topology.volcano.sh/v1alpha1",
                    "kind": "HyperNode",
                    "metadata": {"name": f"r{n}"},
                    "spec": {"tier": 1, "members": exact},
                }
            )
        group = a_pod_group("near").min_member(2)
        topology = {"mode": "hard", "highestTierAllowed": 1}
        await town.stage(group.set(topology, "spec", "networkTopology"))
        await town.stage(*(a_pod(f"near-{n}").gpus(GPUS).in_group("near") for n in range(2)))
        assert await town.wait_for("near", BOUND) is not None
        assert {node for name, node in (await town.nodes()).items() if name.startswith("near")} in (
            {"n0", "n2"},
            {"n1", "n3"},
        )


def test_what_was_turned_away_goes_on_when_the_gang_gives_up() -> None:
    @in_town(23)
    async def scenario(town: Town) -> None:
        await town.submit("big", *(a_pod(f"big-{n}").gpus(GPUS) for n in range(4)))
        await town.clock.sleep(RESERVE_AFTER + 60)
        for n in range(4):
            await town.delete(f"big-{n}")
        await town.store.inner.write([Delete(volcano.POD_GROUP, Key("default", "big"))])
        await town.clock.sleep(5)
        held = {f"n{n}": 0 for n in range(NODES)}
        for pod in (await town.store.inner.list(Selection(core.POD))).items:
            view = pod.read(core.Pod)
            if view.spec.node_name:
                held[view.spec.node_name] += core.pod_requests(view.spec)["nvidia.com/gpu"]
        assert min(held.values()) >= GPUS - 1, held
