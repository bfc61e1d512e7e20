"""Series of metrics of several trials, beside each other and thinned out to be drawn."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Final

import msgspec
from sqlalchemy import Connection

from muster.accounts.callers import WorkspaceId
from muster.accounts.permissions import Permission
from muster.api import errors, timestamps
from muster.api.raw import JSON
from muster.experiments import series_reading, trial_records
from muster.experiments.metric_reports import SYSTEM, VALIDATION
from muster.experiments.places import Places
from muster.experiments.series_points import EPOCH, Point
from muster.experiments.series_reading import AXES, BATCHES, TIME, Bounds, Wanted
from muster.experiments.states import TrialId
from muster.experiments.trial_records import Trial
from muster.records import Database
from muster.server.determined import acting
from muster.server.determined.paging import Id
from muster.server.determined.routing import Call, Message, Route, Rule, route
from muster.server.determined.workloads import MetricType, group_asked

MOST_POINTS: Final = 10_000
_USUAL_POINTS: Final = 1000
_Steps = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
_FILTER: Final = "timeSeriesFilter"


def _filter(name: str) -> str:
    return f"{_FILTER}.{name}"


class CompareTrials(Message, frozen=True):
    """`metric_ids`: `group.name`; `metric_names`: of one group. `end_batches`: 0 for no end."""

    trial_ids: Sequence[Id] = ()
    max_datapoints: _Steps = 0
    metric_ids: Sequence[str] = ()
    metric_names: Sequence[str] = ()
    metric_type: MetricType = MetricType.UNSPECIFIED
    group: str = ""
    start_batches: _Steps = 0
    end_batches: _Steps = 0
    filter_name: str = msgspec.field(default="", name=_filter("name"))
    double_gt: float | None = msgspec.field(default=None, name=_filter("doubleRange.gt"))
    double_gte: float | None = msgspec.field(default=None, name=_filter("doubleRange.gte"))
    double_lt: float | None = msgspec.field(default=None, name=_filter("doubleRange.lt"))
    double_lte: float | None = msgspec.field(default=None, name=_filter("doubleRange.lte"))
    integer_gt: int | None = msgspec.field(default=None, name=_filter("integerRange.gt"))
    integer_gte: int | None = msgspec.field(default=None, name=_filter("integerRange.gte"))
    integer_lt: int | None = msgspec.field(default=None, name=_filter("integerRange.lt"))
    integer_lte: int | None = msgspec.field(default=None, name=_filter("integerRange.lte"))
    integer_incl: Sequence[int] = msgspec.field(default=(), name=_filter("integerRange.incl"))
    integer_not_in: Sequence[int] = msgspec.field(default=(), name=_filter("integerRange.notIn"))
    time_gt: str | None = msgspec.field(default=None, name=_filter("timeRange.gt"))
    time_gte: str | None = msgspec.field(default=None, name=_filter("timeRange.gte"))
    time_lt: str | None = msgspec.field(default=None, name=_filter("timeRange.lt"))
    time_lte: str | None = msgspec.field(default=None, name=_filter("timeRange.lte"))


class DataPoint(Message, frozen=True):
    batches: int
    values: Mapping[str, JSON]
    time: str
    epoch: float | None


class DownsampledMetrics(Message, frozen=True):
    data: Sequence[DataPoint]
    type: MetricType
    group: str


class ComparedTrial(Message, frozen=True):
    """The trial, as far as a drawing needs it."""

    id: int
    experiment_id: int
    start_time: str
    end_time: str | None
    state: str
    restarts: int
    hparams: Mapping[str, JSON]
    total_batches_processed: int
    searcher_metric_value: float | None


class ComparableTrial(Message, frozen=True):
    trial: ComparedTrial
    metrics: Sequence[DownsampledMetrics]


class CompareTrialsReply(Message, frozen=True):
    trials: Sequence[ComparableTrial]


def told_point(point: Point) -> DataPoint:
    return DataPoint(
        batches=point.steps, values=point.values, time=timestamps.to_micro_text(point.at), epoch=point.epoch
    )  # fmt: skip


class _Series:
    def __init__(self, database: Database, places: Places) -> None:
        self._database = database
        self._places = places

    async def place(self, call: Call, asked: CompareTrials) -> WorkspaceId:
        """One of them; that all others may be seen as well is found out here."""
        if not asked.trial_ids:
            raise errors.BadRequest("trialIds: must name at least one trial")
        found = [await self._places.of_trial(call.caller, trial) for trial in asked.trial_ids]
        return found[0]

    async def compare(self, call: Call, asked: CompareTrials) -> CompareTrialsReply:
        wanted = _wanted(asked)
        return CompareTrialsReply(trials=[await self._one(TrialId(trial), wanted) for trial in asked.trial_ids])

    async def _one(self, trial: TrialId, wanted: Sequence[Wanted]) -> ComparableTrial:
        def read(connection: Connection) -> tuple[Trial, list[list[Point]]]:
            found = [series_reading.points(connection, trial, each) for each in wanted]
            return trial_records.get(connection, trial), found

        told, points = await self._database.read(read)
        metrics = [
            DownsampledMetrics(data=[told_point(point) for point in found], type=_type(each.group), group=each.group)
            for each, found in zip(wanted, points, strict=True)
        ]
        return ComparableTrial(trial=_told_trial(told), metrics=metrics)


def _wanted(asked: CompareTrials) -> list[Wanted]:
    """By group. Raises BadRequest."""
    names: dict[str, list[str]] = {}
    for id in asked.metric_ids:
        group, dot, name = id.partition(".")
        if not group or not dot or not name:
            raise errors.BadRequest(f"metricIds: expected group.name, found {id[:80]!r}")
        names.setdefault(group, []).append(name)
    if asked.metric_names:
        group = group_asked(asked.group, asked.metric_type)
        if not group:
            raise errors.BadRequest("group: must say of which group metricNames are")
        names.setdefault(group, []).extend(asked.metric_names)
    if not names:
        raise errors.BadRequest("metricIds: must name at least one metric")
    if asked.max_datapoints > MOST_POINTS:
        raise errors.BadRequest(f"maxDatapoints: at most {MOST_POINTS}, found {asked.max_datapoints}")
    bounds, most = _bounds(asked), asked.max_datapoints or _USUAL_POINTS
    return [Wanted(group, list(dict.fromkeys(of)), most, bounds) for group, of in names.items()]


def _bounds(asked: CompareTrials) -> Mapping[str, Bounds]:
    """Raises BadRequest."""
    found: dict[str, Bounds] = {}
    if asked.start_batches or asked.end_batches:
        found[BATCHES] = Bounds(from_=asked.start_batches, to=asked.end_batches or None)
    axis = asked.filter_name
    if not axis:
        return found
    if axis not in AXES:
        raise errors.BadRequest(f"{_FILTER}.name: expected one of {', '.join(AXES)}, found {axis[:60]!r}")
    by_axis = {
        BATCHES: Bounds(
            asked.integer_gt, asked.integer_gte, asked.integer_lt, asked.integer_lte, asked.integer_incl,
            asked.integer_not_in,
        ),
        EPOCH: Bounds(asked.double_gt, asked.double_gte, asked.double_lt, asked.double_lte),
        TIME: Bounds(_time(asked.time_gt), _time(asked.time_gte), _time(asked.time_lt), _time(asked.time_lte)),
    }  # fmt: skip
    return {**found, axis: by_axis[axis]}


def _time(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        return timestamps.parse(text)
    except ValueError as error:
        raise errors.BadRequest(f"{_FILTER}.timeRange: {error}") from error


def _type(group: str) -> MetricType:
    if group in SYSTEM:
        return MetricType.PROFILING
    return MetricType.VALIDATION if group == VALIDATION else MetricType.TRAINING


def _told_trial(trial: Trial) -> ComparedTrial:
    return ComparedTrial(
        id=trial.id,
        experiment_id=trial.experiment,
        start_time=timestamps.to_micro_text(trial.created),
        end_time=acting.time(trial.ended),
        state=f"STATE_{trial.state}",
        restarts=trial.restarts,
        hparams=trial.hparams,
        total_batches_processed=trial.total_batches,
        searcher_metric_value=trial.searcher_metric,
    )


def routes(database: Database, places: Places) -> Sequence[Route]:
    handlers = _Series(database, places)
    rule: Rule[CompareTrials] = Rule(Permission.VIEW_EXPERIMENTS, handlers.place)
    return (
        route("GET", "/api/v1/trials/time-series", CompareTrials, CompareTrialsReply, rule, handlers.compare),
    )  # fmt: skip
