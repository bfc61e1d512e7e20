"""The scheduler's shell over a store in memory, on virtual time: pods and gangs come, are bound, wait, and go."""

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest
from tests.unit.controllers.scheduler_worlds import Spy, World, important, refusing_once

from muster.api import conditions, core, errors
from muster.api.objects import Key, Object
from muster.runtime.clock import VirtualClock
from muster.store.embedded import EmbeddedStore
from muster.store.protocol import (
    Bind,
    Create,
    Delete,
    Event,
    Patch,
    Refused,
    Result,
    Selection,
    Write,
    Written,
    write_one,
)
from muster.testing.builders import a_node, a_pod, a_pod_group
from muster.testing.virtual import on_virtual_time


@on_virtual_time
async def test_a_lone_pod_is_bound_without_any_pause(clock: VirtualClock) -> None:
    async with EmbeddedStore.in_memory(clock=clock) as store:
        world = World(store, clock)
        await world.stage(a_node("n").cpu(4))
        async with world.scheduling():
            await clock.sleep(10)
            await world.stage(a_pod("p").cpu(1))
            created = clock.monotonic()
            while not (await world.nodes())["p"]:
                await asyncio.sleep(0)
            assert clock.monotonic() - created < 0.001
            await clock.sleep(1)
            assert conditions.is_true((await world.pod("p")).status.conditions, "PodScheduled")
            assert await world.told("p", "Scheduled") == {"Successfully assigned default/p to n": 1}
            await world.check_engine()


@on_virtual_time
async def test_a_gang_is_bound_whole_or_not_at_all(clock: VirtualClock) -> None:
    async with EmbeddedStore.in_memory(clock=clock) as store:
        world = World(store, clock)
        await world.stage(a_node("n1").gpus(8), a_node("n2").gpus(8), a_pod_group("g").min_member(3))
        async with world.scheduling():
            await world.stage(*(a_pod(f"p{n}").gpus(8).in_group("g") for n in range(3)))
            await clock.sleep(5)
            assert set((await world.nodes()).values()) == {""}
            assert await world.reason("p0") == (
                "Unschedulable",
                "2 of the 3 pods that must start together can be placed: "
                "0/2 nodes are available: 2 Insufficient nvidia.com/gpu.",
            )
            await world.stage(a_node("n3").gpus(8))
            await clock.sleep(0.01)
            assert set((await world.nodes()).values()) == {"n1", "n2", "n3"}
            await world.check_engine()


@on_virtual_time
async def test_a_gang_waits_for_its_pods_and_says_so_after_a_moment(clock: VirtualClock) -> None:
    async with EmbeddedStore.in_memory(clock=clock) as store:
        world = World(store, clock)
        await world.stage(a_node("n").cpu(8))
        async with world.scheduling():
            await world.stage(a_pod("a").in_group("g"))
            await clock.sleep(0.5)
            assert await world.reason("a") == ("", "")
            await clock.sleep(1)
            assert 'waiting for pods\'s pod group "g"' in (await world.reason("a"))[1]
            await world.stage(a_pod_group("g").min_member(2))
            await clock.sleep(10)
            reason, message = await world.reason("a")
            assert reason == "Unschedulable"
            assert "waiting for minCount pods" in message
            await world.stage(a_pod("b").in_group("g"))
            await clock.sleep(0.01)
            assert await world.nodes() == {"a": "n", "b": "n"}


@on_virtual_time
async def test_a_member_that_is_leaving_does_not_make_a_gang_whole(clock: VirtualClock) -> None:
    """It may take long: on a node that does not answer, until that is given up."""
    async with EmbeddedStore.in_memory(clock=clock) as store:
        world = World(store, clock)
        await world.stage(a_node("n").cpu(8), a_pod_group("g").min_member(2), a_pod("old").in_group("g").on_node("n"))
        await store.write([Delete(core.POD, Key("default", "old"), grace_seconds=30)])
        async with world.scheduling():
            await world.stage(a_pod("a").in_group("g"))
            await clock.sleep(10)
            assert await world.nodes() == {"old": "n", "a": ""}
            await world.stage(a_pod("b").in_group("g"))
            await clock.sleep(0.01)
            assert await world.nodes() == {"old": "n", "a": "n", "b": "n"}


