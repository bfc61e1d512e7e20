"""`HostProcessRuntime`: attempts as plain processes of this machine, each under a keeper (see `agent.keeper`).

What runs is known from files alone, so a new agent finds everything an old one started. No network or user namespaces:
isolation is a directory, a process group, resource limits and an environment. An attempt with mounts has a mount
namespace (see `agent.mounting`). Images are ignored.
"""

import asyncio
import contextlib
import errno
import functools
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import tempfile
from asyncio import Future
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import cast

import msgspec
import psutil

from muster.agent import cgroups, commands, keeper, logs, mounting, processes
from muster.agent.cgroups import Cgroups
from muster.agent.logs import LogOptions
from muster.agent.runtime import (
    Attempt,
    Executed,
    Executes,
    Exit,
    Found,
    Identity,
    Launch,
    Leads,
    Mount,
    Mounts,
    Running,
    Runtime,
    Unlaunchable,
)
from muster.api.meta import Instant
from muster.runtime.clock import Clock

MARK = "MUSTER_ATTEMPT"
"""The variable by which every process of an attempt is known, should its keeper be killed."""
_POLL_SECONDS = 0.05
_REPLY_SECONDS = 30.0
_MOST_FILES = 65_536
_DESCRIPTOR_SHARE = 0.75
_SURVIVOR_ROUNDS = 20  # a process may fork while the others are being killed
_VANISHED = "the process that kept this container is gone without having written how it ended: killed, or a reboot"


class _State(msgspec.Struct, frozen=True):
    """What a keeper writes before the command runs."""

    keeper: int
    pid: int
    started_at: float
    keeper_start: int = 0
    process_start: int = 0
    boot: str = ""
    mark: str = ""
    cgroups: tuple[str, ...] = ()


class _End(msgspec.Struct, frozen=True):
    """What a keeper writes when the command has ended."""

    exit_code: int
    signal: int
    started_at: float
    finished_at: float
    oom_killed: bool = False
    reason: str = ""
    message: str = ""

    def to_exit(self) -> Exit:
        started, finished = Instant(self.started_at), Instant(self.finished_at)
        return Exit(self.exit_code, self.signal, self.reason, self.message, started, finished)


class _Reply(msgspec.Struct, frozen=True):
    """One line: a keeper's word on how the launch went, or the launcher's that it could not fork one."""

    id: int
    error: str = ""
    taken: bool = False
    started_at: float = 0.0
    exit: _End | None = None


_decode_state = msgspec.json.Decoder(_State).decode
_decode_end = msgspec.json.Decoder(_End).decode
_decode_reply = msgspec.json.Decoder(_Reply).decode


