"""Checkpoints: what trials report, who looks at them, and how they are removed."""

import math
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from operator import itemgetter
from typing import Final

from muster.accounts.authorizing import Authorizer, Hidden
from muster.accounts.callers import WorkspaceId
from muster.accounts.permissions import Permission
from muster.api import errors
from muster.api.raw import JSON
from muster.experiments import checkpoint_records as records
from muster.experiments.checkpoint_records import CheckpointFilter, CheckpointState, NewCheckpoint
from muster.experiments.checkpoints import Checkpoints
from muster.experiments.config import showing
from muster.experiments.metric_reports import number
from muster.experiments.places import Places
from muster.experiments.states import ExperimentId, TrialId
from muster.server.determined import acting, paging
from muster.server.determined.ordering import OrderBy
from muster.server.determined.paging import Id, Paged, Pagination
from muster.server.determined.routing import Call, Message, Nothing, Route, Rule, route
from muster.tasks.glue.storages import ALL


class State(StrEnum):
    UNSPECIFIED = "STATE_UNSPECIFIED"
    ACTIVE = "STATE_ACTIVE"
    COMPLETED = "STATE_COMPLETED"
    ERROR = "STATE_ERROR"
    DELETED = "STATE_DELETED"
    PARTIALLY_DELETED = "STATE_PARTIALLY_DELETED"


class SortBy(StrEnum):
    UNSPECIFIED = "SORT_BY_UNSPECIFIED"
    UUID = "SORT_BY_UUID"
    TRIAL_ID = "SORT_BY_TRIAL_ID"
    BATCH_NUMBER = "SORT_BY_BATCH_NUMBER"
    END_TIME = "SORT_BY_END_TIME"
    STATE = "SORT_BY_STATE"
    SEARCHER_METRIC = "SORT_BY_SEARCHER_METRIC"


class Metrics(Message, frozen=True):
    avg_metrics: Mapping[str, JSON] = {}
    batch_metrics: Sequence[Mapping[str, JSON]] = ()


class Training(Message, frozen=True):
    trial_id: int | None = None
    experiment_id: int | None = None
    experiment_config: Mapping[str, JSON] | None = None
    hparams: Mapping[str, JSON] | None = None
    training_metrics: Metrics | None = None
    validation_metrics: Metrics | None = None
    searcher_metric: float | None = None


class Checkpoint(Message, frozen=True):
    uuid: str = ""
    task_id: str | None = None
    allocation_id: str | None = None
    report_time: str | None = None
    state: State = State.UNSPECIFIED
    resources: Mapping[str, str] = {}
    metadata: Mapping[str, JSON] = {}
    training: Training = Training()
    storage_id: int | None = None


class CheckpointReply(Message, frozen=True):
    checkpoint: Checkpoint


class CheckpointNamed(Message, frozen=True):
    checkpoint_uuid: str = ""


class PostMetadata(CheckpointNamed, frozen=True):
    checkpoint: Checkpoint = Checkpoint()


class LeftResources(Message, frozen=True):
    resources: Mapping[str, str] = {}


class PatchCheckpoint(Message, frozen=True):
    uuid: str = ""
    resources: LeftResources | None = None


class PatchCheckpoints(Message, frozen=True):
    checkpoints: Sequence[PatchCheckpoint] = ()


class DeleteCheckpoints(Message, frozen=True):
    checkpoint_uuids: Sequence[str] = ()


class RemoveFiles(DeleteCheckpoints, frozen=True):
    checkpoint_globs: Sequence[str] = ()


class GetCheckpoints(Paged, frozen=True):
    """`id`: of an experiment or a trial. `sort_by_metric`: of those that were validated at the same step."""

    id: Id = 0
    sort_by_attr: SortBy = SortBy.UNSPECIFIED
    sort_by_metric: str = ""
    order_by: OrderBy = OrderBy.UNSPECIFIED
    states: Sequence[State] = ()


