"""The `Runtime` protocol: how a node runs one attempt of one container. Nothing here knows of pods.

An attempt is named by where its files are, so that an agent which has just started knows as much about it as the
one that launched it. Implementations pass `muster.testing.runtimes.RuntimeSuite`.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeAlias, runtime_checkable

from muster.agent.logs import LogOptions
from muster.api.meta import Instant


@dataclass(frozen=True, slots=True)
class Attempt:
    """One run of one container. `directory` holds the files of all its attempts; the first is number 0."""

    directory: Path
    number: int


@dataclass(frozen=True, slots=True)
class Limits:
    """What an attempt may use. None: no limit."""

    memory_bytes: int | None = None
    cpu_milli: int | None = None

    @property
    def is_empty(self) -> bool:
        return self.memory_bytes is None and self.cpu_milli is None


NO_LIMITS = Limits()


@dataclass(frozen=True, slots=True)
class Mount:
    """What an attempt, and nobody else, sees at the absolute path `target`. `source`: None for a file system in
    memory, of `bytes` at most where that is not 0."""

    source: Path | None
    target: str
    is_read_only: bool = False
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class Identity:
    """Under whom an attempt runs. `groups`: all of them, `gid` first. `name` and `home`: empty where the machine does
    not know the user."""

    uid: int
    gid: int
    groups: Sequence[int]
    name: str = ""
    home: str = ""


@dataclass(frozen=True, slots=True)
class Launch:
    """Everything a runtime needs to start an attempt. `name` is unique on the machine and safe in a file name.
    `mounts`: only for a runtime that `Mounts`; whatever is below another comes after it. `identity`: None for that of
    the agent; another must be able to reach `home`, whatever is above it."""

    attempt: Attempt
    name: str
    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: Path
    limits: Limits = NO_LIMITS
    mounts: Sequence[Mount] = ()
    identity: Identity | None = None
    home: Path | None = None


@dataclass(frozen=True, slots=True)
class Running:
    started_at: Instant


@dataclass(frozen=True, slots=True)
class Exit:
    """How an attempt ended. A command that could not be started ends too: reason ContainerCannotRun or StartError."""

    exit_code: int
    signal: int
    reason: str
    message: str
    started_at: Instant
    finished_at: Instant


Found: TypeAlias = Running | Exit


class Unlaunchable(Exception):
    """The runtime itself failed, not the command: worth another try."""


class Runtime(Protocol):
    async def start(self, launch: Launch) -> Found:
        """Start an attempt; an attempt that was started before is not started again but found. Raises Unlaunchable."""
        ...

    async def signal(self, attempt: Attempt, number: int) -> None:
        """Signal all processes of the attempt. Nothing happens where it has ended."""
        ...

    async def wait(self, attempt: Attempt) -> Exit:
        """How a started attempt ended, once it has. Any number may wait, and a wait may be cancelled."""
        ...

    def logs(self, attempt: Attempt, options: LogOptions) -> AsyncIterator[bytes]:
        """Output of an attempt; with `options.follow`, until it has ended."""
        ...

    async def adopt(self, attempt: Attempt) -> Found | None:
        """What became of an attempt that another agent process may have started. None where it never ran."""
        ...


@dataclass(frozen=True, slots=True)
class Executed:
    exit_code: int
    output: str


@runtime_checkable
class Executes(Protocol):
    """Optional ability: run a command beside an attempt (probes and hooks of type exec)."""

    async def execute(self, launch: Launch, argv: Sequence[str], timeout: float) -> Executed:
        """Its exit code and the end of its output; 124 where it ran longer than `timeout` and was killed."""
        ...


@runtime_checkable
class Leads(Protocol):
    """Optional ability: what an attempt runs are processes of this machine."""

    def leader(self, attempt: Attempt) -> int | None:
        """The process that all others of the attempt come from; None where it does not run."""
        ...


@runtime_checkable
class Mounts(Protocol):
    """Optional ability: an attempt has a view of the file system of its own."""

    async def can_mount(self) -> bool:
        """Whether the machine permits it."""
        ...
