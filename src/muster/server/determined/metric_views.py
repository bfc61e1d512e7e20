"""How the trials of an experiment compare, by a metric. Followed: told again when it has changed, until the experiment
has ended."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Annotated, Final, TypeVar

import msgspec
from sqlalchemy import Connection

from muster.accounts.callers import WorkspaceId
from muster.accounts.permissions import Permission
from muster.api import errors
from muster.api.raw import JSON
from muster.experiments import metric_reading, series_reading
from muster.experiments.metric_reading import Judged
from muster.experiments.metric_reports import TRAINING, VALIDATION
from muster.experiments.places import Places
from muster.experiments.series_points import Point
from muster.experiments.series_reading import BATCHES, Bounds, Wanted
from muster.experiments.states import ExperimentId, TrialId
from muster.records import Database
from muster.runtime.clock import Clock
from muster.server.determined.metric_series import MOST_POINTS, DataPoint, told_point
from muster.server.determined.paging import Id
from muster.server.determined.routing import Call, Message, Route, Rule, stream
from muster.server.determined.workloads import MetricType, group_asked

_USUAL_PERIOD: Final = 30
_USUAL_TRIALS: Final = 25
_USUAL_POINTS: Final = 1000
_MOST_TRIALS: Final = 100
_Count = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]
_Steps = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
T = TypeVar("T")


class MetricNames(Message, frozen=True):
    ids: Sequence[Id] = ()
    period_seconds: _Count = 0


class OfMetric(Message, frozen=True):
    experiment_id: Id = 0
    metric_name: str = ""
    metric_type: MetricType = MetricType.UNSPECIFIED
    group: str = ""
    period_seconds: _Count = 0


class TrialsSample(OfMetric, frozen=True):
    """`max_trials`, `max_datapoints`, `end_batches`: 0 for what is usual."""

    max_trials: _Count = 0
    max_datapoints: _Count = 0
    start_batches: _Steps = 0
    end_batches: _Steps = 0


class TrialsSnapshot(OfMetric, frozen=True):
    batches_processed: _Steps = 0
    batches_margin: _Steps = 0


class MetricIdentifier(Message, frozen=True):
    group: str
    name: str


class MetricNamesReply(Message, frozen=True):
    searcher_metrics: Sequence[str]
    training_metrics: Sequence[str]
    validation_metrics: Sequence[str]
    metric_names: Sequence[MetricIdentifier]


class MetricBatchesReply(Message, frozen=True):
    batches: Sequence[int]


class SampledTrial(Message, frozen=True):
    trial_id: int
    hparams: Mapping[str, JSON]
    data: Sequence[DataPoint]


class TrialsSampleReply(Message, frozen=True):
    """`trials`: with what has come since they were told last. The others are those that came in, and fell out."""

    trials: Sequence[SampledTrial]
    promoted_trials: Sequence[int]
    demoted_trials: Sequence[int]


class SnapshotTrial(Message, frozen=True):
    trial_id: int
    hparams: Mapping[str, JSON]
    metric: float
    batches_processed: int


class TrialsSnapshotReply(Message, frozen=True):
    trials: Sequence[SnapshotTrial]


class _Views:
    def __init__(self, database: Database, places: Places, clock: Clock) -> None:
        self._database = database
        self._places = places
        self._clock = clock

    async def place(self, call: Call, asked: OfMetric) -> WorkspaceId:
        return await self._places.of_experiment(call.caller, asked.experiment_id)

    async def all_places(self, call: Call, asked: MetricNames) -> WorkspaceId:
        """One of them; that all others may be seen as well is found out here."""
        if not asked.ids:
            raise errors.BadRequest("ids: must name at least one experiment")
        found = [await self._places.of_experiment(call.caller, experiment) for experiment in asked.ids]
        return found[0]

    async def names(self, call: Call, asked: MetricNames) -> AsyncIterator[MetricNamesReply]:
        experiments = [ExperimentId(id) for id in asked.ids]

        def read(connection: Connection) -> MetricNamesReply:
            found = sorted(metric_reading.names(connection, experiments))
            metrics = {metric_reading.progress(connection, experiment).metric for experiment in experiments}
            return MetricNamesReply(
                searcher_metrics=sorted(metrics),
                training_metrics=[name for group, name in found if group == TRAINING],
                validation_metrics=[name for group, name in found if group == VALIDATION],
                metric_names=[MetricIdentifier(group=group, name=name) for group, name in found],
            )

        async for reply in self._followed(experiments, asked.period_seconds, read):
            yield reply

    async def batches(self, call: Call, asked: OfMetric) -> AsyncIterator[MetricBatchesReply]:
        experiment, group, name = _metric(asked)

        def read(connection: Connection) -> MetricBatchesReply:
            return MetricBatchesReply(batches=metric_reading.steps_of(connection, experiment, group, name))

        async for reply in self._followed([experiment], asked.period_seconds, read):
            yield reply

    async def snapshot(self, call: Call, asked: TrialsSnapshot) -> AsyncIterator[TrialsSnapshotReply]:
        experiment, group, name = _metric(asked)
        first = max(0, asked.batches_processed - asked.batches_margin)
        steps = first, asked.batches_processed + asked.batches_margin

        def read(connection: Connection) -> TrialsSnapshotReply:
            found = metric_reading.snapshots(connection, experiment, group, name, steps)
            return TrialsSnapshotReply(
                trials=[
                    SnapshotTrial(
                        trial_id=each.trial, hparams=each.hparams, metric=each.value, batches_processed=each.steps
                    )
                    for each in found
                ]
            )

        async for reply in self._followed([experiment], asked.period_seconds, read):
            yield reply

    async def sample(self, call: Call, asked: TrialsSample) -> AsyncIterator[TrialsSampleReply]:
        experiment, group, name = _metric(asked)
        if asked.max_datapoints > MOST_POINTS:
            raise errors.BadRequest(f"maxDatapoints: at most {MOST_POINTS}, found {asked.max_datapoints}")
        bounds = {BATCHES: Bounds(from_=asked.start_batches, to=asked.end_batches or None)}
        wanted = Wanted(group, [name], asked.max_datapoints or _USUAL_POINTS, bounds)
        most = min(asked.max_trials or _USUAL_TRIALS, _MOST_TRIALS)

        def read(connection: Connection) -> list[tuple[Judged, list[Point]]]:
            chosen = metric_reading.judged(connection, experiment, group, name, most)
            return [(each, series_reading.points(connection, each.trial, wanted)) for each in chosen]

        told: dict[TrialId, float] = {}
        async for found in self._followed([experiment], asked.period_seconds, read):
            now = {each.trial for each, _ in found}
            yield TrialsSampleReply(
                trials=[_sampled(each, points, told.get(each.trial, 0.0)) for each, points in found],
                promoted_trials=sorted(now - told.keys()),
                demoted_trials=sorted(told.keys() - now),
            )
            told = {each.trial: points[-1].at if points else 0.0 for each, points in found}

    async def _followed(
        self, experiments: Sequence[ExperimentId], period: int, read: Callable[[Connection], T]
    ) -> AsyncIterator[T]:
        """What is read, first and whenever it is another, until all of them have ended."""
        told: object = None
        while True:
            is_over = await self._database.read(
                lambda connection: all(metric_reading.progress(connection, each).is_over for each in experiments)
            )
            found = await self._database.read(read)
            if found != told:
                told = found
                yield found
            if is_over:
                return
            await self._clock.sleep(period or _USUAL_PERIOD)


def _metric(asked: OfMetric) -> tuple[ExperimentId, str, str]:
    """Raises BadRequest."""
    group = group_asked(asked.group, asked.metric_type)
    if not asked.metric_name or not group:
        raise errors.BadRequest("metricName: must be named, and so must its group")
    return ExperimentId(asked.experiment_id), group, asked.metric_name


def _sampled(each: Judged, points: Sequence[Point], after: float) -> SampledTrial:
    data = [told_point(point) for point in points if point.at > after]
    return SampledTrial(trial_id=each.trial, hparams=each.hparams, data=data)


def routes(database: Database, places: Places, clock: Clock) -> Sequence[Route]:
    on = _Views(database, places, clock)
    here = "/api/v1/experiments/{experimentId}/metrics-stream"
    names: Rule[MetricNames] = Rule(Permission.VIEW_EXPERIMENTS, on.all_places)
    view: Rule[OfMetric] = Rule(Permission.VIEW_EXPERIMENTS, on.place)
    sample: Rule[TrialsSample] = Rule(Permission.VIEW_EXPERIMENTS, on.place)
    snapshot: Rule[TrialsSnapshot] = Rule(Permission.VIEW_EXPERIMENTS, on.place)
    return (
        stream("/api/v1/experiments/metrics-stream/metric-names", MetricNames, MetricNamesReply, names, on.names),
        stream(f"{here}/batches", OfMetric, MetricBatchesReply, view, on.batches),
        stream(f"{here}/trials-sample", TrialsSample, TrialsSampleReply, sample, on.sample),
        stream(f"{here}/trials-snapshot", TrialsSnapshot, TrialsSnapshotReply, snapshot, on.snapshot),
    )
