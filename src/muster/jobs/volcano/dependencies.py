"""Whether the tasks that a task depends on are far enough along for its own pods to be made."""

from muster.api import volcano
from muster.jobs.volcano import names
from muster.jobs.volcano.members import Known

_ANY = "any"


def are_met(job: volcano.Job, task: volcano.TaskSpec, known: Known) -> bool:
    wanted = task.depends_on
    if wanted is None or not wanted.name:
        return True
    verdicts = [is_task_ready(job, name, known) for name in wanted.name]
    return any(verdicts) if wanted.iteration == _ANY and len(verdicts) > 1 else all(verdicts)


def is_task_ready(job: volcano.Job, name: str, known: Known) -> bool:
    """Enough of its pods are done, or run and are ready. A task that says no minimum keeps nobody waiting."""
    for task in job.spec.tasks:
        if names.task_name(task) == name and task.min_available is not None:
            pods = known.get(name, {})
            mine = (names.pod_name(job.metadata.name, name, index) for index in range(task.replicas or 0))
            ready = sum(pod in pods and not pods[pod].is_terminating and pods[pod].is_ready for pod in mine)
            return ready >= task.min_available
    return True
