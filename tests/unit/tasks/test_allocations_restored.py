"""The service over real controllers and simulated nodes: crashes of the server, of the controllers, of both."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.unit.tasks.service_worlds import ID, Life, World, alive
from tests.unit.tasks.task_worlds import World as Cluster
from tests.unit.tasks.task_worlds import a_cluster_queue, a_world

from muster.accounts.callers import UserId
from muster.api import core, muster
from muster.api.objects import Key
from muster.controllers.allocations import AllocationController
from muster.engines.pods import PodsEngine
from muster.engines.protocol import AllocationId, Failure
from muster.runtime.clock import VirtualClock, run_virtual
from muster.store.protocol import Change, Delete, Patch, Selection, write_one
from muster.tasks.allocation_states import Phase, Signal
from muster.tasks.contract import Launch
from muster.testing.builders import a_node
from muster.testing.engines import a_request
from muster.testing.staging import running
from muster.testing.virtual import on_virtual_time


@asynccontextmanager
async def a_server(world: World, cluster: Cluster) -> AsyncIterator[Life]:
    engine = PodsEngine(cluster.store, world.clock)
    async with running(engine.run, AllocationController(cluster.store, world.clock).run), alive(world, engine) as life:
        yield life


async def launch(life: Life, name: str = "t.1", **request: object) -> None:
    await life.service.start(Launch(a_request(name, **request), UserId(1)))


@on_virtual_time
async def test_a_server_that_crashes_finds_its_task_running_and_later_its_end(clock: VirtualClock) -> None:
    world = World(clock)
    await world.task("t")
    async with a_world(clock, with_allocations=False) as cluster:
        async with a_server(world, cluster) as life:
            await launch(life)
            await clock.sleep(3)
            assert life.state().phase is Phase.RUNNING
        uid = (await cluster.pods())["t.1-0"].metadata.uid
        await clock.sleep(100)
        async with a_server(world, cluster) as life:
            await clock.sleep(3)
            assert life.state().phase is Phase.RUNNING
            assert (await cluster.pods())["t.1-0"].metadata.uid == uid, "it is the same"
        await cluster.finish("t.1-0", code=4)
        await clock.sleep(100)
        async with a_server(world, cluster) as life:
            await clock.sleep(3)
            assert [exit.ended.exit_code for exit in world.exits] == [4]
            assert not await cluster.pods()
            assert not (await cluster.store.list(Selection(core.SECRET))).items
    assert len(world.exits) == 1


@on_virtual_time
async def test_what_somebody_deletes_is_over(clock: VirtualClock) -> None:
    world = World(clock)
    await world.task("t", "u")
    async with a_world(clock, with_allocations=False) as cluster, a_server(world, cluster) as life:
        await launch(life)
        await clock.sleep(3)
        await cluster.delete()
        await clock.sleep(5)
        assert [exit.ended.failure for exit in world.exits] == [Failure.RESOURCES_ABORTED]
        await launch(life, "u.1")
        await clock.sleep(3)
        await cluster.delete_pod("u.1-0")
        await clock.sleep(5)
        assert [exit.ended.failure for exit in world.exits] == [Failure.RESOURCES_ABORTED] * 2


@on_virtual_time
async def test_a_lost_node_is_told_as_such(clock: VirtualClock) -> None:
    world = World(clock)
    await world.task("t")
    async with a_world(clock, with_allocations=False) as cluster, a_server(world, cluster) as life:
        await launch(life)
        await clock.sleep(3)
        lost = {"type": "DisruptionTarget", "status": "True", "reason": "NodeLost", "message": "n1 is gone"}

        body = {"status": {"phase": "Failed", "reason": "NodeLost", "conditions": [lost]}}
        await write_one(cluster.store, Patch(core.POD, Key("default", "t.1-0"), body, subresource="status"))
        await clock.sleep(5)
        assert [exit.ended.failure for exit in world.exits] == [Failure.AGENT_FAILED]


@on_virtual_time
async def test_quota_takes_its_room_back_only_when_it_has_stopped(clock: VirtualClock) -> None:
    preempting = {"preemption": {"withinClusterQueue": "LowerPriority"}}
    world = World(clock)
    await world.task("low", "high")
    low, high = AllocationId("low.1"), AllocationId("high.1")
    async with a_world(clock, with_allocations=False) as cluster, a_server(world, cluster) as life:
        await cluster.make(*a_cluster_queue("small", 1, **preempting))
        await clock.sleep(1)
        await launch(life, low, slots=1, pool="small", is_preemptible=True, preemption_timeout_seconds=600)
        await clock.sleep(3)
        await life.harness.ready(low)
        await launch(life, high, slots=1, pool="small", priority=10)
        await clock.sleep(5)
        assert await life.harness.should_stop(low, 0)
        assert (life.state(low).phase, life.state(high).phase) == (Phase.TERMINATING, Phase.PENDING)
        await life.harness.acknowledge(low)
        await cluster.finish("low.1-0")
        await clock.sleep(5)
        assert world.exits[0].ended.is_preempted
        assert life.state(high).phase is Phase.RUNNING


@on_virtual_time
async def test_one_that_cannot_be_asked_is_not_preempted_by_quota(clock: VirtualClock) -> None:
    preempting = {"preemption": {"withinClusterQueue": "LowerPriority"}}
    world = World(clock)
    await world.task("low", "high")
    async with a_world(clock, with_allocations=False) as cluster, a_server(world, cluster) as life:
        await cluster.make(*a_cluster_queue("small", 1, **preempting))
        await clock.sleep(1)
        await launch(life, "low.1", slots=1, pool="small")
        await clock.sleep(3)
        await launch(life, "high.1", slots=1, pool="small", priority=10)
        await clock.sleep(30)
        assert life.state(AllocationId("low.1")).phase is Phase.RUNNING


@on_virtual_time
async def test_whoever_waits_is_told_what_for_in_its_log(clock: VirtualClock) -> None:
    world = World(clock)
    await world.task("first", "quota", "nodes")
    async with a_world(clock, a_node("n1").cpu(2), with_allocations=False) as cluster, a_server(world, cluster) as life:
        await cluster.make(*a_cluster_queue("small", 1))
        await clock.sleep(1)
        await launch(life, "first.1", slots=1, pool="small")
        await clock.sleep(5)
        await launch(life, "quota.1", slots=1, pool="small")
        await launch(life, "nodes.1", slots=2)
        await clock.sleep(300)
        told = {task: [text for name, _, text in world.lines.told if name == task] for task in ("quota", "nodes")}
        assert told["quota"] == [
            "waits: first in ClusterQueue small; 1 cpu of flavor plain missing at /small (held by small: 1)"
        ]
        assert told["nodes"] == ["waits: 0/1 nodes are available: 1 Insufficient cpu."]
        await life.service.signal(AllocationId("nodes.1"), Signal.KILL, "enough")
        await cluster.finish("first.1-0")
        await clock.sleep(300)
        assert life.state(AllocationId("quota.1")).phase is Phase.RUNNING
        assert len([text for _, _, text in world.lines.told if text.startswith("waits")]) == 2


@on_virtual_time
async def test_a_kill_ends_its_pods_and_everything_of_it(clock: VirtualClock) -> None:
    world = World(clock)
    await world.task("t")
    nodes = a_node("n1").cpu(2), a_node("n2").cpu(2)
    async with a_world(clock, *nodes, with_allocations=False) as cluster, a_server(world, cluster) as life:
        await launch(life, slots=4)
        await clock.sleep(5)
        assert len(life.state().parts) == 2
        await life.service.signal(ID, Signal.KILL, "enough")
        await clock.sleep(30)
        assert world.exits[0].ended.is_killed
        assert not (await cluster.store.list(Selection(muster.ALLOCATION))).items
        assert not await cluster.pods()


@pytest.mark.parametrize("seed", range(4))
def test_whatever_crashes_when_nothing_is_lost_and_nothing_doubled(seed: int) -> None:
    run_virtual(lambda clock: _history(clock, random.Random(seed)))


async def _history(clock: VirtualClock, chance: random.Random) -> None:
    world, names = World(clock), [f"task{number}" for number in range(8)]
    await world.task(*names)
    ids = [AllocationId(f"{name}.1") for name in names]
    births: dict[str, int] = {}
    async with a_world(clock, a_node("n1").cpu(3), a_node("n2").cpu(3), with_allocations=False) as cluster:
        watching = asyncio.create_task(_count_births(cluster, births))
        for round in range(6):
            async with a_server(world, cluster) as life:
                if round == 0:
                    await clock.sleep(0.5)
                    for id in ids:
                        await launch(life, id, slots=chance.choice([1, 1, 2, 4]))
                await clock.sleep(chance.choice([0.0, 0.01, 0.1, 1.0, 5.0]))
                await _something(cluster, life, ids, chance)
                await clock.sleep(chance.choice([0.0, 0.01, 0.1]))
            await _meanwhile(cluster, chance)
        async with a_server(world, cluster):
            for _ in range(200):
                if len(world.exits) == len(names):
                    break
                await clock.sleep(5)
                await cluster.nodes.finish(dict.fromkeys(cluster.nodes.running, 0))
            await clock.sleep(30)
        watching.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watching
        assert births
        assert sorted(exit.allocation for exit in world.exits) == sorted(ids)
        assert not (await cluster.store.list(Selection(muster.ALLOCATION))).items
        assert not await cluster.pods()
        assert world.sessions.open == {}


async def _something(cluster: Cluster, life: Life, ids: list[AllocationId], chance: random.Random) -> None:
    what, id = chance.choice(["kill", "finish", "nothing", "delete"]), chance.choice(ids)
    if what == "kill":
        await life.service.signal(id, Signal.KILL, "chance")
    await _meanwhile(cluster, chance, what)


async def _meanwhile(cluster: Cluster, chance: random.Random, what: str = "finish") -> None:
    keys = sorted(cluster.nodes.running)
    if not keys:
        return
    key = chance.choice(keys)
    if what == "finish":
        await cluster.nodes.finish({key: chance.choice([0, 1])})
    elif what == "delete":
        await write_one(cluster.store, Delete(core.POD, key))


async def _count_births(cluster: Cluster, births: dict[str, int]) -> None:
    """A pod that was placed is never made a second time."""
    placed: dict[str, str] = {}
    async for events in cluster.store.watch(Selection(core.POD)):
        for event in events:
            if event.object is None or event.change is Change.DELETED:
                continue
            pod = event.object.read(core.Pod)
            if pod.spec.node_name:
                first = placed.setdefault(pod.metadata.name, pod.metadata.uid)
                assert first == pod.metadata.uid, f"{pod.metadata.name} ran twice"
                births[pod.metadata.name] = births.get(pod.metadata.name, 0) + 1
