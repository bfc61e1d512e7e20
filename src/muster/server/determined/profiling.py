"""Metrics of the machines that trials run on, as older profilers send and read them: one series at a time."""

from collections.abc import AsyncIterator, Sequence
from enum import StrEnum
from typing import Annotated, Final

import msgspec
from sqlalchemy import Connection

from muster.accounts.callers import WorkspaceId
from muster.accounts.permissions import Permission
from muster.api import errors, timestamps
from muster.api.meta import Instant
from muster.api.raw import Document
from muster.experiments import metric_profiles, metric_summaries, trial_records
from muster.experiments.metric_intake import MetricIntake
from muster.experiments.metric_profiles import Label
from muster.experiments.metric_reports import SYSTEM, Report
from muster.experiments.places import Places
from muster.experiments.series import Series
from muster.experiments.states import TRIAL_ENDED, TrialId
from muster.records import Database
from muster.runtime.clock import Clock
from muster.server.determined.paging import Id
from muster.server.determined.routing import Call, Message, Nothing, Route, Rule, route, stream

_MOST_POINTS: Final = 1000
"""In one message."""
_PERIOD_SECONDS: Final = 5.0
_Steps = Annotated[int, msgspec.Meta(ge=0, le=2**53)]


class ProfilerType(StrEnum):
    UNSPECIFIED = "PROFILER_METRIC_TYPE_UNSPECIFIED"
    SYSTEM = "PROFILER_METRIC_TYPE_SYSTEM"
    TIMING = "PROFILER_METRIC_TYPE_TIMING"
    MISC = "PROFILER_METRIC_TYPE_MISC"


class Labels(Message, frozen=True):
    trial_id: Id = 0
    name: str = ""
    agent_id: str | None = None
    gpu_uuid: str | None = None
    metric_type: ProfilerType = ProfilerType.UNSPECIFIED


class Batch(Message, frozen=True):
    """Columns of the same length."""

    values: Sequence[float] = ()
    batches: Sequence[_Steps] = ()
    timestamps: Sequence[str] = ()
    labels: Labels = Labels()


class PostBatches(Message, frozen=True):
    batches: Sequence[Batch] = ()


class GetAvailable(Message, frozen=True):
    trial_id: Id = 0
    follow: bool = False


class AvailableReply(Message, frozen=True):
    labels: Sequence[Labels]


class GetSeries(Message, frozen=True):
    trial_id: Id = 0
    follow: bool = False
    name: str = msgspec.field(default="", name="labels.name")
    agent_id: str = msgspec.field(default="", name="labels.agentId")
    gpu_uuid: str = msgspec.field(default="", name="labels.gpuUuid")
    metric_type: ProfilerType = msgspec.field(default=ProfilerType.UNSPECIFIED, name="labels.metricType")


class SeriesReply(Message, frozen=True):
    batch: Batch


class _Profiling:
    def __init__(self, intake: MetricIntake, database: Database, places: Places, clock: Clock) -> None:
        self._intake = intake
        self._database = database
        self._places = places
        self._clock = clock

    # Who may

    async def place(self, call: Call, asked: GetAvailable | GetSeries) -> WorkspaceId:
        return await self._places.of_trial(call.caller, asked.trial_id)

    async def place_of_batches(self, call: Call, asked: PostBatches) -> WorkspaceId:
        return await self._places.of_trial(call.caller, _one_trial(asked))

    async def is_own(self, call: Call, asked: PostBatches) -> bool:
        return await self._places.trial_of(call.caller.task) == _one_trial(asked)

    # What is done

    async def post(self, call: Call, asked: PostBatches) -> Nothing:
        trial = TrialId(_one_trial(asked))
        found = await self._database.read(lambda connection: trial_records.get(connection, trial))
        reports = [
            Report(trial, found.run, group, None, at, values, allocation=call.caller.allocation)
            for place, batch in enumerate(asked.batches)
            for group, at, values in _values(f"batches[{place}]", batch)
        ]
        await self._intake.report_all(reports)
        return Nothing()

    async def available(self, call: Call, asked: GetAvailable) -> AsyncIterator[AvailableReply]:
        trial, told = TrialId(asked.trial_id), None
        while True:
            is_over = await self._is_over(trial)
            found = await self._database.read(lambda connection: metric_profiles.labels(connection, trial))
            if found != told:
                told = found
                yield AvailableReply(labels=[_told_label(trial, label) for label in found])
            if is_over or not asked.follow:
                return
            await self._clock.sleep(_PERIOD_SECONDS)

    async def series(self, call: Call, asked: GetSeries) -> AsyncIterator[SeriesReply]:
        trial, label, told = TrialId(asked.trial_id), _label(asked), 0.0
        while True:
            is_over = await self._is_over(trial)
            found = await self._database.read(lambda connection: metric_profiles.series(connection, trial, label))
            fresh = None if found is None else found.at(found.times > told)
            for start in range(0, len(fresh) if fresh is not None else 0, _MOST_POINTS):
                assert fresh is not None
                yield SeriesReply(batch=_told(trial, label, fresh, start))
            if fresh is not None and len(fresh):
                told = float(fresh.times[-1])
            if is_over or not asked.follow:
                return
            await self._clock.sleep(_PERIOD_SECONDS)

    async def _is_over(self, trial: TrialId) -> bool:
        def read(connection: Connection) -> bool:
            return trial_records.get(connection, trial).state in TRIAL_ENDED

        return await self._database.read(read)


