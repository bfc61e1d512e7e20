"""The keeper: stands between the agent and one container attempt, and outlives the agent.

A standalone script (`python -I -S keeper.py FD FILES`) with only the standard library, and a small part of it: of
muster it must import nothing but `agent.mounting`, which is like it. One *launcher* runs for each agent; it reads
launch requests (JSON lines) from the socket it inherited and forks, without exec, a *keeper* for each attempt. The
keeper starts the user's command in a session of its own, copies its output into a log in CRI form, and when it ends
writes `<attempt>.exit.json` and leaves. From the fork on a keeper needs nobody: launcher and agent may die, the attempt
goes on and its exit code is kept.

Files, all in the attempt's directory: `<n>.state.json` (who runs), `<n>.log`, `<n>.log.1` ..., `<n>.exit.json`.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
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

from muster.agent import mounting

# Not typing.TYPE_CHECKING: every keeper carries the memory of what the launcher has imported.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn, TypedDict

    class Request(TypedDict):
        """What the agent asks of the launcher."""

        id: int
        directory: str
        attempt: int
        mark: str  # unique on the machine, and in the environment of every process of the attempt
        argv: list[str]
        env: dict[str, str]
        cwd: str
        user: mounting.User | None  # None: ourselves
        home: str  # the user must be able to reach it
        mounts: list[mounting.Mount]  # with any, the command has a view of the file system of its own
        rlimits: dict[str, int]  # RLIMIT_DATA -> bytes
        cgroups: list[str]  # directories that the process joins, and that the keeper empties and removes
        log_bytes: int  # size at which the log is rotated
        log_files: int  # how many files are kept, the current one included
        drain_seconds: float  # how long output may still come from children that outlive the command


PARTIAL_BYTES = 16 * 1024
_READ_BYTES = 64 * 1024
_REAP_SECONDS = 5.0
_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_PR_SET_CHILD_SUBREAPER = 36
_LINUX = sys.platform == "linux"
_libc = ctypes.CDLL(None, use_errno=True) if _LINUX else None


def _prctl(option: int, value: int | bytes) -> None:
    if _libc is not None:
        _libc.prctl(option, value, 0, 0, 0)


def process_start(pid: int) -> int:
    """The kernel's start time of a process: with the pid, its identity. 0 where it is gone or unknown."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        return 0 if fields[0] in (b"Z", b"X") else int(fields[19])
    except (OSError, IndexError, ValueError):
        return 0


