"""What this machine has, what share of it a node offers, and who holds what.

GPUs are found through NVML; without the library or a driver there are none, and `fake_gpus` pretends there are some.
The `Ledger` is the node's own account: it has the last word on whether a bound pod fits, whatever the scheduler
believed. A pod that says which GPUs it was given gets those; another gets what the scheduler would have chosen.
"""

import contextlib
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import psutil
import pynvml

from muster.api import core, quantity
from muster.cluster.amounts import GPU, GPU_MILLI, WHOLE_GPU
from muster.cluster.columns import PODS
from muster.cluster.devices import Holding, Holdings, Wants, choose, parse_holdings, wants
from muster.cluster.pods import Shapes


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
        return found | _gpu_amounts(len(self.gpus))

    def resource_list(self) -> dict[str, str]:
        """As a Node's status spells it."""
        listed = {"cpu": str(quantity.from_milli(self.cpu_milli)), "memory": f"{self.memory_bytes // 1024}Ki"}
        listed[PODS] = str(self.pods)
        return listed | {name: str(amount) for name, amount in _gpu_amounts(len(self.gpus)).items()}


def _gpu_amounts(count: int) -> dict[str, int]:
    return {GPU: count, GPU_MILLI: count * WHOLE_GPU} if count else {}


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
    note: str = ""

    @property
    def reason(self) -> str:
        return f"OutOf{self.resource}"

    @property
    def message(self) -> str:
        return (
            f"Pod was rejected: Node didn't have enough resource: {self.resource}, requested: {self.requested}, "
            f"used: {self.used}, capacity: {self.capacity}{self.note and f' ({self.note})'}"
        )


@dataclass(frozen=True, slots=True)
class Claim:
    """What a pod asks of its node."""

    spec: core.PodSpec
    needs: Mapping[str, int]
    wanted: Wants
    stated: Holdings | None = None
    """By position among the node's GPUs, where the scheduler has chosen and what it chose is what the pod wants."""

    @property
    def share(self) -> int:
        return self.needs.get(GPU_MILLI, 0)


def claim(pod: core.Pod) -> Claim:
    info = Shapes().info(pod)
    wanted = wants(info)
    stated = parse_holdings(info.devices) if info.devices else None
    if stated is not None:
        # Whole ones first, as when we choose: a share that is all of a GPU is the last of them.
        stated = tuple(sorted(stated, key=lambda holding: holding.milli < WHOLE_GPU))
        shares = [holding.milli for holding in stated if holding.milli < WHOLE_GPU]
        if wanted != (len(stated) - len(shares), sum(shares)) or len(shares) > 1:
            stated = None
    return Claim(pod.spec, info.needs, wanted, stated)


@dataclass(frozen=True, slots=True)
class Grant:
    """What one pod holds. GPUs are named by their index on the machine, which is also how CUDA knows them."""

    needs: Mapping[str, int]
    holdings: Holdings = ()
    gpus: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """For each container that has any, those it sees; one that it has a share of comes last."""
    shares: Mapping[str, int] = field(default_factory=dict)
    """For each container that has a share: how many thousandths."""


