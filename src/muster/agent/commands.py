"""A command that the agent asks for, and how a process becomes it: everything between fork and exec.

Keepers load this beside themselves (see `agent.keeper`), so it has only the standard library and modules of muster that
are like it.
"""

from __future__ import annotations

import errno
import json
import os
import resource
import signal

from muster.agent import mounting, processes

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


def become(request: Request, go: int, out: int, err: int, failure: int) -> NoReturn:
    """In the child: everything between fork and exec. Reports through `failure`, which exec closes."""
    stage = "start"
    try:
        parent = os.getppid()
        os.setsid()
        processes.die_with_parent()
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
    processes.die_with_parent()
    if os.getppid() != parent:
        os._exit(1)


def explain(request: Request, failure: dict[str, str | int]) -> tuple[int, str, str]:
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
