"""Preemption through the store: who is evicted, when the preemptor is bound, and what if they do not go."""

import asyncio
from collections.abc import Sequence

import pytest
from tests.unit.controllers.scheduler_worlds import Refuse, Spy, World, important

from muster.api import conditions, core, errors, policy
from muster.api.objects import Key
from muster.cluster.pods import DEVICES_ANNOTATION
from muster.runtime.clock import VirtualClock
from muster.store.embedded import EmbeddedStore
from muster.store.protocol import Bind, Create, Delete, Patch, Result, Write, write_one
from muster.testing.builders import PodBuilder, a_node, a_pod, a_pod_group
from muster.testing.virtual import on_virtual_time


def running(name: str, node: str = "n") -> PodBuilder:
    return a_pod(name).cpu(1).on_node(node).phase("Running")


@on_virtual_time
async def test_victims_are_told_and_deleted_and_the_preemptor_follows_when_they_are_gone(clock: VirtualClock) -> None:
    async with EmbeddedStore.in_memory(clock=clock) as store:
        world = World(store, clock)
        await world.stage(a_node("n").cpu(2), running("a"), running("b"))
        async with world.scheduling():
            await clock.sleep(1)
            await world.stage(important("boss").cpu(2))
            await clock.sleep(5)
            for name in "ab":
                victim = await world.pod(name)
                assert victim.metadata.deletion_timestamp is not None
                target = conditions.find(victim.status.conditions, "DisruptionTarget")
                assert target is not None
                assert (target.status, target.reason) == ("True", "PreemptionByScheduler")
                assert await world.told(name, "Preempted") == {"Preempted by default/boss on node n": 1}
            boss = await world.pod("boss")
            assert (boss.spec.node_name, boss.status.nominated_node_name) == (None, "n")
            await world.delete("a")
            await clock.sleep(5)
            assert not (await world.pod("boss")).spec.node_name, "one of two has gone"
            await world.delete("b")
            await clock.sleep(0.01)
            assert await world.nodes() == {"boss": "n"}
            await clock.sleep(1)
            await world.check_engine()


@on_virtual_time
async def test_a_preemptor_is_told_the_gpus_that_its_victims_had(clock: VirtualClock) -> None:
    async with EmbeddedStore.in_memory(clock=clock) as store:
        world = World(store, clock)
        victim = a_pod("a").gpus(2).annotation(DEVICES_ANNOTATION, "0,1").on_node("n").phase("Running")
        other = important("b").gpus(1).annotation(DEVICES_ANNOTATION, "2").on_node("n").phase("Running")
        await world.stage(a_node("n").cpu(2).gpus(3), victim, other)
        async with world.scheduling():
            await world.stage(important("boss").gpus(2))
            await clock.sleep(5)
            await world.delete("a")
            await clock.sleep(1)
            boss = await world.pod("boss")
            assert boss.spec.node_name == "n"
            assert (boss.metadata.annotations or {})[DEVICES_ANNOTATION] == "0,1"


@on_virtual_time
async def test_nobody_is_evicted_for_one_that_would_not_fit_then_either(clock: VirtualClock) -> None:
    async with EmbeddedStore.in_memory(clock=clock) as store:
        world = World(store, clock)
        peer = important("peer").cpu(1).on_node("n").phase("Running")
        await world.stage(a_node("n").cpu(2), running("a"), peer, a_pod_group("g").min_member(2))
        async with world.scheduling():
            await world.stage(important("large").cpu(2))
            await world.stage(*(important(f"g{n}").cpu(1).in_group("g") for n in range(2)))
            await clock.sleep(60)
            assert (await world.pod("a")).metadata.deletion_timestamp is None
            assert (await world.reason("large"))[1] == (
                "0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 Insufficient cpu."
            )
            assert (await world.reason("g0"))[1].startswith("0 of the 2 pods that must start together can be placed: ")
            assert await world.told("a", "Preempted") == {}


