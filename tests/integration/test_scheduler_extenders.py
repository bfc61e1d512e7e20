"""Extenders in the scheduler: a real one on loopback, a store in memory, and the scheduler between them."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web
from tests.integration.test_extenders import serving

from muster.api import conditions, core
from muster.api.objects import Key
from muster.controllers.scheduling import SchedulingController
from muster.placement.configured import configured_engine
from muster.placement.engine import Engine
from muster.runtime.clock import SystemClock
from muster.store.embedded import EmbeddedStore
from muster.store.protocol import Bind, Delete, Selection, Store, write_one
from muster.testing.builders import NodeBuilder, PodBuilder, a_node, a_pod, a_pod_group
from muster.testing.staging import running, stage

NODES = ("a", "b", "c")
Say = Callable[[str, dict[str, Any]], Awaitable[Any]]


class World:
    def __init__(self, store: Store) -> None:
        self.store = store
        self.asked: list[tuple[str, dict[str, Any]]] = []

    def verbs(self) -> list[str]:
        return [verb for verb, _ in self.asked]

    async def node_of(self, name: str) -> str:
        """Where the pod is, once it is anywhere."""
        async with asyncio.timeout(15):
            while not (node := (await self.pod(name)).spec.node_name):
                await asyncio.sleep(0.01)
        return node

    async def reason_of(self, name: str) -> tuple[str, str]:
        """Why the pod waits, once it says so."""
        async with asyncio.timeout(15):
            while True:
                found = conditions.find((await self.pod(name)).status.conditions, "PodScheduled")
                if found is not None and found.status == "False":
                    return found.reason or "", found.message or ""
                await asyncio.sleep(0.01)

    async def pod(self, name: str) -> core.Pod:
        return (await self.store.get(core.POD, Key("default", name))).read(core.Pod)


def a_usual_node(name: str) -> NodeBuilder:
    return a_node(name).cpu(4).memory("8Gi")


def names(document: dict[str, Any]) -> list[str]:
    return list(document["NodeNames"])


@asynccontextmanager
async def scheduling(say: Say, *, extras: list[dict[str, Any]] | None = None, **fields: Any) -> AsyncIterator[World]:
    """`say(verb, what was asked)` is what the extender answers."""
    async with EmbeddedStore.in_memory(clock=SystemClock()) as store:
        world = World(store)

        async def handler(request: web.Request) -> web.Response:
            verb, document = request.path.rpartition("/")[2], await request.json()
            world.asked.append((verb, document))
            return web.json_response(await say(verb, document))

        async with serving(handler) as url:
            extender = {"urlPrefix": url, "nodeCacheCapable": True, "httpTimeout": "300ms", "weight": 1, **fields}
            document = {
                "apiVersion": "kubescheduler.config.k8s.io/v1",
                "kind": "KubeSchedulerConfiguration",
                "extenders": [extender, *(extras or [])],
            }

            def make_engine() -> Engine:
                made = configured_engine(document, lambda _: None)
                assert isinstance(made, tuple), made
                return made[0]

            await stage(store, *map(a_usual_node, NODES))
            async with running(SchedulingController(store, SystemClock(), make_engine).run):
                yield world


async def only_c(_verb: str, asked: dict[str, Any]) -> Any:
    left = [name for name in names(asked) if name == "c"]
    return {"NodeNames": left, "FailedNodes": {name: "too noisy" for name in names(asked) if name != "c"}}


async def test_a_filter_decides_where_a_pod_may_go_and_says_why_it_may_not() -> None:
    async with scheduling(only_c, filterVerb="filter") as world:
        await stage(world.store, a_pod("first").cpu(3))
        assert await world.node_of("first") == "c"
        verb, asked = world.asked[0]
        assert verb == "filter"
        assert sorted(names(asked)) == ["a", "b", "c"]
        assert asked["Pod"]["metadata"]["name"] == "first"
        await stage(world.store, a_pod("second").cpu(3))
        reason, message = await world.reason_of("second")
        assert reason == "Unschedulable"
        assert message.startswith("0/3 nodes are available: 1 Insufficient cpu, 2 too noisy.")
        assert sorted(names(world.asked[1][1])) == ["a", "b"]


async def test_a_pod_that_was_refused_is_asked_about_again_when_something_happens() -> None:
    allowed: set[str] = set()

    async def say(_verb: str, asked: dict[str, Any]) -> Any:
        return {"NodeNames": [name for name in names(asked) if name in allowed]}

    async with scheduling(say, filterVerb="filter") as world:
        await stage(world.store, a_pod("patient"))
        _, message = await world.reason_of("patient")
        assert "3 node(s) were rejected by extender http://" in message
        allowed.add("d")
        await stage(world.store, a_usual_node("d"))
        assert await world.node_of("patient") == "d"


async def test_priorities_change_the_choice() -> None:
    wanted = "a"

    async def say(_verb: str, asked: dict[str, Any]) -> Any:
        return [{"Host": name, "Score": 10 if name == wanted else 0} for name in names(asked)]

    async with scheduling(say, prioritizeVerb="prioritize", weight=100) as world:
        for number in range(6):
            wanted = NODES[number % 2]
            await stage(world.store, a_pod(f"p{number}"))
            assert await world.node_of(f"p{number}") == wanted
        assert world.verbs() == ["prioritize"] * 6


async def test_whole_objects_are_shown_where_names_are_not_enough() -> None:
    async def say(_verb: str, asked: dict[str, Any]) -> Any:
        items = [node for node in asked["Nodes"]["items"] if node["metadata"]["name"] == "b"]
        return {"Nodes": {"items": items}}

    async with scheduling(say, filterVerb="filter", nodeCacheCapable=False) as world:
        await stage(world.store, a_pod("p").annotation("example.com/note", "read me"))
        assert await world.node_of("p") == "b"
        _, asked = world.asked[0]
        assert asked["Pod"]["metadata"]["annotations"]["example.com/note"] == "read me"
        assert asked["Nodes"]["items"][0]["status"]["conditions"]


async def test_only_pods_that_concern_it_are_asked_about() -> None:
    managed = [{"name": "example.com/licence", "ignoredByScheduler": True}]
    async with scheduling(only_c, filterVerb="filter", managedResources=managed) as world:
        await stage(world.store, a_pod("plain"))
        await world.node_of("plain")
        assert world.asked == []
        await stage(world.store, a_pod("licensed").request("example.com/licence", 1))
        assert await world.node_of("licensed") == "c"


async def sleepy(_verb: str, _asked: dict[str, Any]) -> Any:
    await asyncio.sleep(1)
    return {"NodeNames": []}


async def garbled(_verb: str, _asked: dict[str, Any]) -> Any:
    return {"verdict": "fine by me"}


async def lying(_verb: str, _asked: dict[str, Any]) -> Any:
    return {"NodeNames": ["a", "elsewhere"]}


async def test_one_that_may_be_ignored_is_when_it_fails() -> None:
    for say in (sleepy, garbled, lying):
        async with scheduling(say, filterVerb="filter", ignorable=True) as world:
            await stage(world.store, a_pod("p"))
            await world.node_of("p")
            assert world.verbs() == ["filter"]


async def test_one_that_counts_and_fails_costs_its_pods_a_rest_and_others_nothing() -> None:
    cases = (
        (sleepy, "did not answer within 0.3 s"),
        (garbled, "answered with an object that has none of"),
        (lying, "passed nodes that it was not asked about: 'elsewhere'"),
    )
    managed = [{"name": "example.com/licence", "ignoredByScheduler": True}]
    for say, said in cases:
        async with scheduling(say, filterVerb="filter", managedResources=managed) as world:
            await stage(world.store, a_pod("licensed").request("example.com/licence", 1), a_pod("plain"))
            reason, message = await world.reason_of("licensed")
            assert reason == "SchedulerError"
            assert message.startswith('running plugin "Extender": extender http://')
            assert said in message
            await world.node_of("plain")
            assert not (await world.pod("licensed")).spec.node_name


async def test_a_pod_is_placed_once_the_extender_has_recovered() -> None:
    is_well = False

    async def say(verb: str, asked: dict[str, Any]) -> Any:
        return await (only_c if is_well else garbled)(verb, asked)

    async with scheduling(say, filterVerb="filter") as world:
        await stage(world.store, a_pod("p"))
        await world.reason_of("p")
        is_well = True
        assert await world.node_of("p") == "c"


async def test_the_event_loop_is_free_while_an_extender_thinks() -> None:
    async with scheduling(sleepy, filterVerb="filter", httpTimeout="1s") as world:
        await stage(world.store, a_pod("p"))
        while not world.asked:
            await asyncio.sleep(0.01)
        loop = asyncio.get_running_loop()
        begun, longest = loop.time(), 0.0
        while loop.time() < begun + 0.5:
            before = loop.time()
            await asyncio.sleep(0)
            longest = max(longest, loop.time() - before)
        assert longest < 0.2


async def test_members_that_are_alike_are_asked_about_once() -> None:
    async with scheduling(only_c, filterVerb="filter") as world:
        members: list[PodBuilder] = [a_pod(f"m{number}").cpu("500m").in_group("gang") for number in range(4)]
        await stage(world.store, a_pod_group("gang").min_member(4), *members)
        assert {await world.node_of(f"m{number}") for number in range(4)} == {"c"}
        assert world.verbs() == ["filter"]


async def test_an_extender_binds_in_our_stead() -> None:
    store: list[Store] = []

    async def say(_verb: str, asked: dict[str, Any]) -> Any:
        key = Key(asked["PodNamespace"], asked["PodName"])
        await write_one(store[0], Bind(core.POD, key, asked["Node"], asked["PodUID"], {"bound-by": "the extender"}))
        return {"Error": ""}

    async with scheduling(say, bindVerb="bind") as world:
        store.append(world.store)
        await stage(world.store, a_pod("p"))
        assert await world.node_of("p") in NODES
        assert world.verbs() == ["bind"]
        found = await world.store.get(core.POD, Key("default", "p"))
        assert (found.meta.annotations or {})["bound-by"] == "the extender"


async def test_an_extender_whose_answer_is_lost_may_have_bound_nevertheless() -> None:
    """Its pod keeps the room it has: the next one goes elsewhere."""
    store: list[Store] = []

    async def say(_verb: str, asked: dict[str, Any]) -> Any:
        key = Key(asked["PodNamespace"], asked["PodName"])
        await write_one(store[0], Bind(core.POD, key, asked["Node"], asked["PodUID"]))
        return {"Error": "connection reset by peer"}

    for is_ignorable in (False, True):
        store.clear()
        async with scheduling(say, bindVerb="bind", ignorable=is_ignorable) as world:
            store.append(world.store)
            await stage(world.store, *(a_pod(f"p{number}").cpu(4) for number in NODES))
            assert {await world.node_of(f"p{number}") for number in NODES} == set(NODES)
            await asyncio.sleep(0.3)
            events = (await world.store.list(Selection(core.EVENT))).items
            assert [event.read(core.Event).reason for event in events] == ["Scheduled"] * len(NODES)


async def test_an_extender_that_does_not_bind_is_told_on() -> None:
    answers = [({"Error": "no licence left"}, "no licence left"), ({}, "says that the pod is bound, but it is not")]
    for answer, said in answers:

        async def say(_verb: str, _asked: dict[str, Any], answer: Any = answer) -> Any:
            return answer

        async with scheduling(say, bindVerb="bind") as world:
            await stage(world.store, a_pod("p"))
            reason, message = await world.reason_of("p")
            assert reason == "SchedulerError"
            assert said in message
        async with scheduling(say, bindVerb="bind", ignorable=True) as world:
            await stage(world.store, a_pod("p"))
            if "Error" in answer:
                assert await world.node_of("p") in NODES


async def test_extenders_have_a_say_in_who_is_evicted_and_where_the_room_goes() -> None:
    async def say(verb: str, asked: dict[str, Any]) -> Any:
        if verb == "filter":
            return await only_c(verb, asked)
        candidates = asked["NodeNameToMetaVictims"]
        return {"NodeNameToMetaVictims": {name: candidates[name] for name in candidates if name == "c"}}

    async with scheduling(say, filterVerb="filter", preemptVerb="preempt") as world:
        await stage(world.store, *(a_pod(f"low-{name}").cpu(4).on_node(name) for name in NODES))
        await asyncio.sleep(0.1)
        await stage(world.store, a_pod("high").cpu(4).set(10, "spec", "priority"))
        async with asyncio.timeout(15):
            while not (await world.pod("low-c")).metadata.deletion_timestamp:
                await asyncio.sleep(0.01)
        assert not (await world.pod("low-a")).metadata.deletion_timestamp
        await world.store.write([Delete(core.POD, Key("default", "low-c"), grace_seconds=0)])
        assert await world.node_of("high") == "c"
        # No node had room at first, so there was none to ask about; of the one that got some it is asked in the end.
        assert world.verbs() == ["preempt", "filter"]
        assert names(world.asked[1][1]) == ["c"]


async def gang_over_full_nodes(world: World, count: int) -> None:
    await stage(world.store, *(a_pod(f"low-{name}").cpu(4).on_node(name) for name in NODES))
    await asyncio.sleep(0.1)
    members = [a_pod(f"m{number}").cpu(4).set(10, "spec", "priority").in_group("gang") for number in range(count)]
    await stage(world.store, a_pod_group("gang").min_member(count), *members)


async def leaving(world: World) -> set[str]:
    names = [f"low-{name}" for name in NODES]
    return {name for name in names if (await world.pod(name)).metadata.deletion_timestamp}


async def evicted(world: World, *names: str) -> None:
    """Those are told to go, and are gone."""
    async with asyncio.timeout(15):
        while await leaving(world) != set(names):
            await asyncio.sleep(0.01)
    await world.store.write([Delete(core.POD, Key("default", name), grace_seconds=0) for name in names])


def without_a(asked: dict[str, Any]) -> Any:
    candidates = asked["NodeNameToMetaVictims"]
    return {"NodeNameToMetaVictims": {name: candidates[name] for name in candidates if name != "a"}}


async def test_extenders_have_a_say_in_whom_a_gang_evicts() -> None:
    async def say(_verb: str, asked: dict[str, Any]) -> Any:
        return without_a(asked)

    async with scheduling(say, preemptVerb="preempt") as world:
        await gang_over_full_nodes(world, 2)
        await evicted(world, "low-b", "low-c")
        assert {await world.node_of("m0"), await world.node_of("m1")} == {"b", "c"}
        asked = [document for verb, document in world.asked if verb == "preempt"]
        assert len(asked) == len(world.asked) <= 2, (
            "members that are alike are asked about once, after each objection again"
        )
        assert sorted(asked[-1]["NodeNameToMetaVictims"]) == ["b", "c"]
        assert asked[-1]["Pod"]["metadata"]["name"] in ("m0", "m1")


async def test_nobody_is_evicted_for_a_gang_if_the_extender_does_not_agree_or_fails() -> None:
    async def refuses(_verb: str, asked: dict[str, Any]) -> Any:
        return without_a(asked)

    async def rambles(_verb: str, _asked: dict[str, Any]) -> Any:
        return ["low-a", "low-b"]

    cases: tuple[tuple[Say, int, str], ...] = (
        (refuses, 3, "extenders agree to no victims whose room would be enough"),
        (sleepy, 2, "did not answer within 0.3 s"),
        (rambles, 2, "answered with an array where an object was expected"),
    )
    for say, count, said in cases:
        async with scheduling(say, preemptVerb="preempt") as world:
            await gang_over_full_nodes(world, count)
            _, message = await world.reason_of("m0")
            assert "pod group preemption: " in message
            assert said in message
            assert not await leaving(world)


async def test_an_extender_that_may_be_ignored_does_not_stop_a_gang() -> None:
    async with scheduling(sleepy, preemptVerb="preempt", ignorable=True) as world:
        await gang_over_full_nodes(world, 3)
        await evicted(world, "low-a", "low-b", "low-c")
        assert {await world.node_of(f"m{number}") for number in range(3)} == set(NODES)


async def test_a_gang_that_does_not_concern_the_extender_is_not_asked_about() -> None:
    managed = [{"name": "example.com/licence"}]
    async with scheduling(sleepy, preemptVerb="preempt", managedResources=managed) as world:
        await gang_over_full_nodes(world, 3)
        await evicted(world, "low-a", "low-b", "low-c")
        assert world.asked == []


async def test_a_node_that_eviction_freed_is_not_used_against_the_extender() -> None:
    async def say(_verb: str, asked: dict[str, Any]) -> Any:
        return {"NodeNames": [name for name in names(asked) if name == "b"]}

    async with scheduling(say, filterVerb="filter") as world:
        await stage(world.store, a_pod("low-a").cpu(4).on_node("a"))
        await stage(
            world.store, *(a_pod(f"busy-{name}").cpu(4).set(100, "spec", "priority").on_node(name) for name in "bc")
        )
        await asyncio.sleep(0.1)
        await stage(world.store, a_pod("high").cpu(4).set(10, "spec", "priority"))
        async with asyncio.timeout(15):
            while not (await world.pod("low-a")).metadata.deletion_timestamp:
                await asyncio.sleep(0.01)
        await world.store.write([Delete(core.POD, Key("default", "low-a"), grace_seconds=0)])
        _, message = await world.reason_of("high")
        assert "rejected by extender" in message
        await world.store.write([Delete(core.POD, Key("default", "busy-b"), grace_seconds=0)])
        assert await world.node_of("high") == "b"
