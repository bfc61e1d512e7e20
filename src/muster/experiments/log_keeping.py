"""How long logs of trials are kept, where users say otherwise than the cluster does."""

import math
from collections.abc import Callable
from typing import Final

from sqlalchemy import Connection, select, update

from muster.accounts.audit import By, Deed, note
from muster.experiments import experiment_records, trial_records
from muster.experiments.states import ExperimentId, TrialId
from muster.records import Database
from muster.records.tables_experiments import TRIAL_TASKS, TRIALS
from muster.runtime.clock import Clock
from muster.tasks import log_retention

_DAY: Final = 86_400.0


class LogKeeping:
    """`usual_days`: of the cluster; -1 for ever. `refresh`: hears of experiments that have changed."""

    def __init__(
        self, database: Database, clock: Clock, usual_days: int, refresh: Callable[[ExperimentId], None]
    ) -> None:
        self._database = database
        self._clock = clock
        self._usual_days = usual_days
        self._refresh = refresh

    async def keep_experiment(self, by: By, experiment: ExperimentId, days: int) -> None:
        """Also of trials that it has yet to make. Raises NotFound, BadRequest."""
        log_retention.checked("numDays", days)

        def change(connection: Connection) -> None:
            experiment_records.get(connection, experiment)
            experiment_records.change(connection, experiment, {"log_retention_days": days})
            mine = TRIALS.c.experiment_id == experiment
            connection.execute(update(TRIALS).where(mine).values(log_retention_days=days))
            tasks = select(TRIAL_TASKS.c.task_id).join(TRIALS, TRIALS.c.id == TRIAL_TASKS.c.trial_id).where(mine)
            log_retention.keep(connection, list(connection.scalars(tasks)), days, self._micros())
            self._note(connection, by, "experiment.retain_logs", experiment, days)

        await self._database.write(change)
        self._refresh(experiment)

    async def keep_trial(self, by: By, trial: TrialId, days: int) -> None:
        """Raises NotFound, BadRequest."""
        log_retention.checked("numDays", days)

        def change(connection: Connection) -> None:
            trial_records.get(connection, trial)
            trial_records.change(connection, trial, {"log_retention_days": days})
            log_retention.keep(connection, trial_records.tasks(connection, trial), days, self._micros())
            self._note(connection, by, "trial.retain_logs", trial, days)

        await self._database.write(change)

    async def days_left(self, trial: TrialId) -> int | None:
        """None: they are kept for ever. Raises NotFound."""
        found = await self._database.read(lambda connection: trial_records.get(connection, trial))
        days = self._usual_days if found.log_retention_days is None else found.log_retention_days
        if days == log_retention.FOREVER:
            return None
        gone = 0.0 if found.ended is None else (self._clock.now() - found.ended) / _DAY
        return max(0, math.ceil(days - gone))

    def _micros(self) -> int:
        return round(self._clock.now() * 1_000_000)

    def _note(self, connection: Connection, by: By, action: str, what: int, days: int) -> None:
        note(connection, self._clock.now(), by, Deed(action, str(what), f"{days} days"))
