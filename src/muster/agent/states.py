"""A pod's life as its node knows it: phases, the changes allowed between them, and the state `lifecycle.step` moves.

Small, frozen and serialisable. The tables of changes are data, so that documentation and tests read the same rules.
"""

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from muster.agent.runtime import Exit
from muster.api.meta import Instant


class Role(StrEnum):
    INIT = "Init"
    SIDECAR = "Sidecar"  # an init container that is restarted always and runs beside the others
    MAIN = "Main"


class Phase(StrEnum):
    """Of one container."""

    WAITING = "Waiting"
    STARTING = "Starting"
    RUNNING = "Running"
    STOPPING = "Stopping"
    EXITED = "Exited"


CONTAINER_CHANGES: Mapping[tuple[Phase, Phase], str] = {
    (Phase.WAITING, Phase.STARTING): "its turn has come, or the wait before another try is over",
    (Phase.WAITING, Phase.RUNNING): "adopted: an earlier agent process had started it",
    (Phase.WAITING, Phase.EXITED): "adopted: it ended while no agent was looking",
    (Phase.STARTING, Phase.RUNNING): "its command runs",
    (Phase.STARTING, Phase.EXITED): "its command could not be run, or ended before we were told that it began",
    (
        Phase.STARTING,
        Phase.WAITING,
    ): "it could not be prepared (missing configuration, a runtime in trouble); tried again",
    (Phase.RUNNING, Phase.STOPPING): "the pod is ending, or its liveness or startup probe failed",
    (Phase.RUNNING, Phase.EXITED): "its command ended by itself",
    (Phase.STOPPING, Phase.EXITED): "its command ended after we asked, or was killed after the grace period",
    (Phase.EXITED, Phase.STARTING): "restarted, as its policy says",
}


class PodPhase(StrEnum):
    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"

    @property
    def is_terminal(self) -> bool:
        return self in (PodPhase.SUCCEEDED, PodPhase.FAILED)


POD_CHANGES: Mapping[tuple[PodPhase, PodPhase], str] = {
    (PodPhase.PENDING, PodPhase.RUNNING): "all init containers are done and a container has been started",
    (PodPhase.PENDING, PodPhase.FAILED): "refused, an init container failed for good, or ended before it ran",
    (PodPhase.PENDING, PodPhase.SUCCEEDED): "adopted: everything ended well while no agent was looking",
    (PodPhase.RUNNING, PodPhase.SUCCEEDED): "all containers ended with code 0 and none is restarted",
    (PodPhase.RUNNING, PodPhase.FAILED): "all containers ended, one of them badly, or the deadline passed",
}


class ContainerPlan(msgspec.Struct, frozen=True):
    name: str
    role: Role
    has_startup: bool = False
    has_readiness: bool = False
    has_liveness: bool = False
    has_pre_stop: bool = False
    has_post_start: bool = False

    @property
    def has_probes(self) -> bool:
        return self.has_startup or self.has_readiness or self.has_liveness


class Plan(msgspec.Struct, frozen=True):
    """What of the pod's spec the lifecycle depends on. Init containers come first, in their order."""

    containers: tuple[ContainerPlan, ...]
    restart_policy: str = "Always"
    deadline_seconds: float | None = None
    grace_seconds: float = 30.0


class Container(msgspec.Struct, frozen=True):
    plan: ContainerPlan
    phase: Phase = Phase.WAITING
    attempt: int = -1  # the latest that was asked for; -1 before the first
    started_at: Instant | None = None
    exit: Exit | None = None  # of the latest attempt
    last_exit: Exit | None = None  # of the attempt before it
    crashes: int = 0  # ends in a row since one ran long
    failures: int = 0  # tries in a row that did not get as far as an attempt
    retry_at: Instant | None = None
    waiting_reason: str = ""
    waiting_message: str = ""
    is_started: bool = False  # its startup probe, if any, has passed
    was_started: bool = False  # some attempt of it got that far
    is_ready: bool = False
    kill_at: Instant | None = None  # when STOPPING: the end of its grace
    is_killed: bool = False

    @property
    def is_alive(self) -> bool:
        return self.phase in (Phase.STARTING, Phase.RUNNING, Phase.STOPPING)

    @property
    def name(self) -> str:
        return self.plan.name

    @property
    def role(self) -> Role:
        return self.plan.role


class Stop(msgspec.Struct, frozen=True):
    """The whole pod is to end."""

    kill_at: Instant
    reason: str = ""  # of the pod's status
    message: str = ""


class State(msgspec.Struct, frozen=True):
    plan: Plan
    containers: tuple[Container, ...]
    phase: PodPhase = PodPhase.PENDING
    start_time: Instant | None = None
    finished_at: Instant | None = None
    is_initialized: bool = False
    stop: Stop | None = None
    is_deleted: bool = False  # the object waits for us to remove it
    is_abandoned: bool = False  # the object is gone, or somebody else has ended it: nothing of ours is reported
    reason: str = ""
    message: str = ""

    @property
    def is_over(self) -> bool:
        return self.phase.is_terminal
