"""The binding controller over a store in memory, on virtual time."""

import asyncio
from collections.abc import Sequence

from muster.api import conditions, core, errors
from muster.api.objects import Key, Object
from muster.cluster import ClusterArrays
from muster.controllers.binding import BindingController
from muster.placement import Gang, Verdict, place
from muster.runtime.clock import VirtualClock
from muster.store.embedded import EmbeddedStore
from muster.store.protocol import Bind, Delete, Patch, Refused, Result, Selection, Store, Write, write_one
from muster.testing.builders import a_node, a_pod, a_pod_group
from muster.testing.staging import running, stage
from muster.testing.virtual import on_virtual_time


async def nodes_of(store: Store) -> dict[str, str]:
    pods = (await store.list(Selection(core.POD))).items
    return {pod.key.name: pod.read(core.Pod).spec.node_name or "" for pod in pods}


async def read_pod(store: Store, name: str) -> core.Pod:
    return (await store.get(core.POD, Key("default", name))).read(core.Pod)


async def events_of(store: Store, name: str) -> dict[str, core.Event]:
    found = [item.read(core.Event) for item in (await store.list(Selection(core.EVENT))).items]
    return {event.reason or "": event for event in found if event.involved_object.name == name}


async def finish(store: Store, name: str) -> None:
    await write_one(
        store, Patch(core.POD, Key("default", name), {"status": {"phase": "Succeeded"}}, subresource="status")
    )


@on_virtual_time
async def test_a_lone_pod_is_bound_without_any_pause(clock: VirtualClock) -> None:
    async with EmbeddedStore.in_memory(clock=clock) as store:
        await stage(store, a_node("n").cpu(4))
        async with running(BindingController(store, clock).run):
            await clock.sleep(10)
            await stage(store, a_pod("p").cpu(1))
            created = clock.monotonic()
            while not (await nodes_of(store))["p"]:
                await asyncio.sleep(0)
            assert clock.monotonic() - created < 0.001
            await clock.sleep(1)
            assert conditions.is_true((await read_pod(store, "p")).status.conditions, "PodScheduled")
            assert (await events_of(store, "p"))["Scheduled"].message == "Successfully assigned default/p to n"


@on_virtual_time
async def test_a_gang_is_bound_whole_or_not_at_all(clock: VirtualClock) -> None:
    async with EmbeddedStore.in_memory(clock=clock) as store:
        await stage(store, a_node("n1").gpus(8), a_node("n2").gpus(8), a_pod_group("g").min_member(3))
        async with running(BindingController(store, clock).run):
            await stage(store, *(a_pod(f"p{n}").gpus(8).in_group("g") for n in range(3)))
            await clock.sleep(5)
            assert set((await nodes_of(store)).values()) == {""}
            condition = conditions.find((await read_pod(store, "p0")).status.conditions, "PodScheduled")
            assert condition is not None
            assert (condition.status, condition.reason) == ("False", "Unschedulable")
            assert condition.message == (
                "2 of the 3 pods that must start together can be placed: "
                "0/2 nodes are available: 2 Insufficient nvidia.com/gpu."
            )
            await stage(store, a_node("n3").gpus(8))
            await clock.sleep(0.01)
            assert set((await nodes_of(store)).values()) == {"n1", "n2", "n3"}


@on_virtual_time
async def test_a_gang_waits_for_its_pods_and_says_so_after_a_moment(clock: VirtualClock) -> None:
    async with EmbeddedStore.in_memory(clock=clock) as store:
        await stage(store, a_node("n").cpu(8))
        async with running(BindingController(store, clock).run):
            await stage(store, a_pod("a").in_group("g"))
            await clock.sleep(0.5)
            assert not (await read_pod(store, "a")).status.conditions
            await clock.sleep(1)
            condition = conditions.find((await read_pod(store, "a")).status.conditions, "PodScheduled")
            assert condition is not None
            assert condition.message == 'pod group "g" does not exist'
            await stage(store, a_pod_group("g").min_member(2))
            await clock.sleep(10)
            condition = conditions.find((await read_pod(store, "a")).status.conditions, "PodScheduled")
            assert condition is not None
            assert condition.message == 'pod group "g" needs 2 pods to start, 1 of them are there'
            await stage(store, a_pod("b").in_group("g"))
            await clock.sleep(0.01)
            assert await nodes_of(store) == {"a": "n", "b": "n"}


@on_virtual_time
async def test_what_frees_capacity_wakes_those_that_wait(clock: VirtualClock) -> None:
    async with EmbeddedStore.in_memory(clock=clock) as store:
        await stage(store, a_node("n").cpu(2))
        async with running(BindingController(store, clock).run):
            await stage(store, a_pod("first").cpu(2))
            await stage(store, a_pod("second").cpu(2), a_pod("third").cpu(2))
            await clock.sleep(60)
            assert await nodes_of(store) == {"first": "n", "second": "", "third": ""}
            await finish(store, "first")
            await clock.sleep(0.01)
            assert await nodes_of(store) == {"first": "n", "second": "n", "third": ""}
            await store.write([Delete(core.POD, Key("default", "second"), grace_seconds=0)])
            await clock.sleep(0.01)
            assert await nodes_of(store) == {"first": "n", "third": "n"}


@on_virtual_time
async def test_cordoned_and_gated_until_released(clock: VirtualClock) -> None:
    async with EmbeddedStore.in_memory(clock=clock) as store:
        await stage(store, a_node("n").cpu(2).cordoned())
        async with running(BindingController(store, clock).run):
            await stage(store, a_pod("p").cpu(1), a_pod("gated").cpu(1).gated("quota"))
            await clock.sleep(5)
            assert set((await nodes_of(store)).values()) == {""}
            await write_one(store, Patch(core.NODE, Key("", "n"), {"spec": {"unschedulable": None}}))
            await clock.sleep(0.01)
            assert await nodes_of(store) == {"p": "n", "gated": ""}
            await write_one(store, Patch(core.POD, Key("default", "gated"), {"spec": {"schedulingGates": []}}))
            await clock.sleep(0.01)
            assert await nodes_of(store) == {"p": "n", "gated": "n"}


