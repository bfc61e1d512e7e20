"""What tasks of every kind (commands, notebooks, trials …) ask of allocations. `allocating.AllocationService` does it.

    allocations.on_exit("COMMAND", commands.exited)        # once, before the service runs
    await allocations.start(Launch(request, user, proxies=[ProxyPort(2900)]))
    await allocations.signal(allocation, Signal.KILL, "by its user")

After a restart of the server the service finds by itself what was started and is not over, and calls the same handlers.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeAlias

from muster.accounts.callers import UserId
from muster.engines.protocol import AllocationId, Caveat, Request
from muster.tasks.allocation_states import Ended, Signal, State

DTRAIN_PORTS: Final[Mapping[str, int]] = {
    "DTRAIN_SSH_PORT": 12350,
    "INTER_TRAIN_PROCESS_COMM_PORT_1": 12360,
    "INTER_TRAIN_PROCESS_COMM_PORT_2": 12365,
    "C10D_PORT": 29400,
}
"""What launchers of distributed training want, and the lowest that each may be."""


@dataclass(frozen=True, slots=True)
class ProxyPort:
    """A port of rank 0 that may be reached through the server. `is_tcp`: raw, through a WebSocket."""

    port: int
    is_tcp: bool = False
    is_https: bool = False
    is_unauthenticated: bool = False
    """What listens there asks for keys of its own, as sshd does."""
    is_default: bool = False
    """Reached by the task's id alone, not only by `<task>:<port>`."""


@dataclass(frozen=True, slots=True)
class Launch:
    """One run of a task.

    The service adds to the template's environment: DET_TASK_ID, DET_ALLOCATION_ID, DET_TASK_TYPE, DET_SLOT_IDS,
    DET_RESOURCES_TYPE (unless the template says otherwise), DET_SESSION_TOKEN (as a reference to a Secret), one
    variable for each of `ports`; and for each pod DET_RESOURCES_ID, DET_CONTAINER_ID and DET_AGENT_ID, which come
    first, so that other values may refer to them as `$(DET_CONTAINER_ID)`.
    """

    request: Request
    user: UserId
    proxies: Sequence[ProxyPort] = ()
    ports: Mapping[str, int] = field(default_factory=dict)
    """By variable: the lowest port that it may be. See DTRAIN_PORTS."""
    secrets: Mapping[str, str] = field(default_factory=dict)
    """Further variables that only the task may read (DET_USER_TOKEN …): never kept in records or pods."""


@dataclass(frozen=True, slots=True)
class Exited:
    """The last word on an allocation. `state` says more: its parts, when it was started and ended."""

    allocation: AllocationId
    task: str
    task_type: str
    ended: Ended
    state: State


OnExit: TypeAlias = Callable[[Exited], Awaitable[None]]
"""May start the next allocation of the task. Told again after a crash that came before it returned: it must not mind
that."""
OnChange: TypeAlias = Callable[[str, State], None]
"""The task, and the state of its allocation, already durable. It must not raise and not block."""


class Allocations(Protocol):
    async def start(self, launch: Launch) -> Sequence[Caveat]:
        """Returns once it is durable that it will run: what was not acknowledged is not run after a crash. Raises
        Invalid, NotFound (no such pool), AlreadyExists, TooManyRequests (too many wait to be made). The rows of its job
        and task are there before (`records.tables_tasks`)."""
        ...

    async def signal(self, allocation: AllocationId, signal: Signal, reason: str) -> None:
        """Durable when it returns. Of one that is over or unknown: nothing happens."""
        ...

    def state(self, allocation: AllocationId) -> State | None:
        """Of one that is not over yet, or only just; None for all others: their records say how they ended."""
        ...

    def on_exit(self, task_type: str, handler: OnExit) -> None:
        """One for each type, before the service runs."""
        ...

    def on_change(self, handler: OnChange) -> None: ...
