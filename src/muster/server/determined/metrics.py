"""Metrics of trials: taken in as they are reported, and told as they were."""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Annotated, Final

import msgspec
from sqlalchemy import Connection

from muster.accounts.callers import WorkspaceId
from muster.accounts.permissions import Permission
from muster.api import errors, raw, timestamps
from muster.api.meta import Instant
from muster.api.raw import JSON
from muster.experiments import experiment_records, metric_reading, trial_records
from muster.experiments.metric_intake import MetricIntake
from muster.experiments.metric_reading import Cursor, Reported
from muster.experiments.metric_reports import TRAINING, VALIDATION, Report
from muster.experiments.places import Places
from muster.experiments.states import TrialId
from muster.records import Database
from muster.runtime.clock import Clock
from muster.server.determined.paging import Count, Id
from muster.server.determined.routing import Call, Message, Nothing, Route, Rule, route, stream
from muster.server.determined.workloads import Metrics

_MOST_TOGETHER: Final = 1000
"""Reports in one message, to us or from us."""
_Steps = Annotated[int, msgspec.Meta(ge=-(2**53), le=2**53)]


class TrialMetrics(Message, frozen=True):
    """`steps_completed`: None for what belongs to no step. `report_time`: None for now."""

    trial_id: Id = 0
    trial_run_id: Count = 0
    steps_completed: _Steps | None = None
    report_time: str | None = None
    metrics: Metrics = Metrics()


class ReportMetrics(Message, frozen=True):
    trial_id: Id = 0
    group: str = ""
    metrics: TrialMetrics = TrialMetrics()


class GroupMetrics(Message, frozen=True):
    group: str = ""
    metrics: TrialMetrics = TrialMetrics()


class ReportManyMetrics(Message, frozen=True):
    trial_id: Id = 0
    reports: Sequence[GroupMetrics] = ()


class ReportGroup(Message, frozen=True):
    """As older clients report: the group is in the path."""

    trial_id: Id = 0
    metrics: TrialMetrics = TrialMetrics()


class GetMetrics(Message, frozen=True):
    """`size_limit`: of reports in one message; 0 for as many as we like."""

    trial_ids: Sequence[Id] = ()
    group: str = ""
    size_limit: Annotated[int, msgspec.Meta(ge=0)] = 0


class MetricsReport(Message, frozen=True):
    trial_id: int
    end_time: str
    metrics: Mapping[str, JSON]
    total_batches: int
    archived: bool
    id: int
    trial_run_id: int
    group: str


class GetMetricsReply(Message, frozen=True):
    metrics: Sequence[MetricsReport]


class ExperimentNamed(Message, frozen=True):
    experiment_id: Id = 0


class BestMetricReply(Message, frozen=True):
    metric: float


