"""What the pods of a node use: figures of the machine, of the processes of each pod, and of the GPUs that it holds.

Taken when somebody asks, and rates since they asked last: a node of whose pods nobody wants to know does nothing. The
machine's processes are looked through once, however many pods there are. The names of figures are those of Determined's
own profiler, as far as it has them; those that begin with `pod_` are of the pod alone.
"""

import contextlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

import psutil
import pynvml

Figures: TypeAlias = dict[str, "float | Figures"]
"""By name; those of devices nested below the device."""
Samples: TypeAlias = Mapping[str, Mapping[str, Figures]]
"""By pod, and group."""
_ROOT: Final = "/"
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class Occupant:
    """A pod that runs. `leaders`: the processes that all others of it come from. `gpus`: those it holds, by uuid."""

    uid: str
    leaders: Sequence[int]
    gpus: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class _Process:
    """`cpu_seconds`: with those of its children that have ended."""

    parent: int
    cpu_seconds: float
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class _Counts:
    """Of the machine; they only grow."""

    busy: float
    total: float
    sent: int
    received: int
    read: int
    written: int
    operations: int


@dataclass(frozen=True, slots=True)
class _Use:
    """Of one pod; the first three only grow."""

    cpu_seconds: float
    read: int
    written: int
    memory_bytes: int


class Sampler:
    """Not for two threads at once."""

    def __init__(self, monotonic: Callable[[], float], processes: Path = Path("/proc")) -> None:
        self._monotonic = monotonic
        self._processes = processes
        self._gpus = _Gpus()
        self._at = 0.0
        self._counts: _Counts | None = None
        self._uses: dict[str, _Use] = {}

    def sample(self, pods: Sequence[Occupant]) -> Samples:
        """What is a rate is missing where there is nothing yet to compare with."""
        now = self._monotonic()
        seconds, self._at = now - self._at, now
        before, self._counts = self._counts, _counts()
        machine = _machine_figures(before, self._counts, seconds)
        used_before, self._uses = self._uses, self._used(pods)
        return {
            pod.uid: _with_pod(machine, used_before.get(pod.uid), self._uses[pod.uid], seconds)
            | ({"gpu": found} if (found := self._gpus.figures(pod.gpus)) else {})
            for pod in pods
        }

    def _used(self, pods: Sequence[Occupant]) -> dict[str, _Use]:
        if not pods:
            return {}
        processes = _listed(self._processes)
        children: dict[int, list[int]] = {}
        for pid, process in processes.items():
            children.setdefault(process.parent, []).append(pid)
        return {pod.uid: self._use(_family(pod.leaders, children), processes) for pod in pods}

    def _use(self, family: Iterable[int], processes: Mapping[int, _Process]) -> _Use:
        cpu, memory, read, written = 0.0, 0, 0, 0
        for pid in family:
            process = processes.get(pid)
            if process is None:
                continue
            cpu += process.cpu_seconds
            memory += process.memory_bytes
            has_read, has_written = _transferred(self._processes / str(pid) / "io")
            read += has_read
            written += has_written
        return _Use(cpu, read, written, memory)


# The machine


def _counts() -> _Counts:
    times = psutil.cpu_times()
    idle = times.idle + getattr(times, "iowait", 0.0)
    network, disk = psutil.net_io_counters(), psutil.disk_io_counters()  # None where there are none
    return _Counts(
        busy=sum(times) - idle,
        total=sum(times),
        sent=getattr(network, "bytes_sent", 0),
        received=getattr(network, "bytes_recv", 0),
        read=getattr(disk, "read_bytes", 0),
        written=getattr(disk, "write_bytes", 0),
        operations=getattr(disk, "read_count", 0) + getattr(disk, "write_count", 0),
    )


