"""Which pods end: all of a job but those worth keeping, or those of a task, of a partition, or one."""

from collections.abc import Sequence
from dataclasses import dataclass

from muster.api import volcano
from muster.jobs.volcano.members import FINISHED, Known, Member, listed
from muster.jobs.volcano.policies import Request
from muster.jobs.volcano.states import Step
from muster.jobs.volcano.vocabulary import Action


@dataclass(frozen=True, slots=True)
class Doomed:
    """`ended` are to be deleted; `left` stay as they are: kept, or on their way out already."""

    ended: Sequence[Member]
    left: Sequence[Member]


def all_of(job: volcano.Job, known: Known, step: Step) -> Doomed:
    # At the last try what has ended stays, for people to look at why.
    is_last = (job.status.retry_count or 0) >= (job.spec.max_retry or 0) - 1
    return _split(known, FINISHED if is_last else step.kept)


def left_over(known: Known, version: int, kept: frozenset[str]) -> Sequence[Member]:
    """Pods of earlier versions that should be gone: whoever ended them did not get to the last one."""
    return [member for member in _split(known, kept).ended if member.version < version]


def targets(known: Known, action: Action, request: Request) -> Sequence[Member]:
    """The pods that a targeted restart ends, the one that caused it last: as long as that one is there, whoever was
    interrupted begins again."""
    pods = known.get(request.task, {})
    match action:
        case Action.RESTART_POD:
            found = [pods[request.pod]] if request.pod in pods else []
        case Action.RESTART_PARTITION:
            found = [member for member in pods.values() if member.partition and member.partition == request.partition]
        case _:
            found = list(pods.values())
    return sorted(found, key=lambda member: (member.name == request.pod, member.name))


def _split(known: Known, kept: frozenset[str]) -> Doomed:
    ended: list[Member] = []
    left: list[Member] = []
    for member in listed(known):
        is_left = member.is_terminating or member.phase in kept
        (left if is_left else ended).append(member)
    return Doomed(ended, left)
