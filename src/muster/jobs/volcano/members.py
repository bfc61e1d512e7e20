"""What counts of a job's pods: each pod reduced to what the decisions read, read once."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from muster.api import core, timestamps, volcano
from muster.api.meta import Instant, ObjectMeta
from muster.api.timestamps import BadTimestamp
from muster.jobs.volcano import names

FINISHED = frozenset({"Succeeded", "Failed"})
RESTARTS_ALLOWED = 3
"""Of a task's containers, where the task does not say."""


class Member(NamedTuple):
    """One pod of the job. A tuple, because a job may have thousands and each is read anew for every decision."""

    pod: core.Pod
    task: str
    phase: str
    version: int
    partition: str
    is_terminating: bool
    is_out_of_sync: bool
    """We have marked it for deletion."""

    @property
    def name(self) -> str:
        return self.pod.metadata.name

    @property
    def is_finished(self) -> bool:
        return self.phase in FINISHED

    @property
    def exit_code(self) -> int:
        """Of its first container; 0 where it does not say."""
        for status in self.pod.status.container_statuses[:1]:
            if status.state is not None and status.state.terminated is not None:
                return status.state.terminated.exit_code or 0
        return 0

    @property
    def restarts(self) -> int:
        status = self.pod.status
        return sum(found.restart_count for found in (*status.init_container_statuses, *status.container_statuses))

    @property
    def is_ready(self) -> bool:
        """Done, or running with every container ready: what a task that waits for it asks for."""
        if self.phase == "Succeeded":
            return True
        return self.phase == "Running" and all(status.ready for status in self.pod.status.container_statuses)


def job_of(meta: ObjectMeta) -> str:
    """The name of the job that the pod says it belongs to; empty where it does not say all that is needed."""
    said = meta.annotations or {}
    has_all = names.TASK in said and said.get(names.JOB_VERSION, "").lstrip("-").isdecimal()
    return said.get(names.JOB, "") if has_all else ""


def read(pod: core.Pod) -> Member:
    """`job_of` is not empty for it."""
    meta = pod.metadata
    said = meta.annotations or {}
    return Member(
        pod,
        said[names.TASK],
        pod.status.phase or "Pending",
        int(said[names.JOB_VERSION]),
        (meta.labels or {}).get(names.PARTITION, ""),
        meta.deletion_timestamp is not None,
        names.OUT_OF_SYNC in said,
    )


Known = Mapping[str, Mapping[str, Member]]
"""Members by task and by name."""


def by_task(listed: Iterable[Member]) -> Known:
    found: dict[str, dict[str, Member]] = {}
    for member in listed:
        found.setdefault(member.task, {})[member.name] = member
    return found


def is_task_completed(task: volcano.TaskSpec, pods: Iterable[Member]) -> bool:
    replicas = task.replicas or 0
    return replicas > 0 and sum(member.phase == "Succeeded" for member in pods) >= replicas


def is_task_failed(task: volcano.TaskSpec, pods: Iterable[Member]) -> bool:
    """Its containers were restarted in place as often as the task allows."""
    if not task.replicas or task.max_retry == -1:
        return False
    restarts = sum(member.restarts for member in pods if member.phase in ("Pending", "Running"))
    return restarts >= (task.max_retry or RESTARTS_ALLOWED)


def ended_at(member: Member) -> Instant:
    """When its containers ended, as near as can be told."""
    ends = [status.state.terminated for status in member.pod.status.container_statuses if status.state is not None]
    times = [instant(end.finished_at) for end in ends if end is not None]
    known = [time for time in times if time is not None]
    return max(known) if known else made_at(member)


def made_at(member: Member) -> Instant:
    return instant(member.pod.metadata.creation_timestamp) or Instant(0.0)


def instant(text: str | None) -> Instant | None:
    try:
        return timestamps.parse(text) if text else None
    except BadTimestamp:
        return None


def listed(known: Known) -> Sequence[Member]:
    return [member for pods in known.values() for member in pods.values()]
