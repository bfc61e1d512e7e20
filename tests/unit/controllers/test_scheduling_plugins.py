"""Plugins of the binding cycle, good and bad: the pod that they harm is told by whom, and the loop lives."""

import asyncio
from collections.abc import Sequence
from typing import ClassVar

from tests.unit.controllers.scheduler_worlds import World

from muster.cluster.groups import Group
from muster.cluster.pods import PodInfo
from muster.cluster.state import ClusterState
from muster.placement.framework import (
    SUCCESS,
    Code,
    Generated,
    Placement,
    Plugin,
    Progress,
    Reads,
    Rejection,
    Status,
)
from muster.runtime.clock import VirtualClock
from muster.store.embedded import EmbeddedStore
from muster.testing.builders import a_node, a_pod, a_pod_group
from muster.testing.virtual import on_virtual_time


class Base:
    """Concerns itself only with pods whose name begins with `odd`, and keeps a diary."""

    name: ClassVar[str] = "Odd"

    def __init__(self) -> None:
        self.diary: list[str] = []
        self.is_well = False

    def concerns(self, pod: PodInfo, what: str) -> bool:
        if not pod.key.name.startswith("odd"):
            return False
        self.diary.append(what)
        return not self.is_well


class FilterRaises(Base):
    reads: ClassVar[Reads] = Reads.NODE_PODS

    def filter(self, pod: PodInfo, cluster: ClusterState, state: object) -> Sequence[Rejection]:
        if self.concerns(pod, "filter"):
            raise ZeroDivisionError("of nodes by zero")
        return ()


class GroupsRaise(Base):
    """At each point that is about groups, in turn."""

    def __init__(self) -> None:
        super().__init__()
        self.raises_at = "generate"

    def generate_placements(self, group: Group, cluster: ClusterState, parent: Placement) -> Generated:
        self.meets("generate")
        return Generated(placements=[parent])

    def placement_feasible(self, group: Group, progress: Progress) -> Status:
        self.meets("feasible")
        return SUCCESS

    def score_placement(
        self, group: Group, cluster: ClusterState, placement: Placement, proposed: Sequence[tuple[PodInfo, str]]
    ) -> int:
        self.meets("score")
        return 0

    def meets(self, point: str) -> None:
        if self.raises_at == point:
            raise ZeroDivisionError(f"at {point}")


class EnqueueRaises(Base):
    def pre_enqueue(self, pod: PodInfo) -> Status:
        if self.concerns(pod, "pre_enqueue"):
            raise ZeroDivisionError("at the gate")
        return SUCCESS


class PermitWaits(Base):
    seconds: float = 20.0

    def permit(self, pod: PodInfo, node: str) -> tuple[Status, float]:
        return (Status(Code.WAIT), self.seconds) if self.concerns(pod, "permit") else (SUCCESS, 0.0)

    def reserve(self, pod: PodInfo, node: str) -> Status:
        self.concerns(pod, "reserve")
        return SUCCESS

    def unreserve(self, pod: PodInfo, node: str) -> None:
        self.concerns(pod, "unreserve")


class PreBindFails(Base):
    def reserve(self, pod: PodInfo, node: str) -> Status:
        self.concerns(pod, "reserve")
        return SUCCESS

    def unreserve(self, pod: PodInfo, node: str) -> None:
        if self.concerns(pod, "unreserve"):
            raise RuntimeError("here too")

    async def pre_bind(self, pod: PodInfo, node: str) -> Status:
        return Status(Code.ERROR, ("no volume",)) if self.concerns(pod, "pre_bind") else SUCCESS

    def post_bind(self, pod: PodInfo, node: str) -> None:
        if pod.key.name.startswith("odd"):
            raise RuntimeError("after all")


class PreBindHangs(Base):
    async def pre_bind(self, pod: PodInfo, node: str) -> Status:
        if self.concerns(pod, "pre_bind"):
            await asyncio.sleep(3600)
        return SUCCESS


class BindsItself(Base):
    def __init__(self, world: list[World]) -> None:
        super().__init__()
        self.world = world

    async def bind(self, pod: PodInfo, node: str) -> Status:
        if not self.concerns(pod, "bind"):
            return Status(Code.SKIP)
        return Status(Code.ERROR, ("my own server is down",))


