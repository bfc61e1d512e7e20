"""What stands for Volcano's queues in quota follows the queues and the nodes, and goes with them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from muster.api import core, errors, kueue, volcano
from muster.api.kinds import Kind
from muster.api.objects import Key, Object
from muster.api.raw import JSON, Document
from muster.controllers.quota.controller import QuotaController
from muster.controllers.quota.protection import ProtectionController
from muster.controllers.quota.statuses import StatusController
from muster.controllers.quota.volcano_queues import GATHER_SECONDS, VolcanoQuotaController
from muster.runtime.clock import VirtualClock
from muster.store.embedded import EmbeddedStore
from muster.store.protocol import Change, Create, Delete, Patch, Selection, write_one
from muster.testing.staging import running
from muster.testing.virtual import on_virtual_time

GPU = "nvidia.com/gpu"


@dataclass
class World:
    store: EmbeddedStore
    clock: VirtualClock

    async def make(self, kind: Kind, name: str, spec: Document, status: Document | None = None) -> None:
        metadata = {"name": name, **({"namespace": "default"} if kind.namespaced else {})}
        await write_one(self.store, Create(kind, {"metadata": metadata, "spec": spec}))
        if status is not None:
            await self.change(kind, name, {"status": status}, is_status=True)

    async def change(self, kind: Kind, name: str, body: Document, *, is_status: bool = False) -> None:
        key = Key("default" if kind.namespaced else "", name)
        await write_one(self.store, Patch(kind, key, body, subresource="status" if is_status else ""))

    async def queue(self, name: str, **spec: JSON) -> None:
        await self.make(volcano.QUEUE, name, {"parent": "root", **spec} if name != "root" else spec)

    async def node(self, name: str, gpus: int) -> None:
        await self.make(core.NODE, name, {}, {"allocatable": {GPU: str(gpus)}, "capacity": {GPU: str(gpus)}})

    async def get(self, kind: Kind, name: str, namespace: str = "") -> Object | None:
        try:
            return await self.store.get(kind, Key(namespace, name))
        except errors.NotFound:
            return None

    async def owned(self, name: str) -> str | None:
        found = await self.get(kueue.CLUSTER_QUEUE, name)
        assert found is not None
        groups = found.document()["spec"].get("resourceGroups") or []
        lines = [line for group in groups for line in group["flavors"][0]["resources"] if line["name"] == GPU]
        return lines[0]["nominalQuota"] if lines else None

    async def events(self) -> list[tuple[str, str, str]]:
        listed = (await self.store.list(Selection(core.EVENT))).items
        found = [event.read(core.Event) for event in listed]
        return [(event.involved_object.name or "", event.reason or "", event.message or "") for event in found]


@asynccontextmanager
async def a_world(clock: VirtualClock) -> AsyncIterator[World]:
    async with EmbeddedStore.in_memory(clock=clock) as store:
        world = World(store, clock)
        await world.queue("root")
        await world.queue("default")
        quota = QuotaController(store, clock)
        parts = (
            quota,
            StatusController(store, clock, quota),
            ProtectionController(store, clock),
            VolcanoQuotaController(store, clock),
        )
        async with running(*(part.run for part in parts)):
            await clock.sleep(1)
            yield world


@on_virtual_time
async def test_a_platform_without_set_up_lets_everything_in(clock: VirtualClock) -> None:
    async with a_world(clock) as world:
        queue = await world.get(kueue.CLUSTER_QUEUE, "volcano-default")
        assert queue is not None
        assert (queue.meta.annotations or {})["muster.dev/undeclared-resources"] == "free"
        assert await world.get(kueue.RESOURCE_FLAVOR, "volcano") is not None
        assert await world.get(kueue.COHORT, "volcano-root") is not None
        before = queue.revision
        await world.node("n", 8)
        await clock.sleep(2 * GATHER_SECONDS)
        after = await world.get(kueue.CLUSTER_QUEUE, "volcano-default")
        assert after is not None
        assert after.revision == before


@on_virtual_time
async def test_quota_follows_queues_and_nodes(clock: VirtualClock) -> None:
    async with a_world(clock) as world:
        await world.queue("gold", weight=3)
        await world.node("n1", 8)
        await clock.sleep(1)
        assert (await world.owned("volcano-gold"), await world.owned("volcano-default")) == ("6", "2")
        await world.change(volcano.QUEUE, "gold", {"spec": {"weight": 1}})
        await clock.sleep(1)
        assert await world.owned("volcano-gold") == "4"
        await world.node("n2", 8)
        await clock.sleep(GATHER_SECONDS + 1)
        assert await world.owned("volcano-gold") == "8"
        await write_one(world.store, Delete(core.NODE, Key("", "n1")))
        await clock.sleep(GATHER_SECONDS + 1)
        assert await world.owned("volcano-gold") == "4"


@on_virtual_time
async def test_nodes_that_come_together_are_shared_out_once(clock: VirtualClock) -> None:
    async with a_world(clock) as world:
        await world.queue("gold")
        await world.node("n0", 2)
        await clock.sleep(GATHER_SECONDS + 1)
        changes = 0
        page = await world.store.list(Selection(kueue.CLUSTER_QUEUE))
        for number in range(20):
            await world.node(f"m{number}", 2)
            await clock.sleep(GATHER_SECONDS / 40)
        await clock.sleep(2 * GATHER_SECONDS)
        async for events in world.store.watch(Selection(kueue.CLUSTER_QUEUE), since=page.revision, bookmarks=True):
            changes += sum(
                event.change is Change.MODIFIED and event.object is not None and event.object.key.name == "volcano-gold"
                for event in events
            )
            break
        assert await world.owned("volcano-gold") == "21"
        assert changes <= 2  # with its status


@on_virtual_time
async def test_what_stands_for_a_queue_goes_with_it_and_comes_back_when_deleted_by_hand(clock: VirtualClock) -> None:
    async with a_world(clock) as world:
        await world.queue("gold")
        group = {"minMember": 1, "queue": "gold"}
        await world.make(volcano.POD_GROUP, "group", group)
        await clock.sleep(2)
        door = await world.get(kueue.LOCAL_QUEUE, "volcano-gold", "default")
        assert door is not None
        assert door.document()["spec"]["clusterQueue"] == "volcano-gold"
        await write_one(world.store, Delete(kueue.LOCAL_QUEUE, door.key))
        await write_one(world.store, Delete(kueue.CLUSTER_QUEUE, Key("", "volcano-gold")))
        await clock.sleep(2)
        assert await world.get(kueue.LOCAL_QUEUE, "volcano-gold", "default") is not None
        assert await world.get(kueue.CLUSTER_QUEUE, "volcano-gold") is not None
        await write_one(world.store, Delete(volcano.QUEUE, Key("", "gold")))
        await clock.sleep(2)
        assert await world.get(kueue.LOCAL_QUEUE, "volcano-gold", "default") is None
        assert await world.get(kueue.CLUSTER_QUEUE, "volcano-gold") is None
        await world.queue("gold")
        await clock.sleep(2)
        assert await world.get(kueue.LOCAL_QUEUE, "volcano-gold", "default") is not None


@on_virtual_time
async def test_a_queue_that_gets_children_becomes_a_cohort(clock: VirtualClock) -> None:
    async with a_world(clock) as world:
        await world.queue("team")
        await clock.sleep(1)
        assert await world.get(kueue.CLUSTER_QUEUE, "volcano-team") is not None
        await world.queue("crew", parent="team")
        await clock.sleep(2)
        assert await world.get(kueue.CLUSTER_QUEUE, "volcano-team") is None
        cohort, queue = (
            await world.get(kueue.COHORT, "volcano-team"),
            await world.get(kueue.CLUSTER_QUEUE, "volcano-crew"),
        )
        assert cohort is not None
        assert cohort.document()["spec"]["parentName"] == "volcano-root"
        assert queue is not None
        assert queue.document()["spec"]["cohortName"] == "volcano-team"


@on_virtual_time
async def test_edits_by_hand_are_put_right(clock: VirtualClock) -> None:
    async with a_world(clock) as world:
        await world.queue("gold")
        await clock.sleep(1)
        body: Document = {"spec": {"stopPolicy": "Hold", "namespaceSelector": {"matchLabels": {"a": "b"}}}}
        await world.change(kueue.CLUSTER_QUEUE, "volcano-gold", body)
        await clock.sleep(1)
        found = await world.get(kueue.CLUSTER_QUEUE, "volcano-gold")
        assert found is not None
        assert (found.document()["spec"]["stopPolicy"], found.document()["spec"]["namespaceSelector"]) == ("None", {})


@on_virtual_time
async def test_a_missing_parent_is_told_on_both_and_others_go_on(clock: VirtualClock) -> None:
    async with a_world(clock) as world:
        await world.node("n", 8)
        await world.queue("team")
        await world.queue("crew", parent="team")
        await world.queue("gold")
        await clock.sleep(1)
        # A store that does not check, as on a cluster without our webhooks, lets a parent go before its children.
        await write_one(world.store, Delete(volcano.QUEUE, Key("", "team")))
        await clock.sleep(8)
        found = await world.get(kueue.CLUSTER_QUEUE, "volcano-crew")
        assert found is not None
        (active,) = (known for known in found.document()["status"]["conditions"] if known["type"] == "Active")
        problem = "its parent team does not exist"
        assert (active["status"], active["reason"]) == ("False", "Misconfigured")
        assert problem in active["message"]
        assert ("crew", "Misconfigured", f"nothing is admitted here: {problem}") in await world.events()
        assert await world.owned("volcano-gold") == "4"


@on_virtual_time
async def test_what_somebody_else_has_made_under_the_same_name_is_left_alone(clock: VirtualClock) -> None:
    async with a_world(clock) as world:
        await world.make(kueue.CLUSTER_QUEUE, "volcano-gold", {"namespaceSelector": {}})
        await world.queue("gold")
        await clock.sleep(2)
        found = await world.get(kueue.CLUSTER_QUEUE, "volcano-gold")
        assert found is not None
        assert "cohortName" not in found.document()["spec"]
        assert [reason for name, reason, _ in await world.events() if name == "gold"] == ["NotInQuota"]
        assert await world.get(kueue.CLUSTER_QUEUE, "volcano-default") is not None
