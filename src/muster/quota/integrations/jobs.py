"""What is to be done about a job and its workload: the one decision that all kinds of jobs share.

Pure. A plan is the next step from where things stand; what it leads to is looked at again, so that whatever was done of
an earlier plan, and whatever was not, the next one starts from what is there.

A job in a queue belongs to quota: it is suspended until its workload is admitted, and again when that is evicted. A job
that names no queue goes to the default one, and stays its user's to pause: suspended without quota's mark on it, it
holds no quota and is not started; resumed, it runs at once, and quota follows.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from muster.api import conditions, kueue
from muster.api.documents import child, objects
from muster.api.kueue import names
from muster.api.objects import Object
from muster.api.raw import Document
from muster.quota import status
from muster.quota.gates import Gate
from muster.quota.integrations import injecting, making, matching, parts, slices
from muster.quota.integrations.contract import Conflicting, JobIntegration, Outcome
from muster.quota.integrations.injecting import MissingFlavor
from muster.quota.integrations.matching import is_finished, is_reserved, is_true
from muster.quota.integrations.ranking import MissingClass
from muster.quota.integrations.steps import (
    NOTHING,
    ChangeStatus,
    ChangeWorkload,
    LetGo,
    MakeWorkload,
    Plan,
    RemoveWorkload,
    Start,
    Stop,
    Told,
    World,
)
from muster.quota.integrations.subjects import NO_ABILITIES, Abilities, Subject
from muster.quota.status import Pending
from muster.quota.workloads import ADMITTED, EVICTED, PODS_READY, QUOTA_RESERVED, WAITING_FOR_REPLACEMENT

_SOON: Final = 1.0
_UNRESTORED: Final = "Missing Workload; unable to restore pod templates"
_RESTARTED: Final = "JobRestarted"
_REFUSALS: Final = frozenset(
    {
        Pending.NO_MATCHING_FLAVOR,
        Pending.WAITING_FOR_QUOTA,
        Pending.EXCEEDS_MAX_QUOTA,
        Pending.TOPOLOGY_PLACEMENT_FAILED,
        Pending.WAITING_FOR_PREEMPTED,
        Pending.SUSPENDED,
    }
)
"""Reasons for which a job that runs already has to stop and wait like everybody else."""


def plan(subject: Subject, workloads: Sequence[Object], world: World) -> Plan:
    """`workloads`: those that the job owns; and the one it names, where it was made beforehand."""
    if subject.is_deleting:
        return orphaned(workloads, world)
    own, extra = parts.split(workloads)
    resolved = _resolve(subject, own, world, has_parts=bool(extra))
    if isinstance(resolved, Plan):
        return resolved
    if resolved is None:
        decided = _without(subject, world)
        return parts.without_base(subject, extra) if not decided.steps and extra else decided
    if subject.span is not None:
        subject = subject.sized(slices.counts(resolved), slices.given_back(resolved))
    decided = _about(subject, resolved, world)
    if decided.steps or (subject.span is None and not extra):
        return decided
    added = parts.plan(subject, resolved, own, extra, world)
    return Plan(added.steps, (*decided.told, *added.told), decided.again_after)


def _about(subject: Subject, found: Object, world: World) -> Plan:
    """The job and the workload that stands for it."""
    if is_finished(found):
        return Plan((LetGo(found),)) if _is_held(found) else NOTHING
    if found.is_terminating:
        return _give_up(subject, found)
    if subject.outcome is not None:
        return _finish(subject, found, subject.outcome, world)
    if subject.is_paused:
        return _pause(subject, found, world)
    return _keep(subject, found, world)


def orphaned(workloads: Sequence[Object], world: World) -> Plan:
    """The job is gone, or going: nothing of it runs for quota any more."""
    steps: list[ChangeStatus | LetGo] = []
    for found in workloads:
        if not is_finished(found) and Gate.FINISH_ORPHANED_WORKLOADS in world.settings.gates:
            made = status.finish(found.document(), "OwnerNotFound", "The owner of the workload is gone", world.now)
            steps.append(ChangeStatus(found, made))
        elif _is_held(found):
            steps.append(LetGo(found))
    return Plan(tuple(steps))


# Which workload


def _resolve(subject: Subject, workloads: Sequence[Object], world: World, *, has_parts: bool) -> Plan | Object | None:
    if subject.outcome is not None:
        return next(iter(matching.in_order(workloads)), None)
    if subject.prebuilt:
        return _prebuilt(subject, workloads, world)
    if making.is_elastic(subject, world):
        return slices.resolve(subject, workloads, world, has_parts=has_parts)
    found = matching.matching(subject, workloads)
    others = [other for other in workloads if other is not found and not (is_finished(other) and not _is_held(other))]
    if found is not None:
        return _removed(others) if others else found
    unfinished = [other for other in others if not is_finished(other)]
    if not unfinished:
        return _removed(others) if others else None
    return _mismatched(subject, unfinished, others, world)


def _mismatched(subject: Subject, unfinished: Sequence[Object], others: Sequence[Object], world: World) -> Plan:
    """No workload says what the job says now."""
    if not subject.is_suspended:
        if subject.is_free:  # it runs on, and is admitted anew as it is
            removed, made = _removed(others), _without(subject.restored(_pod_sets(unfinished[0])), world)
            return Plan((*removed.steps, *made.steps), (*removed.told, *made.told), made.again_after)
        if len(unfinished) == 1:
            message = "No matching Workload; restoring pod templates according to existing Workload"
            return _stop(subject, unfinished[0], message)
        return _stopped(Stop((), _UNRESTORED))
    if len(unfinished) == 1 and not is_reserved(unfinished[0]) and not unfinished[0].is_terminating:
        found = unfinished[0]
        told = Told("Normal", "UpdatedWorkload", f"Updated not matching Workload for suspended job: {found.key}")
        return Plan((ChangeWorkload(found, making.renewed(found.document(), subject)),), (told,))
    return NOTHING if subject.is_active else _removed(others)


def _removed(others: Sequence[Object]) -> Plan:
    steps = tuple(LetGo(found) if found.is_terminating else RemoveWorkload(found) for found in others)
    told = tuple(
        Told("Normal", "DeletedWorkload", f"Deleted not matching Workload: {found.key}")
        for found in others
        if not found.is_terminating
    )
    return Plan(steps, told)


def _prebuilt(subject: Subject, workloads: Sequence[Object], world: World) -> Plan | Object:
    found = next((other for other in workloads if other.key.name == subject.prebuilt), None)
    if found is None:
        steps = () if subject.is_suspended else (Stop((), "missing workload"),)
        told = Told("Warning", "ErrWorkloadCompose", f'the prebuilt workload "{subject.prebuilt}" does not exist')
        return Plan(steps, (told,), _SOON)
    owner = next((owner for owner in found.meta.owner_references if owner.controller), None)
    if owner is not None and owner.uid != subject.uid:
        message = f'the prebuilt workload "{subject.prebuilt}" belongs to {owner.kind} {owner.name}'
        return Plan((), (Told("Warning", "ErrWorkloadCompose", message),), _SOON)
    if is_finished(found) or found.is_terminating:
        return found
    if owner is None:
        return Plan((ChangeWorkload(found, making.adopted(found.document(), subject)),))
    if matching.is_equivalent(subject, found):
        return found
    message = "The prebuilt workload is out of sync with its user job"
    return Plan((ChangeStatus(found, status.finish(found.document(), "OutOfSync", message, world.now)),))


# Its beginning and its end


def _without(subject: Subject, world: World) -> Plan:
    if subject.outcome is not None or subject.is_paused:
        return NOTHING
    may_run = subject.is_free or making.is_elastic(subject, world)
    if not subject.is_suspended and not may_run:
        return _stopped(Stop((), _UNRESTORED))
    if subject.is_active and not may_run:
        return NOTHING
    try:
        made = making.make(subject, world)
    except MissingClass as error:
        is_label = bool(subject.labels.get(names.PRIORITY_CLASS_LABEL))
        reason = "WorkloadPriorityClassNotFound" if is_label else "ErrWorkloadCompose"
        return Plan((), (Told("Warning", reason, str(error)),), _SOON)
    name = f"{subject.namespace}/{made['metadata']['name']}"
    return Plan((MakeWorkload(made),), (Told("Normal", "CreatedWorkload", f"Created Workload: {name}"),))


def _give_up(subject: Subject, found: Object) -> Plan:
    """Somebody deletes the workload: what it stands for stops first."""
    if subject.outcome is None and not subject.is_paused and (not subject.is_suspended or subject.is_injected):
        return _stop(subject, found, "Workload is deleted")
    return Plan((LetGo(found),)) if _is_held(found) else NOTHING


def _finish(subject: Subject, found: Object, outcome: Outcome, world: World) -> Plan:
    made = found.document()
    if Gate.RECLAIMABLE_PODS in world.settings.gates:
        made = _reclaimed(made, subject, found)
    reason = "Succeeded" if outcome.succeeded else "Failed"
    told = Told("Normal", "FinishedWorkload", f"Workload '{found.key}' is declared finished")
    return Plan((ChangeStatus(found, status.finish(made, reason, outcome.message, world.now)),), (told,))


def _pause(subject: Subject, found: Object, world: World) -> Plan:
    if subject.is_injected or not subject.is_suspended:
        return _stop(subject, found, "", is_pause=True)
    if subject.is_active or _why_not(found, QUOTA_RESERVED) == Pending.ON_HOLD:
        return NOTHING
    message = "The job is suspended by its user"
    made = status.pending(found.document(), Pending.ON_HOLD, message, world.now, world.settings.gates)
    return Plan((ChangeStatus(found, made),))


# While it lasts


def _keep(subject: Subject, found: Object, world: World) -> Plan:
    document = found.document()
    made = _told_of_pods(document, subject, found, world)
    if made is not document:
        return Plan((ChangeStatus(found, made),))
    if is_true(found, EVICTED) and (is_reserved(found) or not subject.is_suspended):
        return _evicted(subject, found, world)
    if (
        subject.span is not None and subject.span.is_short and not subject.are_pods_ready
    ):  # begun anew, by a command say
        message = "Pods run again whose quota was given back when they were done"
        return Plan((ChangeStatus(found, status.evict(document, _RESTARTED, message, world.now)),))
    if _why_not(found, QUOTA_RESERVED) == Pending.ON_HOLD:
        message = "The job was resumed"
        made = status.pending(document, Pending.PENDING_EVALUATION, message, world.now, world.settings.gates)
        return Plan((ChangeStatus(found, made),))
    if is_true(found, ADMITTED):
        is_held = subject.is_suspended or subject.has_held
        return _start(subject, found, world) if is_held else _run_on(subject, found, world)
    if subject.is_suspended:
        if subject.is_injected:
            return _stop(subject, found, "")
        return _in_step(subject, found, world)
    if making.is_elastic(subject, world) and (subject.span is None or _is_undecided(found)):
        return NOTHING
    if subject.is_free and _is_undecided(found):
        return _unmarked(subject, found)
    return _stop(subject, found, "Not admitted by cluster queue")


def _is_undecided(found: Object) -> bool:
    return _why_not(found, QUOTA_RESERVED) not in _REFUSALS


def _told_of_pods(document: Document, subject: Subject, found: Object, world: World) -> Document:
    """The workload's status with what its pods have come to."""
    settings, made = world.settings, document
    if Gate.RECLAIMABLE_PODS in settings.gates:
        made = _reclaimed(made, subject, found)
    if settings.pods_ready is not None and Gate.DISABLE_WAIT_FOR_PODS_READY not in settings.gates:
        made = status.say(made, PODS_READY, *_readiness(subject, found), world.now)
    if subject.waits_for_pods is True or (
        subject.waits_for_pods is False and conditions.find_in(document, WAITING_FOR_REPLACEMENT) is not None
    ):
        message = "Some pods are missing" if subject.waits_for_pods else "All pods are there"
        made = status.say(made, WAITING_FOR_REPLACEMENT, subject.waits_for_pods, "PodsMissing", message, world.now)
    return made


