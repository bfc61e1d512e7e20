"""The job queue: what runs and waits in each pool, in which order, and how to change that."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from muster.accounts.authorizing import Authorizer
from muster.accounts.callers import Caller, WorkspaceId
from muster.accounts.permissions import Permission
from muster.api import errors
from muster.server.determined import acting, paging
from muster.server.determined.ordering import OrderBy
from muster.server.determined.paging import Count, Paged, Pagination
from muster.server.determined.pools import QueueStats
from muster.server.determined.routing import Call, Message, Nothing, Route, Rule, known, route
from muster.tasks import job_views
from muster.tasks.cluster_views import ClusterViews, Holder
from muster.tasks.job_control import JobControl, Move, SetPool, SetPriority, Update
from muster.tasks.job_views import JobType, JobView
from muster.tasks.usage import Usage, Waited


class Type(StrEnum):
    UNSPECIFIED = "TYPE_UNSPECIFIED"
    EXPERIMENT = "TYPE_EXPERIMENT"
    NOTEBOOK = "TYPE_NOTEBOOK"
    TENSORBOARD = "TYPE_TENSORBOARD"
    SHELL = "TYPE_SHELL"
    COMMAND = "TYPE_COMMAND"
    CHECKPOINT_GC = "TYPE_CHECKPOINT_GC"
    EXTERNAL = "TYPE_EXTERNAL"
    GENERIC = "TYPE_GENERIC"


class State(StrEnum):
    UNSPECIFIED = "STATE_UNSPECIFIED"
    QUEUED = "STATE_QUEUED"
    SCHEDULED = "STATE_SCHEDULED"
    SCHEDULED_BACKFILLED = "STATE_SCHEDULED_BACKFILLED"


class Summary(Message, frozen=True):
    """`jobs_ahead`: -1 for one that does not wait."""

    state: State
    jobs_ahead: int


class LimitedJob(Message, frozen=True, kw_only=True):
    """What everybody may know of a job."""

    summary: Summary
    type: Type
    resource_pool: str
    is_preemptible: bool
    priority: int | None
    job_id: str
    requested_slots: int
    allocated_slots: int
    workspace_id: int
    progress: float = 0.0
    weight: float = 1.0


class Job(LimitedJob, frozen=True, kw_only=True):
    submission_time: str
    username: str
    user_id: int
    entity_id: str
    name: str


class RBACJob(Message, frozen=True):
    full: Job | None = None
    limited: LimitedJob | None = None


class GetJobs(Paged, frozen=True):
    """`resource_pool`: the default one where it is empty."""

    resource_pool: str = ""
    order_by: OrderBy = OrderBy.UNSPECIFIED
    states: Sequence[State] = ()


class GetJobsReply(Message, frozen=True):
    pagination: Pagination
    jobs: Sequence[Job]


class GetJobsV2Reply(Message, frozen=True):
    pagination: Pagination
    jobs: Sequence[RBACJob]


class GetStats(Message, frozen=True):
    resource_pools: Sequence[str] = ()


class AggregateStats(Message, frozen=True):
    """How long what started on a day had waited, on average."""

    period_start: str
    seconds: float


class PoolStats(Message, frozen=True):
    resource_pool: str
    stats: QueueStats
    aggregates: Sequence[AggregateStats]


class GetStatsReply(Message, frozen=True):
    results: Sequence[PoolStats]


class QueueControl(Message, frozen=True):
    """One of the others but `job_id`."""

    job_id: str = ""
    ahead_of: str | None = None
    behind_of: str | None = None
    resource_pool: str | None = None
    priority: Count | None = None
    weight: float | None = None


class UpdateJobs(Message, frozen=True):
    updates: Sequence[QueueControl] = ()


class _Jobs:
    def __init__(self, views: ClusterViews, control: JobControl, usage: Usage, authorizer: Authorizer) -> None:
        self._views = views
        self._control = control
        self._usage = usage
        self._authorizer = authorizer

    async def list(self, call: Call, asked: GetJobs) -> GetJobsReply:
        """Only what the caller may know all of."""
        page = paging.cut([seen for seen in await self._seen(call.caller, asked) if seen.is_whole], asked)
        return GetJobsReply(jobs=[_full(seen) for seen in page.items], pagination=paging.told(page, asked))

    async def list_v2(self, call: Call, asked: GetJobs) -> GetJobsV2Reply:
        page = paging.cut(await self._seen(call.caller, asked), asked)
        told = [RBACJob(full=_full(seen)) if seen.is_whole else RBACJob(limited=_limited(seen)) for seen in page.items]
        return GetJobsV2Reply(jobs=told, pagination=paging.told(page, asked))

    async def stats(self, call: Call, asked: GetStats) -> GetStatsReply:
        names = asked.resource_pools or await self._views.names()
        jobs, waits = await self._views.jobs(), await self._usage.waits(names)
        return GetStatsReply(results=[_stats(name, jobs, waits) for name in names])

    async def update(self, call: Call, asked: UpdateJobs) -> Nothing:
        updates = [_update(f"updates[{place}]", each) for place, each in enumerate(asked.updates)]
        await self._control.update(acting.by(call), updates)
        return Nothing()

    async def _seen(self, caller: Caller, asked: GetJobs) -> Sequence["_Seen"]:
        found = await self._views.pool_jobs(asked.resource_pool)
        wanted = {state.name for state in asked.states if state is not State.UNSPECIFIED}
        chosen = [job for job in found if not wanted or job.state.value in wanted]
        if asked.order_by is OrderBy.DESC:
            chosen.reverse()
        holders = await self._views.holders()
        sight = await self._sight(caller)
        return [_Seen(job, holder := _holder(job, holders), sight.sees(job, holder)) for job in chosen]

    async def _sight(self, caller: Caller) -> "_Sight":
        return _Sight(
            await self._authorizer.workspaces(caller, Permission.VIEW_TASKS),
            await self._authorizer.workspaces(caller, Permission.VIEW_EXPERIMENTS),
            await self._authorizer.allows(caller, Permission.VIEW_CLUSTER),
        )


class _Sight:
    """In which workspaces one may see what; None for all."""

    def __init__(
        self, tasks: frozenset[WorkspaceId] | None, experiments: frozenset[WorkspaceId] | None, sees_others: bool
    ) -> None:
        self._tasks = tasks
        self._experiments = experiments
        self._sees_others = sees_others

    def sees(self, job: JobView, holder: Holder | None) -> bool:
        if job.type is JobType.EXTERNAL:
            return self._sees_others
        seen = self._experiments if job.type is JobType.EXPERIMENT else self._tasks
        return seen is None or (holder is not None and holder.workspace in seen)


@dataclass(frozen=True, slots=True)
class _Seen:
    """`is_whole`: the caller may know all of it."""

    job: JobView
    holder: Holder | None
    is_whole: bool


def _holder(job: JobView, holders: Mapping[str, Holder]) -> Holder | None:
    return next((holders[task] for task in job.tasks if task in holders), None)


def _limited(seen: _Seen) -> LimitedJob:
    job = seen.job
    return LimitedJob(
        summary=Summary(state=State[job.state.value], jobs_ahead=job.jobs_ahead),
        type=Type[job.type.value],
        resource_pool=job.pool,
        is_preemptible=job.is_preemptible,
        priority=job.priority,
        job_id=job.id,
        requested_slots=job.requested_slots,
        allocated_slots=job.allocated_slots,
        workspace_id=0 if seen.holder is None else seen.holder.workspace,
    )


def _full(seen: _Seen) -> Job:
    job, holder, limited = seen.job, seen.holder, _limited(seen)
    return Job(
        **{name: getattr(limited, name) for name in LimitedJob.__struct_fields__},
        submission_time=job.submitted,
        username=job.owner if holder is None else holder.username,
        user_id=0 if holder is None else holder.user,
        entity_id=job.entity,
        name=job.name,
    )


def _stats(name: str, jobs: Sequence[JobView], waits: Mapping[str, Sequence[Waited]]) -> PoolStats:
    counts = job_views.counts(jobs, name)
    return PoolStats(
        resource_pool=name,
        stats=QueueStats(queued_count=counts.queued, scheduled_count=counts.scheduled),
        aggregates=[
            AggregateStats(period_start=each.day.isoformat(), seconds=each.seconds) for each in waits.get(name, ())
        ],
    )


def _update(field: str, asked: QueueControl) -> Update:
    said = {
        name: value
        for name, value in (
            ("aheadOf", asked.ahead_of),
            ("behindOf", asked.behind_of),
            ("resourcePool", asked.resource_pool),
            ("priority", asked.priority),
            ("weight", asked.weight),
        )
        if value is not None
    }
    if not asked.job_id:
        raise errors.BadRequest(f"{field}.jobId: required")
    if len(said) != 1:
        raise errors.BadRequest(
            f"{field}: must set one of aheadOf, behindOf, resourcePool, priority and weight, found {len(said)}"
        )
    if asked.weight is not None:
        raise errors.BadRequest(
            f"{field}.weight: jobs have no weight here; those of one pool go by priority, and pools share by "
            "fairSharing.weight of their ClusterQueues"
        )
    if asked.priority is not None:
        return SetPriority(asked.job_id, asked.priority)
    if asked.resource_pool is not None:
        return SetPool(asked.job_id, asked.resource_pool)
    other = asked.ahead_of if asked.ahead_of is not None else asked.behind_of
    return Move(asked.job_id, other or "", is_ahead=asked.ahead_of is not None)


def routes(views: ClusterViews, control: JobControl, usage: Usage, authorizer: Authorizer) -> Sequence[Route]:
    handlers = _Jobs(views, control, usage, authorizer)
    here = "/api/v1/job-queues"
    change: Rule[UpdateJobs] = Rule(Permission.ADMINISTRATE_CLUSTER)
    return (
        route("GET", here, GetJobs, GetJobsReply, known(), handlers.list),
        route("GET", f"{here}-v2", GetJobs, GetJobsV2Reply, known(), handlers.list_v2),
        route("GET", f"{here}/stats", GetStats, GetStatsReply, known(), handlers.stats),
        # What one job gains others lose: the queue is for those who run the cluster to change.
        route("POST", here, UpdateJobs, Nothing, change, handlers.update),
    )
