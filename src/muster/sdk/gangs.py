"""A gang as documents, and documents as a gang: what to submit, and what its pods say about it. Pure.

A gang is a PodGroup and its pods `<name>-<rank>`, which it owns: deleting the PodGroup deletes them.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from muster.api import errors, fields, raw
from muster.api.raw import Document
from muster.sdk import reading, resources

JOB_LABEL = "muster.dev/job"
RANK_LABEL = "muster.dev/rank"
MACHINE_LABEL = "muster.dev/machine"
GROUP_ANNOTATION = "scheduling.k8s.io/group-name"
GPU = "nvidia.com/gpu"
CONTAINER = "main"
HOST_IMAGE = "host"
SCHEDULER = "muster"
"""On a cluster, pods that do not say so go to its own scheduler, which knows nothing of gangs."""

EXIT_STOPPED = 143
"""As a shell reports a process that SIGTERM ended: what a gang that was deleted under way exits with."""
EXIT_TIMED_OUT = 124
"""As timeout(1) does, where the deadline passed before any container could report a code."""

_LONGEST_NAME = 52  # leaves room for `-<rank>` in a DNS label
_EXPANDED = re.compile(r"\$+(?=\()|\${2,}")


@dataclass(frozen=True, slots=True)
class Rendezvous:
    """Where rank 0 listens. An address of "" means that nobody can know it before the gang is placed."""

    address: str
    port: int


@dataclass(frozen=True, slots=True)
class Gang:
    """What to run: `replicas` copies of `command`, placed all or not at all. Amounts are for each replica."""

    name: str
    command: Sequence[str]
    replicas: int = 1
    gpus: int = 0
    cpu: str = ""
    memory: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    workdir: str = ""
    timeout_seconds: int | None = None
    namespace: str = "default"
    image: str = HOST_IMAGE
    queue: str = ""

    def check(self) -> None:
        """Raises Invalid with everything that is wrong, before anything is created."""
        too_long = [*fields.at_most_characters("name", self.name, _LONGEST_NAME)]
        causes = [
            *(too_long or fields.dns_label("name", self.name)),
            *fields.positive("replicas", self.replicas),
            *fields.non_negative("gpus", self.gpus),
            *fields.amount("cpu", self.cpu or None),
            *fields.amount("memory", self.memory or None),
            *fields.positive("timeout", self.timeout_seconds),
        ]
        if not self.command:
            causes.append(fields.required("command", "what to run, for example: -- python train.py"))
        for name in self.env:
            causes.extend(fields.env_name("env", name))
        if causes:
            raise errors.invalid("Gang", self.name, causes)


def pod_group(gang: Gang) -> Document:
    spec: Document = {"minMember": gang.replicas}
    if gang.queue:
        spec["queue"] = gang.queue
    return {
        "apiVersion": resources.POD_GROUPS.api_version,
        "kind": resources.POD_GROUPS.kind,
        "metadata": {"name": gang.name, "namespace": gang.namespace, "labels": {JOB_LABEL: gang.name}},
        "spec": spec,
    }


def pods(gang: Gang, owner_uid: str, rendezvous: Rendezvous) -> list[Document]:
    return [_pod(gang, rank, owner_uid, rendezvous) for rank in range(gang.replicas)]


def _pod(gang: Gang, rank: int, owner_uid: str, rendezvous: Rendezvous) -> Document:
    requests = _requests(gang)
    container: Document = {
        "name": CONTAINER,
        "image": gang.image,
        "command": [literal(word) for word in gang.command],
        "env": [{"name": name, "value": literal(value)} for name, value in _env(gang, rank, rendezvous).items()],
    }
    if gang.workdir:
        container["workingDir"] = gang.workdir
    if requests:
        container["resources"] = {"requests": requests, "limits": {k: v for k, v in requests.items() if k != "cpu"}}
    spec: Document = {"restartPolicy": "Never", "schedulerName": SCHEDULER, "containers": [container]}
    if gang.timeout_seconds is not None:
        spec["activeDeadlineSeconds"] = gang.timeout_seconds
    owner = {
        "apiVersion": resources.POD_GROUPS.api_version,
        "kind": resources.POD_GROUPS.kind,
        "name": gang.name,
        "uid": owner_uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{gang.name}-{rank}",
            "namespace": gang.namespace,
            "labels": {JOB_LABEL: gang.name, RANK_LABEL: str(rank)},
            "annotations": {GROUP_ANNOTATION: gang.name},
            "ownerReferences": [owner],
        },
        "spec": spec,
    }


def _requests(gang: Gang) -> dict[str, str]:
    asked = {"cpu": gang.cpu, "memory": gang.memory, GPU: str(gang.gpus) if gang.gpus else ""}
    return {name: amount for name, amount in asked.items() if amount}


def _env(gang: Gang, rank: int, rendezvous: Rendezvous) -> dict[str, str]:
    """What distributed training libraries read; the user's own settings win."""
    given = {
        "RANK": str(rank),
        "WORLD_SIZE": str(gang.replicas),
        "LOCAL_RANK": "0",
        "NODE_RANK": str(rank),
        "MUSTER_JOB": gang.name,
        "PYTHONUNBUFFERED": "1",  # lines appear as they are printed, not when a buffer is full
    }
    if rendezvous.address:
        given |= {"MASTER_ADDR": rendezvous.address, "MASTER_PORT": str(rendezvous.port)}
    return {**given, **gang.env}


