"""What trials have done, step by step: reports and checkpoints, as Determined's client lists them."""

from collections.abc import Mapping, Sequence
from enum import StrEnum

from muster.accounts.callers import WorkspaceId
from muster.accounts.permissions import Permission
from muster.api import errors
from muster.api.raw import JSON
from muster.experiments import metric_reading, metric_reports
from muster.experiments.checkpoint_records import CheckpointState
from muster.experiments.metric_reading import Reported, Saved, WorkloadFilter
from muster.experiments.metric_reports import TRAINING, VALIDATION
from muster.experiments.places import Places
from muster.experiments.states import TrialId
from muster.records import Database
from muster.server.determined import acting, paging
from muster.server.determined.ordering import OrderBy
from muster.server.determined.paging import Id, Paged, Pagination
from muster.server.determined.routing import Call, Message, Route, Rule, route


class MetricType(StrEnum):
    """How groups were told apart before they had names."""

    UNSPECIFIED = "METRIC_TYPE_UNSPECIFIED"
    TRAINING = "METRIC_TYPE_TRAINING"
    VALIDATION = "METRIC_TYPE_VALIDATION"
    PROFILING = "METRIC_TYPE_PROFILING"


class FilterOption(StrEnum):
    UNSPECIFIED = "FILTER_OPTION_UNSPECIFIED"
    CHECKPOINT = "FILTER_OPTION_CHECKPOINT"
    VALIDATION = "FILTER_OPTION_VALIDATION"
    CHECKPOINT_OR_VALIDATION = "FILTER_OPTION_CHECKPOINT_OR_VALIDATION"


class Metrics(Message, frozen=True):
    avg_metrics: Mapping[str, JSON] = {}
    batch_metrics: Sequence[Mapping[str, JSON]] = ()


class MetricsWorkload(Message, frozen=True):
    metrics: Metrics
    num_inputs: int
    total_batches: int
    end_time: str | None


class CheckpointWorkload(Message, frozen=True):
    uuid: str | None
    end_time: str | None
    state: str
    resources: Mapping[str, str]
    total_batches: int
    metadata: Mapping[str, JSON]


class WorkloadContainer(Message, frozen=True):
    """One of them. Groups of ones own are told as training."""

    training: MetricsWorkload | None = None
    validation: MetricsWorkload | None = None
    checkpoint: CheckpointWorkload | None = None


class GetWorkloads(Paged, frozen=True):
    trial_id: Id = 0
    order_by: OrderBy = OrderBy.UNSPECIFIED
    sort_key: str = ""
    filter: FilterOption = FilterOption.UNSPECIFIED
    include_batch_metrics: bool = False
    remove_deleted_checkpoints: bool = False
    metric_type: MetricType = MetricType.UNSPECIFIED
    group: str = ""


class GetWorkloadsReply(Message, frozen=True):
    workloads: Sequence[WorkloadContainer]
    pagination: Pagination


def group_asked(group: str, type: MetricType) -> str:
    """By its name or, as older clients have it, by its type; "" where neither is said."""
    if group:
        return group
    return {MetricType.TRAINING: TRAINING, MetricType.VALIDATION: VALIDATION}.get(type, "")


def told_report(found: Reported, *, has_batches: bool = False) -> MetricsWorkload:
    metrics, batches = metric_reports.decode(found.group, found.metrics)
    return MetricsWorkload(
        metrics=Metrics(avg_metrics=metrics, batch_metrics=batches if has_batches else ()),
        num_inputs=0,
        total_batches=found.steps or 0,
        end_time=acting.time(found.at),
    )


def told_checkpoint(found: Saved) -> CheckpointWorkload:
    # There is something left of it, and the client knows no word for that here.
    is_left = found.state == CheckpointState.PARTIALLY_DELETED
    return CheckpointWorkload(
        uuid=found.uuid,
        end_time=acting.time(found.at),
        state=f"STATE_{CheckpointState.COMPLETED if is_left else found.state}",
        resources={path: str(size) for path, size in found.resources.items()},
        total_batches=found.steps,
        metadata=found.metadata,
    )


class _Workloads:
    def __init__(self, database: Database, places: Places) -> None:
        self._database = database
        self._places = places

    async def place(self, call: Call, asked: GetWorkloads) -> WorkspaceId:
        return await self._places.of_trial(call.caller, asked.trial_id)

    async def list(self, call: Call, asked: GetWorkloads) -> GetWorkloadsReply:
        chosen, trial = _chosen(asked), TrialId(asked.trial_id)
        page = await self._database.read(
            lambda connection: metric_reading.workloads(connection, trial, chosen, asked.window)
        )
        workloads = [_container(found, has_batches=asked.include_batch_metrics) for found in page.items]
        return GetWorkloadsReply(workloads=workloads, pagination=paging.told(page, asked))


def _chosen(asked: GetWorkloads) -> WorkloadFilter:
    """Raises BadRequest."""
    if asked.sort_key not in ("", "batches"):
        raise errors.BadRequest(f"sortKey: workloads are ordered by batches, not by {asked.sort_key[:60]!r}")
    group = group_asked(asked.group, asked.metric_type)
    by_option = {
        FilterOption.CHECKPOINT: ((), True),
        FilterOption.VALIDATION: ((VALIDATION,), False),
        FilterOption.CHECKPOINT_OR_VALIDATION: ((VALIDATION,), True),
    }
    groups, has_checkpoints = by_option.get(asked.filter, ((group,) if group else (TRAINING, VALIDATION), not group))
    return WorkloadFilter(
        groups=groups,
        has_checkpoints=has_checkpoints,
        has_deleted=not asked.remove_deleted_checkpoints,
        is_newest_first=asked.order_by is OrderBy.DESC,
    )


def _container(found: Reported | Saved, *, has_batches: bool) -> WorkloadContainer:
    if isinstance(found, Saved):
        return WorkloadContainer(checkpoint=told_checkpoint(found))
    told = told_report(found, has_batches=has_batches)
    return WorkloadContainer(validation=told) if found.group == VALIDATION else WorkloadContainer(training=told)


def routes(database: Database, places: Places) -> Sequence[Route]:
    handlers = _Workloads(database, places)
    rule: Rule[GetWorkloads] = Rule(Permission.VIEW_EXPERIMENTS, handlers.place)
    return (
        route("GET", "/api/v1/trials/{trialId}/workloads", GetWorkloads, GetWorkloadsReply, rule, handlers.list),
    )  # fmt: skip
