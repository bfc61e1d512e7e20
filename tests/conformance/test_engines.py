"""Every engine keeps the promises of the protocol."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass

from muster.api import muster
from muster.api.objects import Key
from muster.engines.pods import PodsEngine
from muster.engines.protocol import AllocationId, Exit, Failure, ResourceId, ResourceManager
from muster.runtime.clock import VirtualClock
from muster.store.protocol import Patch, write_one
from muster.testing.builders import a_node
from muster.testing.engines import SLOTS, EngineSuite, EngineWorld, PretendEngine
from muster.testing.staging import running
from tests.unit.tasks.task_worlds import World, a_world


@dataclass
class _Pods:
    engine: PodsEngine
    world: World

    async def finish(self, resource: ResourceId, code: int) -> None:
        await self.world.finish(resource, code=code)

    async def ask_back(self, allocation: AllocationId) -> None:
        await write_one(
            self.world.store, Patch(muster.ALLOCATION, Key("default", allocation), {"spec": {"suspend": True}})
        )

    @asynccontextmanager
    async def restarted(self) -> AsyncIterator[ResourceManager]:
        engine = PodsEngine(self.world.store, self.world.clock)
        async with running(engine.run):
            yield engine


class TestPods(EngineSuite):
    def world(self, clock: VirtualClock) -> AbstractAsyncContextManager[EngineWorld]:
        return self._world(clock)

    @asynccontextmanager
    async def _world(self, clock: VirtualClock) -> AsyncIterator[EngineWorld]:
        async with a_world(clock, a_node("n1").cpu(SLOTS).memory("16Gi")) as world:
            engine = PodsEngine(world.store, clock)
            async with running(engine.run):
                yield _Pods(engine, world)


@dataclass
class _Pretended:
    engine: PretendEngine

    async def finish(self, resource: ResourceId, code: int) -> None:
        self.engine.finish(resource, Exit(code, Failure.RESOURCES_FAILED if code else None))

    async def ask_back(self, allocation: AllocationId) -> None:
        self.engine.ask_back(allocation)

    @asynccontextmanager
    async def restarted(self) -> AsyncIterator[ResourceManager]:
        self.engine = PretendEngine(self.engine.machine)
        yield self.engine


class TestPretended(EngineSuite):
    def world(self, clock: VirtualClock) -> AbstractAsyncContextManager[EngineWorld]:
        return self._world()

    @asynccontextmanager
    async def _world(self) -> AsyncIterator[EngineWorld]:
        yield _Pretended(PretendEngine())