def _reclaimed(document: Document, subject: Subject, found: Object) -> Document:
    """Pods that are done count no more. While quota is held that number only grows: others may have got it."""
    view = found.read(kueue.Workload)
    sizes = {pods.name: pods.count or 0 for pods in view.spec.pod_sets}
    before = {pods.name: pods.count or 0 for pods in view.status.reclaimable_pods} if is_reserved(found) else {}
    counts = {
        name: max(min(subject.reclaimable.get(name, 0), size), min(before.get(name, 0), size))
        for name, size in sizes.items()
    }
    return status.reclaim(document, counts)


def _readiness(subject: Subject, found: Object) -> tuple[bool, str, str]:
    present = conditions.find(found.read(kueue.Workload).status.conditions, PODS_READY)
    reason = present.reason if present is not None else ""
    waiting = False, "WaitForStart", "Not all pods are ready or succeeded"
    if not is_true(found, ADMITTED):
        return waiting
    if subject.are_pods_ready and not subject.is_suspended:
        has_come_back = reason in ("WaitForRecovery", "Recovered")
        message = "All pods reached readiness and the workload is running"
        return True, "Recovered" if has_come_back else "Started", message
    if reason in ("Started", "Recovered", "WaitForRecovery"):
        return False, "WaitForRecovery", "At least one pod has failed, waiting for recovery"
    return waiting