class GetCheckpointsReply(Message, frozen=True):
    checkpoints: Sequence[Checkpoint]
    pagination: Pagination


class ExperimentNamed(Message, frozen=True):
    experiment_id: Id = 0


class _Checkpoints:
    def __init__(self, checkpoints: Checkpoints, places: Places, authorizer: Authorizer) -> None:
        self._checkpoints = checkpoints
        self._places = places
        self._authorizer = authorizer

    # Who may

    async def place(self, call: Call, asked: CheckpointNamed) -> WorkspaceId | None:
        found = await self._checkpoints.get(asked.checkpoint_uuid)
        return await self._visible(call, found)

    async def all_places(self, call: Call, asked: DeleteCheckpoints) -> WorkspaceId | None:
        """One of them; that all others may be changed as well is seen to here."""
        places = {await self._visible(call, await self._checkpoints.get(uuid)) for uuid in asked.checkpoint_uuids}
        if not places:
            raise errors.BadRequest("checkpointUuids: must name at least one checkpoint")
        for place in places:
            await self._authorizer.check(call.caller, Permission.EDIT_EXPERIMENTS, place)
        return next(iter(places))

    async def patched_place(self, call: Call, asked: PatchCheckpoints) -> WorkspaceId | None:
        return await self.all_places(call, DeleteCheckpoints(checkpoint_uuids=[one.uuid for one in asked.checkpoints]))

    async def report_place(self, call: Call, asked: Checkpoint) -> WorkspaceId:
        """Of a trial that runs elsewhere, and speaks as its user."""
        trial = await self._places.trial_of(asked.task_id or "")
        if trial is None:
            raise errors.NotFound(f"taskId: there is no trial with task {(asked.task_id or '')[:80]!r}")
        return await self._places.of_trial(call.caller, trial)

    async def experiment_place(self, call: Call, asked: GetCheckpoints) -> WorkspaceId:
        return await self._places.of_experiment(call.caller, asked.id)

    async def trial_place(self, call: Call, asked: GetCheckpoints) -> WorkspaceId:
        return await self._places.of_trial(call.caller, asked.id)

    async def named_place(self, call: Call, asked: ExperimentNamed) -> WorkspaceId:
        return await self._places.of_experiment(call.caller, asked.experiment_id)

    async def _visible(self, call: Call, found: records.Checkpoint) -> WorkspaceId | None:
        allowed = await self._authorizer.allows(call.caller, Permission.VIEW_EXPERIMENTS, found.workspace)
        if not allowed:
            raise Hidden(records.not_found(found.uuid).message)
        return found.workspace

    async def is_own(self, call: Call, asked: CheckpointNamed) -> bool:
        """Trials load what others have saved: their own experiment's, or where the user sent them."""
        await self._visible(call, await self._checkpoints.get(asked.checkpoint_uuid))
        return True

    async def is_own_report(self, call: Call, asked: Checkpoint) -> bool:
        return asked.task_id == call.caller.task and asked.allocation_id in (None, "", call.caller.allocation)

    async def are_own(self, call: Call, asked: PatchCheckpoints) -> bool:
        """What a trial has saved itself, or what a removal was started for."""
        experiment = await self._places.of_removal(call.caller.task)
        found = [await self._checkpoints.get(one.uuid) for one in asked.checkpoints]
        return all(
            each.task == call.caller.task or (each.training is not None and each.training.experiment == experiment)
            for each in found
        )

    # What is done

    async def get(self, call: Call, asked: CheckpointNamed) -> CheckpointReply:
        found = await self._checkpoints.get(asked.checkpoint_uuid)
        return CheckpointReply(checkpoint=told(found, is_open=await self._is_open(call, found.workspace)))

    async def report(self, call: Call, asked: Checkpoint) -> Nothing:
        new = NewCheckpoint(
            uuid=asked.uuid,
            task=asked.task_id or "",
            allocation=asked.allocation_id or "",
            resources=_sizes(asked.resources),
            metadata=dict(asked.metadata),
            state=_state(asked.state) or CheckpointState.COMPLETED,
            storage=asked.storage_id,
        )
        await self._checkpoints.report(new)
        return Nothing()

    async def patch(self, call: Call, asked: PatchCheckpoints) -> Nothing:
        left = {one.uuid: _sizes(one.resources.resources) for one in asked.checkpoints if one.resources is not None}
        await self._checkpoints.left(left)
        return Nothing()

    async def set_metadata(self, call: Call, asked: PostMetadata) -> CheckpointReply:
        changed = await self._checkpoints.set_metadata(asked.checkpoint_uuid, dict(asked.checkpoint.metadata))
        return CheckpointReply(checkpoint=told(changed, is_open=True))

    async def delete(self, call: Call, asked: DeleteCheckpoints) -> Nothing:
        await self._checkpoints.discard(acting.by(call), asked.checkpoint_uuids, ALL)
        return Nothing()

    async def remove_files(self, call: Call, asked: RemoveFiles) -> Nothing:
        """Without globs nothing is removed: what is left is looked at again."""
        await self._checkpoints.discard(acting.by(call), asked.checkpoint_uuids, asked.checkpoint_globs)
        return Nothing()

    async def of_experiment(self, call: Call, asked: GetCheckpoints) -> GetCheckpointsReply:
        return await self._listed(call, asked, CheckpointFilter(experiment=ExperimentId(asked.id)))

    async def of_trial(self, call: Call, asked: GetCheckpoints) -> GetCheckpointsReply:
        return await self._listed(call, asked, CheckpointFilter(trial=TrialId(asked.id)))

    async def remove_event_files(self, call: Call, asked: ExperimentNamed) -> Nothing:
        await self._checkpoints.remove_event_files(acting.by(call), ExperimentId(asked.experiment_id))
        return Nothing()

    async def _listed(self, call: Call, asked: GetCheckpoints, chosen: CheckpointFilter) -> GetCheckpointsReply:
        states = {state for each in asked.states if (state := _state(each)) is not None}
        found = [each for each in await self._checkpoints.list(chosen) if not states or each.state in states]
        page = paging.cut(ordered(found, asked), asked)
        is_open = bool(page.items) and await self._is_open(call, page.items[0].workspace)
        return GetCheckpointsReply(
            checkpoints=[told(each, is_open=is_open) for each in page.items], pagination=paging.told(page, asked)
        )

    async def _is_open(self, call: Call, workspace: WorkspaceId | None) -> bool:
        """Whether the caller may have the keys of storages: a task has them anyway, in its own configuration."""
        return await self._authorizer.allows(call.caller, Permission.EDIT_EXPERIMENTS, workspace)


