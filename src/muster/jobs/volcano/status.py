"""A job's status: the counts of its pods, the phases it has been in, and two statuses' difference as a patch."""

from collections.abc import Iterable, Sequence

import msgspec
from msgspec.structs import replace

from muster.api import patching, timestamps, volcano
from muster.api.meta import Instant
from muster.api.raw import Document
from muster.jobs.volcano.members import Member, instant


class Tally:
    """Pods by phase, and by task and phase. What is terminating counts as that and nothing else."""

    def __init__(self) -> None:
        self.terminating = 0
        self._by_phase: dict[str, int] = {}
        self._by_task: dict[str, dict[str, int]] = {}

    def add(self, phase: str, task: str) -> None:
        self._by_phase[phase] = self._by_phase.get(phase, 0) + 1
        of_task = self._by_task.setdefault(task, {})
        of_task[phase] = of_task.get(phase, 0) + 1

    def add_members(self, listed: Iterable[Member]) -> None:
        for member in listed:
            if member.is_terminating:
                self.terminating += 1
            else:
                self.add(member.phase, member.task)

    def onto(self, status: volcano.JobStatus) -> volcano.JobStatus:
        """The status with these counts. Zero is left out, as Volcano does."""
        counted = dict(self._by_phase)
        pending, running, succeeded, failed = (
            counted.pop(phase, 0) for phase in ("Pending", "Running", "Succeeded", "Failed")
        )
        return replace(
            status,
            pending=pending or None,
            running=running or None,
            succeeded=succeeded or None,
            failed=failed or None,
            unknown=sum(counted.values()) or None,
            terminating=self.terminating or None,
            task_status_count={task: volcano.TaskState(phase=phases) for task, phases in self._by_task.items()} or None,
        )


def initiated(job: volcano.Job, now: Instant) -> volcano.JobStatus:
    """The status of a job that has none yet."""
    if job.status.state.phase:
        return job.status
    state = replace(job.status.state, phase="Pending")
    return stamped(replace(job.status, state=state, min_available=job.spec.min_available), now)


def stamped(status: volcano.JobStatus, now: Instant) -> volcano.JobStatus:
    """The status as of now, with its phase at the end of those that it has been in."""
    at = timestamps.to_text(now)
    condition = volcano.JobCondition(status=status.state.phase or "", last_transition_time=at)
    return replace(
        status,
        state=replace(status.state, last_transition_time=at),
        conditions=with_condition(status.conditions, condition),
    )


def with_condition(
    listed: Sequence[volcano.JobCondition], wanted: volcano.JobCondition
) -> tuple[volcano.JobCondition, ...]:
    """Each phase stands once, where it was last entered."""
    return (*(condition for condition in listed if condition.status != wanted.status), wanted)


def with_duration(job: volcano.Job, status: volcano.JobStatus) -> volcano.JobStatus:
    """How long the job took until its last change."""
    made, changed = instant(job.metadata.creation_timestamp), instant(status.state.last_transition_time)
    if made is None or changed is None:
        return status
    return replace(status, running_duration=duration_text(changed - made))


def duration_text(seconds: float) -> str:
    """As Go writes it: `1h2m3s`."""
    whole = max(0, int(seconds))
    hours, minutes, rest = whole // 3600, whole // 60 % 60, whole % 60
    if hours:
        return f"{hours}h{minutes}m{rest}s"
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"


def difference(old: volcano.JobStatus, new: volcano.JobStatus) -> Document | None:
    """What to merge into the stored status. None where that says it all already."""
    if old == new:
        return None
    before, after = (_document(status) for status in (old, new))
    return patching.difference(before, after) or None


def _document(status: volcano.JobStatus) -> Document:
    found: Document = msgspec.to_builtins(status)
    return found