@on_virtual_time
async def test_a_gang_preempts_as_a_whole(clock: VirtualClock) -> None:
    async with EmbeddedStore.in_memory(clock=clock) as store:
        world = World(store, clock)
        await world.stage(a_node("n").cpu(1), a_node("m").cpu(1), running("a"), running("b", "m"))
        await world.stage(a_pod_group("g").min_member(2))
        async with world.scheduling():
            await world.stage(*(important(f"g{n}").cpu(1).in_group("g") for n in range(2)))
            await clock.sleep(5)
            assert (await world.pod("a")).metadata.deletion_timestamp is not None
            assert (await world.pod("b")).metadata.deletion_timestamp is not None
            await world.delete("a")
            await clock.sleep(5)
            assert await world.nodes() == {"b": "m", "g0": "", "g1": ""}
            await world.delete("b")
            await clock.sleep(1)
            assert set((await world.nodes()).values()) == {"n", "m"}
            await world.check_engine()


@on_virtual_time
async def test_a_preemptor_whose_victims_never_leave_goes_elsewhere(clock: VirtualClock) -> None:
    async with EmbeddedStore.in_memory(clock=clock) as store:
        world = World(store, clock)
        await world.stage(a_node("n").cpu(1), running("stuck"))
        async with world.scheduling():
            await world.stage(important("boss").cpu(1))
            await clock.sleep(5)
            await world.stage(a_node("m").cpu(1), important("peer").cpu(1).on_node("m").phase("Running"))
            await clock.sleep(300)
            assert (await world.nodes())["boss"] == ""
            assert "terminating pod on the nominated node" in (await world.reason("boss"))[1]
            await world.finish("peer")
            await clock.sleep(1)
            assert (await world.nodes())["boss"] == "m"
            await world.check_engine()


@on_virtual_time
async def test_a_preemptor_whose_victims_leave_late_is_bound_then(clock: VirtualClock) -> None:
    async with EmbeddedStore.in_memory(clock=clock) as store:
        world = World(store, clock)
        await world.stage(a_node("n").cpu(1), running("slow"))
        async with world.scheduling():
            await world.stage(important("boss").cpu(1), a_pod("small").cpu(1))
            await clock.sleep(200)
            assert (await world.nodes())["boss"] == ""
            await world.delete("slow")
            await clock.sleep(0.01)
            assert await world.nodes() == {"boss": "n", "small": ""}


@on_virtual_time
async def test_an_eviction_that_cannot_be_written_now_is_written_later(clock: VirtualClock) -> None:
    async with EmbeddedStore.in_memory(clock=clock) as store:
        world = World(store, clock)
        tries: list[Write] = []

        def refuse(write: Write) -> errors.ApiError | None:
            if not isinstance(write, Delete) or len(tries) >= 3:
                return None
            tries.append(write)
            return errors.Unavailable("not now")

        world.store.refuse = refuse
        await world.stage(a_node("n").cpu(1), running("a"))
        async with world.scheduling():
            await world.stage(important("boss").cpu(1))
            await clock.sleep(10)
            assert len(tries) == 3
            assert (await world.pod("a")).metadata.deletion_timestamp is not None
            await world.end_terminating()
            await clock.sleep(0.01)
            assert await world.nodes() == {"boss": "n"}


@on_virtual_time
async def test_evictions_wait_while_the_store_is_away(clock: VirtualClock) -> None:
    async with EmbeddedStore.in_memory(clock=clock) as store:
        world = World(store, clock)
        await world.stage(a_node("n").cpu(1), running("a"))
        async with world.scheduling():
            await clock.sleep(1)
            world.store.is_away = True
            await world.stage(important("boss").cpu(1))
            await clock.sleep(20)
            world.store.is_away = False
            await clock.sleep(5)
            await world.end_terminating()
            await clock.sleep(1)
            assert await world.nodes() == {"boss": "n"}


@on_virtual_time
async def test_a_claim_that_a_stronger_one_displaces_is_given_up_and_not_deleted(clock: VirtualClock) -> None:
    async with EmbeddedStore.in_memory(clock=clock) as store:
        world = World(store, clock)
        await world.stage(a_node("n").cpu(1), running("a"))
        async with world.scheduling():
            await world.stage(important("strong", 10).cpu(1))
            await clock.sleep(5)
            await world.stage(important("stronger", 20).cpu(1))
            await clock.sleep(5)
            assert (await world.pod("strong")).metadata.deletion_timestamp is None
            await world.end_terminating()
            await clock.sleep(5)
            assert await world.nodes() == {"strong": "", "stronger": "n"}
            await world.finish("stronger")
            await clock.sleep(5)
            assert await world.nodes() == {"strong": "n", "stronger": "n"}
            await world.check_engine()


