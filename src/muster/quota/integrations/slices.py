"""Elastic jobs: one that grows gets another workload for its new size, which takes the place of the old one when it is
admitted; one that shrinks gives back quota at once.

At any time one slice holds quota, and at most one waits to replace it.
"""

from collections.abc import Sequence

from muster.api import kueue
from muster.api.documents import objects
from muster.api.kueue import names
from muster.api.objects import Object
from muster.api.raw import Document
from muster.quota import status
from muster.quota.decisions import REPLACED
from muster.quota.integrations import making
from muster.quota.integrations.matching import in_order, is_finished, is_reserved, is_true
from muster.quota.integrations.ranking import MissingClass
from muster.quota.integrations.steps import ChangeStatus, ChangeWorkload, MakeWorkload, Plan, Told, World
from muster.quota.integrations.subjects import Subject
from muster.quota.workloads import EVICTED


def resolve(subject: Subject, workloads: Sequence[Object], world: World) -> Plan | Object | None:
    """The slice that stands for the job now, or what has to be done first."""
    live = [found for found in in_order(workloads) if not is_finished(found)]
    if not live:
        return None
    holding = [found for found in live if is_reserved(found) and not is_true(found, EVICTED)]
    current = holding[-1] if holding else live[0]
    waiting = [found for found in live if not is_reserved(found) and _replaces(found, current)]
    replacement = waiting[-1] if waiting else None
    others = [found for found in live if found is not current and found is not replacement]
    if others:
        return _ended(others, holding, world)
    return _sized(subject, current, replacement, world)


def chain(found: Object) -> str:
    """The name of the first slice of the job, which its pods know it by."""
    return (found.meta.annotations or {}).get(names.SLICE_NAME_ANNOTATION) or found.key.name


def _replaces(found: Object, current: Object) -> bool:
    return (found.meta.annotations or {}).get(names.SLICE_OF_ANNOTATION) == str(current.key)


def _ended(others: Sequence[Object], holding: Sequence[Object], world: World) -> Plan:
    steps = []
    for found in others:
        reason, message = (
            (REPLACED, "Replaced by a newer slice of the job")
            if found in holding
            else ("OutOfSync", "The job has changed its size meanwhile")
        )
        steps.append(ChangeStatus(found, status.finish(found.document(), reason, message, world.now)))
    return Plan(tuple(steps))


def _sized(subject: Subject, current: Object, replacement: Object | None, world: World) -> Plan | Object:
    wanted, has = _wanted(subject), _counts(current)
    grows = any(count > has.get(name, 0) for name, count in wanted.items())
    if not grows or not is_reserved(current):
        if replacement is not None:
            return _ended([replacement], (), world)
        if wanted == has:
            return current
        return Plan((ChangeWorkload(current, making.resized(current.document(), subject)),))
    if subject.is_suspended:
        return current  # it is about to stop or to start: then its size is looked at
    if replacement is None:
        return _grown(subject, current, world)
    if _counts(replacement) == wanted:
        return current
    return Plan((ChangeWorkload(replacement, making.resized(replacement.document(), subject)),))


def _grown(subject: Subject, current: Object, world: World) -> Plan:
    annotations = {names.SLICE_OF_ANNOTATION: str(current.key), names.SLICE_NAME_ANNOTATION: chain(current)}
    try:
        made = making.make(subject.restored(_pod_sets(current)), world, annotations=annotations)
    except MissingClass as error:
        return Plan((), (Told("Warning", "WorkloadPriorityClassNotFound", str(error)),), 1.0)
    name = f"{subject.namespace}/{made['metadata']['name']}"
    return Plan((MakeWorkload(made),), (Told("Normal", "CreatedWorkload", f"Created Workload: {name}"),))


def _pod_sets(found: Object) -> list[Document]:
    return list(objects(found.document(), "spec", "podSets"))


def _wanted(subject: Subject) -> dict[str, int]:
    return {pods["name"]: pods.get("count") or 0 for pods in subject.pod_sets}


def _counts(found: Object) -> dict[str, int]:
    return {pods.name: pods.count or 0 for pods in found.read(kueue.Workload).spec.pod_sets}
