"""Volcano's queues and groups of bare pods on virtual time: real store, real controllers, real scheduler."""

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from tests.simulation.refusing import Refusing

from muster.api import batch, core, errors, volcano
from muster.api.objects import Key
from muster.api.raw import JSON, Document
from muster.api.volcano.taking_in import take_in
from muster.controllers.jobs.queues import QueueController
from muster.controllers.podgroups import PodGroupController
from muster.controllers.scheduling import SchedulingController
from muster.placement.engine import default_engine
from muster.runtime.clock import VirtualClock
from muster.store.embedded import EmbeddedStore
from muster.store.protocol import Create, Delete, Patch, Selection, write_one
from muster.testing.builders import a_node
from muster.testing.staging import running, stage
from muster.testing.virtual import on_virtual_time


@dataclass
class World:
    store: EmbeddedStore
    clock: VirtualClock
    commands: int = 0

    async def queue(self, name: str, **spec: JSON) -> None:
        await write_one(self.store, Create(volcano.QUEUE, {"metadata": {"name": name}, "spec": spec}))

    async def group(self, name: str, queue: str) -> None:
        document = {"metadata": {"name": name, "namespace": "default"}, "spec": {"minMember": 1, "queue": queue}}
        await write_one(self.store, Create(volcano.POD_GROUP, document))

    async def command(self, action: str, queue: str) -> None:
        self.commands += 1
        target = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "name": queue, "uid": "u"}
        metadata = {"name": f"command-{self.commands}", "namespace": "default"}
        await write_one(self.store, Create(volcano.COMMAND, {"metadata": metadata, "action": action, "target": target}))
        await self.clock.sleep(3)

    async def status(self, name: str) -> volcano.QueueStatus:
        return (await self.store.get(volcano.QUEUE, Key("", name))).read(volcano.Queue).status

    async def states(self, *names: str) -> list[str | None]:
        return [(await self.status(name)).state for name in names]

    async def reasons(self) -> set[str]:
        found = [event.read(core.Event) for event in (await self.store.list(Selection(core.EVENT))).items]
        return {event.reason or "" for event in found}


@asynccontextmanager
async def a_world(clock: VirtualClock) -> AsyncIterator[World]:
    async with EmbeddedStore.in_memory(clock=clock, entropy=random.Random(1), take_in=take_in) as store:
        scheduler = SchedulingController(store, clock, default_engine, uses_threads=False)
        parts = (QueueController(store, clock), PodGroupController(store, clock), scheduler)
        async with running(*(part.run for part in parts)):
            await clock.sleep(2)
            yield World(store, clock)


@on_virtual_time
async def test_queues_close_when_they_are_empty_and_take_those_below_with_them(clock: VirtualClock) -> None:
    async with a_world(clock) as world:
        assert await world.states("root", "default") == ["Open", "Open"]
        await world.queue("top")
        await world.queue("leaf", parent="top")
        await world.queue("shut", parent="top")
        await clock.sleep(2)
        found = await world.store.get(volcano.QUEUE, Key("", "top"))
        assert found.read(volcano.Queue).spec.parent == "root"
        await world.group("g", "leaf")
        await world.command("CloseQueue", "shut")
        assert await world.states("top", "leaf", "shut") == ["Open", "Open", "Closed"]
        await world.command("CloseQueue", "top")
        assert await world.states("top", "leaf", "shut") == ["Closed", "Closing", "Closed"]
        await world.command("OpenQueue", "leaf")
        assert (await world.states("leaf"), "FailedOpenQueue" in await world.reasons()) == (["Closing"], True)
        await write_one(world.store, Delete(volcano.POD_GROUP, Key("default", "g")))
        await clock.sleep(3)
        assert await world.states("leaf") == ["Closed"]
        await world.command("OpenQueue", "top")
        assert await world.states("top", "leaf", "shut") == ["Open", "Open", "Closed"]
        await world.command("CloseQueue", "root")
        assert await world.states("root") == ["Open"]
        await world.command("AbortJob", "top")
        await world.command("CloseQueue", "nobody")
        assert (await world.store.list(Selection(volcano.COMMAND))).items == []
        assert {"FailedCloseQueue", "UnknownAction", "CloseQueue", "OpenQueue"} <= await world.reasons()
        revision = world.store.revision
        await clock.sleep(600)
        assert world.store.revision == revision, "nothing is written when nothing happens"