def literal(text: str) -> str:
    """Text that comes out of Kubernetes' `$(NAME)` expansion as it went in."""
    return _EXPANDED.sub(lambda match: match[0] * 2, text)


# What the pods of a gang say about it


class Phase(StrEnum):
    PENDING = "Pending"
    RUNNING = "Running"
    STOPPING = "Stopping"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    STOPPED = "Stopped"


FINISHED = frozenset({Phase.SUCCEEDED, Phase.FAILED, Phase.STOPPED})


@dataclass(frozen=True, slots=True)
class Member:
    """One pod of a gang, or a bare pod."""

    rank: int
    pod: str
    phase: Phase
    node: str = ""
    exit_code: int | None = None
    started_at: str = ""
    finished_at: str = ""
    reason: str = ""
    """Why it waits or how it ended, in one sentence."""
    has_log: bool = False

    @property
    def is_finished(self) -> bool:
        return self.phase in FINISHED


@dataclass(frozen=True, slots=True)
class Status:
    """A gang at one moment. `members` are ordered by rank."""

    name: str
    size: int
    members: tuple[Member, ...]
    waiting: str = ""
    """Why it is not running yet, in the scheduler's words."""

    @property
    def phase(self) -> Phase:
        phases = {member.phase for member in self.members}
        if Phase.STOPPING in phases:
            return Phase.STOPPING
        if not phases or not phases <= FINISHED:
            return Phase.RUNNING if phases & {Phase.RUNNING, *FINISHED} else Phase.PENDING
        if Phase.FAILED in phases:
            return Phase.FAILED
        # Missing members have been deleted under way: a gang starts with all or none.
        return Phase.STOPPED if Phase.STOPPED in phases or len(self.members) < self.size else Phase.SUCCEEDED

    @property
    def is_finished(self) -> bool:
        return self.phase in FINISHED

    def count(self, phase: Phase) -> int:
        return sum(member.phase is phase for member in self.members)

    @property
    def nodes(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(member.node for member in self.members if member.node))

    def first_failure(self) -> Member | None:
        """The member that failed first; where clocks cannot tell, the lowest rank."""
        failed = [member for member in self.members if member.is_finished and member.exit_code]
        return min(failed, key=lambda member: (member.finished_at or "9", member.rank), default=None)

    @property
    def exit_code(self) -> int:
        """Of the first member that failed, else 0. Means something once the gang has finished."""
        failed = self.first_failure()
        return (failed.exit_code or 1) if failed else 0


