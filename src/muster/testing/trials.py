"""Trials over fresh records that report metrics, for tests: of experiments that nobody runs."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from sqlalchemy import Connection, Row, insert, select

from muster.accounts.service import UNCATEGORIZED
from muster.api.meta import Instant
from muster.api.raw import JSON
from muster.experiments import experiment_records, inbox, trial_records
from muster.experiments.experiment_records import Experiment
from muster.experiments.inbox import Happened
from muster.experiments.metric_intake import MetricIntake
from muster.experiments.metric_reports import TRAINING, VALIDATION, Report
from muster.experiments.states import ExperimentId, TrialId
from muster.experiments.trial_records import Trial
from muster.records import Database
from muster.records.tables_experiments import CHECKPOINTS, METRICS, TRIAL_TASKS
from muster.records.tables_tasks import JOBS, TASKS
from muster.testing import accounts
from muster.testing.accounts import ADMIN, Ground

START = 1_700_000_000.0
_numbers = itertools.count(1)


@dataclass
class Woken:
    """Whom the intake has woken."""

    experiments: list[ExperimentId] = field(default_factory=list)

    def wake(self, experiment: ExperimentId) -> None:
        self.experiments.append(experiment)


@dataclass
class Reporting:
    """A ground with trials, and where they report."""

    ground: Ground
    intake: MetricIntake
    woken: Woken

    @property
    def database(self) -> Database:
        return self.ground.database

    async def experiment(
        self, metric: str = "loss", *, is_smaller_better: bool = True, time_metric: str | None = None, project: int = 1
    ) -> ExperimentId:
        job, user = f"job-{next(_numbers)}", ADMIN.caller.user
        searcher = {"name": "random", "metric": metric, "time_metric": time_metric}
        values = {
            "job_id": job, "project_id": project, "user_id": user, "state": "ACTIVE", "config": {"searcher": searcher},
            "searcher_metric": metric, "is_smaller_better": is_smaller_better, "created": START,
        }  # fmt: skip

        def make(connection: Connection) -> ExperimentId:
            connection.execute(insert(JOBS).values(id=job, type="EXPERIMENT", user_id=user, created=START))
            return experiment_records.add(connection, values)

        return await self.database.write(make)

    async def trial(self, experiment: ExperimentId, run: int = 1, **values: object) -> TrialId:
        """With a task `<experiment>.<number>`, in the given run."""
        task = f"{experiment}.{next(_numbers)}"
        kept = {"id": task, "type": "TRIAL", "user_id": ADMIN.caller.user, "workspace_id": UNCATEGORIZED}

        def make(connection: Connection) -> TrialId:
            made = {"experiment_id": experiment, "state": "ACTIVE", "run": run, "task_id": task, "created": START}
            trial = trial_records.add(connection, {**made, **values})
            connection.execute(insert(TASKS).values(**kept, created=START))
            connection.execute(insert(TRIAL_TASKS).values(task_id=task, trial_id=trial))
            return trial

        return await self.database.write(make)

    async def change_trial(self, trial: TrialId, **values: object) -> None:
        await self.database.write(lambda connection: trial_records.change(connection, trial, values))

    async def checkpoint(self, trial: TrialId, uuid: str, steps: int, state: str = "COMPLETED", run: int = 1) -> None:
        told = await self.told(trial)
        row = {
            "uuid": uuid, "task_id": told.task, "allocation_id": f"{told.task}.{run}", "trial_id": trial,
            "experiment_id": told.experiment, "state": state, "steps": steps, "resources": {"model": 1},
            "metadata": {"steps_completed": steps}, "reported": START + steps,
        }  # fmt: skip
        await self.database.write(lambda connection: connection.execute(insert(CHECKPOINTS).values(row)))

    async def train(self, trial: TrialId, steps: int, run: int = 1, **metrics: JSON) -> None:
        await self.intake.report(a_report(trial, TRAINING, steps, metrics, run))

    async def validate(self, trial: TrialId, steps: int, run: int = 1, **metrics: JSON) -> None:
        await self.intake.report(a_report(trial, VALIDATION, steps, metrics, run))

    # What has become of it

    async def told(self, trial: TrialId) -> Trial:
        return await self.database.read(lambda connection: trial_records.get(connection, trial))

    async def told_experiment(self, experiment: ExperimentId) -> Experiment:
        return await self.database.read(lambda connection: experiment_records.get(connection, experiment))

    async def posted(self, experiment: ExperimentId) -> list[Happened]:
        waiting = await self.database.read(lambda connection: inbox.waiting(connection, experiment))
        return [entry.happened for entry in waiting]

    async def rows(self, trial: TrialId) -> list[Row[tuple[object, ...]]]:
        query = select(METRICS).where(METRICS.c.trial_id == trial).order_by(METRICS.c.id)
        return await self.database.read(lambda connection: list(connection.execute(query)))


def a_report(
    trial: TrialId, group: str, steps: int | None, metrics: Mapping[str, JSON], run: int = 1, at: float = 0.0
) -> Report:
    """At the given seconds after the start, or as many as steps."""
    return Report(trial, run, group, steps, Instant(START + (at or steps or 0)), metrics)


@asynccontextmanager
async def reporting(folder: Path) -> AsyncIterator[Reporting]:
    """`folder`: a test's own."""
    async with accounts.ground(folder) as ground:
        woken = Woken()
        intake = MetricIntake(ground.database, ground.clock, woken)
        async with running(intake):
            yield Reporting(ground, intake, woken)


@asynccontextmanager
async def running(intake: MetricIntake) -> AsyncIterator[None]:
    """While the context lasts."""
    async with asyncio.TaskGroup() as group:
        task = group.create_task(intake.run())
        try:
            yield
        finally:
            task.cancel()
