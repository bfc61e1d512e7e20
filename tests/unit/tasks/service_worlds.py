"""The service of allocations over an engine that runs nothing, and records that survive its crashes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from sqlalchemy import Connection, insert, select

from muster.accounts.callers import UserId
from muster.engines.protocol import AllocationId, Exit, Failure, ResourceId, ResourceManager
from muster.records.tables_accounts import USERS
from muster.records.tables_tasks import ALLOCATIONS, JOBS, TASKS
from muster.runtime.clock import VirtualClock
from muster.tasks.allocating import AllocationService
from muster.tasks.allocation_states import Phase, State
from muster.tasks.contract import Exited, Launch, ProxyPort
from muster.tasks.harness import Harness
from muster.tasks.log_lines import Level, Origin
from muster.testing.engines import PretendEngine, PretendMachine, a_request
from muster.testing.inline_database import InlineDatabase

ID = AllocationId("t.1")
PART = ResourceId("t.1-0")
MASTER = Origin(source="master")
DONE, BAD = Exit(0), Exit(1, Failure.RESOURCES_FAILED, "it broke")


class Sessions:
    def __init__(self) -> None:
        self.open: dict[str, str] = {}
        self.opened = 0
        self.failures = 0

    async def open_allocation(self, user: UserId, task: str, allocation: str) -> str:
        self.opened += 1
        token = f"token-{self.opened}"
        self.open[allocation] = token
        return token

    async def close_task(self, task: str, allocation: str = "") -> None:
        if self.failures:
            self.failures -= 1
            raise OSError("the records are away")
        self.open.pop(allocation, None)


class Lines:
    def __init__(self) -> None:
        self.told: list[tuple[str, str, str]] = []

    async def tell(self, task: str, text: str, level: Level = Level.INFO, origin: Origin = MASTER) -> None:
        self.told.append((task, level.name, text))


@dataclass
class World:
    """What stays when the service crashes."""

    clock: VirtualClock
    database: InlineDatabase = field(default_factory=InlineDatabase)
    machine: PretendMachine = field(default_factory=PretendMachine)
    sessions: Sessions = field(default_factory=Sessions)
    lines: Lines = field(default_factory=Lines)
    exits: list[Exited] = field(default_factory=list)
    phases: list[Phase] = field(default_factory=list)

    async def task(self, *names: str) -> None:
        def change(connection: Connection) -> None:
            if connection.scalar(select(USERS.c.id)) is None:
                connection.execute(insert(USERS).values(id=1, username="ann", created=0.0, modified=0.0))
            for name in names:
                job = {"id": f"job-{name}", "type": "COMMAND", "user_id": 1, "created": 0.0}
                connection.execute(insert(JOBS).values(**job))
                connection.execute(
                    insert(TASKS).values(id=name, type="COMMAND", job_id=f"job-{name}", user_id=1, created=0.0)
                )

        await self.database.write(change)

    async def row(self, id: str = ID) -> dict[str, object]:
        def query(connection: Connection) -> dict[str, object]:
            found = connection.execute(select(ALLOCATIONS).where(ALLOCATIONS.c.id == id)).one()
            return dict(found._mapping)

        return await self.database.read(query)


@dataclass
class Life:
    """One life of the server."""

    world: World
    engine: PretendEngine
    service: AllocationService
    harness: Harness
    task: asyncio.Task[None]

    async def start(self, name: str = "t.1", **request: object) -> None:
        proxies = [ProxyPort(2900)]
        await self.service.start(Launch(a_request(name, **request), UserId(1), proxies, {"C10D_PORT": 29400}))

    def finish(self, part: ResourceId = PART, exit: Exit = DONE) -> None:
        self.engine.finish(part, exit)

    def state(self, id: AllocationId = ID) -> State:
        found = self.service.state(id)
        assert found is not None
        return found


@asynccontextmanager
async def alive(world: World, engine: ResourceManager | None = None) -> AsyncIterator[Life]:
    """Until the block ends: then the server is gone, without a word."""
    pretended = PretendEngine(world.machine)
    service = AllocationService(
        world.database, world.clock, engine or pretended, world.sessions, world.lines
    )  # fmt: skip

    async def exited(exit: Exited) -> None:
        world.exits.append(exit)

    service.on_exit("COMMAND", exited)
    service.on_change(lambda _task, state: world.phases.append(state.phase))
    harness = Harness(service, world.database, world.clock)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(service.run())
        try:
            yield Life(world, pretended, service, harness, task)
        finally:
            task.cancel()