@on_virtual_time
async def test_what_becomes_of_a_pod_between_two_looks_is_one_change(clock: VirtualClock) -> None:
    async with EmbeddedStore.in_memory(clock=clock) as store:
        world = World(store, clock)
        await world.stage(a_node("n").cpu(1), a_pod("there").cpu(1).on_node("n"))
        taken: list[tuple[str, bool]] = []
        async with world.scheduling():
            await clock.sleep(1)
            observer = world.engine.observer
            assert observer is not None
            take = observer.took

            def took(old: Object | None, new: Object | None) -> None:
                found = new or old
                assert found is not None
                taken.append((found.key.name, new is None))
                take(old, new)

            observer.took = took  # type: ignore[method-assign]
            there, briefly = Key("default", "there"), Key("default", "briefly")
            told = {"status": {"message": "you are going"}}
            await world.store.write(
                [
                    Patch(core.POD, there, told, subresource="status"),
                    Delete(core.POD, there, grace_seconds=0),
                    Create(core.POD, a_pod("briefly").document()),
                    Delete(core.POD, briefly),
                    Create(core.POD, a_pod("next").cpu(1).document()),
                ]
            )
            await clock.sleep(1)
            assert taken[:2] == [("there", True), ("next", False)]
            assert await world.nodes() == {"next": "n"}
            await world.check_engine()


@on_virtual_time
async def test_what_frees_capacity_wakes_those_that_wait(clock: VirtualClock) -> None:
    async with EmbeddedStore.in_memory(clock=clock) as store:
        world = World(store, clock)
        await world.stage(a_node("n").cpu(2))
        async with world.scheduling():
            await world.stage(a_pod("first").cpu(2))
            await world.stage(a_pod("second").cpu(2), a_pod("third").cpu(2))
            await clock.sleep(60)
            assert await world.nodes() == {"first": "n", "second": "", "third": ""}
            await world.finish("first")
            await clock.sleep(0.01)
            assert await world.nodes() == {"first": "n", "second": "n", "third": ""}
            await world.delete("second")
            await clock.sleep(0.01)
            assert await world.nodes() == {"first": "n", "third": "n"}


@on_virtual_time
async def test_higher_priority_goes_first_and_then_who_came_first(clock: VirtualClock) -> None:
    async with EmbeddedStore.in_memory(clock=clock) as store:
        world = World(store, clock)
        async with world.scheduling():
            await world.stage(a_pod("early").cpu(2), a_pod("late").cpu(2), important("boss").cpu(2))
            await clock.sleep(5)
            await world.stage(a_node("n").cpu(2))
            await clock.sleep(1)
            assert await world.nodes() == {"early": "", "late": "", "boss": "n"}
            await world.finish("boss")
            await clock.sleep(1)
            assert await world.nodes() == {"early": "n", "late": "", "boss": "n"}


@on_virtual_time
async def test_cordoned_and_gated_until_released(clock: VirtualClock) -> None:
    async with EmbeddedStore.in_memory(clock=clock) as store:
        world = World(store, clock)
        await world.stage(a_node("n").cpu(2).cordoned())
        async with world.scheduling():
            await world.stage(a_pod("p").cpu(1), a_pod("gated").cpu(1).gated("quota"))
            await clock.sleep(5)
            assert set((await world.nodes()).values()) == {""}
            assert await world.reason("p") == (
                "Unschedulable",
                "0/1 nodes are available: 1 node(s) were unschedulable.",
            )
            await world.patch_node("n", {"spec": {"unschedulable": None}})
            await clock.sleep(0.01)
            assert await world.nodes() == {"p": "n", "gated": ""}
            await write_one(store, Patch(core.POD, Key("default", "gated"), {"spec": {"schedulingGates": []}}))
            await clock.sleep(0.01)
            assert await world.nodes() == {"p": "n", "gated": "n"}
            await world.check_engine()


@on_virtual_time
async def test_a_node_that_is_made_again_counts_the_pods_it_has(clock: VirtualClock) -> None:
    async with EmbeddedStore.in_memory(clock=clock) as store:
        world = World(store, clock)
        await world.stage(a_node("n").cpu(2))
        async with world.scheduling():
            await world.stage(a_pod("p").cpu(2))
            await clock.sleep(1)
            await store.write([Delete(core.NODE, Key("", "n"))])
            await world.stage(a_pod("q").cpu(2))
            await clock.sleep(20)
            assert (await world.reason("q"))[1] == "no nodes available to schedule pods"
            await world.stage(a_node("n").cpu(2))
            await clock.sleep(20)
            assert await world.nodes() == {"p": "n", "q": ""}
            assert "Insufficient cpu" in (await world.reason("q"))[1]
            await world.check_engine()
            await world.patch_node("n", {"spec": {"unschedulable": True}})
            await world.delete("p")
            await clock.sleep(20)
            assert await world.nodes() == {"q": ""}
            assert (await world.reason("q"))[1] == "0/1 nodes are available: 1 node(s) were unschedulable."
            await world.patch_node("n", {"spec": {"unschedulable": False}})
            await clock.sleep(1)
            assert await world.nodes() == {"q": "n"}
            await world.check_engine()


