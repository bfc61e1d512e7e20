"""The parts of an elastic job: one small workload for each pod that it wants beyond those that it needs.

A part queues, is admitted and is preempted like any other workload: that is how a job grows when quota comes, and
shrinks when it goes. Which pod a part stands for does not matter: the job is told how many it may have. A part that
loses its quota keeps it until the job has heard of that and has no more pods than it may.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from muster.api import conditions, kueue
from muster.api.documents import child, objects
from muster.api.kueue import names
from muster.api.objects import Object
from muster.api.raw import Document
from muster.api.volcano.preemptable import PREEMPTABLE
from muster.quota import status
from muster.quota.gates import Gate
from muster.quota.integrations import slices
from muster.quota.integrations.matching import is_finished, is_reserved, is_true
from muster.quota.integrations.steps import (
    NOTHING,
    ChangeStatus,
    LetGo,
    MakeWorkload,
    Plan,
    RemoveWorkload,
    Start,
    Step,
    Told,
    World,
)
from muster.quota.integrations.subjects import Subject
from muster.quota.marks import PREEMPTION_ANNOTATION
from muster.quota.status import Pending
from muster.quota.workloads import ADMITTED, ALLOWED_FLAVORS_ANNOTATION, EVICTED, PODS_READY, QUOTA_RESERVED

MOST_WAITING: Final = 64
"""Of a pod set, at a time: a job that wants thousands of pods more need not fill the queue with them."""
_LONGEST_NAME: Final = 253
_HASH_LENGTH: Final = 8


def split(workloads: Sequence[Object]) -> tuple[list[Object], list[Object]]:
    """A job's workloads without its parts, and its parts."""
    own: list[Object] = []
    parts: list[Object] = []
    for found in workloads:
        (parts if names.PART_OF_ANNOTATION in (found.meta.annotations or {}) else own).append(found)
    return own, parts


def without_base(subject: Subject, parts: Sequence[Object]) -> Plan:
    """Nothing of the job may run: once nothing does, they go."""
    return NOTHING if subject.is_active else Plan(tuple(map(_gone, parts)))


def plan(subject: Subject, base: Object, own: Sequence[Object], parts: Sequence[Object], world: World) -> Plan:
    """`base` stands for the job; `subject` is sized as it is."""
    if subject.span is None or subject.is_suspended or subject.is_paused or not _is_admitted(base):
        return without_base(subject, parts)
    crews = [_crew(subject, name, parts) for name in subject.counts]
    sizes = {crew.name: crew.size for crew in crews}
    is_through = not any(subject.span.left.values())  # and over in a moment: there is no need to tell it
    # A job that ran before it was told anything does not lose pods that it may well keep.
    is_open = subject.span.sizes is None and any(_is_open(crew, subject.span.parts) for crew in crews)
    if sizes != subject.span.sizes and not is_through and not is_open:
        return Plan((Start(base, (), "", sizes),), _told(subject.span.sizes, sizes))
    may_grow = not slices.is_growing(base, own)
    steps: list[Step] = []
    for crew in crews:
        is_heard = subject.span.live.get(crew.name, 0) <= crew.size
        steps += _settled(crew, world, is_heard=is_heard)
        if may_grow:
            steps += (
                MakeWorkload(_make(subject, base, crew.name, number))
                for number in _free(crew, subject.span.parts.get(crew.name, 0))
            )
    return Plan(tuple(steps))


@dataclass(frozen=True, slots=True)
class _Crew:
    """The parts of one pod set."""

    name: str
    size: int
    """Pods that the job may have: those of its base, and one for each part that counts."""
    wanted: Sequence[Object]
    unwanted: Sequence[Object]
    """To go: those that are too many, and those that are on their way out."""
    numbers: frozenset[int]


def _crew(subject: Subject, name: str, parts: Sequence[Object]) -> _Crew:
    assert subject.span is not None
    mine = {number: found for found in parts if (number := _number(found, name)) is not None}
    staying = [number for number in sorted(mine) if not mine[number].is_terminating and not is_finished(mine[number])]
    # Who holds quota stays before who does not, and then who came first.
    staying.sort(key=lambda number: (not _is_admitted(mine[number]), not is_reserved(mine[number]), number))
    wanted = [mine[number] for number in staying[: subject.span.parts.get(name, 0)]]
    return _Crew(
        name,
        subject.span.base[name] + sum(map(_is_admitted, wanted)),
        wanted,
        [found for found in mine.values() if found not in wanted],
        frozenset(mine),
    )


def _is_admitted(found: Object) -> bool:
    return (
        is_true(found, ADMITTED) and not is_true(found, EVICTED) and not is_finished(found) and not found.is_terminating
    )


