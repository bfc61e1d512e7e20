"""Labels of experiments, one by one: who adds one must not undo what another has just added."""

from collections.abc import Sequence
from typing import Final

from sqlalchemy import Connection

from muster.accounts import names
from muster.accounts.audit import By, Deed, note
from muster.api import errors
from muster.experiments import experiment_records
from muster.experiments.states import ExperimentId
from muster.records import Database
from muster.runtime.clock import Clock

LONGEST: Final = 254
MOST: Final = 1000


class Labels:
    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def add(self, by: By, experiment: ExperimentId, label: str) -> Sequence[str]:
        """Those that it has then. Raises NotFound, BadRequest."""
        new = names.checked("label", label, longest=LONGEST)

        def change(connection: Connection) -> Sequence[str]:
            before = experiment_records.get(connection, experiment).labels
            if len(before) >= MOST and new not in before:
                raise errors.BadRequest(f"label: an experiment has at most {MOST}")
            return self._changed(connection, by, experiment, [*before, new])

        return await self._database.write(change)

    async def remove(self, by: By, experiment: ExperimentId, label: str) -> Sequence[str]:
        """Those that it has left; one that it has not is not missed. Raises NotFound."""

        def change(connection: Connection) -> Sequence[str]:
            before = experiment_records.get(connection, experiment).labels
            return self._changed(connection, by, experiment, [each for each in before if each != label])

        return await self._database.write(change)

    def _changed(
        self, connection: Connection, by: By, experiment: ExperimentId, wanted: Sequence[str]
    ) -> Sequence[str]:
        labels = list(dict.fromkeys(wanted))
        config = {**experiment_records.get(connection, experiment).config, "labels": labels}
        experiment_records.change(connection, experiment, {"labels": labels, "config": config})
        note(connection, self._clock.now(), by, Deed("experiment.change", str(experiment), "labels"))
        return labels
