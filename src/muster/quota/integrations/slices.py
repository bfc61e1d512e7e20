"""Elastic jobs: one that grows gets another workload for its new size, which takes the place of the old one when it is
admitted; one that shrinks gives back quota at once.

At any time one slice holds quota, and at most one waits to replace it. A job that has parts (see `parts`) does not grow
this way: the two would wait for each other's quota.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from muster.api import conditions, kueue
from muster.api.documents import objects
from muster.api.kueue import names
from muster.api.objects import Object
from muster.api.raw import Document
from muster.quota import status
from muster.quota.decisions import REPLACED
from muster.quota.gates import Gate
from muster.quota.integrations import making
from muster.quota.integrations.matching import in_order, is_finished, is_reserved, is_true
from muster.quota.integrations.ranking import MissingClass
from muster.quota.integrations.steps import (
    ChangeStatus,
    ChangeWorkload,
    LetGo,
    MakeWorkload,
    Plan,
    RemoveWorkload,
    Step,
    Told,
    World,
)
from muster.quota.integrations.subjects import Subject
from muster.quota.workloads import EVICTED, FINISHED

_OUT_OF_SYNC: Final = "OutOfSync"


def resolve(
    subject: Subject, workloads: Sequence[Object], world: World, *, has_parts: bool = False
) -> Plan | Object | None:
    """The slice that stands for the job now, or what has to be done first."""
    live = [found for found in in_order(workloads) if not is_finished(found)]
    if not live:
        return next((found for found in workloads if _why_finished(found) not in (REPLACED, _OUT_OF_SYNC)), None)
    holding = [found for found in live if is_reserved(found) and not is_true(found, EVICTED)]
    current = holding[-1] if holding else live[0]
    waiting = [found for found in live if not is_reserved(found) and _replaces(found, current)]
    replacement = waiting[-1] if waiting else None
    others = [found for found in live if found is not current and found is not replacement]
    if others:
        return _ended(subject, others, holding, world)
    wanted = _wanted(subject, current, world, has_parts=has_parts)
    return _sized(subject, current, replacement, wanted, world)


def is_growing(current: Object, workloads: Sequence[Object]) -> bool:
    """Whether one waits to replace it."""
    return any(_replaces(found, current) and not is_reserved(found) and not is_finished(found) for found in workloads)


def chain(found: Object) -> str:
    """The name of the first slice of the job, which its pods know it by."""
    return (found.meta.annotations or {}).get(names.SLICE_NAME_ANNOTATION) or found.key.name


def _replaces(found: Object, current: Object) -> bool:
    return (found.meta.annotations or {}).get(names.SLICE_OF_ANNOTATION) == str(current.key)


def _ended(subject: Subject, others: Sequence[Object], holding: Sequence[Object], world: World) -> Plan:
    steps: list[Step] = []
    for found in others:
        if found in holding:
            reason, message = REPLACED, "Replaced by a newer slice of the job"
        elif subject.span is None:
            reason, message = _OUT_OF_SYNC, "The job has changed its size meanwhile"
        else:
            steps.append(LetGo(found) if found.is_terminating else RemoveWorkload(found))
            continue
        steps.append(ChangeStatus(found, status.finish(found.document(), reason, message, world.now)))
    return Plan(tuple(steps))


def _sized(
    subject: Subject, current: Object, replacement: Object | None, wanted: Mapping[str, int], world: World
) -> Plan | Object:
    has = counts(current)
    grows = any(count > has.get(name, 0) for name, count in wanted.items())
    if not grows or not is_reserved(current):
        if replacement is not None:
            return _ended(subject, [replacement], (), world)
        if wanted == has:
            return current
        return Plan((ChangeWorkload(current, making.resized(current.document(), wanted)),))
    if subject.is_suspended:
        return current  # it is about to stop or to start: then its size is looked at
    if replacement is None:
        return _grown(subject, current, wanted, world)
    if counts(replacement) == wanted:
        return current
    return Plan((ChangeWorkload(replacement, making.resized(replacement.document(), wanted)),))


def _grown(subject: Subject, current: Object, wanted: Mapping[str, int], world: World) -> Plan:
    annotations = {names.SLICE_OF_ANNOTATION: str(current.key), names.SLICE_NAME_ANNOTATION: chain(current)}
    try:
        made = making.make(subject.restored(_pod_sets(current)), world, annotations=annotations)
    except MissingClass as error:
        return Plan((), (Told("Warning", "WorkloadPriorityClassNotFound", str(error)),), 1.0)
    made = making.resized(made, wanted)
    name = f"{subject.namespace}/{made['metadata']['name']}"
    return Plan((MakeWorkload(made),), (Told("Normal", "CreatedWorkload", f"Created Workload: {name}"),))


def _pod_sets(found: Object) -> list[Document]:
    return list(objects(found.document(), "spec", "podSets"))


def _wanted(subject: Subject, current: Object, world: World, *, has_parts: bool) -> Mapping[str, int]:
    """How many pods the slice that stands for the job should have. One that has parts keeps what it holds as long as it
    wants so many pods at all: what it needs is looked at when it queues again."""
    least, span = subject.counts, subject.span
    if span is None or not is_reserved(current):
        return least
    has, kept = counts(current), dict(least)
    back = given_back(current)
    for name, count in least.items():
        most = count + span.parts.get(name, 0)
        may_shrink = span.live.get(name, 0) <= most and not back.get(name)
        kept[name] = min(has.get(name, 0), most) if may_shrink else has.get(name, 0)
    if has_parts or Gate.ELASTIC_JOBS_VIA_WORKLOAD_SLICES not in world.settings.gates:
        return kept
    return {name: max(count, least[name]) for name, count in kept.items()}


def counts(found: Object) -> dict[str, int]:
    return {pods.name: pods.count or 0 for pods in found.read(kueue.Workload).spec.pod_sets}


def given_back(found: Object) -> dict[str, int]:
    """By pod set, what it has given back of the quota that it holds."""
    if not is_reserved(found):
        return {}
    return {pods.name: pods.count or 0 for pods in found.read(kueue.Workload).status.reclaimable_pods}


def _why_finished(found: Object) -> str:
    present = conditions.find(found.read(kueue.Workload).status.conditions, FINISHED)
    return (present.reason or "") if present is not None else ""
