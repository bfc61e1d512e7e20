"""Seeded random histories of a small cluster: nodes come and go, pods and gangs of all shapes arrive, finish and are
deleted, the scheduler is killed at any point and started again, the store refuses writes; and nothing breaks."""

import asyncio
import random
from collections import Counter
from collections.abc import Sequence

import pytest
from tests.simulation import seeded
from tests.unit.controllers.scheduler_worlds import GROUP, Spy, World

from muster.api import core, errors, volcano
from muster.api.objects import Key, Object
from muster.cluster.amounts import allocatable_of, needs_of
from muster.cluster.state import FINISHED
from muster.runtime.clock import VirtualClock
from muster.store.embedded import EmbeddedStore
from muster.store.protocol import Bind, Delete, Patch, Result, Selection, Write
from muster.testing.builders import NodeBuilder, PodBuilder, a_node, a_pod, a_pod_group

SEEDS, AT_ONCE, STEPS = 102, 6, 24
GPUS, CPUS, ZONES = 4, 8, 2
NODES = 5


class Moody(Spy):
    """Refuses some writes for a while, takes others but loses the answer, and makes its caller wait."""

    def __init__(self, inner: EmbeddedStore, chance: random.Random) -> None:
        super().__init__(inner)
        self.chance = chance
        self.mood = 0.0
        self.refuse = self._refuse

    def _refuse(self, write: Write) -> errors.ApiError | None:
        if self.chance.random() >= self.mood:
            return None
        if isinstance(write, Bind) and write.key.name.startswith("lone") and self.chance.random() < 0.3:
            return errors.Conflict("changed meanwhile")
        return errors.Unavailable("not now")

    async def write(self, writes: Sequence[Write]) -> Sequence[Result]:
        for _ in range(self.chance.randrange(3)):
            await asyncio.sleep(0)
        results = await super().write(writes)
        if self.chance.random() < self.mood / 4:
            raise OSError("connection reset")
        for _ in range(self.chance.randrange(3)):
            await asyncio.sleep(0)
        return results


