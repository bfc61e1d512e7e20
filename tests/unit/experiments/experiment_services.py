"""The service of experiments as the platform puts it together, over real records; only the engine pretends."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from uuid import uuid4

from sqlalchemy import select

from muster.accounts.audit import By
from muster.api.raw import JSON
from muster.assembly.experimenting import Experimenting, experimenting
from muster.assembly.interactive import InteractiveTasks, Setting, interactive_tasks
from muster.assembly.tasking import TaskServices
from muster.engines.protocol import AllocationId, Exit, ResourceId
from muster.experiments import experiment_records, trial_records
from muster.experiments.contract import NewExperiment
from muster.experiments.experiment_records import Experiment
from muster.experiments.running import ExperimentService
from muster.experiments.states import ExperimentId, ExperimentState
from muster.experiments.trial_records import Trial
from muster.records import Database
from muster.records.tables_accounts import AUDIT
from muster.runtime.clock import SystemClock
from muster.settings.sections import PlatformSettings
from muster.store.embedded import EmbeddedStore
from muster.tasks.allocating import AllocationService
from muster.tasks.allocation_states import State
from muster.tasks.harness import Harness
from muster.tasks.log_retention import Retention
from muster.tasks.logs import TaskLogs
from muster.tasks.proxy_tokens import ProxyTokens
from muster.tasks.webhook_records import Delivery
from muster.tasks.webhook_sending import Outcome, Taken
from muster.tasks.webhooks import Webhooks
from muster.testing import accounts
from muster.testing.accounts import ADMIN, Ground
from muster.testing.engines import PretendEngine, PretendMachine
from muster.testing.staging import running

CONFIG = """
name: mnist
entrypoint: python train.py
labels: [a, b]
searcher: {name: single, metric: loss}
hyperparameters: {lr: 0.1}
max_restarts: 0
"""
DONE = Exit(0)
PATIENCE = 30.0


class Silence:
    """Takes whatever webhooks send."""

    async def check(self, url: str) -> None:
        pass

    async def send(self, delivery: Delivery, now: float) -> Outcome:
        return Taken()


@dataclass
class Life:
    folder: Path
    ground: Ground
    store: EmbeddedStore
    engine: PretendEngine
    allocations: AllocationService
    logs: TaskLogs
    interactive: InteractiveTasks
    experimenting: Experimenting
    hooks: Webhooks

    @property
    def database(self) -> Database:
        return self.ground.database

    @property
    def service(self) -> ExperimentService:
        return self.experimenting.core.service

    async def create(self, config: str = CONFIG, by: By = ADMIN, **new: JSON) -> Experiment:
        made = (await self.service.create(by, NewExperiment(config, **new))).experiment
        assert isinstance(made, Experiment)
        return made

    async def get(self, id: ExperimentId) -> Experiment:
        return await self.database.read(lambda connection: experiment_records.get(connection, id))

    async def trials(self, id: ExperimentId) -> list[Trial]:
        return await self.database.read(lambda connection: trial_records.of_experiment(connection, id))

    async def until(self, id: ExperimentId, *states: ExperimentState) -> Experiment:
        async with asyncio.timeout(PATIENCE):
            while (found := await self.get(id)).state not in states:
                await asyncio.sleep(0.005)
        return found

    async def until_runs(self, id: ExperimentId) -> Trial:
        """Its first trial."""
        async with asyncio.timeout(PATIENCE):
            while True:
                for trial in await self.trials(id):
                    state = self.allocations.state(AllocationId(f"{trial.task}.{trial.run}"))
                    if state is not None and state.chief_address:
                        return trial
                await asyncio.sleep(0.005)

    def finish(self, trial: Trial, exit: Exit = DONE) -> None:
        self.engine.finish(ResourceId(f"{trial.task}.{trial.run}-0"), exit)

    async def deeds(self) -> list[tuple[str, str]]:
        query = select(AUDIT.c.action, AUDIT.c.target).order_by(AUDIT.c.id)
        rows = await self.database.read(lambda connection: connection.execute(query).all())
        return [(row.action, row.target) for row in rows]


@asynccontextmanager
async def a_platform(folder: Path) -> AsyncIterator[Life]:
    async with (
        accounts.ground(folder) as ground,
        EmbeddedStore.in_memory(clock=SystemClock()) as store,
        alive(folder, ground, store, PretendMachine()) as life,
    ):
        yield life


@asynccontextmanager
async def alive(folder: Path, ground: Ground, store: EmbeddedStore, machine: PretendMachine) -> AsyncIterator[Life]:
    """Until the block ends: then the server is gone, without a word."""
    clock, database, settings = SystemClock(), ground.database, PlatformSettings()
    engine = PretendEngine(machine)
    async with TaskLogs(database, clock) as logs:
        service = AllocationService(database, clock, engine, ground.services.accounts, logs)
        harness = Harness(service, database, clock)
        tasks = TaskServices(engine, logs, service, harness, Retention(database, clock), database, clock)
        setting = Setting(store, clock, folder, "http://127.0.0.1:7077", "", "cluster")
        tokens = await ProxyTokens.load(database)
        made = await interactive_tasks(settings, setting, tasks, ground.services, tokens)
        hooks = Webhooks(database, clock, Silence(), uuid4)
        experiments = experimenting(settings, setting, tasks, made, ground.services, hooks)
        service.on_change(partial(_removed, engine))
        async with running(service.run, *experiments.components.values()):
            yield Life(folder, ground, store, engine, service, logs, made, experiments, hooks)


def _removed(engine: PretendEngine, task: str, state: State) -> None:
    """There is nothing to remove: tasks for that end as soon as they run. Those of trials have a dot in their names."""
    if "." not in task and state.chief_address and not state.is_over:
        asyncio.get_running_loop().call_soon(engine.finish, ResourceId(f"{state.id}-0"), DONE)