class _Metrics:
    def __init__(self, intake: MetricIntake, database: Database, places: Places, clock: Clock) -> None:
        self._intake = intake
        self._database = database
        self._places = places
        self._clock = clock

    # Who may

    async def trial(self, call: Call, asked: ReportMetrics | ReportManyMetrics | ReportGroup) -> WorkspaceId:
        return await self._places.of_trial(call.caller, asked.trial_id)

    async def is_seen_to(self, call: Call, asked: Message) -> bool:
        """A report names the run that makes it; that it is the latest of its trial is seen to where it is written."""
        return True

    async def trials(self, call: Call, asked: GetMetrics) -> WorkspaceId:
        """One of them; that all others may be seen as well is found out here."""
        if not asked.trial_ids:
            raise errors.BadRequest("trialIds: must name at least one trial")
        found = [await self._places.of_trial(call.caller, trial) for trial in asked.trial_ids]
        return found[0]

    async def experiment(self, call: Call, asked: ExperimentNamed) -> WorkspaceId:
        return await self._places.of_experiment(call.caller, asked.experiment_id)

    async def is_of_experiment(self, call: Call, asked: ExperimentNamed) -> bool:
        trial = await self._places.trial_of(call.caller.task)
        if trial is None:
            return False
        found = await self._database.read(lambda connection: trial_records.get(connection, trial))
        return found.experiment == asked.experiment_id

    # Taken in

    async def report(self, call: Call, asked: ReportMetrics) -> Nothing:
        await self._intake.report(self._told(call, asked.trial_id, asked.group, asked.metrics))
        return Nothing()

    async def report_many(self, call: Call, asked: ReportManyMetrics) -> Nothing:
        if len(asked.reports) > _MOST_TOGETHER:
            raise errors.BadRequest(f"reports: at most {_MOST_TOGETHER} in one request, found {len(asked.reports)}")
        await self._intake.report_all(
            [self._told(call, asked.trial_id, each.group, each.metrics) for each in asked.reports]
        )
        return Nothing()

    async def report_training(self, call: Call, asked: ReportGroup) -> Nothing:
        await self._intake.report(self._told(call, asked.trial_id, TRAINING, asked.metrics))
        return Nothing()

    async def report_validation(self, call: Call, asked: ReportGroup) -> Nothing:
        await self._intake.report(self._told(call, asked.trial_id, VALIDATION, asked.metrics))
        return Nothing()

    def _told(self, call: Call, trial: int, group: str, told: TrialMetrics) -> Report:
        if told.trial_id not in (0, trial):
            raise errors.BadRequest(f"metrics.trialId: is {told.trial_id}, but the report is sent to trial {trial}")
        return Report(
            trial=TrialId(trial),
            run=told.trial_run_id,
            group=group,
            steps=told.steps_completed,
            at=self._at(told.report_time),
            metrics=told.metrics.avg_metrics,
            batches=told.metrics.batch_metrics,
            allocation=call.caller.allocation,
        )

    def _at(self, text: str | None) -> Instant:
        if not text:
            return self._clock.now()
        try:
            return timestamps.parse(text)
        except ValueError as error:
            raise errors.BadRequest(f"metrics.reportTime: {error}") from error

    # Told

    async def follow_training(self, call: Call, asked: GetMetrics) -> AsyncIterator[bytes]:
        async for line in self._lines(asked, TRAINING):
            yield line

    async def follow_validation(self, call: Call, asked: GetMetrics) -> AsyncIterator[bytes]:
        async for line in self._lines(asked, VALIDATION):
            yield line

    async def follow(self, call: Call, asked: GetMetrics) -> AsyncIterator[bytes]:
        if not asked.group:
            raise errors.BadRequest("group: must name the group of metrics, such as training or validation")
        async for line in self._lines(asked, asked.group):
            yield line

    async def _lines(self, asked: GetMetrics, group: str) -> AsyncIterator[bytes]:
        most = min(asked.size_limit or _MOST_TOGETHER, _MOST_TOGETHER)
        for trial in map(TrialId, sorted(set(asked.trial_ids))):
            after = Cursor()
            while True:

                def read(
                    connection: Connection, trial: TrialId = trial, after: Cursor = after
                ) -> Sequence[Reported]:  # fmt: skip
                    return metric_reading.page(connection, trial, group, after, most)

                found = await self._database.read(read)
                if found:
                    after = metric_reading.cursor_after(found[-1])
                    yield _line(found)
                if len(found) < most:
                    break

    async def best(self, call: Call, asked: ExperimentNamed) -> BestMetricReply:
        found = await self._database.read(lambda connection: experiment_records.get(connection, asked.experiment_id))
        if found.best_metric is None:
            raise errors.NotFound(
                f"no trial of experiment {asked.experiment_id} has reported its searcher's metric yet"
            )
        return BestMetricReply(metric=found.best_metric)


def _line(found: Sequence[Reported]) -> bytes:
    """As `wire.encode_result` would write it; but what is kept as JSON is passed on as it is."""
    told = [
        {
            "trialId": each.trial,
            "endTime": timestamps.to_micro_text(each.at),
            "metrics": msgspec.Raw(each.metrics.encode()),
            "totalBatches": each.steps or 0,
            "archived": False,
            "id": each.id,
            "trialRunId": each.run,
            "group": each.group,
        }
        for each in found
    ]
    return raw.encode({"result": {"metrics": told}}) + b"\n"


def routes(intake: MetricIntake, database: Database, places: Places, clock: Clock) -> Sequence[Route]:
    on = _Metrics(intake, database, places, clock)
    of_trial, all_trials = "/api/v1/trials/{trialId}", "/api/v1/trials/metrics"
    one: Rule[ReportMetrics] = Rule(Permission.EDIT_EXPERIMENTS, on.trial, own=on.is_seen_to)
    many: Rule[ReportManyMetrics] = Rule(Permission.EDIT_EXPERIMENTS, on.trial, own=on.is_seen_to)
    group: Rule[ReportGroup] = Rule(Permission.EDIT_EXPERIMENTS, on.trial, own=on.is_seen_to)
    view: Rule[GetMetrics] = Rule(Permission.VIEW_EXPERIMENTS, on.trials)
    best: Rule[ExperimentNamed] = Rule(Permission.VIEW_EXPERIMENTS, on.experiment, own=on.is_of_experiment)
    best_path = "/api/v1/experiments/{experimentId}/searcher/best_searcher_validation_metric"
    return (
        route("POST", f"{of_trial}/metrics", ReportMetrics, Nothing, one, on.report),
        route("POST", f"{of_trial}/metrics/batch", ReportManyMetrics, Nothing, many, on.report_many),
        route(
            "POST", f"{of_trial}/training_metrics", ReportGroup, Nothing, group, on.report_training, body="metrics"
        ),
        route(
            "POST", f"{of_trial}/validation_metrics", ReportGroup, Nothing, group, on.report_validation, body="metrics"
        ),
        stream(f"{all_trials}/training_metrics", GetMetrics, GetMetricsReply, view, on.follow_training),
        stream(f"{all_trials}/validation_metrics", GetMetrics, GetMetricsReply, view, on.follow_validation),
        stream(f"{all_trials}/trial_metrics", GetMetrics, GetMetricsReply, view, on.follow),
        route("GET", best_path, ExperimentNamed, BestMetricReply, best, on.best),
    )  # fmt: skip
