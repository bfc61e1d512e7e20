"""Experiments, one at a time: made, looked at, changed, deleted."""

from collections.abc import Mapping, Sequence
from typing import TypeVar

import msgspec
from msgspec import UNSET, UnsetType
from sqlalchemy import Connection, select

from muster.accounts.authorizing import Authorizer
from muster.accounts.callers import WorkspaceId
from muster.accounts.permissions import Permission
from muster.accounts.projects import ProjectId
from muster.api import errors
from muster.api.raw import JSON
from muster.experiments import listing, validation_history
from muster.experiments.contract import Created, ExperimentPatch, Experiments, NewExperiment
from muster.experiments.labels import Labels
from muster.experiments.listing import Listed
from muster.experiments.places import Places
from muster.experiments.states import ExperimentId
from muster.records import Database
from muster.records.tables_experiments import TRIALS
from muster.runtime.clock import Clock
from muster.server.determined import acting, experiment_messages, interactive
from muster.server.determined.experiment_messages import Experiment, Eyes
from muster.server.determined.interactive import FileMessage
from muster.server.determined.paging import Id
from muster.server.determined.routing import Call, Message, Nothing, Route, Rule, known, large, route


class NewMessage(Message, frozen=True):
    """`config`: YAML. `activate`: else it waits, paused."""

    config: str = ""
    model_definition: Sequence[FileMessage] = ()
    template: str = ""
    project_id: Id = 0
    parent_id: Id = 0
    activate: bool = False
    validate_only: bool = False
    unmanaged: bool = False


class PutExperiment(NewMessage, frozen=True):
    external_experiment_id: str = ""


class CreateReply(Message, frozen=True):
    experiment: Experiment
    config: Mapping[str, JSON]
    warnings: Sequence[str]


class ExperimentNamed(Message, frozen=True):
    experiment_id: Id = 0


class GetReply(Message, frozen=True):
    experiment: Experiment
    config: Mapping[str, JSON]
    job_summary: JSON = None


class PatchStorage(Message, frozen=True):
    save_experiment_best: int | None = None
    save_trial_best: int | None = None
    save_trial_latest: int | None = None


class Patch(ExperimentNamed, frozen=True):
    """What is not there stays as it is. In `resources` it matters whether `maxSlots` is not there, or null: then there
    is no limit any more."""

    name: str | None = None
    description: str | None = None
    notes: str | None = None
    labels: Sequence[str] | None = None
    resources: Mapping[str, JSON] = {}
    checkpoint_storage: PatchStorage = PatchStorage()


class _Resources(msgspec.Struct, frozen=True, rename="camel"):
    max_slots: int | UnsetType | None = UNSET
    weight: float | None = None
    priority: int | None = None


class PatchReply(Message, frozen=True):
    experiment: Experiment


class Continue(Message, frozen=True):
    """`override_config`: YAML, over the configuration that it had."""

    id: Id = 0
    override_config: str = ""


class ContinueReply(Message, frozen=True):
    experiment: Experiment
    warnings: Sequence[str] = ()


class Label(ExperimentNamed, frozen=True):
    label: str = ""


class LabelsReply(Message, frozen=True):
    labels: Sequence[str]


class HistoryEntry(Message, frozen=True):
    trial_id: int
    end_time: str
    searcher_metric: float


class HistoryReply(Message, frozen=True):
    validation_history: Sequence[HistoryEntry]


N = TypeVar("N", bound=ExperimentNamed)


