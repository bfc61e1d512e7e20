"""Control groups: the limits of an attempt, where this process may make groups.

Groups are made below the agent's own group, never beside it: limits that somebody set on the agent hold for its pods.
v2 needs a delegated subtree (systemd: Delegate=yes); v1 needs write access to the memory and cpu hierarchies. Without
either, the caller falls back to rlimits. The keeper empties and removes a group when its attempt ends.
"""

import contextlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from muster.agent import processes
from muster.agent.runtime import Limits

PARENT = "muster"
_PERIOD_MICROSECONDS = 100_000
_MIN_QUOTA_MICROSECONDS = 1_000  # what the kernel takes at least
_CONTROLLERS_V1 = ("memory", "cpu")


class Cgroups(Protocol):
    def create(self, name: str, limits: Limits) -> Sequence[str]:
        """Make the groups of one attempt: the directories a process joins. Raises OSError."""
        ...


class CgroupsV2:
    def __init__(self, base: Path) -> None:
        self._base = base

    def create(self, name: str, limits: Limits) -> Sequence[str]:
        parent = self._base / PARENT
        path = _make(parent, name, prepare=lambda: _write(parent / "cgroup.subtree_control", "+memory +cpu"))
        if limits.memory_bytes is not None:
            _write(path / "memory.max", str(limits.memory_bytes))
            with contextlib.suppress(OSError):  # a kernel without swap accounting
                _write(path / "memory.swap.max", "0")
            # One process killed for memory leaves a training job that hangs: all of the attempt ends together.
            _write(path / "memory.oom.group", "1")
        if limits.cpu_milli is not None:
            _write(path / "cpu.max", f"{_quota(limits.cpu_milli)} {_PERIOD_MICROSECONDS}")
        return (str(path),)


class CgroupsV1:
    """`memory` and `cpu`: the agent's own group in each hierarchy; None where groups cannot be made there."""

    def __init__(self, memory: Path | None, cpu: Path | None) -> None:
        self._memory = memory
        self._cpu = cpu

    def create(self, name: str, limits: Limits) -> Sequence[str]:
        made = []
        if limits.memory_bytes is not None and self._memory is not None:
            path = _make(self._memory / PARENT, name)
            made.append(str(path))
            _write(path / "memory.limit_in_bytes", str(limits.memory_bytes))
            with contextlib.suppress(OSError):  # without swap accounting the file is not there
                _write(path / "memory.memsw.limit_in_bytes", str(limits.memory_bytes))
        if limits.cpu_milli is not None and self._cpu is not None:
            path = _make(self._cpu / PARENT, name)
            made.append(str(path))
            _write(path / "cpu.cfs_period_us", str(_PERIOD_MICROSECONDS))
            _write(path / "cpu.cfs_quota_us", str(_quota(limits.cpu_milli)))
        return made


def find(root: Path = Path("/sys/fs/cgroup"), membership: Path = Path("/proc/self/cgroup")) -> Cgroups | None:
    """The groups this process may make, or None. Tries by making one: permissions alone do not tell."""
    try:
        own = _parse_membership(membership.read_text())
    except OSError:
        return None
    if (root / "cgroup.controllers").exists():
        found = _v2(root / own.get("", "/").lstrip("/"))
        if found is not None:
            return found
    bases = {}
    for controller in _CONTROLLERS_V1:
        base = root / controller / own.get(controller, "/").lstrip("/")
        if (base / "cgroup.procs").exists() and _may_make_groups(base):
            bases[controller] = base
    return CgroupsV1(bases.get("memory"), bases.get("cpu")) if bases else None


def kill_and_remove(paths: Sequence[str]) -> None:
    """What a keeper would have done at the end, for one that was killed."""
    processes.kill_cgroups(paths)
    for path in paths:
        with contextlib.suppress(OSError):
            os.rmdir(path)


def _v2(base: Path) -> CgroupsV2 | None:
    try:
        available = (base / "cgroup.controllers").read_text().split()
        if "memory" not in available:
            return None
        _enable(base)
    except OSError:
        return None
    return CgroupsV2(base) if _may_make_groups(base) else None


def _enable(base: Path) -> None:
    """Pass memory and cpu on to our children. A group with processes of its own may not: if we are alone in it, we move
    into a leaf first. Others' processes are not ours to move."""
    try:
        _write(base / "cgroup.subtree_control", "+memory +cpu")
    except OSError:
        if (base / "cgroup.procs").read_text().split() != [str(os.getpid())]:
            raise
        leaf = base / f"{PARENT}-agent"
        leaf.mkdir(exist_ok=True)
        _write(leaf / "cgroup.procs", "0")
        _write(base / "cgroup.subtree_control", "+memory +cpu")


def _parse_membership(text: str) -> dict[str, str]:
    """Controller to group, as in /proc/self/cgroup; v2 is the controller ""."""
    found = {}
    for line in text.splitlines():
        _number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        for controller in controllers.split(","):
            found[controller] = path
    return found


def _may_make_groups(base: Path) -> bool:
    probe = base / f"{PARENT}-probe-{os.getpid()}"
    try:
        probe.mkdir()
    except OSError:
        return False
    with contextlib.suppress(OSError):
        probe.rmdir()
    return True


def _make(parent: Path, name: str, prepare: Callable[[], None] | None = None) -> Path:
    """Make `parent/name`. A keeper may remove the empty parent at any moment: then both are made again."""
    for _ in range(10):
        if not parent.exists():
            parent.mkdir(exist_ok=True)
            if prepare is not None:
                prepare()
        try:
            (parent / name).mkdir(exist_ok=True)
        except FileNotFoundError:
            continue
        return parent / name
    raise FileNotFoundError(f"{parent} keeps disappearing")


def _quota(cpu_milli: int) -> int:
    return max(_MIN_QUOTA_MICROSECONDS, cpu_milli * _PERIOD_MICROSECONDS // 1000)


def _write(path: Path, text: str) -> None:
    # Not Path.write_text: the files of a control group may not be truncated, and want one write.
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)
