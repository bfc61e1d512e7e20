"""What counts of a job's pods: each reduced to what the decisions read."""

from collections.abc import Iterable
from typing import NamedTuple

from muster.api import core, kubeflow, timestamps
from muster.api.kubeflow.defaults import CONTAINER
from muster.api.meta import Instant
from muster.api.timestamps import BadTimestamp
from muster.jobs.pytorch import names

FINISHED = ("Succeeded", "Failed")
FIRST_RETRYABLE = 128
"""From here on exit codes mean that the process was killed, or that its program asks for another try."""


class Slot(NamedTuple):
    """A place in the job that one pod fills at a time."""

    role: str
    number: int


class Member(NamedTuple):
    pod: core.Pod
    slot: Slot | None
    """None where its labels do not say."""
    phase: str
    is_terminating: bool

    @property
    def is_running(self) -> bool:
        return self.phase == "Running" and not self.is_terminating

    @property
    def has_failed(self) -> bool:
        """One that was told to go fails for that reason, which says nothing about the job."""
        return self.phase == "Failed" and not self.is_terminating

    @property
    def restarts(self) -> int:
        """Of its containers, in place."""
        status = self.pod.status
        return sum(found.restart_count for found in (*status.init_container_statuses, *status.container_statuses))


def read(pods: Iterable[core.Pod]) -> list[Member]:
    return [
        Member(pod, _slot(pod), pod.status.phase or "Pending", pod.metadata.deletion_timestamp is not None)
        for pod in pods
    ]


def is_restarted(spec: kubeflow.ReplicaSpec, member: Member) -> bool:
    """Whether a pod that failed is replaced. Without an exit code it was not the program that failed, but the node, or
    somebody needed the room."""
    if spec.restart_policy == "Never":
        return False
    code = _exit_code(member.pod)
    return spec.restart_policy != "ExitCode" or code is None or code >= FIRST_RETRYABLE


def made_at(member: Member) -> Instant:
    try:
        return timestamps.parse(member.pod.metadata.creation_timestamp or "")
    except BadTimestamp:
        return Instant(0)


def _exit_code(pod: core.Pod) -> int | None:
    for found in pod.status.container_statuses:
        if found.name == CONTAINER and found.state is not None and found.state.terminated is not None:
            return found.state.terminated.exit_code
    return None


def _slot(pod: core.Pod) -> Slot | None:
    labels = pod.metadata.labels or {}
    role = next((role for role in names.ROLES if role.lower() == labels.get(names.REPLICA_TYPE)), None)
    index = labels.get(names.REPLICA_INDEX, "")
    if role is None or not (index.isascii() and index.isdecimal() and len(index) < 10):
        return None
    return Slot(role, int(index))