def _is_open(crew: _Crew, wanted: Mapping[str, int]) -> bool:
    """Whether some of its parts have not been decided on."""
    is_missing = len(crew.wanted) < min(wanted.get(crew.name, 0), MOST_WAITING)
    return is_missing or any(not is_reserved(found) and not _is_refused(found) for found in crew.wanted)


def _is_refused(found: Object) -> bool:
    told = conditions.find(found.read(kueue.Workload).status.conditions, QUOTA_RESERVED)
    return told is not None and told.reason != Pending.PENDING_EVALUATION


def _settled(crew: _Crew, world: World, *, is_heard: bool) -> Iterator[Step]:
    """`is_heard`: the job has no more pods than it may, and will make none."""
    for found in crew.unwanted:
        if is_heard or not is_reserved(found):
            yield _gone(found)
    for found in crew.wanted:
        if is_reserved(found) and is_true(found, EVICTED):
            if is_heard:
                gates = world.settings.gates
                made = status.release(found.document(), Pending.PENDING_EVALUATION, world.now, gates)
                yield ChangeStatus(found, made)
        elif _lacks_readiness(found, world):
            message = "The job runs; its parts are not waited for"
            yield ChangeStatus(found, status.say(found.document(), PODS_READY, True, "Started", message, world.now))


def _lacks_readiness(found: Object, world: World) -> bool:
    settings = world.settings
    is_asked = settings.pods_ready is not None and Gate.DISABLE_WAIT_FOR_PODS_READY not in settings.gates
    return is_asked and _is_admitted(found) and not is_true(found, PODS_READY)


def _free(crew: _Crew, wanted: int) -> Iterator[int]:
    """Numbers of the parts to make."""
    waiting = sum(not is_reserved(found) for found in crew.wanted)
    missing = min(wanted - len(crew.wanted), MOST_WAITING - waiting)
    number = 0
    while missing > 0:
        number += 1
        if number not in crew.numbers:
            missing -= 1
            yield number


def _gone(found: Object) -> Step:
    return LetGo(found) if found.is_terminating else RemoveWorkload(found)


def _told(before: Mapping[str, int] | None, after: Mapping[str, int]) -> tuple[Told, ...]:
    if before is None:
        return ()
    changes = [f"{name} {before.get(name, 0)} -> {count}" for name, count in after.items() if count != before.get(name)]
    return (Told("Normal", "Resized", f"Pods that the job may have: {', '.join(changes)}"),)


# The workload of a part


def _number(found: Object, pod_set: str) -> int | None:
    """Which part of that pod set it is; None: of another one."""
    (pods, *_) = found.read(kueue.Workload).spec.pod_sets
    digits = found.key.name.rpartition("-")[2]
    return int(digits) if pods.name == pod_set and digits.isascii() and digits.isdecimal() else None


def part_name(base: str, pod_set: str, number: int) -> str:
    suffix = f"-part-{pod_set}-{number}"
    if len(base) + len(suffix) <= _LONGEST_NAME:
        return f"{base}{suffix}"
    digest = hashlib.sha256(base.encode()).hexdigest()[:_HASH_LENGTH]
    return f"{base[: _LONGEST_NAME - len(suffix) - _HASH_LENGTH - 1]}-{digest}{suffix}"


def _make(subject: Subject, base: Object, pod_set: str, number: int) -> Document:
    """In the same queue, of the same class and on the same flavors as the base: its pods are made from one template."""
    document = base.document()
    chain = slices.chain(base)
    pods = next(pods for pods in objects(document, "spec", "podSets") if pods.get("name") == pod_set)
    kept = {key: value for key, value in pods.items() if key != "minCount"}
    flavors = _flavors(base, pod_set)
    said = child(document, "metadata", "annotations")
    annotations: dict[str, str] = {name: said[name] for name in (PREEMPTABLE, PREEMPTION_ANNOTATION) if name in said}
    annotations[names.PART_OF_ANNOTATION] = chain
    if flavors:
        annotations[ALLOWED_FLAVORS_ANNOTATION] = ",".join(flavors)
    return {
        "metadata": {
            "name": part_name(chain, pod_set, number),
            "namespace": subject.namespace,
            "finalizers": [names.IN_USE_FINALIZER],
            "ownerReferences": list(subject.owners),
            "labels": dict(child(document, "metadata", "labels")),
            "annotations": annotations,
        },
        "spec": {**child(document, "spec"), "active": True, "podSets": [{**kept, "count": 1}]},
    }


def _flavors(base: Object, pod_set: str) -> list[str]:
    admission = base.read(kueue.Workload).status.admission
    for given in admission.pod_set_assignments if admission is not None else ():
        if given.name == pod_set:
            return sorted(set((given.flavors or {}).values()))
    return []
