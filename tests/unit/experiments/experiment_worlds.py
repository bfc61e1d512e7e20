"""Experiments over real records and the real service of allocations; only the machines and the programs are pretended.

What a program does is a `Plan`; programs live on while the server is gone, as they do on other machines.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from sqlalchemy import Connection, insert, select
from tests.unit.tasks.service_worlds import Lines, Sessions

from muster.accounts.audit import By
from muster.accounts.callers import Caller, UserId
from muster.api.errors import ApiError
from muster.api.raw import JSON, Document
from muster.engines.protocol import AllocationId, Exit, Failure, Request, ResourceId, ResourceState
from muster.experiments import experiment_records, inbox
from muster.experiments.experiment_records import Experiment
from muster.experiments.inbox import EarlyExit, Gave, Validated
from muster.experiments.registry import Conductors
from muster.experiments.starting import Services
from muster.experiments.states import ENDED, ExperimentId, ExperimentState, TrialId
from muster.experiments.trial_records import Trial, of_experiment
from muster.records.tables_accounts import PROJECTS, USERS, WORKSPACES
from muster.records.tables_tasks import ALLOCATIONS, JOBS
from muster.runtime.clock import VirtualClock
from muster.tasks.allocating import AllocationService
from muster.tasks.contract import Launch
from muster.tasks.harness import Harness
from muster.tasks.log_lines import Line, Origin, Stored
from muster.tasks.log_records import Encode
from muster.tasks.logs import Query
from muster.testing.engines import PretendEngine, PretendMachine
from muster.testing.inline_database import InlineDatabase

T = TypeVar("T")
ANN = By(Caller(UserId(1), "ann"), "10.0.0.1")
DONE, BAD = Exit(0), Exit(1, Failure.RESOURCES_FAILED, "it broke")


def a_config(searcher: Mapping[str, JSON] | None = None, **more: JSON) -> Document:
    """With what a conductor reads of it."""
    return {
        "name": "x",
        "searcher": {"name": "single", "metric": "loss", **(searcher or {})},
        "hyperparameters": {"lr": {"type": "double", "minval": 0.0, "maxval": 1.0}},
        "reproducibility": {"experiment_seed": 7},
        "max_restarts": 2,
        "resources": {"slots_per_trial": 1},
        **more,
    }


@dataclass(frozen=True)
class Plan:
    """`metric`: reported just before it ends. `heeds`: stops when it is asked to, and says so."""

    seconds: float = 1.0
    exit: Exit = DONE
    metric: float | None = None
    gives_up: EarlyExit | None = None
    heeds: bool = True


class CrashingDatabase(InlineDatabase):
    """After so many writes nothing returns any more, as if the process had been killed then."""

    def __init__(self) -> None:
        super().__init__()
        self.left: int | None = None
        self.crashed = asyncio.Event()

    async def write(self, change: Callable[[Connection], T]) -> T:
        if self.left is not None and self.left <= 0:
            await self._crash()
        made = await super().write(change)
        if self.left is not None:
            self.left -= 1
            if self.left <= 0:
                await self._crash()
        return made

    async def _crash(self) -> None:
        self.crashed.set()
        await asyncio.Event().wait()

    def arm(self, writes: int | None) -> None:
        self.left = writes
        self.crashed.clear()


class PlainLauncher:
    """`broken`: raised by the next launches."""

    def __init__(self) -> None:
        self.broken: list[Exception] = []
        self.excluded: list[tuple[str, ...]] = []

    async def launch(
        self, experiment: Experiment, trial: Trial, run: int, allocation: AllocationId, excluded: Collection[str] = ()
    ) -> Launch:
        if self.broken:
            raise self.broken.pop(0)
        self.excluded.append(tuple(excluded))
        request = Request(
            allocation=allocation,
            task=trial.task,
            task_type="TRIAL",
            template={},
            job=experiment.job,
            slots=experiment.slots_per_trial,
            is_preemptible=True,
            preemption_timeout_seconds=60,
        )
        return Launch(request, experiment.user)


class TrialLines(Lines):
    def __init__(self) -> None:
        super().__init__()
        self.ends: list[str] = []
        self.written: list[tuple[Origin, Line]] = []

    async def ended(self, task: str) -> None:
        self.ends.append(task)

    async def read(self, query: Query, encode: Encode) -> AsyncIterator[bytes]:
        """What the tasks themselves wrote."""
        matches = query.chosen.matches()
        for origin, line in self.written:
            if origin.allocation in query.chosen.allocations and (matches is None or matches(line)):
                yield encode(Stored(1, query.task, origin, line))


@dataclass
class Life:
    service: AllocationService
    conductors: Conductors
    harness: Harness
    engine: PretendEngine


@dataclass
class World:
    """What stays when the server crashes. `plan`: what a program does, by its trial's number from 0, and how
    often the trial has begun."""

    clock: VirtualClock
    slots: int = 4
    database: CrashingDatabase = field(default_factory=CrashingDatabase)
    sessions: Sessions = field(default_factory=Sessions)
    lines: TrialLines = field(default_factory=TrialLines)
    launcher: PlainLauncher = field(default_factory=PlainLauncher)
    plan: Callable[[int, int], Plan] = lambda trial, run: Plan()
    life: Life | None = None
    most_at_once: int = 0
    begun: list[AllocationId] = field(default_factory=list)
    forgotten: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.machine = PretendMachine(self.slots)
        self._ends: dict[ResourceId, float] = {}
        self._reported: set[ResourceId] = set()

    async def make(self, config: Document | None = None, **columns: object) -> ExperimentId:
        """In the records, as whoever creates one leaves it."""
        config = config or a_config()

        def change(connection: Connection) -> ExperimentId:
            if connection.scalar(select(USERS.c.id)) is None:
                connection.execute(insert(USERS).values(id=1, username="ann", created=0.0, modified=0.0))
                connection.execute(insert(WORKSPACES).values(id=1, name="lab", user_id=1, created=0.0))
                row = {"id": 1, "workspace_id": 1, "name": "p", "key": "P", "user_id": 1, "notes": [], "created": 0.0}
                connection.execute(insert(PROJECTS).values(row))
            job = f"job-{connection.scalar(select(JOBS.c.id).order_by(JOBS.c.id.desc())) or ''}"
            connection.execute(insert(JOBS).values(id=job, type="EXPERIMENT", user_id=1, created=0.0))
            values = {
                "job_id": job,
                "project_id": 1,
                "user_id": 1,
                "state": "ACTIVE",
                "config": config,
                "labels": [],
                "slots_per_trial": config["resources"]["slots_per_trial"],
                "created": self.clock.now(),
                **columns,
            }
            return experiment_records.add(connection, values)

        return await self.database.write(change)

    async def experiment(self, id: ExperimentId) -> Experiment:
        return await self.database.read(lambda connection: experiment_records.get(connection, id))

    async def trials(self, id: ExperimentId) -> list[Trial]:
        return await self.database.read(lambda connection: of_experiment(connection, id))

    async def until_ended(self, id: ExperimentId) -> Experiment:
        while (found := await self.experiment(id)).state not in ENDED:
            await self.clock.sleep(0.5)
        return found

    async def until(self, id: ExperimentId, state: ExperimentState) -> None:
        while (await self.experiment(id)).state is not state:
            await self.clock.sleep(0.5)

    async def allocations(self) -> list[str]:
        query = select(ALLOCATIONS.c.id).order_by(ALLOCATIONS.c.requested, ALLOCATIONS.c.id)
        return await self.database.read(lambda connection: list(connection.scalars(query)))

    async def report(self, trial: Trial, metric: float, length: float) -> None:
        validated = Validated(trial.id, metric, length)
        await self.database.write(lambda connection: inbox.post(connection, trial.experiment, validated))
        if self.life is not None:
            self.life.conductors.wake(trial.experiment)

    # Programs

    async def programs(self) -> None:
        """For ever."""
        while True:
            for id, entry in list(self.machine.entries.items()):
                for resource in list(entry.resources.values()):
                    if resource.state is ResourceState.RUNNING:
                        with contextlib.suppress(ApiError, TimeoutError):  # the server is gone: it tries again
                            async with asyncio.timeout(1):
                                await self._go_on(id, resource.id)
            running = [id for id, entry in self.machine.entries.items() if entry.resources]
            self.most_at_once = max(self.most_at_once, len(running))
            assert len({id.rpartition(".")[0] for id in running}) == len(running), "two runs of one trial at once"
            await self.clock.sleep(0.25)

    async def _go_on(self, id: AllocationId, resource: ResourceId) -> None:
        if id not in self.begun:
            self.begun.append(id)
        plan = await self._plan(id)
        self._ends.setdefault(resource, self.clock.monotonic() + plan.seconds)
        life = self.life
        if life is None or life.service.state(id) is None:
            return  # nobody to talk to
        await life.harness.ready(id)
        if plan.heeds and await life.harness.should_stop(id, 0):
            await life.harness.acknowledge(id)
            life.engine.finish(resource, DONE)
        elif self.clock.monotonic() >= self._ends[resource]:
            await self._report(id, resource, plan, life)
            life.engine.finish(resource, plan.exit)

    async def _report(self, id: AllocationId, resource: ResourceId, plan: Plan, life: Life) -> None:
        if resource in self._reported:
            return
        experiment, trial = await self._whose(id)
        happened: list[inbox.Happened] = []
        if plan.metric is not None:
            happened.append(Validated(trial, plan.metric, 1.0))
        if plan.gives_up is not None:
            happened.append(Gave(trial, plan.gives_up))
        await self.database.write(lambda connection: inbox.post(connection, experiment, *happened))
        self._reported.add(resource)
        life.conductors.wake(experiment)

    async def _plan(self, id: AllocationId) -> Plan:
        experiment, trial = await self._whose(id)
        ids = [found.id for found in await self.trials(experiment)]
        task = id.rpartition(".")[0]
        tries = [begun for begun in self.begun if begun.rpartition(".")[0] == task]
        return self.plan(ids.index(trial), tries.index(id) + 1)

    async def _whose(self, id: AllocationId) -> tuple[ExperimentId, TrialId]:
        task = id.rpartition(".")[0]
        experiment = ExperimentId(int(task.partition(".")[0]))
        return experiment, next(found.id for found in await self.trials(experiment) if found.task == task)


@asynccontextmanager
async def alive(world: World) -> AsyncIterator[Life]:
    """Until the block ends: then the server is gone, without a word."""
    engine = PretendEngine(world.machine)
    service = AllocationService(world.database, world.clock, engine, world.sessions, world.lines)
    services = Services(world.database, world.clock, service, world.launcher, world.lines)

    async def write(experiment: ExperimentId, change: Callable[[Connection], T], *, may_end: bool) -> T:
        return await world.database.write(change)

    conductors = Conductors(services, write, world.forgotten.update)
    service.on_exit("TRIAL", conductors.exited)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(service.run()), group.create_task(conductors.run())]
        world.life = Life(service, conductors, Harness(service, world.database, world.clock), engine)
        try:
            yield world.life
        finally:
            world.life = None
            for task in tasks:
                task.cancel()


@asynccontextmanager
async def programs(world: World) -> AsyncIterator[None]:
    """On other machines, whatever becomes of the server."""
    async with asyncio.TaskGroup() as group:
        task = group.create_task(world.programs())
        try:
            yield
        finally:
            task.cancel()
