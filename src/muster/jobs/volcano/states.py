"""The state machine of a Volcano Job: what a phase answers to an action, and which phase follows.

`CHANGES` lists every edge; one that is not there is a bug. docs/reference/states.md is rendered from it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum

from msgspec.structs import replace

from muster.api import volcano
from muster.jobs.volcano import names
from muster.jobs.volcano.members import FINISHED
from muster.jobs.volcano.vocabulary import OVER, TARGETED, Action, Phase, phase_of

CHANGES: Mapping[tuple[Phase, Phase], str] = {
    (Phase.PENDING, Phase.RUNNING): "`minAvailable` pods run or have ended",
    (Phase.PENDING, Phase.RESTARTING): "a policy or a command restarts the job, a task, a partition or a pod",
    (Phase.PENDING, Phase.ABORTING): "AbortJob: a policy or a command suspends it",
    (Phase.PENDING, Phase.COMPLETING): "CompleteJob",
    (Phase.PENDING, Phase.TERMINATING): "TerminateJob",
    (Phase.RUNNING, Phase.PENDING): "too many pods wait for `minAvailable` to be left; or its quota was taken back",
    (Phase.RUNNING, Phase.COMPLETED): "`minSuccess` pods have succeeded; or all have ended and enough of them well",
    (Phase.RUNNING, Phase.FAILED): "all pods have ended and too few of them well",
    (Phase.RUNNING, Phase.RESTARTING): "a policy or a command restarts the job, a task, a partition or a pod",
    (Phase.RUNNING, Phase.ABORTING): "AbortJob: a policy or a command suspends it",
    (Phase.RUNNING, Phase.COMPLETING): "CompleteJob",
    (Phase.RUNNING, Phase.TERMINATING): "TerminateJob",
    (Phase.RESTARTING, Phase.PENDING): "enough of its pods are gone to make `minAvailable` new ones",
    (Phase.RESTARTING, Phase.FAILED): "it has been restarted `maxRetry` times",
    (Phase.ABORTING, Phase.ABORTED): "none of its pods runs any more",
    (Phase.ABORTING, Phase.RESTARTING): "ResumeJob",
    (Phase.ABORTED, Phase.RESTARTING): "ResumeJob",
    (Phase.COMPLETING, Phase.COMPLETED): "none of its pods runs any more",
    (Phase.TERMINATING, Phase.TERMINATED): "none of its pods runs any more",
}


class Scope(Enum):
    SYNC = "make what is missing, remove what is too much"
    KILL = "end all pods"
    KILL_TARGET = "end the pods of the task, the partition, or the one"


Judge = Callable[[volcano.Job, volcano.JobStatus], volcano.JobStatus]
"""From the counters as they are now to the phase that follows from them."""


@dataclass(frozen=True, slots=True)
class Step:
    scope: Scope
    judge: Judge
    kept: frozenset[str] = FINISHED
    """Phases of pods that are left alone by a KILL."""


NOBODY: frozenset[str] = frozenset()


def respond(phase: Phase, action: Action) -> Step:
    """What the phase answers to the action. Total: an action that means nothing here only looks after the pods."""
    match phase:
        case Phase.PENDING | Phase.RUNNING:
            return _while_active(phase, action)
        case Phase.RESTARTING if action is Action.SYNC_JOB:
            return Step(Scope.SYNC, judge_restarting)
        case Phase.RESTARTING if action in TARGETED:
            return Step(Scope.KILL_TARGET, judge_restarting)
        case Phase.RESTARTING:
            return Step(Scope.KILL, judge_restarting, NOBODY)
        case Phase.ABORTING | Phase.ABORTED if action is Action.RESUME_JOB:
            return Step(Scope.KILL, _restart)
        case Phase.ABORTING:
            return Step(Scope.KILL, _once_empty(Phase.ABORTED))
        case Phase.COMPLETING:
            return Step(Scope.KILL, _once_empty(Phase.COMPLETED))
        case Phase.TERMINATING:
            return Step(Scope.KILL, _once_empty(Phase.TERMINATED))
        case _:
            return Step(Scope.KILL, _stay)


def _while_active(phase: Phase, action: Action) -> Step:
    if action is Action.RESTART_JOB:
        return Step(Scope.KILL, _restart, NOBODY)
    if action in TARGETED:
        return Step(Scope.KILL_TARGET, _restart)
    ending = _ENDING.get(action)
    if ending is not None:
        return Step(Scope.KILL, _always(ending))
    return Step(Scope.SYNC, judge_pending if phase is Phase.PENDING else judge_running)


_ENDING: Mapping[Action, Phase] = {
    Action.ABORT_JOB: Phase.ABORTING,
    Action.COMPLETE_JOB: Phase.COMPLETING,
    Action.TERMINATE_JOB: Phase.TERMINATING,
}


def judge_pending(job: volcano.Job, status: volcano.JobStatus) -> volcano.JobStatus:
    started = (status.running or 0) + (status.succeeded or 0) + (status.failed or 0)
    return enter(status, Phase.RUNNING) if (job.spec.min_available or 0) <= started else status


def judge_running(job: volcano.Job, status: volcano.JobStatus) -> volcano.JobStatus:
    total = total_replicas(job)
    if total == 0:
        return status
    succeeded, wanted = status.succeeded or 0, job.spec.min_success
    if wanted is not None and succeeded >= wanted:
        return enter(status, Phase.COMPLETED)
    if succeeded + (status.failed or 0) == total:
        return enter(status, Phase.COMPLETED if _is_success(job, status) else Phase.FAILED)
    if (status.pending or 0) > total - (job.spec.min_available or 0):
        return enter(status, Phase.PENDING)
    return status


def _is_success(job: volcano.Job, status: volcano.JobStatus) -> bool:
    """All pods have ended."""
    least = job.spec.min_available or 0
    if least >= sum(task_minimum(task) for task in job.spec.tasks):
        for task in job.spec.tasks:
            counted = (status.task_status_count or {}).get(names.task_name(task))
            if task.min_available is None or counted is None:
                continue
            if (counted.phase or {}).get("Succeeded", 0) < task.min_available:
                return False
    if job.spec.min_success is not None:
        return False  # or it would have been reached
    return (status.succeeded or 0) >= least


def judge_restarting(job: volcano.Job, status: volcano.JobStatus) -> volcano.JobStatus:
    if (status.retry_count or 0) >= (job.spec.max_retry or 0):
        return enter(status, Phase.FAILED)
    # The minimum that the pods were made under, which may have been edited since.
    if total_replicas(job) - (status.terminating or 0) >= (status.min_available or 0):
        return enter(status, Phase.PENDING)
    return status


def total_replicas(job: volcano.Job) -> int:
    return sum(task.replicas or 0 for task in job.spec.tasks)


def task_minimum(task: volcano.TaskSpec) -> int:
    return (task.replicas or 0) if task.min_available is None else task.min_available


def is_over(job: volcano.Job) -> bool:
    return phase_of(job.status.state.phase) in OVER


def _restart(_job: volcano.Job, status: volcano.JobStatus) -> volcano.JobStatus:
    return enter(replace(status, retry_count=(status.retry_count or 0) + 1), Phase.RESTARTING)


def _always(phase: Phase) -> Judge:
    return lambda _job, status: enter(status, phase)


def _once_empty(phase: Phase) -> Judge:
    def judge(_job: volcano.Job, status: volcano.JobStatus) -> volcano.JobStatus:
        return status if status.terminating or status.pending or status.running else enter(status, phase)

    return judge


def _stay(_job: volcano.Job, status: volcano.JobStatus) -> volcano.JobStatus:
    return status


def enter(status: volcano.JobStatus, phase: Phase) -> volcano.JobStatus:
    before = phase_of(status.state.phase)
    assert (before, phase) in CHANGES, f"no way from {before} to {phase}"
    return replace(status, state=replace(status.state, phase=phase))
