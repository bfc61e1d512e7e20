"""Deletes experiments: a request marks them, and all that is left of them is removed in the background.

A restart goes on where it was: the mark is in the records. The runs of its trials stay on record, since they are what
usage is counted from.
"""

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from typing import Final, Protocol

from sqlalchemy import Column, ColumnElement, Connection, ScalarSelect, delete, select

from muster.accounts.audit import By, Deed, note
from muster.accounts.callers import WorkspaceId
from muster.accounts.projects import ProjectId
from muster.api import errors
from muster.experiments import experiment_records, task_names
from muster.experiments.experiment import StopAsked
from muster.experiments.experiment_records import Experiment
from muster.experiments.registry import Conductors
from muster.experiments.states import ENDED, ExperimentId, ExperimentState
from muster.records import Database
from muster.records.tables_accounts import PROJECTS
from muster.records.tables_experiments import (
    CHECKPOINTS,
    EXPERIMENTS,
    METRIC_BLOCKS,
    METRICS,
    MODEL_VERSIONS,
    TRIAL_TASKS,
    TRIALS,
)
from muster.runtime.clock import Clock
from muster.tasks.contexts import Contexts
from muster.tasks.log_retention import Retention

_log = logging.getLogger(__name__)
_AT_LEAST_EVERY: Final = 600.0
_AT_ONCE: Final = 500
"""One change deletes no more rows: others who write do not wait long."""
_VACATE_SECONDS: Final = 0.2
_DELETABLE: Final = ENDED | {ExperimentState.DELETING, ExperimentState.DELETE_FAILED}


class Belonging(Protocol):
    """What experiments keep elsewhere than in the records: checkpoints, event files."""

    async def remove(self, experiment: Experiment) -> None:
        """Returns when it is gone; raises where it cannot be. Asked for again after a restart."""
        ...