def _evicted(subject: Subject, found: Object, world: World) -> Plan:
    """It stops, and its quota is free when nothing of it runs any more."""
    if not subject.is_suspended or subject.is_injected:
        condition = conditions.find(found.read(kueue.Workload).status.conditions, EVICTED)
        return _stop(subject, found, (condition.message if condition is not None else "") or "")
    if subject.is_active:
        return NOTHING
    gates = world.settings.gates
    is_lone_pod = subject.is_pods and not subject.workload_name
    may_requeue = True if _why(found, EVICTED) == _RESTARTED else None
    if is_lone_pod and Gate.SKIP_REASSIGNMENT_FOR_POD_OWNED_WORKLOADS in gates:
        may_requeue = False
    made = status.release(found.document(), Pending.PENDING_EVALUATION, world.now, gates, may_requeue=may_requeue)
    return Plan((ChangeStatus(found, made),))


def _start(subject: Subject, found: Object, world: World) -> Plan:
    if subject.is_active and not subject.is_pods:
        return NOTHING  # what is left of its last run must go before it can be told where to run next
    view = found.read(kueue.Workload)
    try:
        infos = injecting.infos(view, world.flavors, world.settings)
    except MissingFlavor as error:
        return Plan((), (Told("Warning", "ErrWorkloadCompose", str(error)),), _SOON)
    except Conflicting as error:
        return failed_to_start(found, str(error), world)
    queue = view.status.admission.cluster_queue if view.status.admission is not None else ""
    message = f"Admitted by clusterQueue {queue}"
    sizes = None
    if subject.span is not None:  # it makes no pods that it may not have, so none of them is gated
        sizes = subject.span.base
        infos = [
            replace(info, scheduling_gates=[gate for gate in info.scheduling_gates if gate != names.ELASTIC_GATE])
            for info in infos
        ]
    return Plan((Start(found, infos, message, sizes),), (Told("Normal", "Started", message),))


