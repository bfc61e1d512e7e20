"""Experiments and trials that run elsewhere, and only report: made, begun, heard of, given up when they fall silent.

Nothing of them is started or stopped here. An experiment is as its trials are.
"""

from collections.abc import Callable
from typing import Final
from uuid import uuid4

from sqlalchemy import Connection, insert, select, update

from muster.accounts.audit import By, Deed, note
from muster.api import errors
from muster.api.meta import Instant
from muster.experiments import experiment_records, task_names, trial_records
from muster.experiments.contract import NewTrial, Resumed
from muster.experiments.experiment_records import Experiment
from muster.experiments.states import ENDED, TRIAL_ENDED, ExperimentId, ExperimentState, TrialId, TrialState
from muster.experiments.telling import Herald
from muster.experiments.trial_records import Trial
from muster.records import Database
from muster.records.tables_experiments import CHECKPOINTS, EXPERIMENTS, TRIAL_TASKS, TRIALS
from muster.records.tables_tasks import TASKS
from muster.runtime.clock import Clock

SILENT_SECONDS: Final = 600.0
"""Determined's library says every minute that a trial is alive."""
_LOOK_SECONDS: Final = 60.0
_ENDS: Final = {state.value: state for state in TRIAL_ENDED}
_ALIVE: Final = ("ACTIVE", "QUEUED", "PULLING", "STARTING", "RUNNING")
_WORST: Final = (TrialState.ACTIVE, TrialState.ERROR, TrialState.CANCELED, TrialState.COMPLETED)
"""The first of these that one of its trials is, an experiment is as well."""


class Unmanaged:
    """`run` must be kept running."""

    def __init__(self, database: Database, clock: Clock, herald: Herald) -> None:
        self._database = database
        self._clock = clock
        self._herald = herald

    async def add_trial(self, by: By, new: NewTrial) -> Trial:
        """One with the same external id is the same. Raises NotFound, BadRequest."""

        def change(connection: Connection) -> Trial:
            experiment = _unmanaged(connection, new.experiment)
            known = None
            if new.external_id is not None:
                is_it = (TRIALS.c.experiment_id == experiment.id) & (TRIALS.c.external_id == new.external_id)
                known = connection.scalar(select(TRIALS.c.id).where(is_it))
            if known is not None:
                return trial_records.get(connection, known)
            made = _add(connection, experiment, new, self._clock.now())
            note(connection, self._clock.now(), by, Deed("trial.create", str(made), f"of experiment {experiment.id}"))
            _follow(connection, experiment.id, self._clock.now())
            return trial_records.get(connection, made)

        return await self._database.write(change)

    async def start_trial(self, trial: TrialId, *, is_resumed: bool) -> Resumed:
        """Another run of it. Raises NotFound, BadRequest."""

        def change(connection: Connection) -> Resumed:
            found = trial_records.get(connection, trial)
            _unmanaged(connection, found.experiment)
            now = self._clock.now()
            values = {"run": found.run + 1, "state": TrialState.ACTIVE.value, "ended": None, "last_activity": now}
            trial_records.change(connection, trial, values)
            connection.execute(update(TASKS).where(TASKS.c.id == found.task).values(ended=None))
            _follow(connection, found.experiment, now)
            if not is_resumed or found.latest_checkpoint is None:
                return Resumed(found.run + 1, None, 0)
            query = select(CHECKPOINTS.c.steps).where(CHECKPOINTS.c.uuid == found.latest_checkpoint)
            return Resumed(found.run + 1, found.latest_checkpoint, connection.scalar(query) or 0)

        return await self._database.write(change)

    async def beat(self, trial: TrialId, state: str | None) -> Trial:
        """It is alive; `state`: and has ended so. Raises NotFound, BadRequest."""
        if state is not None and state not in (*_ENDS, *_ALIVE):
            known = ", ".join((*_ALIVE, *sorted(_ENDS)))
            raise errors.BadRequest(f"state: must be one of {known}, found {state[:80]!r}")
        found = await self._database.read(lambda connection: trial_records.get(connection, trial))

        def change(connection: Connection) -> Trial:
            _unmanaged(connection, found.experiment)
            before = trial_records.get(connection, trial)
            was_silent = state is None and before.state is TrialState.ERROR
            alive = TrialState.ACTIVE if state in _ALIVE or was_silent else before.state
            return self._settled(connection, before, _ENDS.get(state or "", alive))

        is_news = state in _ENDS and found.state not in TRIAL_ENDED
        return await self._herald.write(found.experiment, change, may_end=is_news)

    async def run(self) -> None:
        """For ever. Gives up trials that have fallen silent."""
        while True:
            await self.look()
            await self._clock.sleep(_LOOK_SECONDS)

    async def look(self) -> None:
        """Once."""
        before = Instant(self._clock.now() - SILENT_SECONDS)
        silent = await self._database.read(lambda connection: _silent(connection, before))
        for experiment, trial in silent:
            await self._herald.write(experiment, self._given_up(trial, before), may_end=True)

    def _given_up(self, trial: TrialId, before: Instant) -> Callable[[Connection], None]:
        def change(connection: Connection) -> None:
            found = trial_records.get(connection, trial)
            if found.state is TrialState.ACTIVE and (found.last_activity or found.created) < before:
                self._settled(connection, found, TrialState.ERROR)

        return change

    def _settled(self, connection: Connection, before: Trial, after: TrialState) -> Trial:
        now = self._clock.now()
        has_ended = after in TRIAL_ENDED
        ended = (before.ended if before.state is after else now) if has_ended else None
        values: dict[str, object] = {"state": after.value, "ended": ended}
        if not has_ended:
            values["last_activity"] = now
        trial_records.change(connection, before.id, values)
        connection.execute(update(TASKS).where(TASKS.c.id == before.task).values(ended=ended))
        _follow(connection, before.experiment, now)
        return trial_records.get(connection, before.id)