class HostProcessRuntime:
    def __init__(
        self,
        clock: Clock,
        *,
        groups: Cgroups | None = None,
        log_bytes: int = 10 * 1024 * 1024,
        log_files: int = 5,
        drain_seconds: float = 1.0,
    ) -> None:
        self._clock = clock
        self._groups = groups
        self._log_bytes = log_bytes
        self._log_files = log_files
        self._drain_seconds = drain_seconds
        self._launcher: _Launcher | None = None
        self._next_id = 0
        self._can_mount: bool | None = None

    async def start(self, launch: Launch) -> Found:
        found = await self.adopt(launch.attempt)
        if found is not None:
            return found
        launch.attempt.directory.mkdir(parents=True, exist_ok=True)
        request = self._request(launch)
        for _ in range(2):  # a launcher that was killed is replaced once
            launcher = await self._connected()
            try:
                async with asyncio.timeout(_REPLY_SECONDS):
                    reply = await launcher.ask(request)
            except (ConnectionError, TimeoutError):
                # The launcher may have forked before it died; a keeper may have been killed before it spoke. The
                # attempt's files tell, and keep a second try from running beside the first.
                found = await self.adopt(launch.attempt)
                if found is not None:
                    return found
                continue
            if reply.taken or (reply.error and _read_state(launch.attempt) is not None):
                found = await self.adopt(launch.attempt)
                assert found is not None
                return found
            if reply.error:
                cgroups.kill_and_remove(request["cgroups"])
                raise Unlaunchable(f"the launcher could not start a process: {reply.error}")
            return reply.exit.to_exit() if reply.exit is not None else Running(Instant(reply.started_at))
        raise Unlaunchable("the launcher of this node died twice; is something killing it?")

    def _request(self, launch: Launch) -> "commands.Request":
        self._next_id += 1
        joined: list[str] = []
        rlimits: dict[str, int] = {}
        if not launch.limits.is_empty and self._groups is not None:
            try:
                joined = list(self._groups.create(_mark(launch), launch.limits))
            except OSError as error:
                raise Unlaunchable(f"its control group could not be made: {error}") from error
        elif launch.limits.memory_bytes is not None:
            rlimits["RLIMIT_DATA"] = launch.limits.memory_bytes
        return {
            "id": self._next_id,
            "directory": str(launch.attempt.directory.absolute()),
            "attempt": launch.attempt.number,
            "mark": _mark(launch),
            "argv": list(launch.argv),
            "env": {**launch.env, MARK: _mark(launch)},
            "cwd": str(launch.cwd.absolute()),
            "user": _user(launch.identity),
            "home": str((launch.home or launch.cwd).absolute()),
            "mounts": [_mount(mount) for mount in launch.mounts],
            "rlimits": rlimits,
            "cgroups": joined,
            "log_bytes": self._log_bytes,
            "log_files": self._log_files,
            "drain_seconds": self._drain_seconds,
        }

    async def _connected(self) -> "_Launcher":
        if self._launcher is None or self._launcher.is_lost:
            # Not awaited between the check and the assignment: two first pods must not start two launchers.
            self._launcher = _Launcher()
            await self._launcher.connect()
        await self._launcher.ready()
        return self._launcher

    async def signal(self, attempt: Attempt, number: int) -> None:
        pid = self.leader(attempt)
        if pid is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, number)

    async def wait(self, attempt: Attempt) -> Exit:
        while True:
            state = _read_state(attempt)
            # The end is looked for after the state, and again once the keeper is known to be gone.
            if (end := _read_end(attempt)) is not None:
                return end.to_exit()
            if state is None:
                raise LookupError(f"attempt {attempt.number} in {attempt.directory} was never started")
            if _is_same(state.keeper, state.keeper_start, state.boot):
                await self._keeper_gone(state)
                continue
            if (end := _read_end(attempt)) is None:
                end = self._bury(attempt, state)
            return end.to_exit()

    async def _keeper_gone(self, state: _State) -> None:
        pidfd = _open_pidfd(state.keeper)
        if pidfd is None:
            await self._clock.sleep(_POLL_SECONDS)
            return
        loop = asyncio.get_running_loop()
        gone: Future[None] = loop.create_future()
        try:
            # The pid may have been given to another since the caller looked; the descriptor now pins whom we have.
            if not _is_same(state.keeper, state.keeper_start, state.boot):
                return
            loop.add_reader(pidfd, _settle, gone)
            try:
                await gone
            finally:
                loop.remove_reader(pidfd)
        finally:
            os.close(pidfd)

    def _bury(self, attempt: Attempt, state: _State) -> _End:
        """A keeper vanished: end what it kept (at most one attempt may live) and write the end in its place."""
        if state.boot == processes.boot_id():
            _kill_survivors(state)
        cgroups.kill_and_remove(state.cgroups)
        end = _End(
            exit_code=137,
            signal=9,
            reason="Error",
            message=_VANISHED,
            started_at=state.started_at,
            finished_at=self._clock.now(),
        )
        with contextlib.suppress(FileNotFoundError):
            keeper.write_whole(str(_exit_path(attempt)), msgspec.to_builtins(end), durable=True)
        return end

    def logs(self, attempt: Attempt, options: LogOptions) -> AsyncIterator[bytes]:
        return logs.read_attempt(attempt.directory, attempt.number, options, self._clock)

    async def adopt(self, attempt: Attempt) -> Found | None:
        state = _read_state(attempt)
        end = _read_end(attempt)
        if end is not None:
            return end.to_exit()
        if state is None:
            return None
        if _is_same(state.keeper, state.keeper_start, state.boot):
            return Running(Instant(state.started_at))
        return await self.wait(attempt)

    async def execute(self, launch: Launch, argv: Sequence[str], timeout: float) -> Executed:
        try:
            process = await asyncio.create_subprocess_exec(
                *_beside(launch, argv),
                cwd="/" if _is_apart(launch) else launch.cwd,
                env=dict(launch.env),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            return Executed(127 if error.errno == errno.ENOENT else 126, f"{argv[0]}: {error.strerror}")
        try:
            async with asyncio.timeout(timeout):
                output, _ = await process.communicate()
        except TimeoutError:
            return Executed(124, f"command timed out after {timeout:g} s")
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
        return Executed(process.returncode or 0, output[-4096:].decode(errors="replace"))

    def leader(self, attempt: Attempt) -> int | None:
        state = _read_state(attempt)
        if state is None or _exit_path(attempt).exists() or not _is_same(state.pid, state.process_start, state.boot):
            return None
        return state.pid

    async def can_mount(self) -> bool:
        if self._can_mount is None:
            with tempfile.TemporaryDirectory() as place:
                arguments = ("-I", "-S", str(Path(mounting.__file__)), "probe", place)
                tried = await asyncio.create_subprocess_exec(sys.executable, *arguments, stderr=subprocess.DEVNULL)
                self._can_mount = await tried.wait() == 0
        return self._can_mount

    async def close(self) -> None:
        """Let the launcher go. What runs goes on."""
        if self._launcher is not None:
            self._launcher.close()
            self._launcher = None


def _mount(mount: Mount) -> "mounting.Mount":
    source = "" if mount.source is None else str(mount.source.absolute())
    return {"source": source, "target": mount.target, "is_read_only": mount.is_read_only, "bytes": mount.bytes}


def _user(identity: Identity | None) -> "mounting.User | None":
    if identity is None:
        return None
    return {"uid": identity.uid, "gid": identity.gid, "groups": list(identity.groups)}


def _beside(launch: Launch, argv: Sequence[str]) -> list[str]:
    """What runs the command in the view of the file system that the attempt has, and as whom that runs."""
    if not _is_apart(launch):
        return list(argv)
    state = _read_state(launch.attempt)
    pid = "0" if state is None else str(state.pid)  # nobody's: it is refused rather than run as us
    user = "" if launch.identity is None else json.dumps(_user(launch.identity))
    script = (sys.executable, "-I", "-S", str(Path(mounting.__file__)))
    return [*script, "join", pid, str(launch.cwd.absolute()), user, *argv]


def _is_apart(launch: Launch) -> bool:
    return bool(launch.mounts) or launch.identity is not None


class _Launcher(asyncio.Protocol):
    """The agent's side of the launcher's socket. Replies come in any order and are matched by id."""

    def __init__(self) -> None:
        self._waiting: dict[int, Future[_Reply]] = {}
        self._transport: asyncio.Transport | None = None
        self._ready = asyncio.Event()
        self._buffer = b""
        self.is_lost = False

    async def connect(self) -> None:
        loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                # Its own session: a terminal's Ctrl-C, or the death of the agent's group, must not reach it.
                starter = await asyncio.create_subprocess_exec(
                    sys.executable,
                    *("-I", "-S", str(Path(keeper.__file__)), str(theirs.fileno()), str(_allow_open_files())),
                    pass_fds=[theirs.fileno()],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                    cwd="/",
                )
            ours.setblocking(False)
            await loop.create_unix_connection(lambda: self, sock=ours)
            await starter.wait()
        finally:
            if self._transport is None:
                ours.close()
                self.is_lost = True
            self._ready.set()

    async def ready(self) -> None:
        await self._ready.wait()

    async def ask(self, request: "commands.Request") -> _Reply:
        """The keeper's word on a launch. Raises ConnectionError where the launcher died first."""
        if self._transport is None or self.is_lost:
            raise ConnectionResetError("the launcher is gone")
        number = request["id"]
        reply: Future[_Reply] = asyncio.get_running_loop().create_future()
        self._waiting[number] = reply
        try:
            self._transport.write(json.dumps(request).encode() + b"\n")
            return await reply
        finally:
            self._waiting.pop(number, None)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's own is not an instance of it

    def data_received(self, data: bytes) -> None:
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        for line in lines:
            reply = _decode_reply(line)
            future = self._waiting.get(reply.id)
            if future is not None and not future.done():
                future.set_result(reply)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        self.is_lost = True
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(ConnectionResetError("the launcher is gone"))

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()


def _mark(launch: Launch) -> str:
    return f"{launch.name}-{launch.attempt.number}"


def _kill_survivors(state: _State) -> None:
    """End what a killed keeper left. The command itself died with it, but its children may have not."""
    # While the session has members its number is not given again; once somebody else has the number, it has none.
    is_session_ours = not psutil.pid_exists(state.pid) or _is_same(state.pid, state.process_start, state.boot)
    for _ in range(_SURVIVOR_ROUNDS):
        survivors = [process for process in psutil.process_iter() if _is_of(process, state, is_session_ours)]
        if not survivors:
            return
        for process in survivors:
            with contextlib.suppress(psutil.Error):
                process.kill()


def _is_of(process: psutil.Process, state: _State, is_session_ours: bool) -> bool:
    try:
        if process.status() == psutil.STATUS_ZOMBIE:
            return False
        if is_session_ours and os.getsid(process.pid) == state.pid:
            return True
        return bool(state.mark) and process.environ().get(MARK) == state.mark
    except (psutil.Error, OSError):
        return False


def _settle(gone: Future[None]) -> None:
    if not gone.done():
        gone.set_result(None)


def _exit_path(attempt: Attempt) -> Path:
    return attempt.directory / f"{attempt.number}.exit.json"


def _read_state(attempt: Attempt) -> _State | None:
    try:
        return _decode_state((attempt.directory / f"{attempt.number}.state.json").read_bytes())
    except FileNotFoundError:
        return None


def _read_end(attempt: Attempt) -> _End | None:
    try:
        return _decode_end(_exit_path(attempt).read_bytes())
    except FileNotFoundError:
        return None


def _is_same(pid: int, start: int, boot: str) -> bool:
    """Whether the process that was given this pid still has it."""
    if boot != processes.boot_id():
        return False
    if start:
        return processes.start_of(pid) == start
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def _open_pidfd(pid: int) -> int | None:
    """A descriptor that becomes readable when the process ends; None where the system has none or it is gone."""
    if sys.platform != "linux":
        return None
    try:
        fd = os.pidfd_open(pid)
    except OSError:
        return None
    # The lowest free number is given: a high one says how many are in use. The rest is for those who cannot do without.
    if fd > _DESCRIPTOR_SHARE * resource.getrlimit(resource.RLIMIT_NOFILE)[0]:
        os.close(fd)
        return None
    return fd


@functools.cache
def _allow_open_files() -> int:
    """Let this process open as many files as it is permitted to: each attempt that it waits for takes one. Returns the
    limit as it was before, which is the one for commands."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    return soft


_runtime: type[Runtime] = HostProcessRuntime
_executes: type[Executes] = HostProcessRuntime
_leads: type[Leads] = HostProcessRuntime
_mounts: type[Mounts] = HostProcessRuntime
