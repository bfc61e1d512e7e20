"""All controllers at once in real time: over SQLite as `muster up` runs them, and over HTTP as they run alone."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from muster.api import core, volcano
from muster.api.objects import Key
from muster.controllers.events import EventCleaner
from muster.controllers.garbage import GarbageCollector
from muster.controllers.namespaces import NamespaceController
from muster.controllers.nodes import NodeController
from muster.controllers.podgroups import PodGroupController
from muster.controllers.scheduling import SchedulingController
from muster.placement.engine import default_engine
from muster.runtime.clock import SystemClock
from muster.runtime.supervision import supervise
from muster.store.embedded import EmbeddedStore
from muster.store.http import HttpStore
from muster.store.protocol import Create, Delete, Patch, Selection, Store, write_one
from muster.testing.builders import Builder, a_node, a_pod, a_pod_group
from muster.testing.servers import serving
from muster.testing.staging import running, stage

CLOCK = SystemClock()


@asynccontextmanager
async def a_platform(path: Path, how: str) -> AsyncIterator[EmbeddedStore]:
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(EmbeddedStore.on_disk(path / "store.db", clock=CLOCK))
        theirs: Store = store
        if how == "http":
            address = await stack.enter_async_context(serving(store))
            theirs = await stack.enter_async_context(HttpStore(address.url, address.token))
        components = {
            "scheduler": SchedulingController(theirs, CLOCK, default_engine).run,
            "pod groups": PodGroupController(theirs, CLOCK).run,
            "nodes": NodeController(theirs, CLOCK).run,
            "garbage": GarbageCollector(theirs, CLOCK).run,
            "namespaces": NamespaceController(theirs, CLOCK).run,
            "events": EventCleaner(theirs, CLOCK).run,
        }
        await stack.enter_async_context(running(lambda: supervise(components, clock=CLOCK)))
        yield store


over_each_store = pytest.mark.parametrize("how", ["embedded", "http"])


async def until(holds: Callable[[], Coroutine[None, None, bool]], seconds: float = 20.0) -> float:
    """How long it took."""
    started = CLOCK.monotonic()
    async with asyncio.timeout(seconds):
        while not await holds():
            await asyncio.sleep(0.0005)
    return CLOCK.monotonic() - started


async def are_bound(store: Store, *names: str) -> bool:
    pods = {pod.key.name: pod.read(core.Pod).spec.node_name for pod in (await store.list(Selection(core.POD))).items}
    return all(pods.get(name) for name in names)


@over_each_store
async def test_a_lone_pod_is_bound_in_milliseconds(tmp_path: Path, how: str) -> None:
    async with a_platform(tmp_path, how) as store:
        await stage(store, a_node("n").cpu(64))
        await asyncio.sleep(0.2)
        took = []
        for number in range(20):
            name = f"p{number}"
            await stage(store, a_pod(name).cpu("100m"))
            took.append(await until(lambda name=name: are_bound(store, name)))  # type: ignore[misc]
        # A few milliseconds where nothing else runs; the bound leaves room for a busy machine.
        assert sorted(took)[len(took) // 2] < 0.1, took


@over_each_store
async def test_a_job_lives_and_everything_of_it_goes_with_its_namespace(tmp_path: Path, how: str) -> None:
    async with a_platform(tmp_path, how) as store:
        await stage(store, a_node("n").gpus(8))
        await stage(store, Builder({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}}))
        (group,) = await stage(store, a_pod_group("g", "team").min_member(4))
        members = [a_pod(f"w{number}", "team").gpus(2).in_group("g") for number in range(4)]
        owned = [member.owned_by(group.document(), blocking=True, controller=True) for member in members]
        await store.write([Create(core.POD, member.document()) for member in owned])
        await until(lambda: are_bound(store, "w0", "w1", "w2", "w3"))

        for member in members:
            body = {"status": {"phase": "Succeeded"}}
            await write_one(store, Patch(core.POD, member.key, body, subresource="status"))

        async def is_complete() -> bool:
            found = await store.get(volcano.POD_GROUP, group.key)
            return found.read(volcano.PodGroup).status.phase == "Completed"

        await until(is_complete)
        await store.write([Delete(core.NAMESPACE, Key("", "team"))])

        async def is_gone() -> bool:
            return "team" not in {found.key.name for found in (await store.list(Selection(core.NAMESPACE))).items}

        await until(is_gone)
        assert not (await store.list(Selection(core.POD))).items
        assert not (await store.list(Selection(volcano.POD_GROUP))).items


@over_each_store
async def test_after_a_restart_what_was_bound_still_counts(tmp_path: Path, how: str) -> None:
    async with a_platform(tmp_path, how) as store:
        await stage(store, a_node("n").cpu(2), a_pod("first").cpu(2))
        await until(lambda: are_bound(store, "first"))
    async with a_platform(tmp_path, how) as store:
        await stage(store, a_pod("second").cpu(2))

        async def is_told() -> bool:
            found = await store.get(core.POD, Key("default", "second"))
            return "Insufficient cpu" in str(found.document()["status"].get("conditions"))

        await until(is_told)
        await store.write([Delete(core.POD, Key("default", "first"), grace_seconds=0)])
        await until(lambda: are_bound(store, "second"))
