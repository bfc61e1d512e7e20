"""Lost nodes on virtual time: marked, tainted, their pods given up; and what must not count as lost."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from muster.api import conditions, coordination, core, timestamps
from muster.api.objects import Key
from muster.controllers.losses import NOT_READY, UNREACHABLE
from muster.controllers.nodes import NodeController
from muster.runtime.clock import VirtualClock
from muster.store.embedded import EmbeddedStore
from muster.store.protocol import Create, Delete, Patch, PatchType, Selection, Store, write_one
from muster.testing.builders import PodBuilder, a_node, a_pod
from muster.testing.staging import running, stage
from muster.testing.virtual import on_virtual_time


class FakeAgent:
    """Renews its lease and says that it is ready, as a node's agent does, while it is up."""

    def __init__(self, store: Store, clock: VirtualClock, name: str) -> None:
        self.store, self.clock, self.name = store, clock, name
        self.is_up = True

    async def run(self) -> None:
        metadata = {"namespace": "kube-node-lease", "name": self.name}
        await self.store.write([Create(coordination.LEASE, {"metadata": metadata, "spec": {}})])
        while True:
            if self.is_up:
                await self.renew()
            await self.clock.sleep(10)

    async def renew(self) -> None:
        node = (await self.store.get(core.NODE, Key("", self.name))).read(core.Node)
        if not conditions.is_true(node.status.conditions, "Ready"):
            await self.say("True")
        spec = {"renewTime": timestamps.to_micro_text(self.clock.now())}
        await write_one(self.store, Patch(coordination.LEASE, Key("kube-node-lease", self.name), {"spec": spec}))

    async def say(self, ready: str) -> None:
        condition = {"type": "Ready", "status": ready, "lastHeartbeatTime": timestamps.to_text(self.clock.now())}
        body = {"status": {"conditions": [condition]}}
        await write_one(
            self.store, Patch(core.NODE, Key("", self.name), body, PatchType.STRATEGIC, subresource="status")
        )


@asynccontextmanager
async def a_cluster(clock: VirtualClock, *pods: PodBuilder) -> AsyncIterator[tuple[EmbeddedStore, FakeAgent]]:
    """One node `n` with an agent, and the node controller."""
    async with EmbeddedStore.in_memory(clock=clock) as store:
        await stage(store, a_node("n"), *pods)
        agent = FakeAgent(store, clock, "n")
        async with running(NodeController(store, clock).run, agent.run):
            await clock.sleep(100)
            yield store, agent


async def read_node(store: Store) -> core.Node:
    return (await store.get(core.NODE, Key("", "n"))).read(core.Node)


async def read_pod(store: Store, name: str) -> core.Pod:
    return (await store.get(core.POD, Key("default", name))).read(core.Pod)


def runs(name: str) -> PodBuilder:
    statuses = [{"name": "main", "ready": True, "state": {"running": {"startedAt": "2023-11-14T22:13:20Z"}}}]
    ready = [{"type": "Ready", "status": "True"}]
    return (
        a_pod(name)
        .on_node("n")
        .phase("Running")
        .set(statuses, "status", "containerStatuses")
        .set(ready, "status", "conditions")
    )


def taints_of(node: core.Node) -> set[tuple[str, str]]:
    return {(taint.key, taint.effect) for taint in node.spec.taints}


LOST = {(UNREACHABLE, "NoExecute"), (UNREACHABLE, "NoSchedule")}


@on_virtual_time
async def test_a_node_that_renews_is_left_alone(clock: VirtualClock) -> None:
    async with a_cluster(clock, runs("p")) as (store, _):
        before = (await store.get(core.NODE, Key("", "n"))).revision
        await clock.sleep(3600)
        assert (await store.get(core.NODE, Key("", "n"))).revision == before
        assert (await read_pod(store, "p")).status.phase == "Running"


@on_virtual_time
async def test_a_silent_node_is_marked_then_its_pods_are_given_up(clock: VirtualClock) -> None:
    async with a_cluster(clock, runs("p")) as (store, agent):
        agent.is_up = False
        await clock.sleep(29)
        assert conditions.is_true((await read_node(store)).status.conditions, "Ready")
        await clock.sleep(13)
        node = await read_node(store)
        ready = conditions.find(node.status.conditions, "Ready")
        assert ready is not None
        assert (ready.status, ready.reason) == ("Unknown", "NodeStatusUnknown")
        assert taints_of(node) == LOST
        await clock.sleep(45)
        assert (await read_pod(store, "p")).status.phase == "Running"
        await clock.sleep(20)
        pod = await read_pod(store, "p")
        assert (pod.status.phase, pod.status.reason) == ("Failed", "NodeLost")
        assert 'node "n" has not been heard of since' in (pod.status.message or "")
        (container,) = pod.status.container_statuses
        assert container.state is not None
        assert container.state.terminated is not None
        assert (container.state.terminated.reason, container.state.terminated.exit_code) == ("NodeLost", 137)
        assert container.state.terminated.started_at == "2023-11-14T22:13:20Z"
        assert not container.ready
        assert conditions.is_false(pod.status.conditions, "Ready")
        assert conditions.is_true(pod.status.conditions, "DisruptionTarget")
        reasons = {event.read(core.Event).reason for event in (await store.list(Selection(core.EVENT))).items}
        assert reasons == {"NodeNotReady", "NodeLost"}


