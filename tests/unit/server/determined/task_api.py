"""The routes about tasks, over real records and a real store; only the engine pretends."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.unit.server.determined.account_api import Api, callers

from muster.accounts.callers import Caller
from muster.assembly.interactive import Setting, interactive_tasks
from muster.assembly.tasking import TaskServices
from muster.engines.protocol import AllocationId, Exit, ResourceId
from muster.records import Database
from muster.runtime.clock import SystemClock
from muster.server.determined import account_routes, allocations
from muster.server.determined.router import Router
from muster.settings.sections import PlatformSettings
from muster.store.embedded import EmbeddedStore
from muster.tasks.allocating import AllocationService
from muster.tasks.commands import Tasks
from muster.tasks.harness import Harness
from muster.tasks.log_retention import Retention
from muster.tasks.logs import TaskLogs
from muster.tasks.proxy_tokens import ProxyTokens
from muster.testing import accounts
from muster.testing.accounts import Ground
from muster.testing.engines import PretendEngine, PretendMachine


@dataclass
class World:
    """What stays when the server is gone."""

    ground: Ground
    store: EmbeddedStore
    folder: Path
    machine: PretendMachine


@dataclass
class Life:
    api: Api
    world: World
    engine: PretendEngine
    allocations: AllocationService
    tasks: Tasks

    def finish(self, task: str, exit: Exit, run: int = 1) -> None:
        self.engine.finish(ResourceId(f"{task}.{run}-0"), exit)

    async def until_ended(self, task: str) -> None:
        async with asyncio.timeout(5):
            while (await self.tasks.get(task)).ended is None:
                await asyncio.sleep(0.005)

    async def until_state(self, task: str, state: str) -> None:
        async with asyncio.timeout(5):
            while (await self.tasks.get(task)).state != state:
                await asyncio.sleep(0.005)

    async def until_runs(self, task: str, run: int = 1) -> None:
        async with asyncio.timeout(5):
            while (state := self.allocations.state(AllocationId(f"{task}.{run}"))) is None or not state.chief_address:
                await asyncio.sleep(0.005)


async def generic(life: Life, **body: str | bool | int | list[dict[str, object]]) -> str:
    """A generic task that was made."""
    reply = await life.api("POST", "/generic-tasks", {"config": "entrypoint: [true]\nresources: {slots: 1}", **body})
    found: str = reply["taskId"]
    return found


@asynccontextmanager
async def a_world(folder: Path) -> AsyncIterator[World]:
    async with accounts.ground(folder) as ground, EmbeddedStore.in_memory(clock=SystemClock()) as store:
        yield World(ground, store, folder, PretendMachine())


@asynccontextmanager
async def alive(world: World, settings: PlatformSettings | None = None) -> AsyncIterator[Life]:
    """Until the block ends: then the server is gone, without a word."""
    clock, ground = SystemClock(), world.ground
    database: Database = ground.database
    engine = PretendEngine(world.machine)

    async def authenticate(headers: Mapping[str, str]) -> Caller | None:
        return callers[0]

    async with TaskLogs(database, clock) as logs:
        service = AllocationService(database, clock, engine, ground.services.accounts, logs)
        harness = Harness(service, database, clock)
        services = TaskServices(engine, logs, service, harness, Retention(database, clock), database, clock)
        setting = Setting(world.store, clock, world.folder, "http://127.0.0.1:7077", "", "cluster")
        tokens = await ProxyTokens.load(database)
        made = await interactive_tasks(settings or PlatformSettings(), setting, services, ground.services, tokens)
        routes = [
            *account_routes.routes(ground.services),
            *allocations.routes(harness, database),
            *made.routes,
        ]
        api = Api(ground, Router(routes, authenticate, ground.services.authorizer))
        async with asyncio.TaskGroup() as group:
            task = group.create_task(service.run())
            try:
                yield Life(api, world, engine, service, made.tasks)
            finally:
                task.cancel()
