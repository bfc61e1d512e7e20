"""Trials: looked at, killed, and how long their logs are kept."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Final

from muster.accounts.callers import WorkspaceId
from muster.accounts.permissions import Permission
from muster.api.raw import JSON
from muster.experiments import trial_listing
from muster.experiments.contract import Experiments
from muster.experiments.log_keeping import LogKeeping
from muster.experiments.places import Places
from muster.experiments.states import ExperimentId, TrialId
from muster.experiments.trial_listing import ListedTrial, TrialOrder
from muster.records import Database
from muster.runtime.clock import Clock
from muster.server.determined import acting, experiment_messages, paging, workloads
from muster.server.determined.experiment_messages import State
from muster.server.determined.ordering import OrderBy
from muster.server.determined.paging import Id, Paged, Pagination
from muster.server.determined.routing import Call, Message, Nothing, Route, Rule, route
from muster.server.determined.workloads import CheckpointWorkload, MetricsWorkload


class Trial(Message, frozen=True):
    """`wall_clock_time`: for how many seconds its runs have run."""

    id: int
    experiment_id: int
    state: State
    restarts: int
    hparams: Mapping[str, JSON]
    start_time: str
    end_time: str | None
    total_batches_processed: int
    best_validation: MetricsWorkload | None
    latest_validation: MetricsWorkload | None
    best_checkpoint: CheckpointWorkload | None
    checkpoint_count: int
    total_checkpoint_size: str
    wall_clock_time: float | None
    runner_state: str
    warm_start_checkpoint_uuid: str | None
    task_id: str
    task_ids: Sequence[str]
    searcher_metric_value: float | None
    summary_metrics: Mapping[str, JSON]
    metadata: Mapping[str, JSON] | None
    log_retention_days: int | None
    log_policy_matched: str | None


class SortBy(StrEnum):
    UNSPECIFIED = "SORT_BY_UNSPECIFIED"
    ID = "SORT_BY_ID"
    START_TIME = "SORT_BY_START_TIME"
    END_TIME = "SORT_BY_END_TIME"
    STATE = "SORT_BY_STATE"
    BEST_VALIDATION_METRIC = "SORT_BY_BEST_VALIDATION_METRIC"
    LATEST_VALIDATION_METRIC = "SORT_BY_LATEST_VALIDATION_METRIC"
    BATCHES_PROCESSED = "SORT_BY_BATCHES_PROCESSED"
    DURATION = "SORT_BY_DURATION"
    RESTARTS = "SORT_BY_RESTARTS"
    CHECKPOINT_SIZE = "SORT_BY_CHECKPOINT_SIZE"
    LOG_RETENTION_DAYS = "SORT_BY_LOG_RETENTION_DAYS"


_ORDERS: Final[Mapping[SortBy, TrialOrder]] = {
    SortBy.UNSPECIFIED: TrialOrder.ID,
    SortBy.ID: TrialOrder.ID,
    SortBy.START_TIME: TrialOrder.STARTED,
    SortBy.END_TIME: TrialOrder.ENDED,
    SortBy.STATE: TrialOrder.STATE,
    SortBy.BEST_VALIDATION_METRIC: TrialOrder.BEST_METRIC,
    SortBy.LATEST_VALIDATION_METRIC: TrialOrder.LATEST_METRIC,
    SortBy.BATCHES_PROCESSED: TrialOrder.BATCHES,
    SortBy.DURATION: TrialOrder.DURATION,
    SortBy.RESTARTS: TrialOrder.RESTARTS,
    SortBy.CHECKPOINT_SIZE: TrialOrder.CHECKPOINT_BYTES,
    SortBy.LOG_RETENTION_DAYS: TrialOrder.RETENTION,
}


class TrialNamed(Message, frozen=True):
    trial_id: Id = 0


class IdNamed(Message, frozen=True):
    id: Id = 0


class GetTrials(Paged, frozen=True):
    experiment_id: Id = 0
    sort_by: SortBy = SortBy.UNSPECIFIED
    order_by: OrderBy = OrderBy.UNSPECIFIED
    states: Sequence[State] = ()


class TrialReply(Message, frozen=True):
    trial: Trial


class GetTrialsReply(Message, frozen=True):
    trials: Sequence[Trial]
    pagination: Pagination


class RetainLogs(TrialNamed, frozen=True):
    num_days: int = 0


class DaysReply(Message, frozen=True):
    """None: for ever."""

    remaining_days: int | None


def told(listed: ListedTrial) -> Trial:
    found, details = listed.trial, listed.details
    best, latest, checkpoint = details.best_validation, details.latest_validation, details.best_checkpoint
    return Trial(
        id=found.id,
        experiment_id=found.experiment,
        state=State[details.state],
        restarts=found.restarts,
        hparams=found.hparams,
        start_time=acting.time(found.created) or "",
        end_time=acting.time(found.ended),
        total_batches_processed=found.total_batches,
        best_validation=None if best is None else workloads.told_report(best),
        latest_validation=None if latest is None else workloads.told_report(latest),
        best_checkpoint=None if checkpoint is None else workloads.told_checkpoint(checkpoint),
        checkpoint_count=found.checkpoint_count,
        total_checkpoint_size=str(found.checkpoint_bytes),
        wall_clock_time=details.seconds,
        runner_state=found.runner_state,
        warm_start_checkpoint_uuid=found.warm_start,
        task_id=found.task,
        task_ids=details.tasks,
        searcher_metric_value=found.searcher_metric,
        summary_metrics=found.summary_metrics,
        metadata=found.metadata or None,
        log_retention_days=found.log_retention_days,
        log_policy_matched=found.log_signal or None,
    )


class _Trials:
    def __init__(
        self, experiments: Experiments, logs: LogKeeping, database: Database, clock: Clock, places: Places
    ) -> None:  # fmt: skip
        self._experiments = experiments
        self._logs = logs
        self._database = database
        self._clock = clock
        self._places = places

    # Where

    async def place(self, call: Call, asked: TrialNamed) -> WorkspaceId:
        return await self._places.of_trial(call.caller, asked.trial_id)

    async def id_place(self, call: Call, asked: IdNamed) -> WorkspaceId:
        return await self._places.of_trial(call.caller, asked.id)

    async def experiment_place(self, call: Call, asked: GetTrials) -> WorkspaceId:
        return await self._places.of_experiment(call.caller, asked.experiment_id)

    async def is_own(self, call: Call, asked: TrialNamed) -> bool:
        """Any of its runs may look at it."""
        return await self._places.trial_of(call.caller.task) == asked.trial_id

    # Looking

    async def get(self, call: Call, asked: TrialNamed) -> TrialReply:
        now = self._clock.now()
        found = await self._database.read(lambda connection: trial_listing.get(connection, asked.trial_id, now))
        return TrialReply(trial=told(found))

    async def list(self, call: Call, asked: GetTrials) -> GetTrialsReply:
        experiment, now, window = ExperimentId(asked.experiment_id), self._clock.now(), asked.window
        states = experiment_messages.states(asked.states)
        order = (_ORDERS[asked.sort_by], asked.order_by is OrderBy.DESC)
        page = await self._database.read(
            lambda connection: trial_listing.of_experiment(connection, experiment, states, order, window, now)
        )
        return GetTrialsReply(trials=[told(each) for each in page.items], pagination=paging.told(page, asked))

    async def days_left(self, call: Call, asked: IdNamed) -> DaysReply:
        return DaysReply(remaining_days=await self._logs.days_left(TrialId(asked.id)))

    # Changing

    async def kill(self, call: Call, asked: IdNamed) -> Nothing:
        await self._experiments.kill_trial(acting.by(call), TrialId(asked.id))
        return Nothing()

    async def retain(self, call: Call, asked: RetainLogs) -> Nothing:
        await self._logs.keep_trial(acting.by(call), TrialId(asked.trial_id), asked.num_days)
        return Nothing()


def routes(
    experiments: Experiments, logs: LogKeeping, database: Database, clock: Clock, places: Places
) -> Sequence[Route]:  # fmt: skip
    on, here = _Trials(experiments, logs, database, clock, places), "/api/v1/trials"
    listed = "/api/v1/experiments/{experimentId}/trials"
    view: Rule[TrialNamed] = Rule(Permission.VIEW_EXPERIMENTS, on.place, own=on.is_own)
    view_all: Rule[GetTrials] = Rule(Permission.VIEW_EXPERIMENTS, on.experiment_place)
    days: Rule[IdNamed] = Rule(Permission.VIEW_EXPERIMENTS, on.id_place)
    kill: Rule[IdNamed] = Rule(Permission.EDIT_EXPERIMENTS, on.id_place)
    retain: Rule[RetainLogs] = Rule(Permission.EDIT_EXPERIMENTS, on.place)
    return (
        route("GET", listed, GetTrials, GetTrialsReply, view_all, on.list),
        route("GET", f"{here}/{{trialId}}", TrialNamed, TrialReply, view, on.get),
        route("POST", f"{here}/{{id}}/kill", IdNamed, Nothing, kill, on.kill),
        route("PUT", f"{here}/{{trialId}}/retain_logs", RetainLogs, Nothing, retain, on.retain),
        route("GET", f"{here}/{{id}}/remaining_log_retention_days", IdNamed, DaysReply, days, on.days_left),
    )
