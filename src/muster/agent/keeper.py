"""The keeper: stands between the agent and one container attempt, and outlives the agent.

A standalone script (`python -I -S keeper.py FD FILES`) with only the standard library, and a small part of it: of
muster it must import nothing but modules that are like it (`agent.commands`, `agent.mounting`, `agent.output`,
`agent.processes`). One *launcher* runs for each agent; it reads launch requests (JSON lines) from the socket it
inherited and forks, without exec, a *keeper* for each attempt. The keeper starts the user's command in a session of its
own, copies its output into a log in CRI form, and when it ends writes `<attempt>.exit.json` and leaves. From the fork
on a keeper needs nobody: launcher and agent may die, the attempt goes on and its exit code is kept.

Files, all in the attempt's directory: `<n>.state.json` (who runs), `<n>.log`, `<n>.log.1` ..., `<n>.exit.json`.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import resource
import select
import signal
import socket
import sys
import time

if __name__ == "__main__":  # started by its path: nobody has said where muster is
    sys.path.append(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

from muster.agent import commands, processes
from muster.agent.output import Log, Stream

# Not typing.TYPE_CHECKING: every keeper carries the memory of what the launcher has imported.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

    from muster.agent.commands import Request


def write_whole(name: str, value: dict[str, object], *, durable: bool) -> None:
    """Write a JSON file that readers see whole or not at all."""
    temporary = f"{name}.{os.getpid()}.tmp"
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(json.dumps(value).encode())
        file.flush()
        if durable:
            os.fsync(fd)
    os.replace(temporary, name)
    if durable:
        directory = os.open(os.path.dirname(name) or ".", os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


class Keeper:
    def __init__(self, request: Request) -> None:
        self.request = request
        self.attempt = request["attempt"]
        self.started_at = 0.0
        self.finished_at = 0.0
        self.pid = 0
        self.status: int | None = None
        self.streams: list[Stream] = []
        self.log = Log(f"{self.attempt}.log", request["log_bytes"], request["log_files"])

    def run(self, agent: socket.socket) -> None:
        os.setsid()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        wake_read, wake_write = os.pipe()
        os.set_blocking(wake_read, False)
        os.set_blocking(wake_write, False)
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        processes.be_called(b"muster-keeper")
        processes.adopt_orphans()
        os.chdir(self.request["directory"])
        problem = self._launch()
        if problem is not None:
            _send(agent, {"id": self.request["id"], **problem})
            return
        _send(
            agent,
            {
                "id": self.request["id"],
                "pid": self.pid,
                "process_start": processes.start_of(self.pid),
                "started_at": self.started_at,
            },
        )
        agent.close()
        self._pump(wake_read)
        self._finish()

    def _launch(self) -> dict[str, object] | None:
        """Start the command. None, or what to tell the agent where it could not be started."""
        out_read, out_write = os.pipe()
        err_read, err_write = os.pipe()
        go_read, go_write = os.pipe()
        failure_read, failure_write = os.pipe()
        self.started_at = time.time()
        self.pid = os.fork()
        if self.pid == 0:
            # Our ends of the pipes would keep them open after our death.
            for fd in (go_write, out_read, err_read, failure_read):
                os.close(fd)
            commands.become(self.request, go_read, out_write, err_write, failure_write)
        for fd in (out_write, err_write, go_read, failure_write):
            os.close(fd)
        if not self._claim():
            os.close(go_write)  # the child reads end of file and leaves without having run anything
            os.waitpid(self.pid, 0)
            return {"taken": True}
        self.log.open()
        os.write(go_write, b"g")
        os.close(go_write)
        failure = b""
        while piece := os.read(failure_read, 4096):
            failure += piece
        os.close(failure_read)
        if failure:
            os.waitpid(self.pid, 0)
            return {"exit": self._refuse(json.loads(failure))}
        for name, fd in ((b"stdout", out_read), (b"stderr", err_read)):
            os.set_blocking(fd, False)
            self.streams.append(Stream(name, fd))
        return None

    def _claim(self) -> bool:
        """Make the state file, which may not exist yet: it is what makes an attempt run at most once, even when an
        agent asks again because it died before it saw the first answer."""
        name = f"{self.attempt}.state.json"
        temporary = f"{name}.{os.getpid()}.new"
        state: dict[str, object] = {
            "keeper": os.getpid(),
            "keeper_start": processes.start_of(os.getpid()),
            "pid": self.pid,
            "process_start": processes.start_of(self.pid),
            "boot": processes.boot_id(),
            "mark": self.request["mark"],
            "cgroups": self.request["cgroups"],
            "started_at": self.started_at,
        }
        write_whole(temporary, state, durable=False)
        try:
            os.link(temporary, name)
        except FileExistsError:
            return False
        finally:
            os.unlink(temporary)
        return True

    def _refuse(self, failure: dict[str, str | int]) -> dict[str, object]:
        code, reason, message = commands.explain(self.request, failure)
        self.finished_at = self.started_at
        end = self._end(code, 0, reason, message)
        self.log.close()
        processes.remove_cgroups(self.request["cgroups"])
        write_whole(f"{self.attempt}.exit.json", end, durable=True)
        return end

    def _pump(self, wake: int) -> None:
        """Copy output until the command has ended and its pipes are empty, or the wait for stragglers is over."""
        poller = select.poll()
        poller.register(wake, select.POLLIN)
        by_fd = {stream.fd: stream for stream in self.streams}
        for fd in by_fd:
            poller.register(fd, select.POLLIN)
        deadline: float | None = None
        while self.status is None or any(stream.is_open for stream in self.streams):
            wait = None if deadline is None else max(0.0, deadline - time.monotonic())
            ready = poller.poll(None if wait is None else wait * 1000)
            if deadline is not None and not ready:
                return
            for fd, _events in ready:
                if fd == wake:
                    _drain(wake)
                    continue
                by_fd[fd].read(self.log)
                if not by_fd[fd].is_open:
                    poller.unregister(fd)
            if self.status is None and (status := self._reap()) is not None:
                self.status = status
                self.finished_at = time.time()
                # Killed outright: so is everything it left behind, without the courtesy of a wait.
                wait_more = 0.0 if status == signal.SIGKILL else self.request["drain_seconds"]
                deadline = time.monotonic() + wait_more

    def _reap(self) -> int | None:
        """Collect orphans that have died; the command's status when it has. The command stays a zombie where the system
        lets us look without collecting: its pid, which names its group, cannot become a stranger's before `_finish`."""
        while True:
            try:
                if not hasattr(os, "waitid"):
                    pid, status = os.waitpid(-1, os.WNOHANG)
                    if pid in (0, self.pid):
                        return status if pid else None
                    continue
                found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return None
            if found is None:
                return None
            if found.si_pid == self.pid:
                is_killed = found.si_code in (os.CLD_KILLED, os.CLD_DUMPED)
                return found.si_status if is_killed else found.si_status << 8
            os.waitpid(found.si_pid, 0)

    def _end(self, code: int, number: int, reason: str, message: str) -> dict[str, object]:
        return {
            "exit_code": code,
            "signal": number,
            "oom_killed": reason == "OOMKilled",
            "reason": reason,
            "message": message,
            "started_at": self.started_at,
            "finished_at": self.finished_at,
        }

    def _finish(self) -> None:
        """Nothing of the attempt may run on: kill what is left, then write down how it ended."""
        assert self.status is not None
        is_oom = processes.oom_kills(self.request["cgroups"]) > 0
        with contextlib.suppress(OSError):
            os.killpg(self.pid, signal.SIGKILL)
        processes.kill_cgroups(self.request["cgroups"])
        processes.bury_children()
        for stream in self.streams:
            while stream.is_open and stream.read(self.log):
                pass
        self.log.close()
        processes.remove_cgroups(self.request["cgroups"])
        number = os.WTERMSIG(self.status) if os.WIFSIGNALED(self.status) else 0
        code = 128 + number if number else os.WEXITSTATUS(self.status)
        reason = "Completed" if code == 0 else "OOMKilled" if is_oom else "Error"
        end = self._end(code, number, reason, "")
        for _ in range(60):
            try:
                write_whole(f"{self.attempt}.exit.json", end, durable=True)
                return
            except FileNotFoundError:
                return  # the pod's directory was removed under us: nobody will ask
            except OSError:
                time.sleep(1)  # a full disk may be emptied; without the file the exit code is lost


