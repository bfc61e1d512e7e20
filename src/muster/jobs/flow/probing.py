"""Probes: ways to find out that a job is far enough along for what depends on it, before it is done."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from muster.api import volcano

Answers = Mapping["Question", bool]


@dataclass(frozen=True, slots=True)
class Question:
    """To be asked of every running pod of a task. `path` is None for a port that must merely accept a connection."""

    job: str
    task: str
    port: int
    path: str | None = None
    header: tuple[str, str] | None = None


def questions(probe: volcano.Probe, job: str) -> Iterator[Question]:
    for http in probe.http_get_list:
        header = http.http_header
        told = (header.name, header.value) if header is not None and header.name else None
        yield Question(job, http.task_name or "", http.port or 80, http.path or "/", told)
    for tcp in probe.tcp_socket_list:
        yield Question(job, tcp.task_name or "", tcp.port or 80)


def is_any(probe: volcano.Probe | None) -> bool:
    return probe is not None and bool(probe.http_get_list or probe.tcp_socket_list or probe.task_status_list)


def hold(probe: volcano.Probe, job: volcano.Job, answers: Answers) -> bool:
    """Whether all of them hold of the job. A question that nobody has answered yet does not."""
    return all(_is_in(job, wanted) for wanted in probe.task_status_list) and all(
        answers.get(question, False) for question in questions(probe, job.metadata.name)
    )


def _is_in(job: volcano.Job, wanted: volcano.TaskStatus) -> bool:
    """As many pods of the task as it needs at the least are in the phase."""
    task = next((task for task in job.spec.tasks if task.name == wanted.task_name), None)
    counts = (job.status.task_status_count or {}).get(wanted.task_name or "")
    if task is None or counts is None:
        return False
    least = task.min_available if task.min_available is not None else task.replicas or 0
    return (counts.phase or {}).get(wanted.phase or "", 0) >= max(1, least)