@on_virtual_time
async def test_a_command_is_there_until_it_is_carried_out(clock: VirtualClock) -> None:
    async with EmbeddedStore.in_memory(clock=clock, entropy=random.Random(1), take_in=take_in) as store:
        refusing = Refusing(store, volcano.QUEUE)
        world = World(store, clock)
        async with running(QueueController(refusing, clock).run):
            await world.queue("q")
            await clock.sleep(2)
            refusing.left = 3
            await world.command("CloseQueue", "q")
        assert (refusing.left, await world.states("q")) == (0, ["Closed"])
        assert not (await store.list(Selection(volcano.COMMAND))).items


@on_virtual_time
async def test_a_user_may_write_the_state_instead_of_a_command(clock: VirtualClock) -> None:
    async with a_world(clock) as world:
        await world.queue("q")
        await clock.sleep(2)
        patch = Patch(volcano.QUEUE, Key("", "q"), {"status": {"state": "Closed"}}, subresource="status")
        await write_one(world.store, patch)
        await clock.sleep(2)
        assert await world.states("q") == ["Closed"]


def a_bare_pod(name: str, **metadata: JSON) -> Document:
    return {
        "metadata": {"name": name, "namespace": "default", **metadata},
        "spec": {
            "schedulerName": "volcano",
            "containers": [{"name": "main", "image": "host", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}],
        },
    }


@on_virtual_time
async def test_a_bare_pod_is_grouped_placed_and_counted_in_its_queue(clock: VirtualClock) -> None:
    async with a_world(clock) as world:
        await stage(world.store, a_node("n").cpu(8).memory("16Gi"))
        await world.queue("gold", parent="root")
        annotations = {"scheduling.volcano.sh/queue-name": "gold"}
        made = await write_one(world.store, Create(core.POD, a_bare_pod("p", annotations=annotations)))
        name = f"podgroup-{made.uid}"
        assert (made.meta.annotations or {})["scheduling.k8s.io/group-name"] == name
        await clock.sleep(5)
        group = await world.store.get(volcano.POD_GROUP, Key("default", name))
        assert group.read(volcano.PodGroup).spec.queue == "gold"
        pod = await world.store.get(core.POD, Key("default", "p"))
        assert pod.read(core.Pod).spec.node_name == "n"
        for queue in ("gold", "root"):
            assert (await world.status(queue)).allocated == {"cpu": "1", "memory": "1Gi", "pods": "1"}
        assert (await world.status("gold")).running == 1
        assert (await world.status("root")).running == 0
        await write_one(
            world.store,
            Patch(core.POD, Key("default", "p"), {"status": {"phase": "Succeeded"}}, subresource="status"),
        )
        await clock.sleep(3)
        assert (await world.status("root")).allocated == {}
        assert (await world.status("gold")).completed == 1


@on_virtual_time
async def test_pods_of_one_owner_wait_for_each_other(clock: VirtualClock) -> None:
    async with a_world(clock) as world:
        await stage(world.store, a_node("n").cpu(8).memory("16Gi"))
        template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "host"}]}}
        metadata = {
            "name": "j",
            "namespace": "default",
            "annotations": {"scheduling.volcano.sh/group-min-member": "2"},
        }
        job = await write_one(world.store, Create(batch.JOB, {"metadata": metadata, "spec": {"template": template}}))
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": job.uid, "controller": True}
        for name in ("one", "two"):
            await write_one(world.store, Create(core.POD, a_bare_pod(name, ownerReferences=[owner])))
            await clock.sleep(5)
            pods = [pod.read(core.Pod) for pod in (await world.store.list(Selection(core.POD))).items]
            assert all(bool(pod.spec.node_name) == (name == "two") for pod in pods)
        (group,) = (await world.store.list(Selection(volcano.POD_GROUP))).items
        assert group.read(volcano.PodGroup).spec.min_member == 2


@on_virtual_time
async def test_pods_that_were_there_before_are_grouped_as_well(clock: VirtualClock) -> None:
    async with EmbeddedStore.in_memory(clock=clock, entropy=random.Random(1)) as store:
        made = await write_one(store, Create(core.POD, a_bare_pod("p")))
        assert not made.meta.annotations
        async with running(PodGroupController(store, clock).run):
            await clock.sleep(2)
        pod = await store.get(core.POD, Key("default", "p"))
        name = (pod.meta.annotations or {})["scheduling.k8s.io/group-name"]
        try:
            await store.get(volcano.POD_GROUP, Key("default", name))
        except errors.NotFound:
            raise AssertionError("the group was not made") from None