def _machine_figures(before: _Counts | None, now: _Counts, seconds: float) -> dict[str, Figures]:
    found: dict[str, Figures] = {
        "memory": {"memory_free": float(psutil.virtual_memory().available)},
        "disk": {_ROOT: {"disk_util": psutil.disk_usage(_ROOT).percent}},
    }
    if before is None or seconds <= 0:
        return found
    passed = now.total - before.total
    found["cpu"] = {"cpu_util_simple": 100.0 * (now.busy - before.busy) / passed if passed > 0 else 0.0}
    found["network"] = {
        "net_throughput_sent": (now.sent - before.sent) / seconds,
        "net_throughput_recv": (now.received - before.received) / seconds,
    }
    found["disk"] |= {
        "disk_iops": (now.operations - before.operations) / seconds,
        "disk_throughput_read": (now.read - before.read) / seconds,
        "disk_throughput_write": (now.written - before.written) / seconds,
    }
    return found


# Pods


def _with_pod(machine: Mapping[str, Figures], before: _Use | None, now: _Use, seconds: float) -> dict[str, Figures]:
    found = {group: dict(figures) for group, figures in machine.items()}
    found["memory"]["pod_memory_used"] = float(now.memory_bytes)
    if before is not None and seconds > 0:
        # Never less than nothing: a process that ended without being waited for takes what it counted with it.
        found.setdefault("cpu", {})["pod_cpu_cores"] = max(0.0, now.cpu_seconds - before.cpu_seconds) / seconds
        found["disk"]["pod_disk_throughput_read"] = max(0, now.read - before.read) / seconds
        found["disk"]["pod_disk_throughput_write"] = max(0, now.written - before.written) / seconds
    return found


def _family(leaders: Iterable[int], children: Mapping[int, Sequence[int]]) -> set[int]:
    found: set[int] = set()
    waiting = list(leaders)
    while waiting:
        pid = waiting.pop()
        if pid not in found:
            found.add(pid)
            waiting += children.get(pid, ())
    return found


def _listed(folder: Path) -> dict[int, _Process]:
    """All processes of the machine, where it tells of them in files. Read by hand: a library takes ten times as long,
    and there may be thousands."""
    found: dict[int, _Process] = {}
    try:
        names = [name for name in os.listdir(folder) if name.isdigit()]
    except OSError:
        return found
    for name in names:
        with contextlib.suppress(OSError, ValueError, IndexError):
            # What stands in brackets is the program's name, and may have brackets in it.
            fields = (folder / name / "stat").read_bytes().rpartition(b")")[2].split()
            cpu = sum(map(int, fields[11:15])) / _TICKS
            found[int(name)] = _Process(int(fields[1]), cpu, int(fields[21]) * _PAGE_BYTES)
    return found


def _transferred(path: Path) -> tuple[int, int]:
    """Bytes that a process has read from disks, and written; 0 where we may not know."""
    try:
        lines = dict(line.split(b": ") for line in path.read_bytes().splitlines())
        return int(lines[b"read_bytes"]), int(lines[b"write_bytes"])
    except (OSError, ValueError, KeyError):
        return 0, 0


# GPUs


class _Gpus:
    """Through NVML, opened when the first pod holds one; without the library or a driver there are no figures."""

    def __init__(self) -> None:
        self._handles: dict[str, object] | None = None

    def figures(self, uuids: Sequence[str]) -> Figures:
        found: Figures = {}
        for uuid in uuids:
            handle = self._known().get(uuid)
            if handle is not None:
                with contextlib.suppress(pynvml.NVMLError):
                    found[uuid] = _gpu_figures(handle)
        return found

    def _known(self) -> Mapping[str, object]:
        if self._handles is None:
            self._handles = {}
            with contextlib.suppress(pynvml.NVMLError):
                pynvml.nvmlInit()
                for index in range(pynvml.nvmlDeviceGetCount()):
                    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
                    self._handles[str(pynvml.nvmlDeviceGetUUID(handle))] = handle
        return self._handles


def _gpu_figures(handle: object) -> Figures:
    memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
    found: Figures = {
        "gpu_util": float(pynvml.nvmlDeviceGetUtilizationRates(handle).gpu),
        "gpu_free_memory": float(memory.free),
        "gpu_used_memory": float(memory.used),
    }
    with contextlib.suppress(pynvml.NVMLError):  # not all tell
        found["gpu_power"] = pynvml.nvmlDeviceGetPowerUsage(handle) / 1000
    return found
