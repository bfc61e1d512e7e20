"""What the engine does in a cluster with a scheduler and Services of its own."""

from dataclasses import replace

from tests.unit.tasks.task_worlds import a_world

from muster.api import core, muster
from muster.api.objects import Key
from muster.engines.pod_documents import Customs, service_host, service_name
from muster.engines.pods import PodsEngine
from muster.engines.protocol import AllocationId, Request
from muster.runtime.clock import VirtualClock
from muster.store.protocol import Create, Selection, write_one
from muster.testing.builders import a_node
from muster.testing.staging import running
from muster.testing.virtual import on_virtual_time

THERE = Customs("muster", has_services=True)
TEMPLATE = {"spec": {"containers": [{"name": "main", "image": "x"}]}}


def a_request(*services: int) -> Request:
    return Request(
        allocation=AllocationId("3-task.1"), task="3-task", task_type="NOTEBOOK", template=TEMPLATE, services=services
    )


@on_virtual_time
async def test_pods_ask_our_scheduler_and_are_reached_by_a_service(clock: VirtualClock) -> None:
    async with a_world(clock, a_node("n1").cpu(4).memory("16Gi")) as world:
        engine = PodsEngine(world.store, clock, customs=THERE)
        async with running(engine.run):
            await engine.allocate(a_request(8080, 9000), {})
            made = await world.store.get(muster.ALLOCATION, Key("default", "3-task.1"))
            assert made.document()["spec"]["template"]["spec"]["schedulerName"] == "muster"
            (service,) = (await world.store.list(Selection(core.SERVICE))).items
            assert service.key == Key("default", "task-3-task-1")
            assert [port["port"] for port in service.document()["spec"]["ports"]] == [8080, 9000]
            assert [owner.uid for owner in service.meta.owner_references] == [made.uid]


@on_virtual_time
async def test_what_serves_nothing_has_no_service(clock: VirtualClock) -> None:
    async with a_world(clock, a_node("n1").cpu(4).memory("16Gi")) as world:
        engine = PodsEngine(world.store, clock, customs=THERE)
        async with running(engine.run):
            await engine.allocate(a_request(), {})
            assert (await world.store.list(Selection(core.SERVICE))).items == []


@on_virtual_time
async def test_what_a_crash_has_left_is_removed_by_its_label(clock: VirtualClock) -> None:
    async with a_world(clock, a_node("n1").cpu(4).memory("16Gi")) as world:
        ours = {"muster.dev/engine": "pods", "muster.dev/allocation": "lost.1"}
        for name, labels in (("task-lost-1", ours), ("somebodys", {})):
            metadata = {"name": name, "namespace": "default", "labels": labels}
            await write_one(
                world.store, Create(core.SERVICE, {"metadata": metadata, "spec": {"ports": [{"port": 80}]}})
            )
        await clock.sleep(120)
        async with running(PodsEngine(world.store, clock, customs=THERE).run):
            await clock.sleep(5)
            left = [found.key.name for found in (await world.store.list(Selection(core.SERVICE))).items]
        assert left == ["somebodys"]


@on_virtual_time
async def test_the_runs_of_another_server_are_not_ours_to_release(clock: VirtualClock) -> None:
    async with a_world(clock, a_node("n1").cpu(4).memory("16Gi")) as world:
        first = PodsEngine(world.store, clock, customs=replace(THERE, engine="pods.first"))
        second = PodsEngine(world.store, clock, customs=replace(THERE, engine="pods.second"))
        async with running(first.run), running(second.run):
            await first.allocate(a_request(8080), {"TOKEN": "hush"})
            await clock.sleep(120)
            assert await first.held() == ["3-task.1"]
            assert await second.held() == []
            (pod,) = (await world.store.list(Selection(core.POD))).items
            assert (pod.meta.labels or {})["muster.dev/engine"] == "pods.first"
        async with running(PodsEngine(world.store, clock, customs=replace(THERE, engine="pods.third")).run):
            await clock.sleep(5)
        for kind in (core.SECRET, core.SERVICE):
            assert len((await world.store.list(Selection(kind))).items) == 1


def test_a_service_has_a_name_that_dns_takes() -> None:
    assert service_name(a_request(80)) == "task-3-task-1"
    assert service_host(a_request(80), "10.0.0.7") == "task-3-task-1.default.svc"
    assert service_host(a_request(), "10.0.0.7") == "10.0.0.7"