def _one_trial(asked: PostBatches) -> int:
    """Raises BadRequest."""
    trials = {batch.labels.trial_id for batch in asked.batches}
    if len(trials) != 1:
        raise errors.BadRequest("batches: all of one request must be of one trial, and there must be at least one")
    return next(iter(trials))


def _values(field: str, batch: Batch) -> list[tuple[str, Instant, Document]]:
    """Raises BadRequest."""
    labels = batch.labels
    if not labels.name:
        raise errors.BadRequest(f"{field}.labels.name: must not be empty")
    if len(batch.values) != len(batch.timestamps) or len(batch.values) > _MOST_POINTS:
        raise errors.BadRequest(
            f"{field}.values: there must be as many as timestamps ({len(batch.timestamps)}), and at most "
            f"{_MOST_POINTS}; found {len(batch.values)}"
        )
    group = metric_profiles.group_of(labels.name, is_of_system=labels.metric_type is ProfilerType.SYSTEM)
    around = [part for part in (labels.agent_id, labels.gpu_uuid) if part]
    found = []
    for place, (value, text) in enumerate(zip(batch.values, batch.timestamps, strict=True)):
        try:
            at = timestamps.parse(text)
        except ValueError as error:
            raise errors.BadRequest(f"{field}.timestamps[{place}]: {error}") from error
        nested: Document = {labels.name: metric_summaries.worded(value)}
        for part in reversed(around):
            nested = {part: nested}
        found.append((group, at, nested))
    return found


def _label(asked: GetSeries) -> Label:
    """Raises BadRequest."""
    if not asked.name:
        raise errors.BadRequest("labels.name: must not be empty")
    is_of_system = asked.metric_type is not ProfilerType.TIMING and asked.metric_type is not ProfilerType.MISC
    group = metric_profiles.group_of(asked.name, is_of_system=is_of_system)
    return Label(group, asked.name, asked.agent_id, asked.gpu_uuid)


def _told_label(trial: TrialId, label: Label) -> Labels:
    type = ProfilerType.SYSTEM if label.group in SYSTEM else ProfilerType.MISC
    return Labels(
        trial_id=trial, name=label.name, agent_id=label.agent, gpu_uuid=label.device, metric_type=type
    )  # fmt: skip


def _told(trial: TrialId, label: Label, found: Series, start: int) -> Batch:
    end = start + _MOST_POINTS
    return Batch(
        values=found.values[start:end].tolist(),
        batches=[0] * len(found.values[start:end]),
        timestamps=[timestamps.to_micro_text(Instant(time)) for time in found.times[start:end].tolist()],
        labels=_told_label(trial, label),
    )


def routes(intake: MetricIntake, database: Database, places: Places, clock: Clock) -> Sequence[Route]:
    on, here = _Profiling(intake, database, places, clock), "/api/v1/trials/{trialId}/profiler"
    post: Rule[PostBatches] = Rule(Permission.EDIT_EXPERIMENTS, on.place_of_batches, own=on.is_own)
    available: Rule[GetAvailable] = Rule(Permission.VIEW_EXPERIMENTS, on.place)
    series: Rule[GetSeries] = Rule(Permission.VIEW_EXPERIMENTS, on.place)
    return (
        route("POST", "/api/v1/trials/profiler/metrics", PostBatches, Nothing, post, on.post),
        stream(f"{here}/available_series", GetAvailable, AvailableReply, available, on.available),
        stream(f"{here}/metrics", GetSeries, SeriesReply, series, on.series),
    )