def boot_id() -> str:
    """Which boot of the machine this is: pids and start times repeat after a reboot."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read().strip()
    except OSError:
        return ""


def write_whole(name: str, value: dict[str, object], *, durable: bool) -> None:
    """Write a JSON file that readers see whole or not at all."""
    temporary = f"{name}.{os.getpid()}.tmp"
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        os.write(fd, json.dumps(value).encode())
        if durable:
            os.fsync(fd)
    finally:
        os.close(fd)
    os.replace(temporary, name)
    if durable:
        directory = os.open(os.path.dirname(name) or ".", os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


class Log:
    """The attempt's log: CRI lines, rotated by size. A full disk loses lines, never the process."""

    def __init__(self, name: str, max_bytes: int, files: int) -> None:
        self._name = name
        self._max_bytes = max_bytes
        self._files = files
        self._fd = -1
        self._size = 0
        self._second = -1
        self._second_text = b""

    def open(self) -> None:
        try:
            self._fd = os.open(self._name, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o640)
            self._size = os.fstat(self._fd).st_size
        except OSError:
            self._fd = -1

    def stamp(self) -> bytes:
        second, nanos = divmod(time.time_ns(), 1_000_000_000)
        if second != self._second:
            self._second = second
            self._second_text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second)).encode()
        return b"%s.%09dZ" % (self._second_text, nanos)

    def write(self, lines: list[bytes]) -> None:
        """Append whole CRI lines; rotates between lines only."""
        batch: list[bytes] = []
        batch_size = 0
        for line in lines:
            if batch and self._size + batch_size + len(line) > self._max_bytes:
                self._append(b"".join(batch))
                self._rotate()
                batch, batch_size = [], 0
            batch.append(line)
            batch_size += len(line)
        self._append(b"".join(batch))
        if self._size >= self._max_bytes:
            self._rotate()

    def _append(self, data: bytes) -> None:
        if self._fd < 0:
            self.open()
        try:
            while data:
                written = os.write(self._fd, data)
                self._size += written
                data = data[written:]
        except OSError:
            return

    def _rotate(self) -> None:
        self.close()
        try:
            for number in range(self._files - 1, 1, -1):
                if os.path.exists(f"{self._name}.{number - 1}"):
                    os.replace(f"{self._name}.{number - 1}", f"{self._name}.{number}")
            if self._files > 1:
                os.replace(self._name, f"{self._name}.1")
            else:
                os.truncate(self._name, 0)
        except OSError:
            pass  # keep writing to the same file: too long is better than lost
        self.open()

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class Stream:
    """One pipe of the command, cut into CRI lines."""

    def __init__(self, name: bytes, fd: int) -> None:
        self.fd = fd
        self.is_open = True
        self._name = name
        self._rest = b""

    def read(self, log: Log) -> bool:
        """Move what is there into the log. False when there is nothing more for now, or for good."""
        try:
            data = os.read(self.fd, _READ_BYTES)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        stamp = log.stamp()
        if not data:
            self.is_open = False
            os.close(self.fd)
            if self._rest:
                # P, not F: the text did not end with a newline, and a reader should not see one.
                log.write([b"%s %s P %s\n" % (stamp, self._name, self._rest)])
            return False
        whole = b"%s %s F " % (stamp, self._name)
        partial = b"%s %s P " % (stamp, self._name)
        pieces = (self._rest + data).split(b"\n")
        self._rest = pieces.pop()
        lines: list[bytes] = []
        for piece in pieces:
            while len(piece) > PARTIAL_BYTES:
                lines.append(partial + piece[:PARTIAL_BYTES] + b"\n")
                piece = piece[PARTIAL_BYTES:]  # noqa: PLW2901 - consumed from the front
            lines.append(whole + piece + b"\n")
        while len(self._rest) > PARTIAL_BYTES:
            lines.append(partial + self._rest[:PARTIAL_BYTES] + b"\n")
            self._rest = self._rest[PARTIAL_BYTES:]
        log.write(lines)
        return True


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
        _prctl(_PR_SET_NAME, b"muster-keeper")
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)
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
                "process_start": process_start(self.pid),
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
            _become_command(self.request, go_read, out_write, err_write, failure_write)
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
            "keeper_start": process_start(os.getpid()),
            "pid": self.pid,
            "process_start": process_start(self.pid),
            "boot": boot_id(),
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
        code, reason, message = _explain(self.request, failure)
        self.finished_at = self.started_at
        end = self._end(code, 0, reason, message)
        self.log.close()
        _remove_cgroups(self.request["cgroups"])
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
        is_oom = _oom_kills(self.request["cgroups"]) > 0
        with contextlib.suppress(OSError):
            os.killpg(self.pid, signal.SIGKILL)
        _kill_cgroups(self.request["cgroups"])
        _bury_children()
        for stream in self.streams:
            while stream.is_open and stream.read(self.log):
                pass
        self.log.close()
        _remove_cgroups(self.request["cgroups"])
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


def _become_command(request: Request, go: int, out: int, err: int, failure: int) -> NoReturn:
    """In the child: everything between fork and exec. Reports through `failure`, which exec closes."""
    stage = "start"
    try:
        parent = os.getppid()
        os.setsid()
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        signal.set_wakeup_fd(-1)
        for number in signal.valid_signals():
            if signal.getsignal(number) not in (signal.SIG_DFL, None):
                signal.signal(number, signal.SIG_DFL)
        if os.read(go, 1) != b"g" or os.getppid() != parent:
            os._exit(1)
        stage = "cgroup"
        for path in request["cgroups"]:
            with open(f"{path}/cgroup.procs", "wb", buffering=0) as file:
                file.write(b"0")
        stage = "mounts"
        _take_view(request)
        stage = "limits"
        for name, value in request["rlimits"].items():
            resource.setrlimit(getattr(resource, name), (value, value))
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(out, 1)
        os.dup2(err, 2)
        stage = "user"
        if request["user"] is not None:
            _become_user(request["user"], parent)
        stage = "cwd"
        os.chdir(request["cwd"])
        stage = "exec"
        os.execvpe(request["argv"][0], request["argv"], request["env"])  # noqa: S606 - running commands is the product
    except mounting.Refused as error:
        os.write(failure, json.dumps({"stage": stage, "message": str(error)}).encode())
    except OSError as error:
        command = request["argv"][0] if stage == "exec" else ""
        if error.errno == errno.ENOENT and "/" in command and os.path.exists(command):
            stage = "interpreter"
        os.write(failure, json.dumps({"stage": stage, "errno": error.errno or 0}).encode())
    except (ValueError, TypeError):
        os.write(failure, json.dumps({"stage": stage, "errno": errno.EINVAL}).encode())
    finally:
        os._exit(1)
    raise AssertionError("unreachable")


