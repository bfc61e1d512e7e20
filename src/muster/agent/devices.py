"""What this machine has, what share of it a node offers, and who holds what.

GPUs are found through NVML; without the library or a driver there are none, and `fake_gpus` pretends there are some.
The `Ledger` is the node's own account: it has the last word on whether a bound pod fits, whatever the scheduler
believed.
"""

import contextlib
import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import psutil
import pynvml

from muster.api import core, quantity

GPU = "nvidia.com/gpu"
PODS = "pods"


@dataclass(frozen=True, slots=True)
class Gpu:
    index: int
    name: str
    memory_bytes: int
    uuid: str = ""


@dataclass(frozen=True, slots=True)
class Machine:
    """What can be given to pods, in whole units (CPU in thousandths)."""

    cpu_milli: int
    memory_bytes: int
    pods: int = 500
    gpus: tuple[Gpu, ...] = ()

    def amounts(self) -> dict[str, int]:
        found = {"cpu": self.cpu_milli, "memory": self.memory_bytes, PODS: self.pods}
        return found | {GPU: len(self.gpus)} if self.gpus else found

    def resource_list(self) -> dict[str, str]:
        """As a Node's status spells it."""
        listed = {"cpu": str(quantity.from_milli(self.cpu_milli)), "memory": f"{self.memory_bytes // 1024}Ki"}
        listed[PODS] = str(self.pods)
        return listed | {GPU: str(len(self.gpus))} if self.gpus else listed


def discover(fake_gpus: int | None = None, visible: str | None = None) -> Machine:
    """This machine. `visible` limits GPUs as CUDA_VISIBLE_DEVICES does: the agent may itself have been given some."""
    gpus = _nvml_gpus(visible) if fake_gpus is None else tuple(_fake_gpu(index) for index in range(fake_gpus))
    return Machine(cpu_milli=_cpus() * 1000, memory_bytes=_memory_bytes(), gpus=gpus)


def share(machine: Machine, index: int, count: int) -> Machine:
    """The part that node `index` of `count` on one machine offers. The parts together are never more than the whole."""
    size, extra = divmod(len(machine.gpus), count)
    first = index * size + min(index, extra)
    return replace(
        machine,
        cpu_milli=machine.cpu_milli // count,
        memory_bytes=machine.memory_bytes // count,
        gpus=machine.gpus[first : first + size + (index < extra)],
    )


def _cpus() -> int:
    with contextlib.suppress(AttributeError, OSError):
        return len(os.sched_getaffinity(0))
    return psutil.cpu_count() or 1


def _memory_bytes() -> int:
    """Of the machine, or less where the agent itself runs under a limit."""
    limits = [psutil.virtual_memory().total]
    for path in ("memory.max", "memory/memory.limit_in_bytes"):
        with contextlib.suppress(OSError, ValueError):
            limits.append(int((Path("/sys/fs/cgroup") / path).read_text()))
    return min(limits)


def _fake_gpu(index: int) -> Gpu:
    return Gpu(index, "fake", 16 * 2**30, f"GPU-fake-{index}")


def _nvml_gpus(visible: str | None) -> tuple[Gpu, ...]:
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return ()
    try:
        found = [_nvml_gpu(index) for index in range(pynvml.nvmlDeviceGetCount())]
    except pynvml.NVMLError:
        return ()
    finally:
        pynvml.nvmlShutdown()
    if visible is None:
        return tuple(found)
    wanted = [word.strip() for word in visible.split(",") if word.strip()]
    return tuple(gpu for gpu in found if str(gpu.index) in wanted or gpu.uuid in wanted)


def _nvml_gpu(index: int) -> Gpu:
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    name, uuid = pynvml.nvmlDeviceGetName(handle), pynvml.nvmlDeviceGetUUID(handle)
    return Gpu(index, str(name), int(pynvml.nvmlDeviceGetMemoryInfo(handle).total), str(uuid))


@dataclass(frozen=True, slots=True)
class Shortage:
    """Why a pod does not fit, worded as a kubelet words it."""

    resource: str
    requested: int
    used: int
    capacity: int

    @property
    def reason(self) -> str:
        return f"OutOf{self.resource}"

    @property
    def message(self) -> str:
        return (
            f"Pod was rejected: Node didn't have enough resource: {self.resource}, requested: {self.requested}, "
            f"used: {self.used}, capacity: {self.capacity}"
        )


@dataclass(frozen=True, slots=True)
class Grant:
    """What one pod holds. `gpus`: for each container that asked, the indices it sees."""

    needs: Mapping[str, int]
    gpus: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    @property
    def gpu_indices(self) -> frozenset[int]:
        return frozenset(index for held in self.gpus.values() for index in held)


class Ledger:
    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self._grants: dict[str, Grant] = {}

    def shortage(self, needs: Mapping[str, int], *, besides: Collection[str] = ()) -> Shortage | None:
        """What is missing for `needs` if the pods `besides` were gone; None where it fits."""
        capacity = self.machine.amounts()
        held = [grant for uid, grant in self._grants.items() if uid not in besides]
        for name, wanted in needs.items():
            used = sum(grant.needs.get(name, 0) for grant in held)
            if wanted and wanted + used > capacity.get(name, 0):
                return Shortage(name, wanted, used, capacity.get(name, 0))
        return None

    def grant(self, uid: str, needs: Mapping[str, int], spec: core.PodSpec) -> Grant:
        """Take what the pod needs. The caller has seen that there is no shortage."""
        taken = frozenset[int]().union(*(grant.gpu_indices for grant in self._grants.values()))
        free = [gpu.index for gpu in self.machine.gpus if gpu.index not in taken]
        granted = self._grants[uid] = Grant(dict(needs), _deal(spec, free))
        return granted

    def restore(self, uid: str, needs: Mapping[str, int], gpus: Mapping[str, Iterable[int]]) -> Grant:
        """Put back what a pod held before the agent restarted, also where that is more than the node has now."""
        granted = self._grants[uid] = Grant(dict(needs), {name: tuple(held) for name, held in gpus.items()})
        return granted

    def release(self, uid: str) -> bool:
        return self._grants.pop(uid, None) is not None


def _deal(spec: core.PodSpec, free: list[int]) -> dict[str, tuple[int, ...]]:
    """GPUs for each container. Init containers have ended when the others start, and use the same ones; sidecars have
    not, and get their own."""
    dealt: dict[str, tuple[int, ...]] = {}
    position = 0
    sidecars = [c for c in spec.init_containers if c.restart_policy == "Always"]
    for container in (*sidecars, *spec.containers):
        count = _gpus_of(container)
        if count:
            dealt[container.name] = tuple(free[position : position + count])
            position += count
    held_by_sidecars = sum(len(dealt.get(c.name, ())) for c in sidecars)
    for container in spec.init_containers:
        count = _gpus_of(container)
        if count and container.name not in dealt:
            dealt[container.name] = tuple(free[held_by_sidecars : held_by_sidecars + count])
    return dealt


def _gpus_of(container: core.Container) -> int:
    resources = container.resources
    if resources is None:
        return 0
    asked = (resources.limits or {}).get(GPU) or (resources.requests or {}).get(GPU)
    return quantity.parse(asked).units if asked is not None else 0


def visibility(grant: Grant, container: str) -> dict[str, str]:
    """The variables that show a container its GPUs and no others."""
    shown = ",".join(str(index) for index in grant.gpus.get(container, ()))
    # NVML counts in PCI order, CUDA by default does not.
    return {"CUDA_VISIBLE_DEVICES": shown, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