def failed_to_start(found: Object, message: str, world: World) -> Plan:
    """What admission gives cannot be put into the job, now or ever."""
    return Plan((ChangeStatus(found, status.finish(found.document(), "FailedToStart", message, world.now)),))


def _run_on(subject: Subject, found: Object, world: World) -> Plan:
    """It runs as it should; or its user has resumed it, and it was admitted to other places than where it runs."""
    if not subject.is_free:
        return NOTHING
    if not subject.is_injected:
        try:
            given = {
                info.name: info for info in injecting.infos(found.read(kueue.Workload), world.flavors, world.settings)
            }
        except (MissingFlavor, Conflicting):
            return NOTHING
        if any(
            pods["name"] in given and injecting.is_needed(child(pods, "template"), given[pods["name"]])
            for pods in subject.pod_sets
        ):
            return _stop(subject, found, "Restarts where it was admitted")
    return _unmarked(subject, found)


def _unmarked(subject: Subject, found: Object) -> Plan:
    """A job that runs is not one that quota suspended."""
    return Plan((Start(found, (), ""),)) if names.QUEUED_ANNOTATION in subject.annotations else NOTHING


def _in_step(subject: Subject, found: Object, world: World) -> Plan:
    """It waits: its queue, its class and its gates are those of its job."""
    view, document = found.read(kueue.Workload), found.document()
    made = document
    if not is_reserved(found):
        if (view.spec.queue_name or "") != subject.queue:
            made = making.requeued(made, subject.queue)
        gates = subject.annotations.get(names.ADMISSION_GATES_ANNOTATION) or None
        if ((view.metadata.annotations or {}).get(names.ADMISSION_GATES_ANNOTATION) or None) != gates:
            made = making.with_gates(made, gates)
    if _is_of_another_class(subject, found):
        try:
            spec = {**child(made, "spec")}
            making.set_priority(spec, making.resolved(subject, world))
            made = {**made, "spec": spec}
        except MissingClass as error:
            return Plan((), (Told("Warning", "WorkloadPriorityClassNotFound", str(error)),), _SOON)
    return Plan((ChangeWorkload(found, made),)) if made is not document else NOTHING


