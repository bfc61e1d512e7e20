"""In which workspace an experiment or a trial is: that says who may do what with it."""

from sqlalchemy import Connection, Select, select

from muster.accounts.authorizing import Authorizer, Hidden
from muster.accounts.callers import Caller, WorkspaceId
from muster.accounts.permissions import Permission
from muster.api import errors
from muster.experiments import experiment_records, trial_records
from muster.experiments.states import ExperimentId, TrialId
from muster.records import Database
from muster.records.tables_accounts import PROJECTS
from muster.records.tables_experiments import EXPERIMENTS, TRIALS
from muster.records.tables_tasks import TASKS
from muster.tasks.task_config import TaskType


class Places:
    """What may not be seen is answered as if it were not there: all raise NotFound."""

    def __init__(self, database: Database, authorizer: Authorizer) -> None:
        self._database = database
        self._authorizer = authorizer

    async def of_experiment(self, caller: Caller, experiment: int) -> WorkspaceId:
        query = _workspace().where(EXPERIMENTS.c.id == experiment)
        return await self._visible(caller, query, experiment_records.not_found(experiment))

    async def of_trial(self, caller: Caller, trial: int) -> WorkspaceId:
        query = _workspace().join(TRIALS, TRIALS.c.experiment_id == EXPERIMENTS.c.id).where(TRIALS.c.id == trial)
        return await self._visible(caller, query, trial_records.not_found(trial))

    async def trial_of(self, task: str) -> TrialId | None:
        """Whose task this is."""
        return await self._database.read(lambda connection: trial_records.of_task(connection, task))

    async def of_removal(self, task: str) -> ExperimentId | None:
        """The experiment of whose checkpoints this task removes some."""
        query = select(TASKS.c.snapshot).where(TASKS.c.id == task, TASKS.c.type == TaskType.CHECKPOINT_GC.value)
        snapshot = await self._database.read(lambda connection: connection.scalar(query))
        return None if snapshot is None else ExperimentId(snapshot["experiment"])

    async def _visible(self, caller: Caller, query: Select[int], refusal: errors.NotFound) -> WorkspaceId:
        def read(connection: Connection) -> int | None:
            return connection.scalar(query)

        found = await self._database.read(read)
        if found is None:
            raise refusal
        workspace = WorkspaceId(found)
        if not await self._authorizer.allows(caller, Permission.VIEW_EXPERIMENTS, workspace):
            raise Hidden(refusal.message)
        return workspace


def _workspace() -> Select[int]:
    return select(PROJECTS.c.workspace_id).join(EXPERIMENTS, EXPERIMENTS.c.project_id == PROJECTS.c.id)
