"""Changes what stands in the queues: how urgent a job is, in which pool it waits, and before or behind which other.

A job's place among those as urgent as it is follows from when it came; whoever is moved is given another time for it,
on its workload (`quota.workloads.QUEUED_SINCE`).
"""

import contextlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection, select, update

from muster.accounts.audit import By, Deed, note
from muster.accounts.callers import WorkspaceId
from muster.api import errors, kueue, muster, timestamps
from muster.api.kueue.names import QUEUE_LABEL
from muster.api.meta import Instant
from muster.api.muster.names import Phase
from muster.api.objects import Key
from muster.api.raw import Document
from muster.engines import pod_documents, sizing
from muster.engines.protocol import AllocationId, Request
from muster.engines.sizing import Auxiliary
from muster.quota.workloads import QUEUED_SINCE
from muster.records import Database
from muster.records.tables_experiments import EXPERIMENTS
from muster.records.tables_tasks import ALLOCATIONS, TASKS
from muster.runtime.clock import Clock
from muster.store.protocol import Create, Options, Patch, Refused, Store, write_one
from muster.tasks import priorities
from muster.tasks.cluster_views import ClusterViews
from muster.tasks.job_views import JobState, JobType, JobView, Part

_OPTIONS: Final = Options(manager="muster-jobs")
LOWEST, HIGHEST = 1, 99
_STEP: Final = 10e-6
"""Between two that are to stand behind each other: times are written in microseconds."""


@dataclass(frozen=True, slots=True)
class SetPriority:
    job: str
    priority: int


@dataclass(frozen=True, slots=True)
class SetPool:
    job: str
    pool: str


@dataclass(frozen=True, slots=True)
class Move:
    """`is_ahead`: before the other one, else behind it."""

    job: str
    other: str
    is_ahead: bool


Update = SetPriority | SetPool | Move


class JobControl:
    def __init__(self, store: Store, database: Database, clock: Clock, views: ClusterViews) -> None:
        self._store = store
        self._database = database
        self._clock = clock
        self._views = views

    async def update(self, by: By, updates: Sequence[Update]) -> None:
        """One after the other; the first that cannot be done ends it. Raises NotFound, BadRequest."""
        for each in updates:
            found = _find(await self._views.jobs(), each.job)
            match each:
                case SetPriority(_, priority):
                    await self._set_priority(found, priority)
                    detail = f"priority {priority}"
                case SetPool(_, pool):
                    await self._set_pool(found, pool)
                    detail = f"pool {pool}"
                case Move(_, other, is_ahead):
                    await self._move(found, _find(await self._views.jobs(), other), is_ahead)
                    detail = f"{'ahead of' if is_ahead else 'behind'} {other}"
            deed = Deed("job.change", each.job, detail)
            await self._database.write(
                lambda connection, deed=deed: note(connection, self._clock.now(), by, deed)  # type: ignore[misc]
            )

    # Priority

    async def _set_priority(self, job: JobView, priority: int) -> None:
        if not LOWEST <= priority <= HIGHEST:
            raise errors.BadRequest(f"priority: must be from {LOWEST} to {HIGHEST}, found {priority}")
        _must_be_ours(job, "priority")
        for task in job.tasks:
            await priorities.set_priority(self._store, task, priority)
        await self._database.write(lambda connection: _set_priority_of(connection, job, priority))

    # Pool

    async def _set_pool(self, job: JobView, pool: str) -> None:
        _must_be_ours(job, "resourcePool")
        if pool == job.pool:
            return
        if any(part.phase != Phase.QUEUED for part in job.parts):
            raise errors.BadRequest(
                f"resourcePool: job {job.id} has quota of pool {job.pool!r}; only what waits for quota can be moved"
            )
        holders = await self._views.holders()
        for part in job.parts:
            await self._check_pool(part, job.pool, pool, holders[part.task].workspace if part.task in holders else None)
        for part in job.parts:
            await self._requeue(part, pool)
        changed: Document = {"pool": pool}
        await self._database.write(lambda c: _change_experiment(c, job, changed, {"resource_pool": pool}))

    async def _check_pool(self, part: Part, before: str, pool: str, workspace: WorkspaceId | None) -> None:
        """Raises NotFound, BadRequest, Forbidden."""
        bound = (await self._views.bindings()).get(pool)
        if bound is not None and workspace not in bound:
            raise errors.BadRequest(f"resourcePool: pool {pool!r} is for other workspaces only")
        request = Request(
            allocation=AllocationId(part.name), task=part.task, task_type="", template={}, pool=pool, slots=part.slots
        )
        ground = self._views.watch.ground()
        shape = sizing.shape(request, ground, Auxiliary())
        there = await self._store.get(muster.ALLOCATION, Key(part.namespace, part.name))
        pods = there.read(muster.Allocation).spec.pods or 1
        pools = {found.name: found for found in sizing.pools(ground)}
        was = pools[before].slot_resource if before in pools else ""
        if part.slots and (shape.pods != pods or pools[pool].slot_resource != was):
            raise errors.BadRequest(
                f"resourcePool: the job has {part.slots} slots of {was} in {pods} pods; pool {pool!r} cannot give them "
                "like that; submit it again there"
            )

    async def _requeue(self, part: Part, pool: str) -> None:
        with contextlib.suppress(errors.AlreadyExists):
            document = pod_documents.local_queue(part.namespace, pool)
            await write_one(self._store, Create(kueue.LOCAL_QUEUE, document, _OPTIONS))
        body: Document = {
            "metadata": {"labels": {QUEUE_LABEL: pool}},
            "spec": {"pool": pool, "queueName": pool},
        }
        await write_one(self._store, Patch(muster.ALLOCATION, Key(part.namespace, part.name), body, options=_OPTIONS))
        await self._database.write(lambda connection: _set_pool_of(connection, part.name, pool))

    # Place

    async def _move(self, job: JobView, other: JobView, is_ahead: bool) -> None:
        field = "aheadOf" if is_ahead else "behindOf"
        if job.id == other.id:
            raise errors.BadRequest(f"{field}: a job cannot be moved relative to itself")
        if job.pool != other.pool:
            raise errors.BadRequest(f"{field}: job {other.id} waits in pool {other.pool!r}, not in {job.pool!r}")
        for each in (job, other):
            _must_wait_for_quota(each, field)
        if {part.priority for part in job.parts} != {part.priority for part in other.parts}:
            if job.type is JobType.EXTERNAL or other.priority is None:
                raise errors.BadRequest(f"{field}: job {other.id} has another priority, which comes before all places")
            await self._set_priority(job, other.priority)
        times = await self._times(job.pool, {part.priority for part in other.parts}, job)
        mine, theirs = ({part.workload for part in each.parts} for each in (job, other))
        wanted = placed(times, mine, theirs, is_ahead=is_ahead)
        writes = [
            Patch(
                kueue.WORKLOAD,
                Key(*key.split("/", 1)),
                {"metadata": {"annotations": {QUEUED_SINCE: timestamps.to_micro_text(at)}}},
                options=_OPTIONS,
            )
            for key, at in wanted.items()
        ]
        for result in await self._store.write(writes):
            if isinstance(result, Refused) and not isinstance(result.error, errors.NotFound):
                raise result.error

    async def _times(self, pool: str, priorities_: Collection[int], job: JobView) -> list[tuple[str, Instant]]:
        """Of those that are as urgent, in their order: since when they wait."""
        own = {part.workload for part in job.parts}
        rivals: dict[str, Instant] = {}
        for each in await self._views.pool_jobs(pool):
            for part in each.parts:
                if not part.is_admitted and part.workload and (part.priority in priorities_ or part.workload in own):
                    rivals[part.workload] = Instant(0.0)
        order = [key for key in await self._views.waiting(pool) if key in rivals]
        times = self._views.waiting_since(order)
        return [(key, times[key]) for key in order if key in times]