def world_of(store: EmbeddedStore, clock: VirtualClock, plugin: Plugin) -> World:
    return World(store, clock, [plugin])


@on_virtual_time
async def test_a_filter_that_raises_is_named_and_the_others_go_on(clock: VirtualClock) -> None:
    async with EmbeddedStore.in_memory(clock=clock) as store:
        plugin = FilterRaises()
        world = world_of(store, clock, plugin)
        await world.stage(a_node("n").cpu(4), a_pod_group("g").min_member(1))
        async with world.scheduling():
            odd = [a_pod("odd").cpu("500m"), a_pod("odd-g").cpu("500m").in_group("g")]
            await world.stage(*odd, a_pod("even").cpu(1))
            await clock.sleep(5)
            assert await world.nodes() == {"odd": "", "odd-g": "", "even": "n"}
            message = 'running plugin "Odd": ZeroDivisionError: of nodes by zero'
            assert await world.reason("odd") == ("SchedulerError", message)
            assert await world.reason("odd-g") == ("SchedulerError", message)
            assert await world.told("odd", "FailedScheduling") == {message: 1}
            plugin.diary.clear()
            await clock.sleep(100)
            assert 10 <= len(plugin.diary) <= 40, "it rests up to ten seconds between tries"
            plugin.is_well = True
            await clock.sleep(15)
            assert await world.nodes() == {"odd": "n", "odd-g": "n", "even": "n"}
            await world.check_engine()


@on_virtual_time
async def test_a_plugin_for_groups_that_raises_is_named_and_the_others_go_on(clock: VirtualClock) -> None:
    async with EmbeddedStore.in_memory(clock=clock) as store:
        plugin = GroupsRaise()
        world = world_of(store, clock, plugin)
        await world.stage(a_node("n").cpu(4), a_pod_group("g").min_member(2))
        async with world.scheduling():
            await world.stage(*(a_pod(f"m{number}").cpu("500m").in_group("g") for number in range(2)))
            for point in ("generate", "feasible", "score"):
                plugin.raises_at = point
                await clock.sleep(30)
                message = f'running plugin "Odd": ZeroDivisionError: at {point}'
                for name in ("m0", "m1"):
                    assert await world.reason(name) == ("SchedulerError", message)
                    assert message in await world.told(name, "FailedScheduling")
                await world.stage(a_pod(f"after-{point}").cpu("500m"))
                await clock.sleep(1)
                assert (await world.nodes())[f"after-{point}"] == "n"
            plugin.raises_at = ""
            await clock.sleep(15)
            assert [(await world.nodes())[name] for name in ("m0", "m1")] == ["n", "n"]
            await world.check_engine()


@on_virtual_time
async def test_a_gate_that_raises_is_named_in_the_pods_reason(clock: VirtualClock) -> None:
    async with EmbeddedStore.in_memory(clock=clock) as store:
        world = world_of(store, clock, EnqueueRaises())
        await world.stage(a_node("n").cpu(4))
        async with world.scheduling():
            await world.stage(a_pod("odd").cpu(1), a_pod("even").cpu(1))
            await clock.sleep(5)
            assert await world.nodes() == {"odd": "", "even": "n"}
            assert "ZeroDivisionError: at the gate" in (await world.reason("odd"))[1]


@on_virtual_time
async def test_a_permit_that_waits_and_then_allows(clock: VirtualClock) -> None:
    async with EmbeddedStore.in_memory(clock=clock) as store:
        plugin = PermitWaits()
        world = world_of(store, clock, plugin)
        await world.stage(a_node("n").cpu(1))
        async with world.scheduling():
            await world.stage(a_pod("odd").cpu(1))
            await clock.sleep(10)
            await world.stage(a_pod("even").cpu(1))
            await clock.sleep(5)
            assert await world.nodes() == {"odd": "", "even": ""}, "its room is held for it"
            plugin.is_well = True
            await clock.sleep(2)
            assert await world.nodes() == {"odd": "n", "even": ""}
            assert plugin.diary.count("reserve") == 1
            assert "unreserve" not in plugin.diary
            await world.check_engine()


