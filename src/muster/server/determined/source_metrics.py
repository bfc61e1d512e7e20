"""Metrics of trials that use a checkpoint, or a version of a model."""

from collections.abc import Sequence

from muster.accounts.authorizing import Authorizer, Hidden
from muster.accounts.callers import WorkspaceId
from muster.accounts.permissions import Permission
from muster.api import raw, timestamps
from muster.experiments import checkpoint_records, model_records, source_metrics
from muster.experiments.checkpoint_records import Checkpoint
from muster.experiments.metric_reading import Reported
from muster.experiments.model_records import Model, Version
from muster.experiments.source_metrics import Source
from muster.records import Database
from muster.server.determined.metrics import GetMetricsReply, MetricsReport
from muster.server.determined.paging import Count
from muster.server.determined.routing import Call, Message, Route, Rule, route
from muster.server.determined.trial_reports import SourceType


class GetCheckpointMetrics(Message, frozen=True):
    checkpoint_uuid: str = ""
    metric_group: str = ""
    trial_source_info_type: SourceType = SourceType.UNSPECIFIED


class GetVersionMetrics(Message, frozen=True):
    model_name: str = ""
    model_version_num: Count = 0
    metric_group: str = ""
    trial_source_info_type: SourceType = SourceType.UNSPECIFIED


class _SourceMetrics:
    def __init__(self, database: Database, authorizer: Authorizer) -> None:
        self._database = database
        self._authorizer = authorizer

    async def checkpoint_place(self, call: Call, asked: GetCheckpointMetrics) -> WorkspaceId | None:
        found = await self._checkpoint(asked.checkpoint_uuid)
        if not await self._authorizer.allows(call.caller, Permission.VIEW_EXPERIMENTS, found.workspace):
            raise Hidden(checkpoint_records.not_found(found.uuid).message)
        return found.workspace

    async def model_place(self, call: Call, asked: GetVersionMetrics) -> WorkspaceId:
        found = await self._model(asked.model_name)
        if not await self._authorizer.allows(call.caller, Permission.VIEW_MODELS, found.workspace):
            raise Hidden(model_records.not_found(asked.model_name).message)
        return found.workspace

    async def of_checkpoint(self, call: Call, asked: GetCheckpointMetrics) -> GetMetricsReply:
        source = Source(asked.checkpoint_uuid, use=_use(asked.trial_source_info_type))
        return await self._told(call, source, asked.metric_group)

    async def of_version(self, call: Call, asked: GetVersionMetrics) -> GetMetricsReply:
        model = await self._model(asked.model_name)
        found = await self._version(model, asked.model_version_num)
        source = Source(found.checkpoint.uuid, (model.id, found.number), _use(asked.trial_source_info_type))
        return await self._told(call, source, asked.metric_group)

    async def _told(self, call: Call, source: Source, group: str) -> GetMetricsReply:
        users = await self._database.read(lambda connection: source_metrics.users(connection, source))
        seen = [
            trial
            for trial, workspace in users.items()
            if await self._authorizer.allows(call.caller, Permission.VIEW_EXPERIMENTS, workspace)
        ]
        found = await self._database.read(lambda connection: source_metrics.reports(connection, seen, group))
        return GetMetricsReply(metrics=[_report(each) for each in found])

    async def _checkpoint(self, uuid: str) -> Checkpoint:
        return await self._database.read(lambda connection: checkpoint_records.get(connection, uuid))

    async def _model(self, name: str) -> Model:
        return await self._database.read(lambda connection: model_records.get(connection, name))

    async def _version(self, model: Model, number: int) -> Version:
        return await self._database.read(lambda connection: model_records.version(connection, model, number))


def _use(asked: SourceType) -> str:
    return "" if asked is SourceType.UNSPECIFIED else asked.value


def _report(found: Reported) -> MetricsReport:
    return MetricsReport(
        trial_id=found.trial,
        end_time=timestamps.to_micro_text(found.at),
        metrics=raw.decode_object(found.metrics),
        total_batches=found.steps or 0,
        archived=False,
        id=found.id,
        trial_run_id=found.run,
        group=found.group,
    )


def routes(database: Database, authorizer: Authorizer) -> Sequence[Route]:
    on = _SourceMetrics(database, authorizer)
    of_checkpoint: Rule[GetCheckpointMetrics] = Rule(Permission.VIEW_EXPERIMENTS, on.checkpoint_place)
    of_version: Rule[GetVersionMetrics] = Rule(Permission.VIEW_MODELS, on.model_place)
    checkpoint = "/api/v1/checkpoints/{checkpointUuid}/metrics"
    version = "/api/v1/models/{modelName}/versions/{modelVersionNum}/metrics"
    return (
        route("GET", checkpoint, GetCheckpointMetrics, GetMetricsReply, of_checkpoint, on.of_checkpoint),
        route("GET", version, GetVersionMetrics, GetMetricsReply, of_version, on.of_version),
    )
