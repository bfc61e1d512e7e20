"""What quota says of a job: that it has to wait, or how many pods of each task it may have at a time.

A job is told on itself, and answers in its status before it makes the first pod that the word allows: so whoever takes
back the word can tell from the status when that was heard.
"""

from collections.abc import Mapping

from msgspec.structs import replace

from muster.api import volcano
from muster.api.kueue import sizing
from muster.api.kueue.names import ADMITTED_REPLICAS_ANNOTATION
from muster.api.volcano.waiting import WAITING_FOR_QUOTA
from muster.jobs.volcano import names, states
from muster.jobs.volcano.states import Step
from muster.jobs.volcano.vocabulary import Phase, phase_of

_MESSAGE = "the job waits until its workload is admitted"


def is_held(job: volcano.Job) -> bool:
    return sizing.is_held(job.metadata.annotations)


def sizes(job: volcano.Job) -> Mapping[str, int] | None:
    """By task; None: as many as it wants."""
    if is_held(job):
        return {names.task_name(task): 0 for task in job.spec.tasks}
    return sizing.read_sizes(job.metadata.annotations)


def heard(job: volcano.Job, status: volcano.JobStatus) -> volcano.JobStatus:
    """The status with the answer to what the job was told last; the same where it says so already."""
    if not is_held(job) and status.state.reason == WAITING_FOR_QUOTA:
        status = replace(status, state=replace(status.state, reason=None, message=None))
    told = None if is_held(job) else (job.metadata.annotations or {}).get(ADMITTED_REPLICAS_ANNOTATION)
    known = (status.controlled_resources or {}).get(ADMITTED_REPLICAS_ANNOTATION)
    if told == known:
        return status
    resources = {**(status.controlled_resources or {}), **({ADMITTED_REPLICAS_ANNOTATION: told} if told else {})}
    return replace(status, controlled_resources=resources) if told else forgotten(status)


def forgotten(status: volcano.JobStatus) -> volcano.JobStatus:
    """Without an answer: no pods are made any more."""
    kept = {
        key: value for key, value in (status.controlled_resources or {}).items() if key != ADMITTED_REPLICAS_ANNOTATION
    }
    return replace(status, controlled_resources=kept or None)


def judge(job: volcano.Job, step: Step, counted: volcano.JobStatus) -> volcano.JobStatus:
    """The phase of a job that has to wait. What has ended well or badly enough is over all the same."""
    phase = phase_of(counted.state.phase)
    if phase is Phase.PENDING and not _is_through(job, counted):
        return waiting(counted)
    after = step.judge(job, counted)
    if phase_of(after.state.phase) is Phase.RUNNING and not _is_through(job, counted):
        after = states.enter(after, Phase.PENDING)
    return waiting(after) if phase_of(after.state.phase) is Phase.PENDING else after


def _is_through(job: volcano.Job, status: volcano.JobStatus) -> bool:
    succeeded, total = status.succeeded or 0, states.total_replicas(job)
    if job.spec.min_success is not None and succeeded >= job.spec.min_success:
        return True
    return 0 < total == succeeded + (status.failed or 0)


def waiting(status: volcano.JobStatus) -> volcano.JobStatus:
    return replace(status, state=replace(status.state, reason=WAITING_FOR_QUOTA, message=_MESSAGE))