def ordered(found: Sequence[records.Checkpoint], asked: GetCheckpoints) -> Sequence[records.Checkpoint]:
    """Those without a value of what they are ordered by come last, whichever the direction."""

    def key(each: records.Checkpoint) -> str | float | None:
        if asked.sort_by_metric:
            return _comparable(number(each.training.validation.get(asked.sort_by_metric)) if each.training else None)
        return _KEYS[asked.sort_by_attr](each)

    known = [(value, each) for each in found if (value := key(each)) is not None]
    known.sort(key=itemgetter(0), reverse=asked.order_by is OrderBy.DESC)
    return [*(each for _, each in known), *(each for each in found if key(each) is None)]


def _comparable(metric: float | None) -> float | None:
    return None if metric is None or math.isnan(metric) else metric


_KEYS: Final[Mapping[SortBy, Callable[[records.Checkpoint], str | float | None]]] = {
    SortBy.UNSPECIFIED: lambda each: each.reported,
    SortBy.UUID: lambda each: each.uuid,
    SortBy.TRIAL_ID: lambda each: each.training.trial if each.training else None,
    SortBy.BATCH_NUMBER: lambda each: each.steps,
    SortBy.END_TIME: lambda each: each.reported,
    SortBy.STATE: lambda each: each.state.value,
    SortBy.SEARCHER_METRIC: lambda each: _comparable(each.training.metric if each.training else None),
}


