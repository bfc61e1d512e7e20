"""A job that is part of another one: it has no workload of its own, and runs only while the other is admitted.

Who suspended it is who resumes it: a part that its user, or whoever made it, wants to rest is left alone. One in a
queue belongs to quota altogether, as any job in a queue does.
"""

from collections.abc import Sequence
from typing import Final

from muster.api import conditions, kueue
from muster.api.kueue import names
from muster.api.objects import Object
from muster.quota.integrations.steps import LetGo, Plan, RemoveWorkload, Start, Stop, Told
from muster.quota.integrations.subjects import Subject
from muster.quota.workloads import ADMITTED, EVICTED, FINISHED

STOPPED: Final = "The job that it is part of is not admitted"
STARTED: Final = "The job that it is part of is admitted"


def follow(subject: Subject, own: Sequence[Object], above: Sequence[Object]) -> Plan:
    """`own`: workloads from when it stood for itself. `above`: those of the job at the top."""
    steps = tuple(LetGo(found) if found.is_terminating else RemoveWorkload(found) for found in own)
    if subject.outcome is not None or subject.is_deleting:
        return Plan(steps)
    admitted = next((found for found in above if _lets_run(found)), None)
    if admitted is None and not subject.is_suspended:
        return Plan((*steps, Stop((), STOPPED)), (Told("Normal", "Stopped", STOPPED),))
    is_ours = bool(subject.queue) or names.QUEUED_ANNOTATION in subject.annotations
    if admitted is not None and subject.is_suspended and is_ours:
        return Plan((*steps, Start(admitted, (), STARTED)), (Told("Normal", "Started", STARTED),))
    return Plan(steps)


def _lets_run(workload: Object) -> bool:
    view = workload.read(kueue.Workload)
    annotations, listed = view.metadata.annotations or {}, view.status.conditions
    if names.PART_OF_ANNOTATION in annotations:
        return False  # a pod more than the job needs says nothing of the job
    if conditions.is_true(listed, FINISHED) or conditions.is_true(listed, EVICTED):
        return False
    return annotations.get(names.ELASTIC_ANNOTATION) == "true" or conditions.is_true(listed, ADMITTED)