class History(World):
    def __init__(self, store: EmbeddedStore, clock: VirtualClock, chance: random.Random) -> None:
        super().__init__(store, clock, reserve_after=chance.choice((None, 5.0, 60.0)))
        self.moody = self.store = Moody(store, chance)
        self.chance = chance
        self.made = 0
        self.minimum: dict[str, int] = {}
        self.hurt: set[str] = set()
        """Gangs that lost a member to something else than the scheduler's choice: they may be in part."""

    # What happens

    async def submit_pod(self) -> None:
        self.made += 1
        pod = self._shaped(a_pod(f"lone-{self.made}"))
        if self.chance.random() < 0.2:
            term = {
                "labelSelector": {"matchLabels": {"app": "shy"}},
                "topologyKey": "kubernetes.io/hostname",
            }
            rule = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
            pod = pod.label("app", "shy").set(rule, "spec", "affinity")
        if self.chance.random() < 0.1:
            pod = pod.gated("quota")
        await self.stage(pod)

    async def submit_gang(self) -> None:
        self.made += 1
        name, size = f"gang{self.made}", self.chance.randint(1, 5)
        minimum = self.minimum[name] = self.chance.randint(1, size)
        priority = self.chance.choice((0, 0, 0, 10))
        shape = self.chance.randrange(2**30)
        members = []
        for number in range(size):
            like = random.Random(shape if self.chance.random() < 0.8 else shape + number)
            members.append(self._shaped(a_pod(f"{name}-{number}").in_group(name), like, priority))
        parts = [a_pod_group(name).min_member(minimum), *members]
        self.chance.shuffle(parts)
        for part in parts:
            await self.stage(part)
            if self.chance.random() < 0.2:
                await self.clock.sleep(self.chance.random())

    def _shaped(self, pod: PodBuilder, like: random.Random | None = None, priority: int | None = None) -> PodBuilder:
        chance = like or self.chance
        if chance.random() < 0.5:
            pod = pod.gpus(chance.randint(1, GPUS))
        if chance.random() < 0.3:
            pod = pod.node_selector("zone", str(chance.randrange(ZONES)))
        pod = pod.cpu(chance.choice(("500m", 1, 2, 4)))
        chosen = chance.choice((0, 0, 0, 10)) if priority is None else priority
        return pod.set(chosen, "spec", "priority")

    async def finish_some(self, share: float = 0.3) -> None:
        for pod in await self.pods():
            view = pod.read(core.Pod)
            if view.spec.node_name and view.status.phase not in FINISHED and self.chance.random() < share:
                self._hurt(pod)
                phase = {"status": {"phase": self.chance.choice(FINISHED)}}
                await self.store.inner.write([Patch(core.POD, pod.key, phase, subresource="status")])

    async def delete_one(self) -> None:
        pods = await self.pods()
        if pods:
            pod = self.chance.choice(pods)
            self._hurt(pod)
            grace = self.chance.choice((0, None))
            await self.store.inner.write([Delete(core.POD, pod.key, grace_seconds=grace)])

    async def end_some(self) -> None:
        """Agents end what is being deleted."""
        for pod in await self.pods():
            if pod.is_terminating and self.chance.random() < 0.6:
                self._hurt(pod)
                await self.store.inner.write([Delete(core.POD, pod.key, grace_seconds=0)])

    async def open_gates(self) -> None:
        for pod in await self.pods():
            if pod.read(core.Pod).spec.scheduling_gates:
                await self.store.inner.write([Patch(core.POD, pod.key, {"spec": {"schedulingGates": None}})])

    async def flip_node(self) -> None:
        key = Key("", f"n{self.chance.randrange(NODES)}")
        body = self.chance.choice(
            (
                {"spec": {"unschedulable": True}},
                {"spec": {"unschedulable": None}},
                {"spec": {"taints": [{"key": "sick", "effect": "NoSchedule"}]}},
                {"spec": {"taints": None}},
                {"metadata": {"labels": {"zone": str(self.chance.randrange(ZONES))}}},
            )
        )
        await self.store.inner.write([Patch(core.NODE, key, body)])

    async def lose_node(self) -> None:
        """It comes back, with or without the pods it had."""
        name = f"n{self.chance.randrange(NODES)}"
        await self.store.inner.write([Delete(core.NODE, Key("", name))])
        await self.clock.sleep(self.chance.choice((0, 0, 1)))
        if self.chance.random() < 0.5:
            await self.clear(name)
        await self.add_nodes()

    async def clear(self, node: str) -> None:
        for pod in await self.pods():
            if pod.read(core.Pod).spec.node_name == node:
                self._hurt(pod)
                await self.store.inner.write([Delete(core.POD, pod.key, grace_seconds=0)])

    async def add_nodes(self) -> None:
        there = {node.key.name for node in (await self.store.inner.list(Selection(core.NODE))).items}
        await self.stage(*(node for node in self._nodes() if node.key.name not in there))

    def _nodes(self) -> list[NodeBuilder]:
        return [
            a_node(f"n{n}").gpus(GPUS).cpu(CPUS).label("zone", str(n % ZONES)).label("kubernetes.io/hostname", f"n{n}")
            for n in range(NODES)
        ]

    async def change_mood(self) -> None:
        self.moody.mood = self.chance.choice((0.0, 0.0, 0.3, 1.0))

    def _hurt(self, pod: Object) -> None:
        self.hurt.add((pod.meta.annotations or {}).get(GROUP, ""))

    # What must hold

    async def check_gangs(self) -> None:
        """At rest, no gang is in part by the scheduler's doing."""
        bound = Counter(
            (pod.meta.annotations or {}).get(GROUP, "")
            for pod in await self.pods()
            if pod.read(core.Pod).spec.node_name
        )
        for gang, count in bound.items():
            assert not gang or gang in self.hurt or count >= self.minimum[gang], (gang, count)

    async def check_nobody_waits_in_vain(self) -> None:
        """At rest, where nothing is held back: a lone pod that waits fits no node, counted afresh and simply."""
        pods = [pod.read(core.Pod) for pod in await self.pods()]
        nodes = [node.read(core.Node) for node in (await self.store.inner.list(Selection(core.NODE))).items]
        for pod in pods:
            name = pod.metadata.name
            if pod.spec.node_name or pod.spec.scheduling_gates or not name.startswith("lone"):
                continue
            for node in nodes:
                assert not self._fits(pod, node, pods), (name, node.metadata.name)

    def _fits(self, pod: core.Pod, node: core.Node, pods: Sequence[core.Pod]) -> bool:
        there = [
            other for other in pods
            if other.spec.node_name == node.metadata.name and other.status.phase not in FINISHED
        ]  # fmt: skip
        if node.spec.unschedulable or node.spec.taints:
            return False
        if any((node.metadata.labels or {}).get(k) != v for k, v in (pod.spec.node_selector or {}).items()):
            return False
        is_shy = (pod.metadata.labels or {}).get("app") == "shy"
        if is_shy and any((other.metadata.labels or {}).get("app") == "shy" for other in there):
            return False
        has = allocatable_of(node)
        wanted = Counter(needs_of(pod.spec))
        for other in there:
            wanted.update(needs_of(other.spec))
        return all(has.get(resource, 0) >= amount for resource, amount in wanted.items())

    async def settle(self) -> None:
        for _ in range(8):
            await self.end_terminating_and_note()
            await self.rest()
            if not any(pod.is_terminating for pod in await self.pods()):
                return
        raise AssertionError("it never comes to rest")

    async def end_terminating_and_note(self) -> None:
        for pod in await self.pods():
            if pod.is_terminating:
                self._hurt(pod)
        await self.end_terminating()


