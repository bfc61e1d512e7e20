"""Removes checkpoints that need not be kept, of experiments that have ended or whose policy was changed after that.

Which ones are still to be looked at is in the records: a restart goes on where it was.
"""

import asyncio
import logging
from typing import Final

from sqlalchemy import Connection, select

from muster.experiments import experiment_records
from muster.experiments.checkpoints import Checkpoints
from muster.experiments.course_records import Course
from muster.experiments.states import ENDED, ExperimentId
from muster.records import Database
from muster.records.tables_experiments import EXPERIMENTS
from muster.runtime.clock import Clock

_log = logging.getLogger(__name__)
_AT_LEAST_EVERY: Final = 60.0
"""What could not be done may go well later."""


class Tidier:
    """`run` must be kept running."""

    def __init__(self, database: Database, clock: Clock, checkpoints: Checkpoints) -> None:
        self._database = database
        self._clock = clock
        self._checkpoints = checkpoints
        self._woken = asyncio.Event()

    def wake(self) -> None:
        """There may be something to do."""
        self._woken.set()

    def changed(self, course: Course) -> None:
        """For `Conductors.on_change`."""
        if course.state in ENDED:
            self.wake()

    async def run(self) -> None:
        while True:
            self._woken.clear()
            for experiment in await self._database.read(_untidy):
                await self._tidy(experiment)
            try:
                async with asyncio.timeout(_AT_LEAST_EVERY):
                    await self._woken.wait()
            except TimeoutError:
                continue

    async def _tidy(self, experiment: ExperimentId) -> None:
        """What was begun twice, since a crash came in between, is only looked at twice."""
        try:
            await self._checkpoints.collect(experiment)
        except Exception as error:
            _log.warning("checkpoints of experiment %d are tidied later: %s", experiment, error)
            return
        await self._database.write(lambda c: experiment_records.change(c, experiment, {"is_untidy": False}))


def _untidy(connection: Connection) -> list[ExperimentId]:
    states = [state.value for state in ENDED]
    chosen = select(EXPERIMENTS.c.id).where(EXPERIMENTS.c.is_untidy, EXPERIMENTS.c.state.in_(states))
    return [ExperimentId(id) for id in connection.scalars(chosen.order_by(EXPERIMENTS.c.id))]