@on_virtual_time
async def test_a_permit_that_never_comes_gives_the_room_to_others(clock: VirtualClock) -> None:
    async with EmbeddedStore.in_memory(clock=clock) as store:
        plugin = PermitWaits()
        world = world_of(store, clock, plugin)
        await world.stage(a_node("n").cpu(1))
        async with world.scheduling():
            await world.stage(a_pod("odd").cpu(1))
            await clock.sleep(1)
            await world.stage(a_pod("even").cpu(1))
            await clock.sleep(25)
            assert await world.nodes() == {"odd": "", "even": "n"}
            assert "waited too long for a permit" in "".join(await world.told("odd", "FailedScheduling"))
            assert plugin.diary.count("unreserve") == plugin.diary.count("reserve")
            await clock.sleep(30)
            await world.check_engine()


@on_virtual_time
async def test_a_pod_deleted_while_it_waits_for_a_permit_gives_up_what_it_reserved(clock: VirtualClock) -> None:
    async with EmbeddedStore.in_memory(clock=clock) as store:
        plugin = PermitWaits()
        world = world_of(store, clock, plugin)
        await world.stage(a_node("n").cpu(1))
        async with world.scheduling():
            await world.stage(a_pod("odd").cpu(1))
            await clock.sleep(1)
            await world.delete("odd")
            await world.stage(a_pod("even").cpu(1))
            await clock.sleep(1)
            assert await world.nodes() == {"even": "n"}
            assert plugin.diary.count("unreserve") == 1
            await world.check_engine()


@on_virtual_time
async def test_what_fails_before_binding_is_undone_and_tried_again(clock: VirtualClock) -> None:
    async with EmbeddedStore.in_memory(clock=clock) as store:
        plugin = PreBindFails()
        world = world_of(store, clock, plugin)
        await world.stage(a_node("n").cpu(2))
        async with world.scheduling():
            await world.stage(a_pod("odd").cpu(1), a_pod("even").cpu(1))
            await clock.sleep(5)
            assert await world.nodes() == {"odd": "", "even": "n"}
            assert await world.reason("odd") == ("SchedulerError", 'running plugin "Odd": no volume')
            assert plugin.diary[:3] == ["reserve", "pre_bind", "unreserve"]
            assert len(plugin.diary) < 20
            plugin.is_well = True
            await clock.sleep(12)
            assert await world.nodes() == {"odd": "n", "even": "n"}, "and PostBind raises in vain"
            await world.check_engine()


@on_virtual_time
async def test_a_plugin_that_takes_its_time_delays_its_own_pods_only(clock: VirtualClock) -> None:
    async with EmbeddedStore.in_memory(clock=clock) as store:
        world = world_of(store, clock, PreBindHangs())
        await world.stage(a_node("n").cpu(4))
        async with world.scheduling():
            await world.stage(a_pod("odd").cpu(1))
            await clock.sleep(1)
            await world.stage(a_pod("even").cpu(1))
            await clock.sleep(1)
            assert await world.nodes() == {"odd": "", "even": "n"}
            await clock.sleep(3600)
            assert await world.nodes() == {"odd": "n", "even": "n"}


@on_virtual_time
async def test_a_plugin_that_binds_is_asked_and_its_trouble_is_told(clock: VirtualClock) -> None:
    async with EmbeddedStore.in_memory(clock=clock) as store:
        worlds: list[World] = []
        plugin = BindsItself(worlds)
        world = World(store, clock, [plugin], binds_first=True)
        worlds.append(world)
        await world.stage(a_node("n").cpu(4))
        async with world.scheduling():
            await world.stage(a_pod("odd").cpu(1), a_pod("even").cpu(1))
            await clock.sleep(5)
            assert await world.nodes() == {"odd": "", "even": "n"}
            assert await world.reason("odd") == ("SchedulerError", 'running plugin "Odd": my own server is down')
            plugin.is_well = True
            await clock.sleep(12)
            assert await world.nodes() == {"odd": "n", "even": "n"}