@on_virtual_time
async def test_an_idle_scheduler_decides_and_writes_nothing_and_tells_a_thing_once(clock: VirtualClock) -> None:
    async with EmbeddedStore.in_memory(clock=clock) as store:
        world = World(store, clock)
        await world.stage(a_node("n").cpu(1), a_pod("p").cpu(2), a_pod_group("g").min_member(2))
        await world.stage(*(a_pod(f"g{n}").cpu(2).in_group("g") for n in range(2)), a_pod("gated").gated("x"))
        async with world.scheduling():
            await clock.sleep(10)
            count, decided = len(world.store.batches), len(world.decisions)
            for heartbeat in range(60):
                ready = [{"type": "Ready", "status": "True", "lastHeartbeatTime": f"2026-01-01T00:00:{heartbeat:02}Z"}]
                body = {"status": {"conditions": ready}}
                await store.write([Patch(core.NODE, Key("", "n"), body, subresource="status")])
                await clock.sleep(60)
            assert len(world.store.batches) == count
            # The pod and the gang, every five minutes, in case a change was missed; heartbeats help nobody.
            assert len(world.decisions) - decided <= 2 * 12
            assert list((await world.told("p", "FailedScheduling")).values()) == [1]
        async with world.scheduling():
            await clock.sleep(60)
            assert len(world.store.batches) == count, "a restart has nothing new to tell"


@on_virtual_time
async def test_a_reason_is_told_again_when_it_changes(clock: VirtualClock) -> None:
    async with EmbeddedStore.in_memory(clock=clock) as store:
        world = World(store, clock)
        async with world.scheduling():
            await world.stage(a_pod("p").cpu(2))
            await clock.sleep(1)
            assert await world.reason("p") == ("Unschedulable", "no nodes available to schedule pods")
            await world.stage(a_node("n").cpu(2).taint("reserved"))
            await clock.sleep(20)
            assert await world.reason("p") == (
                "Unschedulable",
                "0/1 nodes are available: 1 node(s) had untolerated taint(s).",
            )
            assert (await world.reason("p"))[1] in await world.told("p", "FailedScheduling")


@pytest.mark.parametrize("error", [errors.Conflict("changed"), errors.Unavailable("not now")], ids=str)
def test_a_refused_bind_is_taken_back_and_tried_again(error: errors.ApiError) -> None:
    @on_virtual_time
    async def run(clock: VirtualClock) -> None:
        async with EmbeddedStore.in_memory(clock=clock) as store:
            world = World(store, clock)
            world.store.refuse = refusing_once("p", error)
            await world.stage(a_node("n").cpu(1))
            async with world.scheduling():
                await world.stage(a_pod("p").cpu(1))
                await clock.sleep(0.5)
                assert await world.nodes() == {"p": ""}
                await clock.sleep(3)
                assert await world.nodes() == {"p": "n"}
                await world.check_engine()
                assert world.store.binds == 2

    run()


@on_virtual_time
async def test_a_bind_whose_own_answer_was_lost_keeps_its_room(clock: VirtualClock) -> None:
    """Of a batch to a store far away each write may fare differently, and its watch may lag behind."""

    class Losing(Spy):
        held_until = 0.0

        async def write(self, writes: Sequence[Write]) -> Sequence[Result]:
            results = await super().write(writes)
            if self.held_until or not any(isinstance(write, Bind) for write in writes):
                return results
            self.held_until = clock.monotonic() + 5
            return [Refused(errors.Unavailable("no answer"))] * len(writes)

        async def watch(self, selection: Selection, **options: object) -> AsyncIterator[Sequence[Event]]:
            async for events in self.inner.watch(selection, **options):  # type: ignore[arg-type]
                await clock.sleep(max(0.0, self.held_until - clock.monotonic()))
                yield events

    async with EmbeddedStore.in_memory(clock=clock) as store:
        world = World(store, clock)
        world.store = Losing(store)
        await world.stage(a_node("n").cpu(1))
        async with world.scheduling():
            await world.stage(a_pod("p").cpu(1), a_pod("later").cpu(1))
            await clock.sleep(4)
            assert await world.nodes() == {"p": "n", "later": ""}
            await clock.sleep(10)
            assert await world.nodes() == {"p": "n", "later": ""}
            assert len(await world.told("p", "Scheduled")) == 1
            await world.check_engine()