def _is_of_another_class(subject: Subject, found: Object) -> bool:
    label, reference = (
        subject.labels.get(names.PRIORITY_CLASS_LABEL),
        found.read(kueue.Workload).spec.priority_class_ref,
    )
    if label:
        return reference is None or reference.kind != "WorkloadPriorityClass" or reference.name != label
    if not subject.own_class or is_reserved(found):
        return False
    return reference is None or reference.kind != "PriorityClass" or reference.name != subject.own_class


def _stop(subject: Subject, found: Object, message: str, *, is_pause: bool = False) -> Plan:
    step = Stop(_pod_sets(found), message, is_pause)
    return Plan((step,)) if subject.is_suspended else _stopped(step)


def _stopped(step: Stop) -> Plan:
    return Plan((step,), (Told("Normal", "Stopped", step.message),))


def _pod_sets(found: Object) -> list[Document]:
    return list(objects(found.document(), "spec", "podSets"))


def _is_held(found: Object) -> bool:
    return names.IN_USE_FINALIZER in found.meta.finalizers


def _why(found: Object, condition: str, status: str = conditions.TRUE) -> str:
    """The reason for which it holds; empty where it does not."""
    present = conditions.find(found.read(kueue.Workload).status.conditions, condition)
    return (present.reason or "") if present is not None and present.status == status else ""


def _why_not(found: Object, condition: str) -> str:
    return _why(found, condition, conditions.FALSE)


# What becomes of the job


def started(integration: JobIntegration, job: Document, start: Start, able: Abilities = NO_ABILITIES) -> Document:
    """Raises Conflicting."""
    made = integration.start(job, start.infos) if integration.is_suspended(job) else {**job}
    if start.sizes is not None and able.elastic is not None:
        made = able.elastic.resize(made, start.sizes)
    metadata = child(made, "metadata")
    if names.QUEUED_ANNOTATION in child(metadata, "annotations"):
        kept = {name: value for name, value in metadata["annotations"].items() if name != names.QUEUED_ANNOTATION}
        made = {**made, "metadata": {**metadata, "annotations": kept}}
    return made


def stopped(integration: JobIntegration, job: Document, stop: Stop, able: Abilities = NO_ABILITIES) -> Document:
    made = integration.stop(job, stop.originals)
    metadata = child(made, "metadata")
    is_free = not child(metadata, "labels").get(names.QUEUE_LABEL) and able.queues is None
    if is_free and not stop.is_pause:
        annotations = {**child(metadata, "annotations"), names.QUEUED_ANNOTATION: "true"}
        made = {**made, "metadata": {**metadata, "annotations": annotations}}
    return made
