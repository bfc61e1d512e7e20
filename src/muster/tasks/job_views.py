"""What stands in the queues, as Determined shows jobs: one for each experiment or task, and for whatever else queues
there. Pure.

A job has a position while it waits: first those that have quota and wait for nodes, then those that wait for quota, as
the quota engine would look at them.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from muster.api import conditions, kueue, muster
from muster.api.core.requests import CPU, pod_requests
from muster.api.muster.names import BEGUN, Phase
from muster.api.quantity import BadQuantity
from muster.engines.protocol import DEFAULT_PRIORITY
from muster.quota.workloads import ADMITTED, FINISHED

NOT_WAITING: Final = -1


class JobType(StrEnum):
    EXPERIMENT = "EXPERIMENT"
    NOTEBOOK = "NOTEBOOK"
    TENSORBOARD = "TENSORBOARD"
    SHELL = "SHELL"
    COMMAND = "COMMAND"
    CHECKPOINT_GC = "CHECKPOINT_GC"
    GENERIC = "GENERIC"
    EXTERNAL = "EXTERNAL"
    """Not a task: a job of another kind in the same queue."""


class JobState(StrEnum):
    QUEUED = "QUEUED"
    SCHEDULED = "SCHEDULED"


@dataclass(frozen=True, slots=True)
class Part:
    """One allocation of a job, or all of a job that is not a task. `workload`: its key, as `namespace/name`."""

    namespace: str
    name: str
    task: str
    workload: str
    phase: str
    slots: int
    priority: int
    """Of its workload, the higher the sooner."""

    @property
    def is_scheduled(self) -> bool:
        return self.phase in BEGUN

    @property
    def is_admitted(self) -> bool:
        return self.is_scheduled or self.phase == Phase.PENDING


@dataclass(frozen=True, slots=True)
class JobView:
    """`priority`: as Determined counts it, the lower the sooner; None where the job has none of these."""

    id: str
    type: JobType
    name: str
    entity: str
    pool: str
    submitted: str
    is_preemptible: bool
    priority: int | None
    owner: str
    parts: Sequence[Part] = field(repr=False)
    jobs_ahead: int = NOT_WAITING

    @property
    def tasks(self) -> Sequence[str]:
        return sorted({part.task for part in self.parts if part.task})

    @property
    def state(self) -> JobState:
        return JobState.SCHEDULED if any(part.is_scheduled for part in self.parts) else JobState.QUEUED

    @property
    def requested_slots(self) -> int:
        return sum(part.slots for part in self.parts)

    @property
    def allocated_slots(self) -> int:
        return sum(part.slots for part in self.parts if part.is_scheduled)


@dataclass(frozen=True, slots=True)
class Search:
    """The experiment that a job is."""

    id: int
    name: str


@dataclass(frozen=True, slots=True)
class Standings:
    """By pool: which workloads wait for quota there, the first first; and what a slot is. By task: when it was
    submitted, as far as that is known better than by the second in which its allocation was made. By job: which
    experiment it is."""

    waiting: Mapping[str, Sequence[str]]
    slot_resources: Mapping[str, str]
    submitted: Mapping[str, str] = field(default_factory=dict)
    searches: Mapping[str, Search] = field(default_factory=dict)


def jobs(
    allocations: Iterable[tuple[muster.Allocation, kueue.Workload | None]],
    workloads: Iterable[tuple[kueue.Workload, str]],
    standings: Standings,
) -> list[JobView]:
    """`allocations`: each with its workload; `workloads`: those of other jobs, each with its queue. In the order of
    each queue: what runs, then what waits."""
    found: dict[str, JobView] = {}
    for allocation, workload in allocations:
        if allocation.status.phase != Phase.TERMINATED:
            each = _of_task(allocation, workload, standings)
            before = found.get(each.id)
            found[each.id] = each if before is None else _joined(before, each)
    for workload, queue in workloads:
        if not conditions.is_true(workload.status.conditions, FINISHED):
            each = _external(workload, queue, standings.slot_resources.get(queue, CPU))
            found[each.id] = each
    return [job for pool in sorted({job.pool for job in found.values()}) for job in _lined_up(found, pool, standings)]


def _joined(job: JobView, other: JobView) -> JobView:
    """Of one experiment: it was submitted with the first of its trials."""
    parts = (*job.parts, *other.parts)
    return replace(min(job, other, key=lambda each: (each.submitted, each.entity)), parts=parts)


def _lined_up(found: Mapping[str, JobView], pool: str, standings: Standings) -> list[JobView]:
    places = {key: place for place, key in enumerate(standings.waiting.get(pool, ()))}
    here = [job for job in found.values() if job.pool == pool]
    running = [job for job in here if job.state is JobState.SCHEDULED]
    waiting = [(_place(job, places), job) for job in here if job.state is JobState.QUEUED]
    return [
        *sorted(running, key=lambda job: (job.submitted, job.id)),
        *(
            replace(job, jobs_ahead=ahead)
            for ahead, (_, job) in enumerate(sorted(waiting, key=lambda entry: (entry[0], entry[1].id)))
        ),
    ]


def _place(job: JobView, places: Mapping[str, int]) -> tuple[int, int, int, str]:
    """Where the first of its parts stands: with quota, in the queue, or not even that yet."""
    admitted = [part for part in job.parts if part.is_admitted]
    if admitted:
        # As the scheduler orders them, which hears of a task's priority and not of its workload's.
        urgency = 0 if job.priority is None else DEFAULT_PRIORITY - job.priority
        return 0, -urgency, 0, job.submitted
    standing = [places[part.workload] for part in job.parts if part.workload in places]
    return (1, 0, min(standing), "") if standing else (2, 0, 0, job.submitted)


def _of_task(allocation: muster.Allocation, workload: kueue.Workload | None, standings: Standings) -> JobView:
    meta, spec = allocation.metadata, allocation.spec
    search = standings.searches.get(spec.job_id or "")
    type = JobType.EXPERIMENT if spec.task_type == "TRIAL" else JobType(spec.task_type)
    part = Part(
        meta.namespace,
        meta.name,
        spec.task_id,
        "" if workload is None else f"{workload.metadata.namespace}/{workload.metadata.name}",
        allocation.status.phase or Phase.QUEUED,
        spec.slots or 0,
        (workload and workload.spec.priority) or 0,
    )
    return JobView(
        spec.job_id or spec.task_id,
        type,
        (search.name if search else spec.name) or spec.task_id,
        str(search.id) if search else spec.task_id,
        spec.pool or spec.queue_name or "",
        standings.submitted.get(spec.task_id) or meta.creation_timestamp or "",
        bool(spec.is_preemptible),
        DEFAULT_PRIORITY if spec.priority is None else spec.priority,
        spec.owner or "",
        (part,),
    )


def _external(workload: kueue.Workload, queue: str, resource: str) -> JobView:
    meta = workload.metadata
    owner = next((each for each in meta.owner_references or () if each.controller), None)
    is_admitted = conditions.is_true(workload.status.conditions, ADMITTED)
    part = Part(
        meta.namespace,
        meta.name,
        "",
        f"{meta.namespace}/{meta.name}",
        Phase.RUNNING if is_admitted else Phase.QUEUED,
        _slots(workload, resource),
        workload.spec.priority or 0,
    )
    name = f"{meta.namespace}/{meta.name}" if owner is None else f"{owner.kind} {meta.namespace}/{owner.name}"
    return JobView(
        meta.uid, JobType.EXTERNAL, name, meta.uid, queue, meta.creation_timestamp or "", True, None, "", (part,)
    )


def _slots(workload: kueue.Workload, resource: str) -> int:
    total = 0
    for pods in workload.spec.pod_sets:
        try:
            each = pod_requests(pods.template.spec).get(resource, 0)
        except BadQuantity:
            continue
        total += (each // 1000 if resource == CPU else each) * (pods.count or 0)
    return total


@dataclass(frozen=True, slots=True)
class Counts:
    queued: int = 0
    scheduled: int = 0


def counts(found: Collection[JobView], pool: str) -> Counts:
    here = [job.state for job in found if job.pool == pool]
    return Counts(here.count(JobState.QUEUED), here.count(JobState.SCHEDULED))