def _drain(fd: int) -> None:
    with contextlib.suppress(BlockingIOError):
        while os.read(fd, 4096):
            pass


def _send(agent: socket.socket, message: dict[str, object]) -> None:
    # One send of a short line: keepers share the socket, and the kernel keeps a small message together.
    with contextlib.suppress(OSError):  # where the agent is gone, the next one will find the files
        agent.sendall(json.dumps(message).encode() + b"\n")


def _keep(request: Request, agent: socket.socket) -> NoReturn:
    code = 1
    try:
        Keeper(request).run(agent)
        code = 0
    except BaseException as error:
        _send(agent, {"id": request["id"], "error": f"{type(error).__name__}: {error}"})
    finally:
        os._exit(code)
    raise AssertionError("unreachable")


def serve(agent: socket.socket) -> None:
    """The launcher: forks a keeper for each request, until the agent closes the socket."""
    # Keepers are collected by the kernel: the launcher never looks at their status.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    agent.set_inheritable(False)  # it came through exec to us; it must not go through exec to users' commands
    # Nor anything else that came along: event loops leave descriptors of their own open across a spawn.
    os.closerange(3, agent.fileno())
    os.closerange(agent.fileno() + 1, 65_536)
    gc.disable()
    gc.freeze()
    buffer = b""
    while data := agent.recv(1 << 20):
        *lines, buffer = (buffer + data).split(b"\n")
        for line in lines:
            request: Request = json.loads(line)
            try:
                pid = os.fork()
            except OSError as error:
                _send(agent, {"id": request["id"], "error": f"fork: {error.strerror}"})
                continue
            if pid == 0:
                _keep(request, agent)


if __name__ == "__main__":
    # The launcher is nobody's child: it leaves no zombie in an agent that does not wait for it.
    if os.fork() == 0:
        # The agent may open more files than commands should: some still use select, which ends at 1024.
        resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[2]), resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
        serve(socket.socket(fileno=int(sys.argv[1])))
    os._exit(0)