@on_virtual_time
async def test_a_preemptor_that_is_deleted_while_it_waits_leaves_nothing(clock: VirtualClock) -> None:
    async with EmbeddedStore.in_memory(clock=clock) as store:
        world = World(store, clock)
        await world.stage(a_node("n").cpu(1), running("a"))
        async with world.scheduling():
            await world.stage(important("boss").cpu(1))
            await clock.sleep(5)
            await world.delete("boss")
            await world.end_terminating()
            await world.stage(a_pod("next").cpu(1))
            await clock.sleep(5)
            assert await world.nodes() == {"next": "n"}
            await world.check_engine()


@on_virtual_time
async def test_a_node_that_goes_while_a_preemptor_waits_for_it_is_not_bound_to(clock: VirtualClock) -> None:
    async with EmbeddedStore.in_memory(clock=clock) as store:
        world = World(store, clock)
        await world.stage(a_node("n").cpu(1), running("a"))
        async with world.scheduling():
            await world.stage(important("boss").cpu(1))
            await clock.sleep(5)
            await store.write([Delete(core.NODE, Key("", "n"))])
            await world.end_terminating()
            await clock.sleep(5)
            assert await world.nodes() == {"boss": ""}
            await world.stage(a_node("m").cpu(1))
            await clock.sleep(10)
            assert await world.nodes() == {"boss": "m"}
            await world.check_engine()


@on_virtual_time
async def test_late_members_of_a_gang_that_waits_for_room_wait_with_it(clock: VirtualClock) -> None:
    async with EmbeddedStore.in_memory(clock=clock) as store:
        world = World(store, clock)
        await world.stage(a_node("n").cpu(2), running("a"), a_node("m").cpu(1), a_pod_group("g").min_member(2))
        async with world.scheduling():
            await world.stage(*(important(f"g{n}").cpu(2 if n else 1).in_group("g") for n in range(2)))
            await clock.sleep(5)
            await world.stage(a_node("o").cpu(1), important("g2").cpu(1).in_group("g"))
            await clock.sleep(5)
            assert (await world.nodes())["g2"] == "", "its gang has no room yet"
            await world.end_terminating()
            await clock.sleep(1)
            assert all((await world.nodes()).values())
            await world.check_engine()


@on_virtual_time
async def test_a_promise_that_is_no_hope_any_more_is_taken_back(clock: VirtualClock) -> None:
    async with EmbeddedStore.in_memory(clock=clock) as store:
        world = World(store, clock)
        await world.stage(a_node("n").cpu(1), running("a"))
        await world.stage(important("boss").cpu(4))
        body = {"status": {"nominatedNodeName": "n"}}
        await write_one(store, Patch(core.POD, Key("default", "boss"), body, subresource="status"))
        async with world.scheduling():
            await clock.sleep(5)
            assert not (await world.pod("boss")).status.nominated_node_name


def refusing_binds_of(prefix: str) -> Refuse:
    return lambda write: (
        errors.Unavailable("not now") if isinstance(write, Bind) and write.key.name.startswith(prefix) else None
    )


@on_virtual_time
async def test_a_victim_whose_bind_is_refused_for_now_is_not_deleted(clock: VirtualClock) -> None:
    async with EmbeddedStore.in_memory(clock=clock) as store:
        world = World(store, clock)
        world.store.refuse = refusing_binds_of("weak")
        await world.stage(a_node("n").cpu(1))
        async with world.scheduling():
            await world.stage(a_pod("weak").cpu(1))
            await clock.sleep(2.5)
            await world.stage(important("boss").cpu(1))
            await clock.sleep(2)
            assert await world.nodes() == {"weak": "", "boss": "n"}
            await clock.sleep(20)
            await world.check_engine()


