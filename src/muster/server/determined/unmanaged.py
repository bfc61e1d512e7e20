"""Trials that run elsewhere, and report here: made, begun, heard of."""

from collections.abc import Mapping, Sequence

from sqlalchemy import Connection, select

from muster.accounts.callers import WorkspaceId
from muster.accounts.permissions import Permission
from muster.api import errors
from muster.api.raw import JSON
from muster.experiments import trial_listing
from muster.experiments.contract import Experiments, NewTrial
from muster.experiments.places import Places
from muster.experiments.states import ExperimentId, TrialId
from muster.records import Database
from muster.records.tables_experiments import EXPERIMENTS, TRIALS
from muster.runtime.clock import Clock
from muster.server.determined import acting, trials
from muster.server.determined.experiment_messages import State
from muster.server.determined.paging import Id
from muster.server.determined.routing import Call, Message, Route, Rule, route
from muster.server.determined.trials import TrialNamed, TrialReply

_LONGEST = 254


class CreateTrial(Message, frozen=True):
    """`unmanaged`: those that run here are made by their search."""

    experiment_id: Id = 0
    hparams: Mapping[str, JSON] = {}
    unmanaged: bool = False


class PutTrial(Message, frozen=True):
    create_trial_request: CreateTrial = CreateTrial()
    external_trial_id: str = ""


class ByExternalId(Message, frozen=True):
    external_experiment_id: str = ""
    external_trial_id: str = ""


class StartTrial(TrialNamed, frozen=True):
    resume: bool = False


class StartReply(Message, frozen=True):
    trial_run_id: int
    latest_checkpoint: str | None
    steps_completed: int


class PatchTrial(TrialNamed, frozen=True):
    """Says that it is alive; and, with a state, how it stands."""

    state: State | None = None


class _Unmanaged:
    def __init__(self, experiments: Experiments, database: Database, clock: Clock, places: Places) -> None:
        self._experiments = experiments
        self._database = database
        self._clock = clock
        self._places = places

    # Where

    async def new_place(self, call: Call, asked: CreateTrial) -> WorkspaceId:
        return await self._places.of_experiment(call.caller, asked.experiment_id)

    async def put_place(self, call: Call, asked: PutTrial) -> WorkspaceId:
        return await self._places.of_experiment(call.caller, asked.create_trial_request.experiment_id)

    async def place(self, call: Call, asked: TrialNamed) -> WorkspaceId:
        return await self._places.of_trial(call.caller, asked.trial_id)

    async def external_place(self, call: Call, asked: ByExternalId) -> WorkspaceId:
        return await self._places.of_trial(call.caller, await self._find(asked))

    # What is asked

    async def create(self, call: Call, asked: CreateTrial) -> TrialReply:
        return await self._add(call, asked, None)

    async def put(self, call: Call, asked: PutTrial) -> TrialReply:
        external = asked.external_trial_id
        if not external or len(external) > _LONGEST:
            raise errors.BadRequest(f"externalTrialId: must have 1 to {_LONGEST} characters")
        return await self._add(call, asked.create_trial_request, external)

    async def _add(self, call: Call, asked: CreateTrial, external_id: str | None) -> TrialReply:
        new = NewTrial(ExperimentId(asked.experiment_id), dict(asked.hparams), external_id)
        made = await self._experiments.add_trial(acting.by(call), new)
        return await self._told(made.id)

    async def start(self, call: Call, asked: StartTrial) -> StartReply:
        found = await self._experiments.start_trial(TrialId(asked.trial_id), is_resumed=asked.resume)
        return StartReply(
            trial_run_id=found.run, latest_checkpoint=found.latest_checkpoint, steps_completed=found.steps
        )  # fmt: skip

    async def patch(self, call: Call, asked: PatchTrial) -> TrialReply:
        is_told = asked.state not in (None, State.UNSPECIFIED)
        state = asked.state.name if asked.state is not None and is_told else None
        return await self._told((await self._experiments.beat(TrialId(asked.trial_id), state)).id)

    async def get(self, call: Call, asked: ByExternalId) -> TrialReply:
        return await self._told(TrialId(await self._find(asked)))

    async def _find(self, asked: ByExternalId) -> int:
        """Raises NotFound."""
        query = (
            select(TRIALS.c.id)
            .join(EXPERIMENTS, EXPERIMENTS.c.id == TRIALS.c.experiment_id)
            .where(EXPERIMENTS.c.external_id == asked.external_experiment_id)
            .where(TRIALS.c.external_id == asked.external_trial_id)
        )

        def read(connection: Connection) -> int | None:
            return connection.scalar(query)

        found = await self._database.read(read)
        if found is None:
            named = f"{asked.external_trial_id[:80]!r} of experiment {asked.external_experiment_id[:80]!r}"
            raise errors.NotFound(f"trial {named} not found")
        return found

    async def _told(self, trial: TrialId) -> TrialReply:
        now = self._clock.now()
        found = await self._database.read(lambda connection: trial_listing.get(connection, trial, now))
        return TrialReply(trial=trials.told(found))


def routes(experiments: Experiments, database: Database, clock: Clock, places: Places) -> Sequence[Route]:
    on, here = _Unmanaged(experiments, database, clock, places), "/api/v1/trials"
    external = f"{here}/by-external-id/{{externalExperimentId}}/{{externalTrialId}}"
    create: Rule[CreateTrial] = Rule(Permission.EDIT_EXPERIMENTS, on.new_place)
    put: Rule[PutTrial] = Rule(Permission.EDIT_EXPERIMENTS, on.put_place)
    start: Rule[StartTrial] = Rule(Permission.EDIT_EXPERIMENTS, on.place)
    patch: Rule[PatchTrial] = Rule(Permission.EDIT_EXPERIMENTS, on.place)
    view: Rule[ByExternalId] = Rule(Permission.VIEW_EXPERIMENTS, on.external_place)
    return (
        route("POST", here, CreateTrial, TrialReply, create, on.create),
        route("PUT", here, PutTrial, TrialReply, put, on.put),
        route("GET", external, ByExternalId, TrialReply, view, on.get),
        route("POST", f"{here}/{{trialId}}/start", StartTrial, StartReply, start, on.start),
        route("PATCH", f"{here}/{{trialId}}", PatchTrial, TrialReply, patch, on.patch),
    )