@on_virtual_time
async def test_what_a_failed_bind_gives_back_wakes_those_that_wait_for_it(clock: VirtualClock) -> None:
    async with EmbeddedStore.in_memory(clock=clock) as store:
        world = World(store, clock)
        world.store.refuse = lambda write: (
            errors.Forbidden("no") if isinstance(write, Bind) and write.key.name == "cursed" else None
        )
        await world.stage(a_node("n").cpu(1))
        async with world.scheduling():
            await world.stage(a_pod("cursed").cpu(1), a_pod("q").cpu(1))
            await clock.sleep(2)
            assert await world.nodes() == {"cursed": "", "q": "n"}


@on_virtual_time
async def test_a_bind_that_was_done_but_reported_as_refused_still_counts(clock: VirtualClock) -> None:
    async with EmbeddedStore.in_memory(clock=clock) as store:
        world = World(store, clock)
        lies = [True]

        class Lying(Spy):
            async def write(self, writes: Sequence[Write]) -> Sequence[Result]:
                results = await super().write(writes)
                if lies and any(isinstance(write, Bind) for write in writes):
                    lies.clear()
                    await asyncio.sleep(0)  # its answer is lost; the watch is faster
                    raise OSError("connection reset")
                return results

        world.store = Lying(store)
        await world.stage(a_node("n").cpu(1))
        async with world.scheduling():
            await world.stage(a_pod("p").cpu(1))
            await clock.sleep(5)
            await world.stage(a_pod("q").cpu(1))
            await clock.sleep(5)
            assert await world.nodes() == {"p": "n", "q": ""}
            await world.check_engine()


@on_virtual_time
async def test_it_goes_on_after_the_store_was_away(clock: VirtualClock) -> None:
    async with EmbeddedStore.in_memory(clock=clock) as store:
        world = World(store, clock)
        await world.stage(a_node("n").cpu(1))
        async with world.scheduling():
            await clock.sleep(1)
            world.store.is_away = True
            await world.stage(a_pod("p").cpu(1), a_pod("too-large").cpu(2))
            await clock.sleep(60)
            assert await world.nodes() == {"p": "", "too-large": ""}
            assert len(world.decisions) < 30, "it rests between tries"
            world.store.is_away = False
            await clock.sleep(12)
            assert await world.nodes() == {"p": "n", "too-large": ""}
            assert "Insufficient cpu" in (await world.reason("too-large"))[1]
            await world.check_engine()


@on_virtual_time
async def test_many_pods_are_bound_in_few_writes_and_never_over_capacity(clock: VirtualClock) -> None:
    async with EmbeddedStore.in_memory(clock=clock) as store:
        world = World(store, clock)
        await world.stage(*(a_node(f"n{n}").cpu(64) for n in range(10)))
        await world.stage(*(a_pod(f"p{n:03}").cpu(1) for n in range(700)))
        async with world.scheduling():
            await clock.sleep(2)
            nodes = list((await world.nodes()).values())
            assert {name: nodes.count(name) for name in set(nodes)} == {
                "": 60, **{f"n{n}": 64 for n in range(10)}
            }  # fmt: skip
            assert sum(any(isinstance(write, Bind) for write in batch) for batch in world.store.batches) == 10
            await world.check_engine()


@on_virtual_time
async def test_a_restarted_scheduler_counts_what_is_bound_already(clock: VirtualClock) -> None:
    async with EmbeddedStore.in_memory(clock=clock) as store:
        world = World(store, clock)
        await world.stage(a_node("n").cpu(2), a_pod_group("g").min_member(2))
        async with world.scheduling():
            await world.stage(a_pod("a").cpu(1).in_group("g"), a_pod("b").cpu(1).in_group("g"))
            await clock.sleep(1)
        async with world.scheduling():
            await world.stage(a_pod("c").cpu(1).in_group("g"))
            await clock.sleep(5)
            assert await world.nodes() == {"a": "n", "b": "n", "c": ""}
            assert "Insufficient cpu" in (await world.reason("c"))[1]


