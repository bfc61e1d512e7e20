"""Which jobs of a flow may be made now, which are no longer wanted, and what must be asked to know more."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from muster.api import volcano
from muster.jobs.flow import probing
from muster.jobs.flow.making import job_name
from muster.jobs.flow.probing import Answers, Question
from muster.jobs.flow.states import Phase

COMPLETED = "Completed"
DELETE = "delete"
TEMPLATE_NOT_FOUND = "JobTemplateNotFound"


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a job could not be made: a reason for machines, a message for people."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Due:
    """`steps`: those to make a job of. `removed`: names of jobs to delete. `problems`: by the name of the job."""

    steps: Sequence[str] = ()
    removed: Sequence[str] = ()
    problems: Mapping[str, Problem] | None = None
    questions: Sequence[Question] = ()


def steps_of(flow: volcano.JobFlow) -> Mapping[str, volcano.Flow]:
    """By name. A step that is listed twice depends on what its last entry says."""
    return {step.name: step for step in flow.spec.flows}


def due(flow: volcano.JobFlow, jobs: Mapping[str, volcano.Job], templates: Collection[str], answers: Answers) -> Due:
    """`jobs`: those of the flow, by name. `templates`: names of those that exist. `answers`: to earlier questions."""
    if flow.status.state.phase == Phase.SUCCEED:
        return Due(removed=sorted(jobs)) if flow.spec.job_retain_policy == DELETE else Due()
    started: list[str] = []
    problems: dict[str, Problem] = {}
    questions: list[Question] = []
    for name, step in steps_of(flow).items():
        job = job_name(flow.metadata.name, name)
        if job in jobs or was_completed(flow, job):
            continue
        waiting = [target for target in _targets(step) if not _is_ready(flow, step, target, jobs, answers)]
        if waiting:
            questions += _open_questions(flow, step, waiting, jobs)
        elif name in templates:
            started.append(name)
        else:
            message = f'there is no JobTemplate "{name}" in namespace "{flow.metadata.namespace}"; create it'
            problems[job] = Problem(TEMPLATE_NOT_FOUND, message)
    return Due(started, (), problems, questions)


def was_completed(flow: volcano.JobFlow, job: str) -> bool:
    """A job that is done may be cleaned up before the flow is: it is not made again."""
    return any(known.name == job and known.state == COMPLETED for known in flow.status.job_status_list)


def _targets(step: volcano.Flow) -> Sequence[str]:
    return step.depends_on.targets if step.depends_on is not None else ()


def _is_ready(
    flow: volcano.JobFlow, step: volcano.Flow, target: str, jobs: Mapping[str, volcano.Job], answers: Answers
) -> bool:
    name = job_name(flow.metadata.name, target)
    job = jobs.get(name)
    if job is None:
        return was_completed(flow, name)
    if job.status.state.phase == COMPLETED:
        return True
    probe = step.depends_on.probe if step.depends_on is not None else None
    return probe is not None and probing.is_any(probe) and probing.hold(probe, job, answers)


def _open_questions(
    flow: volcano.JobFlow, step: volcano.Flow, targets: Sequence[str], jobs: Mapping[str, volcano.Job]
) -> Sequence[Question]:
    """What to ask of the jobs that are there."""
    probe = step.depends_on.probe if step.depends_on is not None else None
    if probe is None:
        return ()
    names = (job_name(flow.metadata.name, target) for target in targets)
    return [question for name in names if name in jobs for question in probing.questions(probe, name)]
