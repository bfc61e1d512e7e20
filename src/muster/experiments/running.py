"""The service of experiments: all that `contract.Experiments` asks, done by those who know how."""

from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection

from muster.accounts.audit import By, Deed
from muster.accounts.projects import ProjectId
from muster.api import errors
from muster.experiments import experiment as machine
from muster.experiments import experiment_records, inbox, trial, trial_records
from muster.experiments.changing import Changer
from muster.experiments.contract import Created, ExperimentPatch, Experiments, NewExperiment, NewTrial, Resumed
from muster.experiments.creating import Creator
from muster.experiments.deleting import ExperimentRemover
from muster.experiments.experiment_records import Experiment
from muster.experiments.inbox import EarlyExit, Gave
from muster.experiments.registry import Conductors
from muster.experiments.states import ENDED, TRIAL_ENDED, ExperimentId, ExperimentState, TrialId, TrialState
from muster.experiments.trial_records import Trial
from muster.experiments.unmanaged import Unmanaged
from muster.records import Database
from muster.search.protocol import ExitReason, RequestId

_STOPS: Final = {
    "experiment.cancel": ExperimentState.STOPPING_CANCELED,
    "experiment.kill": ExperimentState.STOPPING_KILLED,
}


@dataclass(frozen=True, slots=True)
class Parts:
    """Who does what."""

    database: Database
    conductors: Conductors
    creator: Creator
    changer: Changer
    remover: ExperimentRemover
    unmanaged: Unmanaged


class ExperimentService:
    def __init__(self, parts: Parts) -> None:
        self._database = parts.database
        self._conductors = parts.conductors
        self._creator = parts.creator
        self._changer = parts.changer
        self._remover = parts.remover
        self._unmanaged = parts.unmanaged

    def wake(self, experiment: ExperimentId) -> None:
        self._conductors.wake(experiment)

    # Making them

    async def validate(self, by: By, new: NewExperiment) -> Created:
        prepared = await self._creator.prepare(by, new)
        return Created(prepared.config.document(), None, prepared.caveats)

    async def create(self, by: By, new: NewExperiment) -> Created:
        await self._conductors.ready()
        made = await self._creator.create(by, new)
        if made.experiment is not None and not made.experiment.is_unmanaged:
            self._conductors.begin(made.experiment.id)
        return made

    # Their course

    async def continue_(self, by: By, experiment: ExperimentId, override: str) -> Experiment:
        await self._conductors.ready()
        return await self._changer.continue_(by, experiment, override)

    async def activate(self, by: By, experiment: ExperimentId) -> None:
        deed = (by, Deed("experiment.activate", str(experiment)))
        await self._turn(experiment, machine.Activated(), ExperimentState.ACTIVE, deed)

    async def pause(self, by: By, experiment: ExperimentId) -> None:
        deed = (by, Deed("experiment.pause", str(experiment)))
        await self._turn(experiment, machine.Paused(), ExperimentState.PAUSED, deed)

    async def cancel(self, by: By, experiment: ExperimentId) -> None:
        await self._stop(by, experiment, "experiment.cancel")

    async def kill(self, by: By, experiment: ExperimentId) -> None:
        await self._stop(by, experiment, "experiment.kill")

    async def _turn(
        self, experiment: ExperimentId, event: machine.Event, wanted: ExperimentState, deed: tuple[By, Deed]
    ) -> None:
        found = await self._managed(experiment)
        state = await self._conductors.tell(experiment, event, deed)
        if state is not wanted:
            raise errors.Conflict(f"experiment {experiment} is {state or found.state}, and cannot become {wanted}")

    async def _stop(self, by: By, experiment: ExperimentId, action: str) -> None:
        """Of one that has ended: nothing happens."""
        found = await self._managed(experiment)
        if found.state in ENDED:
            return
        reason = f"user {by.caller.username} asked for it"
        stop = machine.StopAsked(_STOPS[action], reason)
        if await self._conductors.tell(experiment, stop, (by, Deed(action, str(experiment)))) is None:
            found = await self._managed(experiment)
            if found.state not in ENDED:
                raise errors.Conflict(f"experiment {experiment} is {found.state}")

    async def _managed(self, experiment: ExperimentId) -> Experiment:
        """Raises NotFound, BadRequest."""
        found = await self._database.read(lambda connection: experiment_records.get(connection, experiment))
        if found.is_unmanaged:
            raise errors.BadRequest(f"experiment {experiment} runs elsewhere: nothing can be asked of it from here")
        return found

    # Their place, and their end

    async def archive(self, by: By, experiment: ExperimentId, *, is_archived: bool) -> None:
        await self._changer.archive(by, experiment, is_archived=is_archived)

    async def delete(self, by: By, experiment: ExperimentId) -> None:
        await self._remover.delete(by, experiment)

    async def move(self, by: By, experiment: ExperimentId, project: ProjectId) -> None:
        await self._changer.move(by, experiment, project)

    async def patch(self, by: By, experiment: ExperimentId, wanted: ExperimentPatch) -> Experiment:
        return await self._changer.patch(by, experiment, wanted)

    # Trials

    async def kill_trial(self, by: By, trial: TrialId) -> None:
        """Of one that has ended: nothing happens."""
        reason = f"user {by.caller.username} asked for it"
        killed = _killed(reason)
        await self._of_trial(trial, killed, (by, Deed("trial.kill", str(trial))))

    async def give_up(self, trial: TrialId, reason: EarlyExit) -> None:
        def change(connection: Connection) -> ExperimentId:
            found = trial_records.get(connection, trial)
            inbox.post(connection, found.experiment, Gave(trial, reason))
            return found.experiment

        self._conductors.wake(await self._database.write(change))

    async def progressed(self, trial: TrialId, progress: float) -> None:
        if not 0.0 <= progress <= 1.0:
            raise errors.BadRequest(f"progress: must be from 0 to 1, found {progress}")
        found = await self._trial(trial)
        experiment = found.experiment
        if await self._conductors.tell(experiment, machine.Progressed(RequestId(found.request_id), progress)) is None:
            await self._database.write(lambda c: trial_records.change(c, trial, {"progress": progress}))

    async def _of_trial(self, id: TrialId, event: trial.Event, deed: tuple[By, Deed]) -> None:
        found = await self._trial(id)
        if found.state in TRIAL_ENDED:
            return
        await self._managed(found.experiment)
        told = machine.OfTrial(RequestId(found.request_id), event)
        await self._conductors.tell(found.experiment, told, deed)

    async def _trial(self, trial: TrialId) -> Trial:
        """Raises NotFound."""
        return await self._database.read(lambda connection: trial_records.get(connection, trial))

    # Those that run elsewhere

    async def add_trial(self, by: By, new: NewTrial) -> Trial:
        return await self._unmanaged.add_trial(by, new)

    async def start_trial(self, trial: TrialId, *, is_resumed: bool) -> Resumed:
        return await self._unmanaged.start_trial(trial, is_resumed=is_resumed)

    async def beat(self, trial: TrialId, state: str | None) -> Trial:
        return await self._unmanaged.beat(trial, state)


def _killed(reason: str) -> trial.Event:
    return trial.StopAsked(TrialState.STOPPING_KILLED, reason, ExitReason.USER_CANCELED)


_conforms: type[Experiments] = ExperimentService