@on_virtual_time
async def test_a_node_that_comes_back_in_time_keeps_its_pods(clock: VirtualClock) -> None:
    async with a_cluster(clock, runs("p")) as (store, agent):
        agent.is_up = False
        await clock.sleep(60)
        assert taints_of(await read_node(store)) == LOST
        agent.is_up = True
        await clock.sleep(15)
        assert taints_of(await read_node(store)) == set()
        await clock.sleep(300)
        assert (await read_pod(store, "p")).status.phase == "Running"


@on_virtual_time
async def test_pods_stay_as_long_as_they_tolerate(clock: VirtualClock) -> None:
    pods = [
        runs("impatient").tolerating(UNREACHABLE, effect="NoExecute", seconds=5),
        runs("patient").tolerating(UNREACHABLE, effect="NoExecute", seconds=600),
        runs("faithful").tolerating(UNREACHABLE, effect="NoExecute"),
    ]
    async with a_cluster(clock, *pods) as (store, agent):
        agent.is_up = False
        await clock.sleep(55)
        assert (await read_pod(store, "impatient")).status.phase == "Failed"
        await clock.sleep(500)
        assert (await read_pod(store, "patient")).status.phase == "Running"
        await clock.sleep(200)
        assert (await read_pod(store, "patient")).status.phase == "Failed"
        await clock.sleep(86_400)
        assert (await read_pod(store, "faithful")).status.phase == "Running"


@on_virtual_time
async def test_other_taints_of_a_node_are_kept(clock: VirtualClock) -> None:
    async with a_cluster(clock) as (store, agent):
        await write_one(
            store,
            Patch(core.NODE, Key("", "n"), {"spec": {"taints": [{"key": "gpu", "effect": "NoSchedule", "own": "x"}]}}),
        )
        agent.is_up = False
        await clock.sleep(60)
        assert taints_of(await read_node(store)) == LOST | {("gpu", "NoSchedule")}
        agent.is_up = True
        await clock.sleep(15)
        assert (await store.get(core.NODE, Key("", "n"))).document()["spec"]["taints"][0]["own"] == "x"


@on_virtual_time
async def test_a_node_that_says_it_is_not_ready_is_tainted_as_such(clock: VirtualClock) -> None:
    async with a_cluster(clock) as (store, agent):
        agent.is_up = False
        await agent.say("False")
        await clock.sleep(1)
        assert taints_of(await read_node(store)) == {(NOT_READY, "NoExecute"), (NOT_READY, "NoSchedule")}
        await clock.sleep(60)
        assert taints_of(await read_node(store)) == LOST


@on_virtual_time
async def test_a_deleted_node_loses_its_pods_at_once(clock: VirtualClock) -> None:
    async with a_cluster(clock, runs("p"), runs("done").phase("Succeeded")) as (store, agent):
        agent.is_up = False
        await store.write([Delete(core.NODE, Key("", "n"))])
        # A pod's own event is what wakes the controller where the node went unnoticed; here the node's does.
        await clock.sleep(1)
        pod = await read_pod(store, "p")
        assert (pod.status.phase, pod.status.reason) == ("Failed", "NodeLost")
        assert pod.status.message == 'node "n" was deleted'
        assert (await read_pod(store, "done")).status.phase == "Succeeded"


@on_virtual_time
async def test_a_pod_on_a_node_that_never_was_is_lost(clock: VirtualClock) -> None:
    async with a_cluster(clock) as (store, _):
        await stage(store, a_pod("p").on_node("nowhere"))
        await clock.sleep(1)
        assert (await read_pod(store, "p")).status.reason == "NodeLost"


@on_virtual_time
async def test_a_pod_that_was_being_deleted_on_a_lost_node_is_gone(clock: VirtualClock) -> None:
    async with a_cluster(clock, runs("p")) as (store, agent):
        agent.is_up = False
        await store.write([Delete(core.POD, Key("default", "p"))])
        await clock.sleep(60)
        assert len((await store.list(Selection(core.POD))).items) == 1
        await clock.sleep(60)
        assert not (await store.list(Selection(core.POD))).items


@on_virtual_time
async def test_a_restarted_controller_first_listens(clock: VirtualClock) -> None:
    async with EmbeddedStore.in_memory(clock=clock) as store:
        await stage(store, a_node("n"), runs("p"))
        agent = FakeAgent(store, clock, "n")
        async with running(agent.run):
            async with running(NodeController(store, clock).run):
                await clock.sleep(100)
                agent.is_up = False
                await clock.sleep(60)
            assert taints_of(await read_node(store)) == LOST
            await clock.sleep(3600)  # nobody watches: the server is down, and so the agent cannot be heard
            async with running(NodeController(store, clock).run):
                await clock.sleep(20)
                agent.is_up = True
                await clock.sleep(300)
                assert (await read_pod(store, "p")).status.phase == "Running"
                assert taints_of(await read_node(store)) == set()


@on_virtual_time
async def test_a_wall_clock_that_jumps_makes_no_node_lost(clock: VirtualClock) -> None:
    async with a_cluster(clock, runs("p")) as (store, _):
        clock.jump(86_400)
        await clock.sleep(60)
        clock.jump(-172_800)
        await clock.sleep(60)
        assert taints_of(await read_node(store)) == set()
        await asyncio.sleep(0)
        assert (await read_pod(store, "p")).status.phase == "Running"