def _take_view(request: Request) -> None:
    if request["mounts"]:
        mounting.enter()
        mounting.show(request["mounts"])
    if request["user"] is not None and os.geteuid() == 0:
        mounting.open_way(request["home"], request["user"]["uid"], request["user"]["groups"])


def _become_user(user: mounting.User, parent: int) -> None:
    for fd in (1, 2):
        os.fchown(fd, user["uid"], user["gid"])  # some open /dev/stderr instead of writing to what they have
    mounting.become(user)
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # the kernel forgets it when somebody becomes another
    if os.getppid() != parent:
        os._exit(1)


def _explain(request: Request, failure: dict[str, str | int]) -> tuple[int, str, str]:
    """Exit code, reason and message of a command that could not be started, with a shell's codes."""
    stage, number = failure["stage"], int(failure.get("errno", 0))
    why = os.strerror(number).lower()
    command = request["argv"][0] if request["argv"] else ""
    if stage == "mounts":
        return 128, "StartError", str(failure["message"])
    if stage == "user" and request["user"] is not None:
        wanted = f"user {request['user']['uid']} and group {request['user']['gid']}"
        return 128, "StartError", f"user {os.geteuid()}, who runs this agent, may not become {wanted}: run it as root"
    if stage == "cwd":
        return 128, "StartError", f'working directory "{request["cwd"]}": {why}'
    if stage in ("cgroup", "limits", "start"):
        return 128, "StartError", f"resource limits could not be applied ({stage}): {why}"
    if stage == "interpreter":
        return 127, "ContainerCannotRun", f'exec: "{command}": the interpreter it names was not found'
    if number == errno.ENOENT:
        missing = why if "/" in command else "executable file not found in $PATH"
        return 127, "ContainerCannotRun", f'exec: "{command}": {missing}'
    if number == errno.E2BIG:
        return 126, "ContainerCannotRun", f'exec: "{command}": arguments and environment are too long'
    return 126, "ContainerCannotRun", f'exec: "{command}": {why}'


def _drain(fd: int) -> None:
    with contextlib.suppress(BlockingIOError):
        while os.read(fd, 4096):
            pass


def _bury_children() -> None:
    """Kill and collect every descendant. We are their subreaper: orphans come to us, also from other groups."""
    deadline = time.monotonic() + _REAP_SECONDS
    while time.monotonic() < deadline:
        try:
            pid, _status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            for child in _children():
                with contextlib.suppress(OSError):
                    os.kill(child, signal.SIGKILL)
            time.sleep(0.002)


def _children() -> list[int]:
    me = os.getpid()
    try:
        with open(f"/proc/{me}/task/{me}/children", "rb") as file:
            return [int(pid) for pid in file.read().split()]
    except OSError:
        pass  # the kernel was built without it
    found = []
    try:
        names = os.listdir("/proc")
    except OSError:
        return []
    for name in names:
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    if int(file.read().rpartition(b")")[2].split()[1]) == me:
                        found.append(int(name))
            except (OSError, IndexError, ValueError):
                continue
    return found


def _oom_kills(cgroups: list[str]) -> int:
    """How many processes the kernel killed in these cgroups for want of memory. v2 and v1 spell it alike."""
    for path in cgroups:
        for name in ("memory.events", "memory.oom_control"):
            try:
                with open(f"{path}/{name}", "rb") as file:
                    for line in file:
                        if line.startswith(b"oom_kill "):
                            return int(line.split()[1])
            except (OSError, ValueError):
                continue
    return 0


def _kill_cgroups(cgroups: list[str]) -> None:
    for path in cgroups:
        try:
            with open(f"{path}/cgroup.kill", "wb", buffering=0) as file:
                file.write(b"1")
            continue
        except OSError:
            pass  # v1, or a kernel before 5.14
        try:
            with open(f"{path}/cgroup.procs", "rb") as file:
                pids = [int(pid) for pid in file.read().split()]
        except OSError:
            continue
        for pid in pids:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)


def _remove_cgroups(cgroups: list[str]) -> None:
    for path in cgroups:
        for _ in range(100):
            try:
                os.rmdir(path)
            except FileNotFoundError:
                break
            except OSError:
                time.sleep(0.01)  # the kernel still counts processes that have just died
                continue
            break
        with contextlib.suppress(OSError):  # other attempts are in it
            os.rmdir(os.path.dirname(path))


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