class Slow:
    """A clock that moves whenever it is read: everything takes longer than its slice of time."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock, self._spent = clock, 0.0

    def monotonic(self) -> float:
        self._spent += 0.01
        return self._clock.monotonic() + self._spent

    def __getattr__(self, name: str) -> object:
        return getattr(self._clock, name)


@on_virtual_time
async def test_nothing_is_decided_before_all_that_runs_is_known(clock: VirtualClock) -> None:
    async with EmbeddedStore.in_memory(clock=clock) as store:
        world = World(store, Slow(clock))  # type: ignore[arg-type]
        await world.stage(a_node("n").cpu(4), a_pod("a-waiting").cpu(1))
        await world.stage(*(a_pod(f"bound-{n}").cpu(1).on_node("n") for n in range(4)))
        async with world.scheduling():
            await clock.sleep(5)
            assert (await world.nodes())["a-waiting"] == ""


@on_virtual_time
async def test_after_a_restart_the_oldest_goes_first_whatever_its_name(clock: VirtualClock) -> None:
    async with EmbeddedStore.in_memory(clock=clock) as store:
        world = World(store, clock)
        await world.stage(a_pod("z-old").cpu(1))
        await clock.sleep(5)
        await world.stage(a_pod("a-young").cpu(1), a_node("n").cpu(1))
        async with world.scheduling():
            await clock.sleep(1)
            assert await world.nodes() == {"z-old": "n", "a-young": ""}


@on_virtual_time
async def test_pods_deleted_while_they_are_being_bound_leave_nothing(clock: VirtualClock) -> None:
    async with EmbeddedStore.in_memory(clock=clock) as store:
        world = World(store, clock)
        await world.stage(a_node("n").cpu(4))
        async with world.scheduling():
            for turns in range(12):
                await world.stage(*(a_pod(f"p{n}").cpu(1) for n in range(4)))
                for _ in range(turns):
                    await asyncio.sleep(0)
                for n in range(4):
                    await world.delete(f"p{n}")
                await clock.sleep(3)
                assert await world.nodes() == {}
                await world.check_engine()


@pytest.mark.parametrize("commits", range(1, 3))
def test_a_large_gang_cut_short_between_two_commits_is_whole_after_a_restart(commits: int) -> None:
    """A store commits a large batch in parts: a gang of 600 is several of them."""

    @on_virtual_time
    async def run(clock: VirtualClock) -> None:
        async with EmbeddedStore.in_memory(clock=clock) as store:
            world = World(store, clock)
            await world.stage(*(a_node(f"n{n}").cpu(100) for n in range(6)), a_pod_group("g").min_member(600))
            await world.stage(*(a_pod(f"g{n:03}").cpu(1).in_group("g") for n in range(600)))
            bound = asyncio.Event()

            class Cut(Spy):
                async def write(self, writes: Sequence[Write]) -> Sequence[Result]:
                    if len(writes) < 600:
                        return await super().write(writes)
                    done = await self.inner.write(writes[: 256 * commits])
                    assert all(isinstance(result, Written) for result in done)
                    bound.set()
                    await asyncio.Event().wait()
                    return done

            sound, world.store = world.store, Cut(store)
            async with world.scheduling():
                await bound.wait()
            assert sum(map(bool, (await world.nodes()).values())) == 256 * commits
            world.store = sound
            await world.stage(*(a_pod(f"other{n:03}").cpu(1) for n in range(400)))  # would take the room, if they could
            async with world.scheduling():
                await clock.sleep(1)
                nodes = await world.nodes()
                assert all(node for name, node in nodes.items() if name.startswith("g"))
                assert not any(node for name, node in nodes.items() if name.startswith("other"))
                await world.check_engine()

    run()


@on_virtual_time
async def test_a_priority_class_that_comes_after_its_group_still_counts(clock: VirtualClock) -> None:
    async with EmbeddedStore.in_memory(clock=clock) as store:
        world = World(store, clock)
        async with world.scheduling():
            await world.stage(a_pod("early").cpu(1))
            await world.stage(a_pod_group("g").min_member(1).set("high", "spec", "priorityClassName"))
            await world.stage(a_pod("late").cpu(1).in_group("g"))
            priority = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}}
            await world.stage({**priority, "value": 100})
            await clock.sleep(5)
            await world.stage(a_node("n").cpu(1))
            await clock.sleep(1)
            assert await world.nodes() == {"early": "", "late": "n"}


@on_virtual_time
async def test_a_gang_that_was_there_before_any_node_starts_when_one_comes(clock: VirtualClock) -> None:
    async with EmbeddedStore.in_memory(clock=clock) as store:
        world = World(store, clock)
        async with world.scheduling():
            await world.stage(a_pod_group("g").min_member(2), *(a_pod(f"g{n}").cpu(1).in_group("g") for n in range(2)))
            await clock.sleep(60)
            await world.stage(a_node("n").cpu(2))
            await clock.sleep(0.01)
            assert await world.nodes() == {"g0": "n", "g1": "n"}