async def live(world: History) -> None:
    chance, clock = world.chance, world.clock
    steps = [
        world.submit_pod, world.submit_pod, world.submit_gang, world.submit_gang, world.finish_some, world.delete_one,
        world.end_some, world.open_gates, world.flip_node, world.lose_node, world.change_mood,
    ]  # fmt: skip
    await world.add_nodes()
    async with asyncio.TaskGroup() as tasks:
        scheduler = tasks.create_task(world.controller().run())
        for _ in range(STEPS):
            await chance.choice(steps)()
            if chance.random() < 0.15:  # killed in the middle of whatever it does, and started again
                scheduler.cancel()
                for _ in range(chance.randrange(4)):
                    await asyncio.sleep(0)
                scheduler = tasks.create_task(world.controller().run())
            for _ in range(chance.randrange(12)):
                await asyncio.sleep(0)
            await world.check_capacity()
            if chance.random() < 0.5:
                await clock.sleep(chance.random() * 10)
                await world.check_capacity()
        await come_to_rest(world)
        scheduler.cancel()


async def come_to_rest(world: History) -> None:
    """Everything is well again, and stays so: what can be placed must be, round after round as others finish."""
    world.moody.mood = 0.0
    await world.open_gates()
    for node in range(NODES):
        await world.patch_node(f"n{node}", {"spec": {"unschedulable": None, "taints": None}})
    for _ in range(40):
        await world.settle()
        await world.check_capacity()
        await world.check_engine()
        await world.check_gangs()
        if world.reserve_after is None:
            await world.check_nobody_waits_in_vain()
        waiting = [pod for pod in await world.pods() if not pod.read(core.Pod).spec.node_name]
        if not waiting:
            return
        await world.finish_some(1.0)
    groups = {group.key.name: group for group in (await world.store.inner.list(Selection(volcano.POD_GROUP))).items}
    for pod in waiting:
        gang = (pod.meta.annotations or {}).get(GROUP, "")
        members = sum((other.meta.annotations or {}).get(GROUP) == gang for other in waiting)
        message = (await world.reason(pod.key.name))[1]
        is_short = gang in groups and members < world.minimum[gang]
        assert is_short or "of the" in message or "lone" in pod.key.name, (pod.key.name, message)
        if "lone" in pod.key.name:
            view = pod.read(core.Pod)
            nodes = [node.read(core.Node) for node in (await world.store.inner.list(Selection(core.NODE))).items]
            assert not any(world._fits(view, node, ()) for node in nodes), pod.key.name


@pytest.mark.parametrize("first", range(0, SEEDS, AT_ONCE))
def test_whatever_happens_the_invariants_hold(first: int) -> None:
    seeded.live_through(range(first, first + AT_ONCE), lambda *given: live(History(*given)))