@on_virtual_time
async def test_a_victim_whose_bind_was_done_but_not_answered_is_waited_for(clock: VirtualClock) -> None:
    class Forgetful(Spy):
        async def write(self, writes: Sequence[Write]) -> Sequence[Result]:
            results = await super().write(writes)
            if any(isinstance(write, Bind) and write.key.name == "weak" for write in writes):
                raise OSError("connection reset")
            return results

    async with EmbeddedStore.in_memory(clock=clock) as store:
        for turns in range(12):
            world = World(store, clock)
            world.store = Forgetful(store)
            await world.stage(a_node("n").cpu(1))
            async with world.scheduling():
                await clock.sleep(1)
                await world.stage(a_pod("weak").cpu(1))
                for _ in range(turns):
                    await asyncio.sleep(0)
                await world.stage(important("boss").cpu(1))
                await clock.sleep(5)
                nodes = await world.nodes()
                await world.check_capacity()
                assert nodes["boss"] == ("" if nodes["weak"] else "n")
                await world.end_terminating()
                await clock.sleep(5)
                assert (await world.nodes())["boss"] == "n"
                await world.delete("weak")
                await world.delete("boss")
            await store.write([Delete(core.NODE, Key("", "n"))])


@on_virtual_time
async def test_a_gang_that_loses_a_claim_before_any_member_is_bound_gives_up_all(clock: VirtualClock) -> None:
    async with EmbeddedStore.in_memory(clock=clock) as store:
        world = World(store, clock)
        world.store.refuse = refusing_binds_of("g")
        await world.stage(a_node("n").cpu(1), a_node("m").cpu(1), a_pod_group("g").min_member(2))
        async with world.scheduling():
            await world.stage(*(a_pod(f"g{n}").cpu(1).in_group("g") for n in range(2)))
            await clock.sleep(2.5)
            await world.stage(important("boss").cpu(1))
            await clock.sleep(0.1)
            world.store.refuse = None
            await clock.sleep(20)
            nodes = await world.nodes()
            assert (nodes["g0"], nodes["g1"]) == ("", "")
            assert nodes["boss"] in ("n", "m")
            await world.finish("boss")
            await clock.sleep(20)
            assert {(await world.nodes())[name] for name in ("g0", "g1")} == {"n", "m"}
            await world.check_engine()


@on_virtual_time
async def test_a_gang_keeps_its_claim_while_the_store_refuses_one_of_its_binds(clock: VirtualClock) -> None:
    async with EmbeddedStore.in_memory(clock=clock) as store:
        world = World(store, clock)
        world.store.refuse = refusing_binds_of("g1")
        await world.stage(a_node("n").cpu(2), a_pod_group("g").min_member(2))
        async with world.scheduling():
            await world.stage(*(a_pod(f"g{n}").cpu(1).in_group("g") for n in range(2)))
            await clock.sleep(1)
            await world.stage(a_pod("quick").cpu(1))
            await clock.sleep(60)
            assert await world.nodes() == {"g0": "n", "g1": "", "quick": ""}
            world.store.refuse = None
            await clock.sleep(2)
            assert await world.nodes() == {"g0": "n", "g1": "n", "quick": ""}


async def guard(store: EmbeddedStore, *pods: str) -> None:
    """Of pods that say `app: x` one must stay up; these are ready."""
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "x"}}}
    budget = {"metadata": {"name": "guard", "namespace": "default"}, "spec": spec}
    await write_one(store, Create(policy.POD_DISRUPTION_BUDGET, budget))
    ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    for name in pods:
        await write_one(store, Patch(core.POD, Key("default", name), {"status": ready}, subresource="status"))


async def is_untouched(world: World, name: str) -> bool:
    pod = await world.pod(name)
    is_told = conditions.find(pod.status.conditions, "DisruptionTarget") is not None
    return pod.metadata.deletion_timestamp is None and not is_told and await world.told(name, "Preempted") == {}


@on_virtual_time
async def test_a_disruption_budget_is_asked_again_for_as_long_as_somebody_waits(clock: VirtualClock) -> None:
    async with EmbeddedStore.in_memory(clock=clock) as store:
        world = World(store, clock)
        await world.stage(a_node("n").cpu(1), running("a").label("app", "x"))
        await guard(store, "a")
        async with world.scheduling():
            await world.stage(important("boss").cpu(1))
            await clock.sleep(20)
            assert await is_untouched(world, "a")
            asked = [write for batch in world.store.batches for write in batch if isinstance(write, Delete)]
            assert len(asked) > 5
            assert all(write.within_budgets and write.options.dry_run for write in asked)
            await store.write([Delete(core.POD, Key("default", "boss"))])
            await clock.sleep(5)
            world.store.batches.clear()
            await clock.sleep(60)
            assert not any(isinstance(write, Delete) for batch in world.store.batches for write in batch)
            await world.stage(important("boss").cpu(1))
            await clock.sleep(5)
            await store.write([Delete(policy.POD_DISRUPTION_BUDGET, Key("default", "guard"))])
            await clock.sleep(5)
            assert (await world.pod("a")).metadata.deletion_timestamp is not None
            assert await world.told("a", "Preempted") == {"Preempted by default/boss on node n": 1}
            await world.end_terminating()
            await clock.sleep(1)
            assert await world.nodes() == {"boss": "n"}
            await world.check_engine()


