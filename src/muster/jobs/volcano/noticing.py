"""What has happened to a job's pods, read off their present state.

Volcano hears of changes; we look at what is there. So nothing is missed while no controller runs, and how long a
condition has lasted is known also to one that has only just started. What leaves no trace (a pod that is gone, a
command) the caller tells besides.
"""

from collections.abc import Iterator

from muster.api import volcano
from muster.api.meta import Instant
from muster.jobs.volcano import members, names, policies
from muster.jobs.volcano.members import Known, Member
from muster.jobs.volcano.policies import Request
from muster.jobs.volcano.vocabulary import Happening


def notice(job: volcano.Job, known: Known, group: volcano.PodGroup | None) -> list[Request]:
    """In the order in which it happened, as far as one can tell."""
    if not policies.has_any(job):
        return []
    version = job.status.version or 0
    found = [request for task in job.spec.tasks for request in _of_task(task, known, version)]
    if group is not None and group.status.phase == "Unknown":
        found.append(Request(event=Happening.GROUP_UNKNOWN, version=version))
    return sorted(found, key=lambda request: (request.at, request.pod))


def _of_task(task: volcano.TaskSpec, known: Known, version: int) -> Iterator[Request]:
    pods = list(known.get(names.task_name(task), {}).values())
    for member in pods:
        if member.phase == "Failed" and _counts(member, version):
            yield of_pod(Happening.POD_FAILED, member, members.ended_at(member), member.exit_code)
        elif member.phase == "Pending" and not member.is_terminating and _counts(member, version):
            yield of_pod(Happening.POD_PENDING, member, members.made_at(member))
    if members.is_task_completed(task, pods):
        last = [member for member in pods if member.phase == "Succeeded" and _counts(member, version)]
        if last:
            member = max(last, key=members.ended_at)
            yield of_pod(Happening.TASK_COMPLETED, member, members.ended_at(member))
    if members.is_task_failed(task, pods):
        tried = [member for member in pods if not member.is_finished and _counts(member, version)]
        if tried:
            worst = max(tried, key=lambda member: member.restarts)
            yield of_pod(Happening.TASK_FAILED, worst, members.made_at(worst))


def _counts(member: Member, version: int) -> bool:
    return member.version >= version and not member.is_out_of_sync


def of_pod(event: Happening, member: Member, at: Instant, exit_code: int = 0) -> Request:
    return Request(
        event=event,
        task=member.task,
        pod=member.name,
        partition=member.partition,
        exit_code=exit_code,
        version=member.version,
        at=at,
    )