class Ledger:
    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.disabled: frozenset[int] = frozenset()
        """GPUs, by position, that are not to be used. Who chooses GPUs for pods has the last word: it hears of it
        sooner than we do."""
        self._grants: dict[str, Grant] = {}

    def shortage(self, claimed: Claim, *, besides: Collection[str] = ()) -> Shortage | None:
        """What is missing for the claim if the pods `besides` were gone; None where it fits."""
        capacity = self.machine.amounts()
        held = [grant for uid, grant in self._grants.items() if uid not in besides]
        for name, wanted in claimed.needs.items():
            if name in (GPU, GPU_MILLI):
                continue  # not a matter of sums: see below
            used = sum(grant.needs.get(name, 0) for grant in held)
            if wanted and wanted + used > capacity.get(name, 0):
                return Shortage(name, wanted, used, capacity.get(name, 0))
        return self._gpu_shortage(claimed, besides)

    def _gpu_shortage(self, claimed: Claim, besides: Collection[str]) -> Shortage | None:
        free = self._free(besides)
        note = ""
        if claimed.stated is not None:
            lacking = [holding for holding in claimed.stated if _is_lacking(holding, free)]
            if not lacking:
                return None
            there = free[lacking[0].device] if lacking[0].device < len(free) else 0
            note = f"GPU {lacking[0].device} of this node, which was chosen for it, has {there} of {WHOLE_GPU} free"
        elif not any(claimed.wanted) or choose(free, claimed.wanted) is not None:
            return None
        if claimed.share > WHOLE_GPU:
            note = f"a share is of one GPU; ask for {GPU} instead"
        elif claimed.needs.get(GPU):
            whole = claimed.needs[GPU]
            return Shortage(GPU, whole, sum(milli < WHOLE_GPU for milli in free), len(free), note)
        capacity = WHOLE_GPU * len(free)
        return Shortage(GPU_MILLI, claimed.share, capacity - sum(free), capacity, note)

    def _free(self, besides: Collection[str] = ()) -> list[int]:
        """Thousandths of each GPU that nobody holds, by position. Not below zero: what was restored may be too much."""
        left = {gpu.index: WHOLE_GPU for gpu in self.machine.gpus}
        for uid, grant in self._grants.items():
            if uid not in besides:
                for index, milli in grant.holdings:
                    if index in left:
                        left[index] = max(0, left[index] - milli)
        return list(left.values())

    def grant(self, uid: str, claimed: Claim) -> Grant:
        """Take what the pod claims. The caller has seen that there is no shortage."""
        chosen = claimed.stated if claimed.stated is not None else self._choose(claimed.wanted)
        assert chosen is not None, "the caller has seen that it fits"
        holdings = tuple(Holding(self.machine.gpus[one.device].index, one.milli) for one in chosen)
        return self.restore(uid, _deal(claimed, holdings))

    def _choose(self, wanted: Wants) -> Holdings | None:
        free = self._free()
        usable = [0 if position in self.disabled else milli for position, milli in enumerate(free)]
        return choose(usable, wanted) or choose(free, wanted)

    def restore(self, uid: str, granted: Grant) -> Grant:
        """Put back what a pod held before the agent restarted, also where that is more than the node has now."""
        self._grants[uid] = granted
        return granted

    def release(self, uid: str) -> bool:
        return self._grants.pop(uid, None) is not None


def _is_lacking(holding: Holding, free: list[int]) -> bool:
    return holding.device >= len(free) or free[holding.device] < holding.milli


def _deal(claimed: Claim, holdings: Holdings) -> Grant:
    """GPUs for each container. Init containers have ended when the others start, and use the same ones; sidecars have
    not, and get their own."""
    spec = claimed.spec
    indices = [holding.device for holding in holdings]
    shared = (indices.pop(),) if claimed.share else ()
    dealt: dict[str, tuple[int, ...]] = {}
    position = 0
    sidecars = [c for c in spec.init_containers if c.restart_policy == "Always"]
    for container in (*sidecars, *spec.containers):
        count = _asked(container, GPU)
        if count:
            dealt[container.name] = tuple(indices[position : position + count])
            position += count
    held_by_sidecars = sum(len(dealt.get(c.name, ())) for c in sidecars)
    for container in spec.init_containers:
        count = _asked(container, GPU)
        if count and container.name not in dealt:
            dealt[container.name] = tuple(indices[held_by_sidecars : held_by_sidecars + count])
    shares = _shares(claimed) if shared else {}
    for name in shares:
        dealt[name] = dealt.get(name, ()) + shared
    return Grant(claimed.needs, holdings, dealt, shares)


def _shares(claimed: Claim) -> dict[str, int]:
    """Who has the pod's share of a GPU: the containers that ask for some, or all where the pod asks as a whole."""
    containers = (*claimed.spec.init_containers, *claimed.spec.containers)
    asked = {container.name: _asked(container, GPU_MILLI) for container in containers}
    return {name: milli for name, milli in asked.items() if milli} or dict.fromkeys(asked, claimed.share)


def _asked(container: core.Container, resource: str) -> int:
    resources = container.resources
    if resources is None:
        return 0
    asked = (resources.limits or {}).get(resource) or (resources.requests or {}).get(resource)
    return quantity.parse(asked).units if asked is not None else 0


def visibility(grant: Grant, container: str) -> dict[str, str]:
    """The variables that show a container its GPUs and no others, and how much of one it was given."""
    shown = grant.gpus.get(container, ())
    # NVML counts in PCI order, CUDA by default does not.
    found = {"CUDA_VISIBLE_DEVICES": ",".join(map(str, shown)), "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    share = grant.shares.get(container, 0)
    if share:
        found["MUSTER_GPU_MILLI"] = str(share)
        # CUDA has one number for all GPUs of a process: beside whole ones it would hold those back too.
        if share < WHOLE_GPU and len(shown) == 1:
            found["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = f"{share / 10:g}"
    return found
