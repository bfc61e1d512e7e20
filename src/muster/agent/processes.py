"""Processes as the kernel knows them: who somebody is, and the end of all that an attempt has left.

Keepers load this beside themselves (see `agent.keeper`), so it has only the standard library and must never import
muster.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import time

# Not typing.TYPE_CHECKING: every keeper carries the memory of what the launcher has imported.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

_REAP_SECONDS = 5.0
_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_PR_SET_CHILD_SUBREAPER = 36
_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def be_called(name: bytes) -> None:
    _prctl(_PR_SET_NAME, name)


def adopt_orphans() -> None:
    """Whoever loses his parent below us becomes our child."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent() -> None:
    """The kernel forgets it when the process becomes another user."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _prctl(option: int, value: int | bytes) -> None:
    if _libc is not None:
        _libc.prctl(option, value, 0, 0, 0)


def start_of(pid: int) -> int:
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


def bury_children() -> None:
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


def oom_kills(cgroups: Iterable[str]) -> int:
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


def kill_cgroups(cgroups: Iterable[str]) -> None:
    for path in cgroups:
        try:
            kill = os.open(f"{path}/cgroup.kill", os.O_WRONLY | os.O_CLOEXEC)
            with os.fdopen(kill, "wb", buffering=0) as file:
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


def remove_cgroups(cgroups: Iterable[str]) -> None:
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