class _Experiments:
    def __init__(
        self, experiments: Experiments, database: Database, clock: Clock, places: Places, authorizer: Authorizer
    ) -> None:
        self._experiments = experiments
        self._database = database
        self._clock = clock
        self._places = places
        self._authorizer = authorizer
        self._labels = Labels(database, clock)

    # Where

    async def place(self, call: Call, asked: ExperimentNamed) -> WorkspaceId:
        return await self._places.of_experiment(call.caller, asked.experiment_id)

    async def continued_place(self, call: Call, asked: Continue) -> WorkspaceId:
        return await self._places.of_experiment(call.caller, asked.id)

    # Making them: in which workspace, and whether that is allowed, is known only when the configuration was read

    async def create(self, call: Call, asked: NewMessage) -> CreateReply:
        return await self._create(call, asked, None)

    async def put(self, call: Call, asked: PutExperiment) -> CreateReply:
        """One that runs elsewhere, and is known by the id that it has there."""
        if not asked.external_experiment_id:
            raise errors.BadRequest("externalExperimentId: must not be empty")
        return await self._create(call, asked, asked.external_experiment_id)

    async def _create(self, call: Call, asked: NewMessage, external_id: str | None) -> CreateReply:
        acting.person(call)
        new = NewExperiment(
            config=asked.config,
            files=interactive.files(asked.model_definition),
            template=asked.template,
            project=ProjectId(asked.project_id) if asked.project_id else None,
            parent=ExperimentId(asked.parent_id) if asked.parent_id else None,
            is_active=asked.activate,
            is_unmanaged=asked.unmanaged or external_id is not None,
            external_id=external_id,
        )
        by = acting.by(call)
        made = await (self._experiments.validate(by, new) if asked.validate_only else self._experiments.create(by, new))
        return await self._made(call, made)

    async def _made(self, call: Call, made: Created) -> CreateReply:
        warnings = interactive.warnings(made.caveats)
        if made.experiment is None:
            empty = experiment_messages.unmade(made.config, self._clock.now())
            return CreateReply(experiment=empty, config=made.config, warnings=warnings)
        if made.experiment.external_id is not None:
            # It may have been there before, and be somebody else's.
            await self._places.of_experiment(call.caller, made.experiment.id)
        told = await self._told(call, made.experiment.id)
        return CreateReply(experiment=told, config=told.config, warnings=warnings)

    async def continue_(self, call: Call, asked: Continue) -> ContinueReply:
        experiment = ExperimentId(asked.id)
        await self._experiments.continue_(acting.by(call), experiment, asked.override_config)
        return ContinueReply(experiment=await self._told(call, experiment))

    # Looking

    async def get(self, call: Call, asked: ExperimentNamed) -> GetReply:
        told = await self._told(call, ExperimentId(asked.experiment_id))
        return GetReply(experiment=told, config=told.config)

    async def _told(self, call: Call, experiment: ExperimentId) -> Experiment:
        def read(connection: Connection) -> tuple[Listed, Sequence[int]]:
            query = select(TRIALS.c.id).where(TRIALS.c.experiment_id == experiment).order_by(TRIALS.c.id)
            return listing.get(connection, experiment), list(connection.scalars(query))

        found, trials = await self._database.read(read)
        return experiment_messages.told(found, await self._eyes(call), trials)

    async def _eyes(self, call: Call) -> Eyes:
        return await experiment_messages.eyes(self._authorizer, call.caller, self._clock.now())

    async def history(self, call: Call, asked: ExperimentNamed) -> HistoryReply:
        experiment = ExperimentId(asked.experiment_id)
        found = await self._database.read(
            lambda connection: validation_history.read(connection, experiment), is_long=True
        )
        entries = [
            HistoryEntry(trial_id=each.trial, end_time=acting.time(each.at) or "", searcher_metric=each.metric)
            for each in found
        ]
        return HistoryReply(validation_history=entries)

    # Changing

    async def patch(self, call: Call, asked: Patch) -> PatchReply:
        experiment = ExperimentId(asked.experiment_id)
        await self._experiments.patch(acting.by(call), experiment, _wanted(asked))
        return PatchReply(experiment=await self._told(call, experiment))

    async def delete(self, call: Call, asked: ExperimentNamed) -> Nothing:
        await self._experiments.delete(acting.by(call), ExperimentId(asked.experiment_id))
        return Nothing()

    async def add_label(self, call: Call, asked: Label) -> LabelsReply:
        experiment = ExperimentId(asked.experiment_id)
        return LabelsReply(labels=await self._labels.add(acting.by(call), experiment, asked.label))

    async def remove_label(self, call: Call, asked: Label) -> LabelsReply:
        experiment = ExperimentId(asked.experiment_id)
        return LabelsReply(labels=await self._labels.remove(acting.by(call), experiment, asked.label))


def _wanted(asked: Patch) -> ExperimentPatch:
    """Raises BadRequest."""
    named = {"max_slots": "maxSlots"}
    try:
        resources = msgspec.convert(
            {named.get(name, name): value for name, value in asked.resources.items()}, _Resources, strict=False
        )
    except msgspec.ValidationError as error:
        raise errors.BadRequest(f"resources: {error}") from error
    kept = asked.checkpoint_storage
    return ExperimentPatch(
        name=asked.name,
        description=asked.description,
        notes=asked.notes,
        labels=asked.labels,
        priority=resources.priority,
        weight=resources.weight,
        max_slots=None if isinstance(resources.max_slots, UnsetType) else resources.max_slots,
        is_unlimited=resources.max_slots is None,
        save_experiment_best=kept.save_experiment_best,
        save_trial_best=kept.save_trial_best,
        save_trial_latest=kept.save_trial_latest,
    )


def routes(
    experiments: Experiments, database: Database, clock: Clock, places: Places, authorizer: Authorizer
) -> Sequence[Route]:
    on, here = _Experiments(experiments, database, clock, places, authorizer), "/api/v1/experiments"
    each = f"{here}/{{experimentId}}"
    label, external = f"{each}/labels/{{label}}", f"{here}/by-external-id/{{externalExperimentId}}"
    continued: Rule[Continue] = Rule(Permission.EDIT_EXPERIMENTS, on.continued_place)

    def view(_request: type[N]) -> Rule[N]:
        return Rule(Permission.VIEW_EXPERIMENTS, on.place)

    def edit(_request: type[N]) -> Rule[N]:
        return Rule(Permission.EDIT_EXPERIMENTS, on.place)

    return (
        large(route("POST", here, NewMessage, CreateReply, known(), on.create)),
        large(route("PUT", external, PutExperiment, CreateReply, known(), on.put)),
        route("POST", f"{here}/continue", Continue, ContinueReply, continued, on.continue_),
        route("GET", each, ExperimentNamed, GetReply, view(ExperimentNamed), on.get),
        route("PATCH", each, Patch, PatchReply, edit(Patch), on.patch),
        route("DELETE", each, ExperimentNamed, Nothing, edit(ExperimentNamed), on.delete),
        route("PUT", label, Label, LabelsReply, edit(Label), on.add_label),
        route("DELETE", label, Label, LabelsReply, edit(Label), on.remove_label),
        route("GET", f"{each}/validation-history", ExperimentNamed, HistoryReply, view(ExperimentNamed), on.history),
    )
