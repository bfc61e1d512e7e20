"""How a job stands: its pods sorted by their state, and what has succeeded and failed, counted or not."""

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from muster.api import batch, core
from muster.jobs.batch import failures, indexes, members
from muster.jobs.batch.failures import Action
from muster.jobs.batch.members import Member


@dataclass(frozen=True, slots=True)
class Standing:
    job: batch.Job
    members: Sequence[Member]
    active: Sequence[Member]
    failed_pods: Mapping[str, Member]
    """By uid. Also those that were told to go, where the job takes that for a failure."""
    succeeded: int
    failed: int
    """Both with those that the status does not count yet."""
    completed: AbstractSet[int]
    """Indexes that have succeeded."""
    failed_indexes: AbstractSet[int]
    replaceable: Mapping[int, Member]
    """By index: the failed pod whose replacement, once made, takes over its count of failures. Until then it stays
    tracked, and so cannot be lost."""

    @property
    def ending(self) -> int:
        return sum(member.is_ending for member in self.members)


def is_indexed(job: batch.Job) -> bool:
    return job.spec.completion_mode == "Indexed"


def limits_each_index(job: batch.Job) -> bool:
    return is_indexed(job) and job.spec.backoff_limit_per_index is not None


def waits_for_the_end(job: batch.Job) -> bool:
    """Whether a pod is replaced only once it has ended, not already when it was told to."""
    return job.spec.pod_replacement_policy == "Failed" or job.spec.pod_failure_policy is not None


def is_within(job: batch.Job, index: int | None) -> bool:
    return index is not None and index < (job.spec.completions or 0)


def uncounted(job: batch.Job) -> batch.UncountedTerminatedPods:
    return job.status.uncounted_terminated_pods or batch.UncountedTerminatedPods()


def of(job: batch.Job, pods: Sequence[core.Pod]) -> Standing:
    crew = [members.read(pod) for pod in pods]
    only_at_the_end = waits_for_the_end(job)
    active = [member for member in crew if member.is_active]
    failed_pods = {m.uid: m for m in crew if members.has_failed(m, only_at_the_end=only_at_the_end)}
    waiting = uncounted(job)
    failed = (job.status.failed or 0) + len(waiting.failed) + _newly_failed(job, failed_pods.values())
    if not is_indexed(job):
        known = {*waiting.succeeded, *waiting.failed}
        fresh = sum(m.is_tracked and m.phase == "Succeeded" and m.uid not in known for m in crew)
        succeeded = (job.status.succeeded or 0) + len(waiting.succeeded) + fresh
        return Standing(job, crew, active, failed_pods, succeeded, failed, frozenset(), frozenset(), {})
    completed = _completed(job, crew)
    if not limits_each_index(job):
        return Standing(job, crew, active, failed_pods, len(completed), failed, completed, frozenset(), {})
    given_up = _failed_indexes(job, failed_pods.values()) - completed
    settled = (
        completed | given_up | {member.completion_index for member in active if member.completion_index is not None}
    )
    replaceable = _replaceable(job, failed_pods.values(), settled)
    return Standing(job, crew, active, failed_pods, len(completed), failed, completed, given_up, replaceable)


def _newly_failed(job: batch.Job, failed_pods: Iterable[Member]) -> int:
    known = frozenset(uncounted(job).failed)
    return sum(
        member.is_tracked
        and member.uid not in known
        and (not is_indexed(job) or is_within(job, member.completion_index))
        and failures.judge(job.spec.pod_failure_policy, member).is_counted
        for member in failed_pods
    )


def _completed(job: batch.Job, crew: Sequence[Member]) -> set[int]:
    completed = indexes.parse(job.status.completed_indexes, job.spec.completions or 0)
    known = frozenset(uncounted(job).failed)
    completed.update(
        member.completion_index
        for member in crew
        if member.is_tracked and member.phase == "Succeeded" and member.uid not in known
        if member.completion_index is not None and is_within(job, member.completion_index)
    )
    return completed


def _failed_indexes(job: batch.Job, failed_pods: Iterable[Member]) -> set[int]:
    found = indexes.parse(job.status.failed_indexes, job.spec.completions or 0)
    limit = job.spec.backoff_limit_per_index or 0
    for member in failed_pods:
        if not member.is_tracked or member.completion_index is None or not is_within(job, member.completion_index):
            continue
        judgement = failures.judge(job.spec.pod_failure_policy, member)
        if judgement.action is Action.FAIL_INDEX or (judgement.is_counted and member.failures >= limit):
            found.add(member.completion_index)
    return found


def _replaceable(job: batch.Job, failed_pods: Iterable[Member], settled: AbstractSet[int]) -> dict[int, Member]:
    latest: dict[int, Member] = {}
    for member in failed_pods:
        index = member.completion_index
        if not member.is_tracked or index is None or not is_within(job, index) or index in settled:
            continue
        known = latest.get(index)
        if known is None or _attempts(known) <= _attempts(member):
            latest[index] = member
    return latest


def _attempts(member: Member) -> int:
    return member.failures + member.ignored_failures
