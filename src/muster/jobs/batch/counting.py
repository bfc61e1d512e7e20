"""Counts each ended pod exactly once, however often the controller dies in between.

A pod is held by a finalizer until it is counted, in three steps, each of which may be repeated: its uid is written
down as uncounted in the job's status (or its index as completed); the finalizer is taken off; and, once no pod of that
uid is held any more, the uid becomes one more in the counter.
"""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from muster.api import batch
from muster.jobs.batch import failures, indexes, standing
from muster.jobs.batch.judging import Verdict
from muster.jobs.batch.members import Member
from muster.jobs.batch.standing import Standing

MOST_UNCOUNTED = 500
"""Uids in a status at a time: they must not make it large."""


@dataclass(frozen=True, slots=True)
class Count:
    """The counters as they should be written, and the pods to let go once they are."""

    succeeded: int
    failed: int
    uncounted: batch.UncountedTerminatedPods
    completed_indexes: str | None
    failed_indexes: str | None
    released: Sequence[Member]
    is_partial: bool
    """There are more than fit into one status: the rest is for later."""

    @property
    def is_settled(self) -> bool:
        return not (self.released or self.is_partial or self.uncounted.succeeded or self.uncounted.failed)


def count(found: Standing, verdict: Verdict | None, removed: AbstractSet[str]) -> Count:
    """`removed`: uids of pods that are let go in any case, without being counted."""
    job = found.job
    is_indexed = standing.is_indexed(job)
    before = standing.uncounted(job)
    held = {member.uid for member in found.members if member.is_tracked}
    succeeded = [uid for uid in before.succeeded if uid in held]
    failed = [uid for uid in before.failed if uid in held]
    counted_succeeded = (job.status.succeeded or 0) + len(before.succeeded) - len(succeeded)
    counted_failed = (job.status.failed or 0) + len(before.failed) - len(failed)
    written_down = frozenset((*before.succeeded, *before.failed))
    completed = indexes.parse(job.status.completed_indexes, job.spec.completions or 0)
    known = len(completed)
    released: list[Member] = []
    is_partial = False
    for member in _leaving(found, verdict, removed):
        if len(completed) - known + len(succeeded) + len(failed) >= MOST_UNCOUNTED:
            is_partial = True
            break
        released.append(member)
        if member.uid in written_down:
            continue
        if member.phase != "Succeeded":
            if _counts_as_failed(found, member, verdict):
                failed.append(member.uid)
        elif not is_indexed:
            succeeded.append(member.uid)
        elif member.completion_index is not None and standing.is_within(job, member.completion_index):
            completed.add(member.completion_index)
    return Count(
        len(completed) if is_indexed else counted_succeeded,
        counted_failed,
        batch.UncountedTerminatedPods(succeeded=tuple(succeeded), failed=tuple(failed)),
        indexes.to_text(completed) or None if is_indexed else None,
        indexes.to_text(found.failed_indexes) if standing.limits_each_index(job) else None,
        released,
        is_partial,
    )


def _leaving(found: Standing, verdict: Verdict | None, removed: AbstractSet[str]) -> list[Member]:
    """The pods that may be let go once they are written down; those of an indexed job in the order of their indexes."""
    leaving = [
        member
        for member in found.members
        if member.is_tracked and member.uid not in removed and _may_leave(found, member, verdict)
    ]
    if standing.is_indexed(found.job):
        leaving.sort(key=lambda member: -1 if member.completion_index is None else member.completion_index)
    return leaving


def _may_leave(found: Standing, member: Member, verdict: Verdict | None) -> bool:
    if verdict is not None or member.phase == "Succeeded" or found.job.metadata.deletion_timestamp is not None:
        return True
    if member.completion_index is not None and found.replaceable.get(member.completion_index) is member:
        return False
    return member.uid in found.failed_pods


def _counts_as_failed(found: Standing, member: Member, verdict: Verdict | None) -> bool:
    # When a job fails, so do its pods that still ran; when it succeeds, they are merely not needed any more.
    is_lost_with_the_job = verdict is not None and not verdict.is_success
    if not is_lost_with_the_job and member.uid not in found.failed_pods:
        return False
    if standing.is_indexed(found.job) and not standing.is_within(found.job, member.completion_index):
        return False
    return failures.judge(found.job.spec.pod_failure_policy, member).is_counted