def placed(
    times: Sequence[tuple[str, Instant]], mine: Collection[str], theirs: Collection[str], *, is_ahead: bool
) -> dict[str, Instant]:
    """The times with which `mine` stand right before or behind `theirs`, and all others as they did: of those that
    need another one. `times`: of all, in their order, in which equal ones may follow each other."""
    moved = [entry for entry in times if entry[0] in mine]
    others = [entry for entry in times if entry[0] not in mine]
    at = [place for place, entry in enumerate(others) if entry[0] in theirs]
    if not moved or not at:
        return {}
    place = at[0] if is_ahead else at[-1] + 1
    before = others[place - 1][1] if place else None
    after = others[place][1] if place < len(others) else None
    wanted: dict[str, Instant] = {}
    if before is None:
        assert after is not None
        last = Instant(after - _STEP * (len(moved) + 1))
    else:
        last = before
    for key, _ in moved:
        last = wanted[key] = Instant(last + _STEP)
    for key, at_ in others[place:]:
        if at_ > last:
            break
        last = wanted[key] = Instant(last + _STEP)
    return wanted


def _find(jobs: Sequence[JobView], id: str) -> JobView:
    """Raises NotFound."""
    found = next((job for job in jobs if job.id == id), None)
    if found is None:
        raise errors.NotFound(f"job {id[:80]!r} not found, or it has ended")
    return found


def _must_be_ours(job: JobView, field: str) -> None:
    if job.type is JobType.EXTERNAL:
        raise errors.BadRequest(f"{field}: job {job.id} is {job.name}, not a task; change that object itself")


def _must_wait_for_quota(job: JobView, field: str) -> None:
    if job.state is JobState.SCHEDULED or any(part.is_admitted for part in job.parts):
        raise errors.BadRequest(f"{field}: job {job.id} does not wait for quota any more; only what does has a place")
    if not all(part.workload for part in job.parts):
        raise errors.BadRequest(f"{field}: job {job.id} does not stand in the queue yet; try again in a moment")


def _set_priority_of(connection: Connection, job: JobView, priority: int) -> None:
    """In what the tasks say of themselves, so that a further run of them is as urgent."""
    rows = connection.execute(select(TASKS.c.id, TASKS.c.config).where(TASKS.c.id.in_(job.tasks))).all()
    for id, config in rows:
        resources = config.get("resources") if isinstance(config, dict) else None
        if isinstance(resources, dict):
            changed = {**config, "resources": {**resources, "priority": priority}}
            connection.execute(update(TASKS).where(TASKS.c.id == id).values(config=changed))
    _change_experiment(connection, job, {"priority": priority}, {"priority": priority})


def _change_experiment(connection: Connection, job: JobView, columns: Document, resources: Document) -> None:
    """Where the job is one: trials that it starts later are as it is."""
    is_it = EXPERIMENTS.c.job_id == job.id
    for row in connection.execute(select(EXPERIMENTS.c.config).where(is_it)).all():
        config = {**row.config, "resources": {**row.config.get("resources", {}), **resources}}
        connection.execute(update(EXPERIMENTS).where(is_it).values(**columns, config=config))


def _set_pool_of(connection: Connection, allocation: str, pool: str) -> None:
    connection.execute(update(ALLOCATIONS).where(ALLOCATIONS.c.id == allocation).values(pool=pool))
