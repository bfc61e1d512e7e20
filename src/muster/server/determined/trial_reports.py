"""What a running trial says about itself, beside metrics: what it is doing, how far it has come, that it gives up."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Final

import msgspec
from sqlalchemy import Connection, insert, select

from muster.accounts.callers import WorkspaceId
from muster.accounts.permissions import Permission
from muster.api import errors, raw
from muster.api.raw import JSON
from muster.experiments import checkpoint_records, trial_records
from muster.experiments.contract import Experiments
from muster.experiments.inbox import EarlyExit
from muster.experiments.places import Places
from muster.experiments.states import TrialId
from muster.records import Database
from muster.records.tables_experiments import TRIAL_SOURCES
from muster.server.determined.paging import Id
from muster.server.determined.routing import Call, Message, Nothing, Route, Rule, route

_MOST_METADATA_BYTES: Final = 128 * 1024
_MOST_METADATA_KEYS: Final = 1000
_DEEPEST_METADATA: Final = 10
_Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
_Word = Annotated[str, msgspec.Meta(max_length=254)]


class TrialNamed(Message, frozen=True):
    trial_id: Id = 0


class RunnerMetadata(TrialNamed, frozen=True):
    state: Annotated[str, msgspec.Meta(max_length=1000)] = ""


class ReportProgress(TrialNamed, frozen=True):
    """`is_raw`: of clients that could say it in another unit."""

    progress: _Share = 0.0
    is_raw: bool = True


class ReportEarlyExit(TrialNamed, frozen=True):
    reason: str = ""


class RunNamed(Message, frozen=True):
    """A run is a trial, by its newer name."""

    run_id: Id = 0


class StartRun(RunNamed, frozen=True):
    checkpoint_storage: Mapping[str, JSON] | None = None


class StartRunReply(Message, frozen=True):
    storage_id: int | None


class PostMetadata(RunNamed, frozen=True):
    metadata: Mapping[str, JSON] = {}


class MetadataReply(Message, frozen=True):
    metadata: Mapping[str, JSON]


class SourceType(StrEnum):
    UNSPECIFIED = "TRIAL_SOURCE_INFO_TYPE_UNSPECIFIED"
    INFERENCE = "TRIAL_SOURCE_INFO_TYPE_INFERENCE"
    FINE_TUNING = "TRIAL_SOURCE_INFO_TYPE_FINE_TUNING"


class TrialSource(Message, frozen=True):
    trial_id: Id = 0
    checkpoint_uuid: _Word = ""
    trial_source_info_type: SourceType = SourceType.UNSPECIFIED
    model_id: Id | None = None
    model_version: Id | None = None


class PostSource(Message, frozen=True):
    trial_source_info: TrialSource = TrialSource()


class PostSourceReply(Message, frozen=True):
    trial_id: int
    checkpoint_uuid: str


class _Reports:
    def __init__(self, experiments: Experiments, database: Database, places: Places) -> None:
        self._experiments = experiments
        self._database = database
        self._places = places

    # Who may

    async def place(self, call: Call, asked: TrialNamed) -> WorkspaceId:
        return await self._places.of_trial(call.caller, asked.trial_id)

    async def is_latest(self, call: Call, asked: TrialNamed) -> bool:
        return await self._is_latest(call, asked.trial_id)

    async def place_of_run(self, call: Call, asked: RunNamed) -> WorkspaceId:
        return await self._places.of_trial(call.caller, asked.run_id)

    async def is_latest_run(self, call: Call, asked: RunNamed) -> bool:
        return await self._is_latest(call, asked.run_id)

    async def place_of_source(self, call: Call, asked: PostSource) -> WorkspaceId:
        return await self._places.of_trial(call.caller, asked.trial_source_info.trial_id)

    async def is_latest_of_source(self, call: Call, asked: PostSource) -> bool:
        return await self._is_latest(call, asked.trial_source_info.trial_id)

    async def _is_latest(self, call: Call, trial: int) -> bool:
        """A run that another has followed says nothing any more: it may be a machine that was cut off."""
        found = await self._database.read(lambda connection: trial_records.get(connection, trial))
        return call.caller.allocation == f"{found.task}.{found.run}"

    # What is said

    async def runner(self, call: Call, asked: RunnerMetadata) -> Nothing:
        trial = TrialId(asked.trial_id)
        change = {"runner_state": asked.state}
        await self._database.write(lambda connection: trial_records.change(connection, trial, change))
        return Nothing()

    async def progress(self, call: Call, asked: ReportProgress) -> Nothing:
        await self._experiments.progressed(TrialId(asked.trial_id), asked.progress)
        return Nothing()

    async def early_exit(self, call: Call, asked: ReportEarlyExit) -> Nothing:
        try:
            reason = EarlyExit(asked.reason)
        except ValueError as error:
            known = ", ".join(EarlyExit)
            raise errors.BadRequest(f"reason: expected one of {known}, found {asked.reason[:60]!r}") from error
        await self._experiments.give_up(TrialId(asked.trial_id), reason)
        return Nothing()

    async def start(self, call: Call, asked: StartRun) -> StartRunReply:
        if not asked.checkpoint_storage:
            return StartRunReply(storage_id=None)
        storage = dict(asked.checkpoint_storage)
        found = await self._database.write(lambda connection: checkpoint_records.storage_id(connection, storage))
        return StartRunReply(storage_id=found)

    async def get_metadata(self, call: Call, asked: RunNamed) -> MetadataReply:
        found = await self._database.read(lambda connection: trial_records.get(connection, asked.run_id))
        return MetadataReply(metadata=found.metadata)

    async def set_metadata(self, call: Call, asked: PostMetadata) -> MetadataReply:
        metadata = dict(asked.metadata)
        _check_metadata(metadata)
        trial = TrialId(asked.run_id)
        await self._database.write(lambda connection: trial_records.change(connection, trial, {"metadata": metadata}))
        return MetadataReply(metadata=metadata)

    async def source(self, call: Call, asked: PostSource) -> PostSourceReply:
        told = asked.trial_source_info
        if told.trial_source_info_type is SourceType.UNSPECIFIED:
            raise errors.BadRequest("trialSourceInfo.trialSourceInfoType: must say how the checkpoint is used")
        await self._database.write(lambda connection: _add_source(connection, told))
        return PostSourceReply(trial_id=told.trial_id, checkpoint_uuid=told.checkpoint_uuid)


def _check_metadata(metadata: JSON) -> None:
    """Raises BadRequest."""
    if len(raw.encode(metadata)) > _MOST_METADATA_BYTES:
        raise errors.BadRequest(f"metadata: must have at most {_MOST_METADATA_BYTES // 1024} KiB")
    count, waiting = 0, [(metadata, 1)]
    while waiting:
        found, depth = waiting.pop()
        count += len(found)
        if depth > _DEEPEST_METADATA:
            raise errors.BadRequest(f"metadata: must not be nested deeper than {_DEEPEST_METADATA} levels")
        if count > _MOST_METADATA_KEYS:
            raise errors.BadRequest(f"metadata: must have at most {_MOST_METADATA_KEYS} entries")
        members = found.values() if isinstance(found, dict) else found
        waiting += [(member, depth + 1) for member in members if isinstance(member, dict | list)]


def _add_source(connection: Connection, told: TrialSource) -> None:
    """Told again: nothing happens. Raises NotFound."""
    checkpoint_records.get(connection, told.checkpoint_uuid)
    table = TRIAL_SOURCES
    here = (table.c.trial_id == told.trial_id, table.c.checkpoint_uuid == told.checkpoint_uuid)
    if connection.scalar(select(table.c.trial_id).where(*here)) is None:
        values = {
            "trial_id": told.trial_id, "checkpoint_uuid": told.checkpoint_uuid,
            "type": told.trial_source_info_type.value, "model_id": told.model_id, "model_version": told.model_version,
        }  # fmt: skip
        connection.execute(insert(table).values(values))


def routes(experiments: Experiments, database: Database, places: Places) -> Sequence[Route]:
    on = _Reports(experiments, database, places)
    trial, run = "/api/v1/trials/{trialId}", "/api/v1/runs"
    edit = Permission.EDIT_EXPERIMENTS
    runner: Rule[RunnerMetadata] = Rule(edit, on.place, own=on.is_latest)
    progress: Rule[ReportProgress] = Rule(edit, on.place, own=on.is_latest)
    early_exit: Rule[ReportEarlyExit] = Rule(edit, on.place, own=on.is_latest)
    start: Rule[StartRun] = Rule(edit, on.place_of_run, own=on.is_latest_run)
    get: Rule[RunNamed] = Rule(Permission.VIEW_EXPERIMENTS, on.place_of_run, own=on.is_latest_run)
    post: Rule[PostMetadata] = Rule(edit, on.place_of_run, own=on.is_latest_run)
    source: Rule[PostSource] = Rule(edit, on.place_of_source, own=on.is_latest_of_source)
    return (
        route("POST", f"{trial}/runner/metadata", RunnerMetadata, Nothing, runner, on.runner),
        route("POST", f"{trial}/progress", ReportProgress, Nothing, progress, on.progress),
        route("POST", f"{trial}/early_exit", ReportEarlyExit, Nothing, early_exit, on.early_exit),
        route("POST", f"{run}/start", StartRun, StartRunReply, start, on.start),
        route("GET", f"{run}/{{runId}}/metadata", RunNamed, MetadataReply, get, on.get_metadata),
        route("POST", f"{run}/{{runId}}/metadata", PostMetadata, MetadataReply, post, on.set_metadata),
        route("POST", "/api/v1/trial-source-info", PostSource, PostSourceReply, source, on.source),
    )