class ExperimentRemover:
    """`run` must be kept running. `belongings`: in which order they are removed, before the records are."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        conductors: Conductors,
        contexts: Contexts,
        logs: Retention,
        belongings: Sequence[Belonging] = (),
    ) -> None:
        self._database = database
        self._clock = clock
        self._conductors = conductors
        self._contexts = contexts
        self._logs = logs
        self._belongings = belongings
        self._asked = asyncio.Event()

    async def delete(self, by: By, experiment: ExperimentId) -> None:
        """Durable, and done in the background. Raises NotFound, Conflict."""

        def mark(connection: Connection) -> None:
            _mark(connection, experiment)
            note(connection, self._clock.now(), by, Deed("experiment.delete", str(experiment)))

        await self._database.write(mark)
        self._asked.set()

    async def run(self) -> None:
        """For ever. Removes what is marked, also what was marked before."""
        while True:
            self._asked.clear()
            marked = await self._database.read(
                lambda connection: experiment_records.in_state(connection, ExperimentState.DELETING)
            )
            for experiment in marked:
                await self._remove(experiment)
            try:
                async with asyncio.timeout(_AT_LEAST_EVERY):
                    await self._asked.wait()
            except TimeoutError:
                continue

    async def _remove(self, id: ExperimentId) -> None:
        try:
            await self._remove_all(id)
        except Exception as error:  # of a storage, say: told to whoever looks, and the others go on
            _log.exception("deleting experiment %d failed", id)
            known = isinstance(error, errors.ApiError)
            why = error.message if known else f"{type(error).__name__}: see the server's log"  # type: ignore[attr-defined]
            values = {"state": ExperimentState.DELETE_FAILED.value, "error": f"it could not be deleted: {why}"}
            await self._database.write(lambda connection: experiment_records.change(connection, id, values))

    async def _remove_all(self, id: ExperimentId) -> None:
        found = await self._database.read(lambda connection: experiment_records.get(connection, id))
        for belonging in self._belongings:
            await belonging.remove(found)
        tasks = await self._database.read(lambda connection: _tasks(connection, id))
        for task in tasks:
            await self._logs.remove(task)
        await self._contexts.delete(task_names.context(id))
        while await self._database.write(lambda connection: _remove_some(connection, id)):
            pass

    # Workspaces and projects that are deleted

    async def is_in(self, workspace: WorkspaceId, project: ProjectId | None) -> bool:
        return bool(await self._found(workspace, project))

    async def vacate(self, workspace: WorkspaceId, project: ProjectId | None) -> None:
        """Raises Conflict where something of it is used elsewhere."""
        while found := await self._found(workspace, project):
            for id, state, is_unmanaged in found:
                if state is ExperimentState.DELETE_FAILED:
                    raise errors.Conflict(f"experiment {id} could not be deleted")
                if state is ExperimentState.DELETING:
                    continue
                if state in ENDED or is_unmanaged:
                    await self._force(id)
                else:
                    killed = StopAsked(ExperimentState.STOPPING_KILLED, "its workspace or project was deleted")
                    await self._conductors.tell(id, killed)
            await self._clock.sleep(_VACATE_SECONDS)

    async def _force(self, experiment: ExperimentId) -> None:
        with contextlib.suppress(errors.NotFound):  # somebody else has deleted it meanwhile
            await self._database.write(lambda connection: _mark(connection, experiment, is_forced=True))
        self._asked.set()

    async def _found(
        self, workspace: WorkspaceId, project: ProjectId | None
    ) -> list[tuple[ExperimentId, ExperimentState, bool]]:
        where: ColumnElement[bool] = PROJECTS.c.workspace_id == workspace
        if project is not None:
            where = where & (PROJECTS.c.id == project)
        query = (
            select(EXPERIMENTS.c.id, EXPERIMENTS.c.state, EXPERIMENTS.c.is_unmanaged)
            .join(PROJECTS, PROJECTS.c.id == EXPERIMENTS.c.project_id)
            .where(where)
        )
        rows = await self._database.read(lambda connection: connection.execute(query).all())
        return [(ExperimentId(row.id), ExperimentState(row.state), row.is_unmanaged) for row in rows]


def _mark(connection: Connection, experiment: ExperimentId, *, is_forced: bool = False) -> None:
    found = experiment_records.get(connection, experiment)
    if found.state not in _DELETABLE and not is_forced:
        raise errors.Conflict(f"experiment {experiment} is {found.state}: only one that has ended can be deleted")
    kept = connection.scalar(
        select(MODEL_VERSIONS.c.checkpoint_uuid)
        .join(CHECKPOINTS, CHECKPOINTS.c.uuid == MODEL_VERSIONS.c.checkpoint_uuid)
        .where(CHECKPOINTS.c.experiment_id == experiment)
        .limit(1)
    )
    if kept is not None:
        raise errors.Conflict(
            f"checkpoint {kept} of experiment {experiment} is a version of a model: delete that first"
        )
    experiment_records.change(connection, experiment, {"state": ExperimentState.DELETING.value, "error": ""})


def _tasks(connection: Connection, experiment: ExperimentId) -> list[str]:
    query = select(TRIAL_TASKS.c.task_id).join(TRIALS, TRIALS.c.id == TRIAL_TASKS.c.trial_id)
    return list(connection.scalars(query.where(TRIALS.c.experiment_id == experiment)))


def _remove_some(connection: Connection, experiment: ExperimentId) -> bool:
    """Whether anything was left."""
    trials = select(TRIALS.c.id).where(TRIALS.c.experiment_id == experiment)
    some = (
        delete(METRICS).where(METRICS.c.id.in_(_first(METRICS.c.id, METRICS.c.trial_id.in_(trials)))),
        delete(METRIC_BLOCKS).where(
            METRIC_BLOCKS.c.trial_id.in_(_first(METRIC_BLOCKS.c.trial_id, METRIC_BLOCKS.c.trial_id.in_(trials)))
        ),
        delete(CHECKPOINTS).where(
            CHECKPOINTS.c.uuid.in_(_first(CHECKPOINTS.c.uuid, CHECKPOINTS.c.experiment_id == experiment))
        ),
        delete(TRIALS).where(TRIALS.c.id.in_(_first(TRIALS.c.id, TRIALS.c.experiment_id == experiment))),
    )
    # In this order: later ones are referred to by earlier ones.
    if any(connection.execute(each).rowcount for each in some):
        return True
    connection.execute(delete(EXPERIMENTS).where(EXPERIMENTS.c.id == experiment))
    return False


def _first(key: "Column[int] | Column[str]", which: ColumnElement[bool]) -> ScalarSelect[int | str]:
    return select(key).where(which).limit(_AT_ONCE).scalar_subquery()
