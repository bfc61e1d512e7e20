"""Which pods are missing, and which are too many."""

from collections.abc import Collection, Mapping, Sequence
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


def work(
    job: volcano.Job, known: Known, left_over: Collection[str] = (), sizes: Mapping[str, int] | None = None
) -> Work:
    """`left_over`: names of pods that should be gone already. `sizes`: by task, how many pods may live at a time; what
    has ended does not count. None: all that the job wants."""
    created: list[NewPod] = []
    removed: list[Member] = []
    tally = Tally()
    for number, task in enumerate(job.spec.tasks):
        name = names.task_name(task)
        crew = _crew(job, task, known.get(name, {}), left_over)
        room = len(crew.missing)
        surplus: Sequence[Member] = ()
        if sizes is not None:
            size = sizes.get(name, task.replicas or 0)
            room = max(0, size - len(crew.live) - crew.terminating - len(crew.unwanted))
            surplus = crew.live[size:][::-1]  # the highest numbers go first
        removed += (*crew.unwanted, *surplus)
        tally.terminating += crew.terminating + len(crew.unwanted) + len(surplus)
        for member in (*crew.ended, *crew.live[: len(crew.live) - len(surplus)]):
            tally.add(member.phase, name)
        missing = crew.missing[:room]
        if missing and dependencies.are_met(job, task, known):
            created += (NewPod(number, index) for index in missing)
            for _ in missing:
                tally.add("Pending", name)
    return Work(created, removed, tally)


class _Crew(NamedTuple):
    """The pods of a task. Those of `live` and `ended` are wanted, by their numbers; those of `unwanted` are not."""

    live: Sequence[Member]
    ended: Sequence[Member]
    unwanted: Sequence[Member]
    missing: Sequence[int]
    terminating: int


def _crew(job: volcano.Job, task: volcano.TaskSpec, pods: Mapping[str, Member], left_over: Collection[str]) -> _Crew:
    spare = dict(pods)
    name = names.task_name(task)
    live: list[Member] = []
    ended: list[Member] = []
    unwanted: list[Member] = []
    missing: list[int] = []
    terminating = 0
    for index in range(task.replicas or 0):
        member = spare.pop(names.pod_name(job.metadata.name, name, index), None)
        if member is None:
            missing.append(index)
        elif member.is_terminating:
            terminating += 1
        elif member.is_out_of_sync or member.name in left_over:
            unwanted.append(member)
        else:
            (ended if member.is_finished else live).append(member)
    too_many = sorted(spare.values(), key=lambda member: member.name)
    unwanted += (member for member in too_many if not member.is_terminating)
    terminating += sum(member.is_terminating for member in too_many)
    return _Crew(live, ended, unwanted, missing, terminating)
