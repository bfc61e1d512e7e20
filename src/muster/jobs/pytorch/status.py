"""A job's conditions and counts, as the training operator writes them."""

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from muster.api import conditions, kubeflow, patching
from muster.api.meta import Condition
from muster.api.raw import Document
from muster.jobs.pytorch import names
from muster.jobs.pytorch.members import FINISHED, Member

CREATED = "Created"
RUNNING = "Running"
RESTARTING = "Restarting"
SUSPENDED = "Suspended"
SUCCEEDED = "Succeeded"
FAILED = "Failed"


def finish_condition(job: kubeflow.PyTorchJob) -> Condition | None:
    """The condition that says that the job is over."""
    for type in (SUCCEEDED, FAILED):
        if conditions.is_true(job.status.conditions, type):
            return conditions.find(job.status.conditions, type)
    return None


def reason(word: str) -> str:
    return f"{kubeflow.PYTORCH_JOB.name}{word}"


def with_condition(
    listed: Sequence[Condition], type: str, message: str, at: str, *, holds: bool = True, word: str = ""
) -> tuple[Condition, ...]:
    """The list with this condition at its end, unless it says so already. `word`: the reason, where it is another than
    the type. Running and Restarting take each other's place, and what is over runs no more."""
    status = conditions.TRUE if holds else conditions.FALSE
    present = conditions.find(listed, type)
    if present is not None and (present.status, present.reason) == (status, reason(word or type)):
        return tuple(listed)
    since = present.last_transition_time if present is not None and present.status == status else at
    replaced = {type, {RUNNING: RESTARTING, RESTARTING: RUNNING}.get(type, type)}
    kept = [found for found in listed if found.type not in replaced]
    if type in (SUCCEEDED, FAILED):
        kept = [
            replace(found, status=conditions.FALSE, last_transition_time=at, last_update_time=at)
            if found.type == RUNNING and found.status != conditions.FALSE
            else found
            for found in kept
        ]
    wanted = Condition(
        type=type,
        status=status,
        reason=reason(word or type),
        message=message,
        last_update_time=at,
        last_transition_time=since,
    )
    return (*kept, wanted)


def replica_statuses(job: kubeflow.PyTorchJob, crew: Sequence[Member]) -> dict[str, kubeflow.ReplicaStatus]:
    """What is too many counts as active until it has gone, so that nobody is given its place before."""
    found = {}
    for role, spec in names.roles(job):
        count = names.replicas(spec)
        mine = [(member.slot.number, member) for member in crew if member.slot and member.slot.role == role]
        pods = [member for number, member in mine if number < count]
        going = sum(number >= count and member.phase not in FINISHED for number, member in mine)
        found[role] = kubeflow.ReplicaStatus(
            active=sum(member.is_running for member in pods) + going or None,
            succeeded=sum(member.phase == "Succeeded" for member in pods) or None,
            failed=sum(member.has_failed for member in pods) or None,
            selector=_selector(job, role),
        )
    return found


def ending_statuses(job: kubeflow.PyTorchJob, crew: Sequence[Member]) -> dict[str, kubeflow.ReplicaStatus]:
    """While a job is suspended: what is still there counts as active until it has gone, so that nobody is given its
    place before."""
    found = {}
    for role, _ in names.roles(job):
        active = sum(
            member.slot is not None and member.slot.role == role and member.phase not in FINISHED for member in crew
        )
        found[role] = kubeflow.ReplicaStatus(active=active or None, selector=_selector(job, role))
    return found


def settled_statuses(job: kubeflow.PyTorchJob) -> dict[str, kubeflow.ReplicaStatus]:
    """After a success whatever still ran is counted with it: its pods may be gone."""
    return {
        role: replace(status, succeeded=(status.succeeded or 0) + (status.active or 0) or None, active=None)
        for role, status in (job.status.replica_statuses or {}).items()
    }


def _selector(job: kubeflow.PyTorchJob, role: str) -> str:
    return ",".join(f"{key}={value}" for key, value in sorted(names.role_labels(job.metadata.name, role).items()))


def difference(old: kubeflow.PyTorchJobStatus, new: kubeflow.PyTorchJobStatus) -> Document | None:
    """What to merge into the stored status. None where that says it all already."""
    return patching.difference(msgspec.to_builtins(old), msgspec.to_builtins(new)) or None