@pytest.mark.parametrize("covered", [["b"], ["a", "b"]], ids=["one that must stay", "two of which one must stay"])
@on_virtual_time
async def test_of_a_gangs_victims_all_may_go_or_none_is_touched(clock: VirtualClock, covered: list[str]) -> None:
    async with EmbeddedStore.in_memory(clock=clock) as store:
        world = World(store, clock)
        victims = {"a": running("a"), "b": running("b", "m")}
        await world.stage(a_node("n").cpu(1), a_node("m").cpu(1), a_pod_group("g").min_member(2))
        await world.stage(*(pod.label("app", "x" if name in covered else "y") for name, pod in victims.items()))
        await guard(store, "a", "b")
        async with world.scheduling():
            await world.stage(*(important(f"g{n}").cpu(1).in_group("g") for n in range(2)))
            await clock.sleep(20)
            assert await is_untouched(world, "a")
            assert await is_untouched(world, "b")
            await store.write([Delete(policy.POD_DISRUPTION_BUDGET, Key("default", "guard"))])
            await clock.sleep(5)
            await world.end_terminating()
            await clock.sleep(1)
            assert set((await world.nodes()).values()) == {"n", "m"}
            assert set(await world.nodes()) == {"g0", "g1"}
            await world.check_engine()


@on_virtual_time
async def test_decisions_that_take_from_one_budget_are_counted_together(clock: VirtualClock) -> None:
    async with EmbeddedStore.in_memory(clock=clock) as store:
        world = World(store, clock)
        await world.stage(a_node("n").cpu(1), a_node("m").cpu(1))
        await world.stage(running("a").label("app", "x"), running("b", "m").label("app", "x"))
        await guard(store, "a", "b")
        await world.stage(*(important(f"boss{n}").cpu(1) for n in range(2)))
        async with world.scheduling():
            await clock.sleep(20)
            assert sum([await is_untouched(world, "a"), await is_untouched(world, "b")]) == 1


@on_virtual_time
async def test_a_victim_that_is_kept_after_all_is_told_so_when_nobody_waits_any_more(clock: VirtualClock) -> None:
    """Between the trial and the eviction others may have used the budget up."""

    def refuse(write: Write) -> errors.ApiError | None:
        is_eviction = isinstance(write, Delete) and not write.options.dry_run
        return errors.TooManyRequests("a budget needs it") if is_eviction else None

    async with EmbeddedStore.in_memory(clock=clock) as store:
        world = World(store, clock)
        world.store.refuse = refuse
        await world.stage(a_node("n").cpu(1), running("a"))
        async with world.scheduling():
            await world.stage(important("boss").cpu(1))
            await clock.sleep(5)
            target = conditions.find((await world.pod("a")).status.conditions, "DisruptionTarget")
            assert target is not None
            assert target.status == "True"
            await store.write([Delete(core.POD, Key("default", "boss"))])
            await clock.sleep(5)
            target = conditions.find((await world.pod("a")).status.conditions, "DisruptionTarget")
            assert target is not None
            assert target.status == "False"
            assert await world.told("a", "Preempted") == {}


@on_virtual_time
async def test_victims_that_may_go_late_have_all_of_their_grace(clock: VirtualClock) -> None:
    async with EmbeddedStore.in_memory(clock=clock) as store:
        world = World(store, clock)
        await world.stage(a_node("n").cpu(1), running("a").label("app", "x"))
        await guard(store, "a")
        async with world.scheduling():
            await world.stage(important("boss").cpu(1))
            await clock.sleep(35)
            await store.write([Delete(policy.POD_DISRUPTION_BUDGET, Key("default", "guard"))])
            decided = len(world.decisions)
            await clock.sleep(30)
            assert len(world.decisions) == decided, "it still waits for the room that it was promised"
            await world.end_terminating()
            await clock.sleep(1)
            assert await world.nodes() == {"boss": "n"}
