"""Records with an experiment of two trials in them, for tests of what trials leave behind."""

from sqlalchemy import Connection, Table, insert

from muster.accounts.audit import By
from muster.accounts.callers import Caller, UserId, WorkspaceId
from muster.api.raw import Document
from muster.experiments import metric_reports
from muster.experiments.experiment_records import Experiment
from muster.experiments.removals import Removal
from muster.experiments.states import ExperimentId
from muster.records.tables_accounts import PROJECTS, USERS, WORKSPACES
from muster.records.tables_experiments import EXPERIMENTS, METRICS, TRIAL_TASKS, TRIALS
from muster.records.tables_tasks import JOBS, TASKS
from muster.testing.inline_database import InlineDatabase

ANN = By(Caller(UserId(1), "ann"))
LAB = WorkspaceId(1)
STORAGE: Document = {"type": "directory", "container_path": "/kept", "save_trial_latest": 1, "save_trial_best": 1}


class Asked:
    """Removals that are only written down."""

    def __init__(self) -> None:
        self.removals: list[tuple[ExperimentId, Removal]] = []
        self.failure = ""

    async def start(self, by: By, experiment: Experiment, wanted: Removal) -> list[str]:
        self.removals.append((experiment.id, wanted))
        return ["t"]

    async def finish(self, by: By, experiment: Experiment, wanted: Removal) -> str:
        await self.start(by, experiment, wanted)
        return self.failure


async def filled() -> InlineDatabase:
    """Trials 1 and 2, with tasks `1.a` and `1.b`."""
    database = InlineDatabase()
    config = {"checkpoint_storage": STORAGE}
    experiment = {
        "id": 1, "job_id": "j", "project_id": 1, "user_id": 1, "state": "ACTIVE", "name": "x", "config": config,
        "searcher_metric": "loss", "is_smaller_better": True, "trial_count": 2, "created": 0.0,
    }  # fmt: skip
    rows: list[tuple[Table, Document]] = [
        (USERS, {"id": 1, "username": "ann", "created": 0.0, "modified": 0.0}),
        (WORKSPACES, {"id": 1, "name": "Lab", "user_id": 1, "created": 0.0}),
        (PROJECTS, {"id": 1, "name": "P", "key": "P", "notes": [], "workspace_id": 1, "user_id": 1, "created": 0.0}),
        (JOBS, {"id": "j", "type": "EXPERIMENT", "user_id": 1, "created": 0.0}),
        (EXPERIMENTS, experiment),
    ]
    for number, letter in ((1, "a"), (2, "b")):
        task = {"id": f"1.{letter}", "type": "TRIAL", "user_id": 1, "created": 0.0}
        trial = {"id": number, "experiment_id": 1, "state": "ACTIVE", "task_id": f"1.{letter}", "created": 0.0}
        rows += [(TASKS, task), (TRIALS, trial), (TRIAL_TASKS, {"task_id": f"1.{letter}", "trial_id": number})]

    def fill(connection: Connection) -> None:
        for table, values in rows:
            connection.execute(insert(table).values(values))

    await database.write(fill)
    return database


async def validate(database: InlineDatabase, trial: int, steps: int, loss: float | str) -> None:
    text = metric_reports.encode(metric_reports.VALIDATION, {"loss": loss}, [])
    values = {"trial_id": trial, "run": 1, "group": "validation", "steps": steps, "at": 0.0, "metrics": text}

    def add(connection: Connection) -> None:
        connection.execute(insert(METRICS).values(values))

    await database.write(add)
