"""Which pods are missing, and which are too many."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from muster.api import volcano
from muster.jobs.volcano import dependencies, names
from muster.jobs.volcano.members import Known, Member
from muster.jobs.volcano.status import Tally


class NewPod(NamedTuple):
    """Where in the job it belongs: its task's position in the list, and its own within the task."""

    task: int
    number: int


@dataclass(frozen=True, slots=True)
class Work:
    created: Sequence[NewPod] = ()
    removed: Sequence[Member] = ()
    tally: Tally = field(default_factory=Tally)
    """As it will be when all of it is done."""


def work(job: volcano.Job, known: Known, left_over: Collection[str] = ()) -> Work:
    """`left_over`: names of pods that should be gone already."""
    created: list[NewPod] = []
    removed: list[Member] = []
    tally = Tally()
    for number, task in enumerate(job.spec.tasks):
        name = names.task_name(task)
        spare = dict(known.get(name, {}))
        missing: list[NewPod] = []
        for index in range(task.replicas or 0):
            member = spare.pop(names.pod_name(job.metadata.name, name, index), None)
            if member is None:
                missing.append(NewPod(number, index))
            elif member.is_terminating:
                tally.terminating += 1
            elif member.is_out_of_sync or member.name in left_over:
                removed.append(member)
                tally.terminating += 1
            else:
                tally.add(member.phase, name)
        if missing and dependencies.are_met(job, task, known):
            created += missing
            for _ in missing:
                tally.add("Pending", name)
        too_many = sorted(spare.values(), key=lambda member: member.name)
        removed += (member for member in too_many if not member.is_terminating)
        tally.terminating += len(too_many)
    return Work(created, removed, tally)
