"""Nodes as Determined shows agents: their slots, what runs on each, and whether they take more. Pure.

A slot is a GPU; where no node of its pools has one, a CPU. Which pod has which GPU is what the scheduler wrote on the
pod; pods that nobody wrote it on are shown in the order in which they came.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from muster.api import conditions, core, quantity
from muster.api.core.requests import CPU, pod_requests
from muster.api.muster.names import ALLOCATION_LABEL, TASK_LABEL
from muster.api.muster.node_slots import DISABLED_SLOTS, DRAINING, GPU, GPU_PRODUCT, GPU_UUIDS, parse_disabled
from muster.api.quantity import BadQuantity
from muster.cluster.devices import parse_holdings
from muster.cluster.pods import DEVICES_ANNOTATION
from muster.engines.protocol import Pool

_ENDED: Final = frozenset({"Succeeded", "Failed"})


class DeviceType(StrEnum):
    CPU = "CPU"
    CUDA = "CUDA"


class ContainerState(StrEnum):
    ASSIGNED = "ASSIGNED"
    STARTING = "STARTING"
    RUNNING = "RUNNING"
    TERMINATED = "TERMINATED"


@dataclass(frozen=True, slots=True)
class Device:
    id: int
    brand: str
    uuid: str
    type: DeviceType


@dataclass(frozen=True, slots=True)
class ContainerView:
    """A pod. `task`: empty where it is none of ours."""

    id: str
    state: ContainerState
    namespace: str
    allocation: str
    task: str
    slots: Sequence[int]


@dataclass(frozen=True, slots=True)
class SlotView:
    device: Device
    is_enabled: bool
    is_draining: bool
    container: ContainerView | None


@dataclass(frozen=True, slots=True)
class AgentView:
    """`registered`: as a time of the API."""

    id: str
    version: str
    registered: str | None
    addresses: Sequence[str]
    pools: Sequence[str]
    is_enabled: bool
    is_draining: bool
    slots: Sequence[SlotView]
    containers: Sequence[ContainerView]


def agents(
    nodes: Sequence[core.Node], pods: Mapping[str, Sequence[core.Pod]], pools: Sequence[Pool]
) -> list[AgentView]:
    """`pods`: by the name of their node."""
    has_gpus = any(_units(node, GPU) for node in nodes)
    return [_agent(node, pods.get(node.metadata.name, ()), pools, has_gpus) for node in nodes]


def _agent(node: core.Node, pods: Sequence[core.Pod], pools: Sequence[Pool], has_gpus: bool) -> AgentView:
    name, annotations = node.metadata.name, node.metadata.annotations or {}
    own = [pool for pool in pools if name in pool.nodes]
    is_ready = conditions.is_true(node.status.conditions, "Ready")
    is_enabled = is_ready and not node.spec.unschedulable
    is_draining = bool(node.spec.unschedulable) and annotations.get(DRAINING) == "true"
    devices = _devices(node, _slot_resource(node, own, has_gpus))
    running = [pod for pod in pods if pod.status.phase not in _ENDED]
    containers = _containers(running, devices)
    disabled = parse_disabled(annotations.get(DISABLED_SLOTS))
    holders = {number: container for container in containers for number in container.slots}
    slots = [
        SlotView(
            device,
            is_enabled and device.id not in disabled,
            is_draining or disabled.get(device.id, False),
            holders.get(device.id),
        )
        for device in devices
    ]
    info = node.status.node_info
    return AgentView(
        name,
        "" if info is None else info.kubelet_version,
        node.metadata.creation_timestamp,
        [each.address for each in node.status.addresses if each.type in ("InternalIP", "ExternalIP")],
        [pool.name for pool in own],
        is_enabled,
        is_draining,
        slots,
        containers,
    )


def _slot_resource(node: core.Node, own: Collection[Pool], has_gpus: bool) -> str:
    """Empty where the node has none: a CPU is none where its pools count GPUs."""
    if _units(node, GPU):
        return GPU
    counts_cpus = any(pool.slot_resource == CPU for pool in own) if own else not has_gpus
    return CPU if counts_cpus else ""


def _devices(node: core.Node, resource: str) -> list[Device]:
    if not resource:
        return []
    count = _units(node, resource)
    if resource == CPU:
        info = node.status.node_info
        return [Device(number, (info and info.architecture) or "cpu", "", DeviceType.CPU) for number in range(count)]
    uuids = (node.metadata.annotations or {}).get(GPU_UUIDS, "").split(",")
    brand = (node.metadata.labels or {}).get(GPU_PRODUCT, "")
    return [
        Device(number, brand, uuids[number] if number < len(uuids) else "", DeviceType.CUDA) for number in range(count)
    ]


def _units(node: core.Node, resource: str) -> int:
    """Whole ones of all it has, used or not."""
    found = quantity.parsed_or_none((node.status.capacity or {}).get(resource))
    return 0 if found is None else found.milli // 1000


def _containers(pods: Sequence[core.Pod], devices: Sequence[Device]) -> list[ContainerView]:
    resource = "" if not devices else GPU if devices[0].type is DeviceType.CUDA else CPU
    free = [device.id for device in devices]
    placed: dict[str, Sequence[int]] = {}
    ordered = sorted(pods, key=lambda pod: (pod.status.start_time or "~", pod.metadata.name))
    for pod in ordered:
        said = _said(pod, resource, len(devices))
        if said:
            placed[pod.metadata.uid] = said
            free = [number for number in free if number not in said]
    for pod in ordered:
        if pod.metadata.uid not in placed:
            wanted = _wanted(pod, resource)
            placed[pod.metadata.uid], free = free[:wanted], free[wanted:]
    return [_container(pod, placed[pod.metadata.uid]) for pod in ordered]


def _said(pod: core.Pod, resource: str, count: int) -> Sequence[int]:
    written = (pod.metadata.annotations or {}).get(DEVICES_ANNOTATION) if resource == GPU else None
    holdings = parse_holdings(written) if written else None
    return [each.device for each in holdings or () if each.device < count]


def _wanted(pod: core.Pod, resource: str) -> int:
    """Whole slots: a task that asks for less than a CPU has none."""
    try:
        amount = pod_requests(pod.spec).get(resource, 0)
    except BadQuantity:
        return 0
    return amount // 1000 if resource == CPU else amount


def _container(pod: core.Pod, slots: Sequence[int]) -> ContainerView:
    meta = pod.metadata
    labels = meta.labels or {}
    task, allocation = labels.get(TASK_LABEL, ""), labels.get(ALLOCATION_LABEL, "")
    # Names of ours are there once; those of others need their namespace.
    id = meta.name if task else f"{meta.namespace}/{meta.name}"
    return ContainerView(id, _state(pod), meta.namespace, allocation, task, slots)


def _state(pod: core.Pod) -> ContainerState:
    if pod.status.phase == "Running":
        return ContainerState.RUNNING
    return ContainerState.STARTING if pod.status.start_time else ContainerState.ASSIGNED
