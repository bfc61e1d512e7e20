"""What routes, and whoever else acts on experiments, ask of them. `running.ExperimentService` does it.

All that returns is durable. What one may do is checked before, by the routes; whether it can be done now is checked
here. Those that an experiment is past (a pause of one that has ended) raise Conflict, and say how it stands.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from muster.accounts.audit import By
from muster.accounts.projects import ProjectId
from muster.api.raw import Document
from muster.engines.protocol import Caveat
from muster.experiments.experiment_records import Experiment
from muster.experiments.inbox import EarlyExit, Waker
from muster.experiments.states import ExperimentId, TrialId
from muster.experiments.trial_records import Trial
from muster.tasks.contexts import File


@dataclass(frozen=True, slots=True)
class NewExperiment:
    """`config`: YAML as it was sent. `parent`: it is a fork of that, and has its model definition unless files are
    sent. `external_id`: by which one that runs elsewhere is found again."""

    config: str
    files: Sequence[File] = ()
    template: str = ""
    project: ProjectId | None = None
    parent: ExperimentId | None = None
    is_active: bool = True
    is_unmanaged: bool = False
    external_id: str | None = None


@dataclass(frozen=True, slots=True)
class Created:
    """`experiment`: None where it was only to be checked."""

    config: Document
    experiment: Experiment | None = None
    caveats: Sequence[Caveat] = ()


@dataclass(frozen=True, slots=True)
class ExperimentPatch:
    """None leaves it as it is."""

    name: str | None = None
    description: str | None = None
    notes: str | None = None
    labels: Sequence[str] | None = None
    priority: int | None = None
    weight: float | None = None
    max_slots: int | None = None
    is_unlimited: bool = False
    """No limit of slots any more."""
    save_experiment_best: int | None = None
    save_trial_best: int | None = None
    save_trial_latest: int | None = None


@dataclass(frozen=True, slots=True)
class NewTrial:
    """Of an experiment that runs elsewhere. One with the same external id is the same."""

    experiment: ExperimentId
    hparams: Document = field(default_factory=dict)
    external_id: str | None = None


@dataclass(frozen=True, slots=True)
class Resumed:
    """Where a trial that runs elsewhere goes on."""

    run: int
    latest_checkpoint: str | None
    steps: int


class Experiments(Waker, Protocol):
    async def validate(self, by: By, new: NewExperiment) -> Created:
        """Raises BadRequest, NotFound, Forbidden, TooLarge."""
        ...

    async def create(self, by: By, new: NewExperiment) -> Created:
        """Raises as `validate` does."""
        ...

    async def continue_(self, by: By, experiment: ExperimentId, override: str) -> Experiment: ...
    async def activate(self, by: By, experiment: ExperimentId) -> None: ...
    async def pause(self, by: By, experiment: ExperimentId) -> None: ...

    async def cancel(self, by: By, experiment: ExperimentId) -> None:
        """Gracefully: trials may save what they have."""
        ...

    async def kill(self, by: By, experiment: ExperimentId) -> None: ...
    async def archive(self, by: By, experiment: ExperimentId, *, is_archived: bool) -> None: ...

    async def delete(self, by: By, experiment: ExperimentId) -> None:
        """Marks it; what is left of it is removed in the background. Only one that has ended."""
        ...

    async def move(self, by: By, experiment: ExperimentId, project: ProjectId) -> None: ...
    async def patch(self, by: By, experiment: ExperimentId, wanted: ExperimentPatch) -> Experiment: ...
    async def kill_trial(self, by: By, trial: TrialId) -> None: ...

    async def give_up(self, trial: TrialId, reason: EarlyExit) -> None:
        """A trial says itself that it is not worth going on."""
        ...

    async def progressed(self, trial: TrialId, progress: float) -> None: ...

    # Those that run elsewhere

    async def add_trial(self, by: By, new: NewTrial) -> Trial: ...
    async def start_trial(self, trial: TrialId, *, is_resumed: bool) -> Resumed: ...

    async def beat(self, trial: TrialId, state: str | None) -> Trial:
        """It is alive; `state`: and has ended so."""
        ...