class Spy:
    """Counts writes, and refuses chosen binds the first time."""

    def __init__(self, inner: EmbeddedStore, refuse: Sequence[str] = ()) -> None:
        self.inner = inner
        self.refuse = list(refuse)
        self.batches: list[Sequence[Write]] = []
        self.is_away = False

    async def write(self, writes: Sequence[Write]) -> Sequence[Result]:
        if self.is_away:
            raise errors.Unavailable("away")
        self.batches.append(writes)
        results: list[Result] = []
        for write in writes:
            if isinstance(write, Bind) and write.key.name in self.refuse:
                self.refuse.remove(write.key.name)
                results.append(Refused(errors.Conflict("changed meanwhile")))
            else:
                results += await self.inner.write([write])
        return results

    def __getattr__(self, name: str) -> object:
        return getattr(self.inner, name)


@on_virtual_time
async def test_an_idle_scheduler_writes_nothing_and_tells_a_thing_once(clock: VirtualClock) -> None:
    async with EmbeddedStore.in_memory(clock=clock) as inner:
        store = Spy(inner)
        passes: list[int] = []

        def counting(gangs: Sequence[Gang], cluster: ClusterArrays) -> Sequence[Verdict]:
            passes.append(len(gangs))
            return place(gangs, cluster)

        await stage(inner, a_node("n").cpu(1), a_pod("p").cpu(2))
        async with running(BindingController(store, clock, counting).run):  # type: ignore[arg-type]
            await clock.sleep(10)
            count = len(store.batches)
            for heartbeat in range(20):
                ready = [{"type": "Ready", "status": "True", "lastHeartbeatTime": f"2026-01-01T00:00:{heartbeat:02}Z"}]
                await inner.write(
                    [Patch(core.NODE, Key("", "n"), {"status": {"conditions": ready}}, subresource="status")]
                )
                await clock.sleep(60)
            assert len(store.batches) == count
            assert passes == [1], "heartbeats of nodes and our own notes help nobody"
            assert (await events_of(inner, "p"))["FailedScheduling"].count == 1
        async with running(BindingController(store, clock).run):  # type: ignore[arg-type]
            await clock.sleep(60)
            assert len(store.batches) == count, "a restart has nothing new to tell"


@on_virtual_time
async def test_a_refused_bind_is_forgotten_and_tried_again(clock: VirtualClock) -> None:
    async with EmbeddedStore.in_memory(clock=clock) as inner:
        store = Spy(inner, refuse=["p"])
        await stage(inner, a_node("n").cpu(1))
        async with running(BindingController(store, clock).run):  # type: ignore[arg-type]
            await stage(inner, a_pod("p").cpu(1))
            await clock.sleep(1)
            assert await nodes_of(inner) == {"p": "n"}
            await store.write([Delete(core.POD, Key("default", "p"), grace_seconds=0)])
            await stage(inner, a_pod("q").cpu(1))
            await clock.sleep(1)
            assert await nodes_of(inner) == {"q": "n"}


@on_virtual_time
async def test_it_goes_on_after_the_store_was_away(clock: VirtualClock) -> None:
    async with EmbeddedStore.in_memory(clock=clock) as inner:
        store = Spy(inner)
        await stage(inner, a_node("n").cpu(1))
        async with running(BindingController(store, clock).run):  # type: ignore[arg-type]
            await clock.sleep(1)
            store.is_away = True
            await stage(inner, a_pod("p").cpu(1))
            await clock.sleep(60)
            assert await nodes_of(inner) == {"p": ""}
            store.is_away = False
            await clock.sleep(11)
            assert await nodes_of(inner) == {"p": "n"}


@on_virtual_time
async def test_many_pods_are_bound_in_few_writes_and_never_over_capacity(clock: VirtualClock) -> None:
    async with EmbeddedStore.in_memory(clock=clock) as inner:
        store = Spy(inner)
        await stage(inner, *(a_node(f"n{n}").cpu(64) for n in range(10)))
        await stage(inner, *(a_pod(f"p{n:03}").cpu(1) for n in range(700)))
        async with running(BindingController(store, clock).run):  # type: ignore[arg-type]
            await clock.sleep(2)
            nodes = list((await nodes_of(inner)).values())
            assert {name: nodes.count(name) for name in set(nodes)} == {
                "": 60, **{f"n{n}": 64 for n in range(10)}
            }  # fmt: skip
            assert sum(any(isinstance(write, Bind) for write in batch) for batch in store.batches) == 2


@on_virtual_time
async def test_a_restarted_scheduler_counts_what_is_bound_already(clock: VirtualClock) -> None:
    async with EmbeddedStore.in_memory(clock=clock) as store:
        await stage(store, a_node("n").cpu(2), a_pod_group("g").min_member(2))
        async with running(BindingController(store, clock).run):
            await stage(store, a_pod("a").cpu(1).in_group("g"), a_pod("b").cpu(1).in_group("g"))
            await clock.sleep(1)
        async with running(BindingController(store, clock).run):
            await stage(store, a_pod("c").cpu(1).in_group("g"))
            await clock.sleep(5)
            assert await nodes_of(store) == {"a": "n", "b": "n", "c": ""}
            found: Object = await store.get(core.POD, Key("default", "c"))
            condition = conditions.find(found.read(core.Pod).status.conditions, "PodScheduled")
            assert condition is not None
            assert "Insufficient cpu" in (condition.message or "")