def _unmanaged(connection: Connection, experiment: ExperimentId) -> Experiment:
    """Raises NotFound, BadRequest."""
    found = experiment_records.get(connection, experiment)
    if not found.is_unmanaged:
        raise errors.BadRequest(
            f"experiment {experiment} runs here: only one that runs elsewhere reports its own state"
        )
    return found


def _add(connection: Connection, experiment: Experiment, new: NewTrial, now: Instant) -> TrialId:
    request_id = str(uuid4())
    task = task_names.task(experiment.id, request_id)
    connection.execute(
        insert(TASKS).values(
            id=task,
            type="TRIAL",
            job_id=experiment.job,
            user_id=experiment.user,
            workspace_id=experiment.workspace,
            description=f"Trial of Experiment {experiment.id}",
            config={"labels": list(experiment.labels)},
            created=now,
        )
    )
    made = trial_records.add(
        connection,
        {
            "experiment_id": experiment.id,
            "request_id": request_id,
            "state": TrialState.ACTIVE.value,
            "hparams": new.hparams,
            "task_id": task,
            "external_id": new.external_id,
            "last_activity": now,
            "created": now,
        },
    )
    connection.execute(insert(TRIAL_TASKS).values(task_id=task, trial_id=made))
    count = EXPERIMENTS.c.trial_count + 1
    connection.execute(update(EXPERIMENTS).where(EXPERIMENTS.c.id == experiment.id).values(trial_count=count))
    return made


def _silent(connection: Connection, before: Instant) -> list[tuple[ExperimentId, TrialId]]:
    query = (
        select(TRIALS.c.id, TRIALS.c.experiment_id)
        .join(EXPERIMENTS, EXPERIMENTS.c.id == TRIALS.c.experiment_id)
        .where(EXPERIMENTS.c.is_unmanaged, TRIALS.c.state == TrialState.ACTIVE.value, TRIALS.c.last_activity < before)
    )
    return [(ExperimentId(row.experiment_id), TrialId(row.id)) for row in connection.execute(query)]


def _follow(connection: Connection, experiment: ExperimentId, now: Instant) -> None:
    """The experiment is as its trials are."""
    query = select(TRIALS.c.state).where(TRIALS.c.experiment_id == experiment).distinct()
    states = set(connection.scalars(query))
    worst = next((state for state in _WORST if state in states), TrialState.ACTIVE)
    state = ExperimentState(worst.value)
    values: dict[str, object] = {"state": state.value, "ended": now if state in ENDED else None}
    if state is ExperimentState.COMPLETED:
        values["progress"] = 1.0
    experiment_records.change(connection, experiment, values)
