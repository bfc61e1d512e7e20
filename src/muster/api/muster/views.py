"""Views of muster.dev/v1 Allocation."""

from typing import Annotated

from muster.api.core import PodTemplateSpec
from muster.api.meta import Condition, Resource, View, merge_by
from muster.api.scalars import Int32


class AllocationSpec(View, frozen=True):
    """What a run of a task needs: so many pods of one template, all at once."""

    task_id: str = ""
    job_id: str | None = None
    name: str | None = None
    task_type: str = ""
    pool: str | None = None
    queue_name: str | None = None
    priority: Int32 | None = None
    slots: Int32 | None = None
    pods: Int32 | None = None
    template: PodTemplateSpec = PodTemplateSpec()
    is_preemptible: bool | None = None
    preemption_timeout_seconds: Int32 | None = None
    suspend: bool | None = None
    owner: str | None = None


class AllocatedResource(View, frozen=True):
    """One pod of an allocation, as its node reports it. It stays when the pod is gone."""

    name: str = ""
    uid: str | None = None
    rank: Int32 | None = None
    node: str | None = None
    address: str | None = None
    phase: str | None = None
    exit_code: Int32 | None = None
    reason: str | None = None
    message: str | None = None
    started_at: str | None = None
    finished_at: str | None = None


class AllocationStatus(View, frozen=True):
    """How far the run has come, and where each part of it is."""

    phase: str | None = None
    active: Int32 | None = None
    pods_ready: Int32 | None = None
    resources: Annotated[tuple[AllocatedResource, ...], merge_by("name")] = ()
    conditions: Annotated[tuple[Condition, ...], merge_by("type")] = ()
    start_time: str | None = None
    completion_time: str | None = None


class Allocation(Resource, frozen=True):
    """One run of a task: it queues, is placed as a whole, runs once, and ends. A further run is a further one."""

    spec: AllocationSpec = AllocationSpec()
    status: AllocationStatus = AllocationStatus()