def told(found: records.Checkpoint, *, is_open: bool) -> Checkpoint:
    """`is_open`: with the keys of the storage, which clients need to read it themselves."""
    return Checkpoint(
        uuid=found.uuid,
        task_id=found.task,
        allocation_id=found.allocation,
        report_time=acting.time(found.reported),
        state=State[found.state.name],
        resources={path: str(size) for path, size in found.resources.items()},
        metadata=found.metadata,
        training=_training(found.training, is_open),
        storage_id=found.storage,
    )


def _training(found: records.Training | None, is_open: bool) -> Training:
    if found is None:
        return Training()
    return Training(
        trial_id=found.trial,
        experiment_id=found.experiment,
        experiment_config=found.config if is_open else showing.shown(found.config),
        hparams=found.hparams,
        validation_metrics=Metrics(avg_metrics=found.validation),
        searcher_metric=found.metric,
    )


def _state(asked: State) -> CheckpointState | None:
    return None if asked is State.UNSPECIFIED else CheckpointState[asked.name]


def _sizes(resources: Mapping[str, str]) -> dict[str, int]:
    for path, size in resources.items():
        if not (size.isascii() and size.isdigit() and len(size) <= 18):
            raise errors.BadRequest(f"resources.{path[:200]}: must be a number of bytes, found {size[:40]!r}")
    return {path: int(size) for path, size in resources.items()}


def routes(checkpoints: Checkpoints, places: Places, authorizer: Authorizer) -> Sequence[Route]:
    handlers, here = _Checkpoints(checkpoints, places, authorizer), "/api/v1/checkpoints"
    each = f"{here}/{{checkpointUuid}}"
    view: Rule[CheckpointNamed] = Rule(Permission.VIEW_EXPERIMENTS, handlers.place, own=handlers.is_own)
    edit: Rule[PostMetadata] = Rule(Permission.EDIT_EXPERIMENTS, handlers.place)
    report: Rule[Checkpoint] = Rule(Permission.EDIT_EXPERIMENTS, handlers.report_place, own=handlers.is_own_report)
    patch: Rule[PatchCheckpoints] = Rule(Permission.EDIT_EXPERIMENTS, handlers.patched_place, own=handlers.are_own)
    remove: Rule[DeleteCheckpoints] = Rule(Permission.EDIT_EXPERIMENTS, handlers.all_places)
    files: Rule[RemoveFiles] = Rule(Permission.EDIT_EXPERIMENTS, handlers.all_places)
    of_experiment = Rule(Permission.VIEW_EXPERIMENTS, handlers.experiment_place)
    of_trial = Rule(Permission.VIEW_EXPERIMENTS, handlers.trial_place)
    events = Rule(Permission.EDIT_EXPERIMENTS, handlers.named_place)
    event_files = "/api/v1/experiments/{experimentId}/tensorboard-files"
    return (
        route("POST", here, Checkpoint, Nothing, report, handlers.report),
        route("PATCH", here, PatchCheckpoints, Nothing, patch, handlers.patch),
        route("DELETE", here, DeleteCheckpoints, Nothing, remove, handlers.delete),
        route("POST", f"{here}/rm", RemoveFiles, Nothing, files, handlers.remove_files),
        route("GET", each, CheckpointNamed, CheckpointReply, view, handlers.get),
        route("POST", f"{each}/metadata", PostMetadata, CheckpointReply, edit, handlers.set_metadata),
        route(
            "GET",
            "/api/v1/experiments/{id}/checkpoints",
            GetCheckpoints,
            GetCheckpointsReply,
            of_experiment,
            handlers.of_experiment,
        ),
        route(
            "GET", "/api/v1/trials/{id}/checkpoints", GetCheckpoints, GetCheckpointsReply, of_trial, handlers.of_trial
        ),
        route("DELETE", event_files, ExperimentNamed, Nothing, events, handlers.remove_event_files),
    )