def observe(name: str, found: Iterable[Document], group: Document | None = None) -> Status:
    """The gang that these pods are; `group` is their PodGroup where there is one."""
    members = tuple(sorted(map(observe_pod, found), key=lambda member: (member.rank, member.pod)))
    size = raw.dig(group, "spec", "minMember", default=0)
    waiting = next((member.reason for member in members if member.phase is Phase.PENDING and member.reason), "")
    return Status(
        name=name,
        size=max(size if isinstance(size, int) else 0, len(members)),
        members=members,
        waiting=waiting or _group_reason(group),
    )


def observe_pod(pod: Document) -> Member:
    name = reading.text(pod, "metadata", "name")
    rank = reading.text(pod, "metadata", "labels", RANK_LABEL)
    container = _container(pod)
    ended = reading.section(container, "state", "terminated")
    running = reading.section(container, "state", "running")
    phase = _phase(pod)
    return Member(
        rank=int(rank) if rank.isdigit() else 0,
        pod=name,
        phase=phase,
        node=reading.text(pod, "spec", "nodeName"),
        exit_code=_exit_code(pod, phase, raw.dig(ended, "exitCode")),
        started_at=reading.text(ended, "startedAt") or reading.text(running, "startedAt"),
        finished_at=reading.text(ended, "finishedAt"),
        reason=_reason(pod, phase, container),
        has_log=bool(ended or running),
    )


def _container(pod: Document) -> Document:
    """The container that speaks for the pod: the first that failed, else the first."""
    statuses = reading.objects(pod, "status", "containerStatuses")
    failed = [entry for entry in statuses if raw.dig(entry, "state", "terminated", "exitCode")]
    return (failed or statuses or [{}])[0]


def _phase(pod: Document) -> Phase:
    match raw.dig(pod, "status", "phase"):
        case "Succeeded":
            return Phase.SUCCEEDED
        case "Failed":
            return Phase.FAILED
        case found:
            if raw.dig(pod, "metadata", "deletionTimestamp"):
                return Phase.STOPPING
            return Phase.RUNNING if found == "Running" else Phase.PENDING


def _exit_code(pod: Document, phase: Phase, code: raw.JSON) -> int | None:
    if isinstance(code, int) and (code or phase is not Phase.FAILED):
        return code
    if phase is not Phase.FAILED:
        return 0 if phase is Phase.SUCCEEDED else None
    return EXIT_TIMED_OUT if raw.dig(pod, "status", "reason") == "DeadlineExceeded" else 1


def _reason(pod: Document, phase: Phase, container: Document) -> str:
    """The most telling sentence that the pod's status holds."""
    if phase is Phase.PENDING:
        for condition in reading.objects(pod, "status", "conditions"):
            if raw.dig(condition, "type") == "PodScheduled" and raw.dig(condition, "status") == "False":
                return reading.text(condition, "message") or reading.text(condition, "reason")
        waiting = reading.section(container, "state", "waiting")
        # A container on its way is not worth a word; one that cannot start is.
        return "" if raw.dig(waiting, "reason") in ("ContainerCreating", "PodInitializing") else _said(waiting)
    if phase is Phase.FAILED:
        said = _said(reading.section(pod, "status")) or _said(reading.section(container, "state", "terminated"))
        return "" if said == "Error" else said  # the exit code says as much
    return ""


def _said(source: Document) -> str:
    reason, message = reading.text(source, "reason"), reading.text(source, "message")
    return ": ".join(part for part in (reason, message) if part)


def _group_reason(group: Document | None) -> str:
    for condition in reading.objects(group, "status", "conditions"):
        if raw.dig(condition, "type") == "Unschedulable" and raw.dig(condition, "status") == "True":
            return reading.text(condition, "message")
    return ""
