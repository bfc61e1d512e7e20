"""The node's own objects: its Node, kept true, and its Lease, renewed. Patches only: what operators set stays.

The Lease is the heartbeat; the Node is written when something about it has changed, when somebody else said that it was
not ready, or every few minutes.
"""

import contextlib
import platform
import random
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from muster.agent.devices import Machine
from muster.api import coordination, core, errors, raw, timestamps
from muster.api.meta import Instant
from muster.api.muster import node_slots
from muster.api.objects import Key, Object
from muster.api.raw import Document
from muster.runtime.clock import Clock
from muster.store.protocol import Create, Patch, PatchType, Store, write_one
from muster.version import VERSION

CERTIFICATE = "muster.dev/agent-certificate"
"""An annotation of a Node: the SHA-256 of the certificate by which its agent is known, in hexadecimal."""
LEASES = "kube-node-lease"
LEASE_SECONDS = 40
RENEW_SECONDS = 10.0
_REFRESH_SECONDS = 300.0
_LOW_MEMORY_BYTES = 100 * 2**20
_LOW_DISK_BYTES = 512 * 2**20
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


@dataclass(frozen=True, slots=True)
class Identity:
    """What a node says of itself that does not change while it runs."""

    name: str
    address: str
    machine: Machine
    directory: Path
    labels: Mapping[str, str] = field(default_factory=dict)
    port: int = 0  # of the log endpoint; 0 where logs are read in process
    fingerprint: str = ""  # of that endpoint's certificate


class Registration:
    def __init__(self, store: Store, identity: Identity, *, clock: Clock, entropy: random.Random) -> None:
        self._store = store
        self._identity = identity
        self._clock = clock
        self._entropy = entropy
        self._written_at = float("-inf")
        self.disabled: dict[int, bool] = {}
        """Slots that are not to be used, as the node last said."""

    async def keep(self) -> None:
        """One round: the node is there and says what is true, and its lease is fresh. Raises ApiError or OSError."""
        node = await self._node()
        self.disabled = node_slots.parse_disabled((node.meta.annotations or {}).get(node_slots.DISABLED_SLOTS))
        await self._refresh(node)
        await self._renew(node)

    def pause(self) -> float:
        # Spread out, so that nodes that started together do not write together for ever.
        return RENEW_SECONDS * (0.9 + 0.1 * self._entropy.random())

    async def _node(self) -> Object:
        key = Key("", self._identity.name)
        wanted, noted = labels(self._identity), annotations(self._identity)
        try:
            node = await self._store.get(core.NODE, key)
        except errors.NotFound:
            metadata = {"name": self._identity.name, "labels": wanted, "annotations": noted}
            document: Document = {"metadata": metadata, "spec": {}}
            self._written_at = float("-inf")
            return await write_one(self._store, Create(core.NODE, document))
        present = node.meta.annotations or {}
        is_same = wanted.items() <= node.labels.items() and noted.items() <= present.items()
        if not is_same:
            body = {"metadata": {"labels": wanted, "annotations": noted}}
            node = await write_one(self._store, Patch(core.NODE, key, body))
        return node

    async def _refresh(self, node: Object) -> None:
        now, monotonic = self._clock.now(), self._clock.monotonic()
        known = node.document().get("status") or {}
        wanted = status(self._identity, known, now, self.disabled)
        is_same = all(_plain(known.get(part)) == _plain(value) for part, value in wanted.items())
        if is_same and monotonic - self._written_at < _REFRESH_SECONDS:
            return
        body = {"status": wanted}
        await write_one(self._store, Patch(core.NODE, node.key, body, type=PatchType.STRATEGIC, subresource="status"))
        self._written_at = monotonic

    async def _renew(self, node: Object) -> None:
        name = self._identity.name
        now = timestamps.to_micro_text(self._clock.now())
        spec = {"holderIdentity": name, "leaseDurationSeconds": LEASE_SECONDS, "renewTime": now}
        try:
            await write_one(self._store, Patch(coordination.LEASE, Key(LEASES, name), {"spec": spec}))
        except errors.NotFound:
            owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": node.uid}
            meta = {"name": name, "namespace": LEASES, "ownerReferences": [owner]}
            await write_one(self._store, Create(coordination.LEASE, {"metadata": meta, "spec": spec}))


def labels(identity: Identity) -> dict[str, str]:
    return {
        "kubernetes.io/hostname": identity.name,
        "kubernetes.io/os": platform.system().lower(),
        "kubernetes.io/arch": _architecture(),
        "muster.dev/machine": _label_value(machine_id() or socket.gethostname()),
        **_products(identity.machine),
        **identity.labels,
    }


def annotations(identity: Identity) -> dict[str, str]:
    gpus = identity.machine.gpus
    found = {node_slots.GPU_UUIDS: ",".join(gpu.uuid for gpu in gpus)} if gpus else {}
    return found | ({CERTIFICATE: identity.fingerprint} if identity.fingerprint else {})


def _products(machine: Machine) -> dict[str, str]:
    """As NVIDIA's own discovery labels nodes, which have GPUs of one kind."""
    names = sorted({gpu.name for gpu in machine.gpus})
    return {node_slots.GPU_PRODUCT: _label_value("-".join(names[0].split()))} if len(names) == 1 else {}


def status(identity: Identity, known: Document, now: Instant, disabled: Mapping[int, bool] | None = None) -> Document:
    """The node's status; times of conditions that did not change are kept from `known`. `disabled`: slots that are not
    to be used."""
    resources = identity.machine.resource_list()
    rendered: Document = {
        "capacity": resources,
        "allocatable": node_slots.left(resources, disabled or {}),
        "addresses": [
            {"type": "InternalIP", "address": identity.address},
            {"type": "Hostname", "address": identity.name},
        ],
        "conditions": _conditions(identity.directory, known, now),
        "nodeInfo": _node_info(),
    }
    if identity.port:
        rendered["daemonEndpoints"] = {"kubeletEndpoint": {"Port": identity.port}}
    return rendered


def _conditions(directory: Path, known: Document, now: Instant) -> list[Document]:
    before = {str(c.get("type")): c for c in raw.dig(known, "conditions", default=[]) if isinstance(c, dict)}
    free_disk = psutil.disk_usage(str(directory)).free
    is_short_of_memory = psutil.virtual_memory().available < _LOW_MEMORY_BYTES
    is_short_of_disk = free_disk < _LOW_DISK_BYTES
    is_short_of_pids = _pids_are_short()
    told = (
        ("Ready", True, "AgentReady", "the agent runs and takes pods"),
        _pressure("MemoryPressure", is_short_of_memory, "SufficientMemory", "InsufficientMemory", "memory"),
        _pressure("DiskPressure", is_short_of_disk, "SufficientDisk", "InsufficientDisk", "disk"),
        _pressure("PIDPressure", is_short_of_pids, "SufficientPID", "InsufficientPID", "process ids"),
    )
    rendered = []
    for kind, is_true, reason, message in told:
        word = "True" if is_true else "False"
        old = before.get(kind, {})
        since = old.get("lastTransitionTime") if old.get("status") == word else None
        rendered.append(
            {
                "type": kind,
                "status": word,
                "reason": reason,
                "message": message,
                "lastHeartbeatTime": timestamps.to_text(now),
                "lastTransitionTime": since or timestamps.to_text(now),
            }
        )
    return rendered


def _pressure(kind: str, is_short: bool, good: str, bad: str, what: str) -> tuple[str, bool, str, str]:
    return kind, is_short, bad if is_short else good, f"{what} {'is short' if is_short else 'is sufficient'}"


def _pids_are_short() -> bool:
    try:
        total = int(Path("/proc/loadavg").read_text().split()[3].partition("/")[2])
        return total > 0.95 * int(Path("/proc/sys/kernel/pid_max").read_text())
    except (OSError, ValueError, IndexError):
        return False


def _plain(value: raw.JSON) -> raw.JSON:
    """Without heartbeats, which alone are no news; conditions that others set are not compared."""
    if not isinstance(value, list):
        return value
    ours = ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure", "InternalIP", "Hostname")
    return [
        {name: field for name, field in item.items() if name != "lastHeartbeatTime"}
        for item in value
        if item.get("type") in ours
    ]


def _node_info() -> Document:
    return {
        "machineID": machine_id(),
        "systemUUID": machine_id(),
        "bootID": _read("/proc/sys/kernel/random/boot_id"),
        "kernelVersion": platform.release(),
        "osImage": _os_image(),
        "containerRuntimeVersion": f"host-process://{VERSION}",
        "kubeletVersion": f"muster-{VERSION}",
        "kubeProxyVersion": "",
        "operatingSystem": platform.system().lower(),
        "architecture": _architecture(),
    }


def machine_id() -> str:
    return _read("/etc/machine-id")


def _architecture() -> str:
    machine = platform.machine().lower()
    return _ARCHITECTURES.get(machine, machine)


def _os_image() -> str:
    with contextlib.suppress(OSError):
        return platform.freedesktop_os_release().get("PRETTY_NAME", "")
    return platform.platform()


def _read(path: str) -> str:
    with contextlib.suppress(OSError):
        return Path(path).read_text().strip()
    return ""


def _label_value(text: str) -> str:
    kept = "".join(letter if letter.isascii() and (letter.isalnum() or letter in "-_.") else "-" for letter in text)
    return kept[:63].strip("-_.")


def own_address() -> str:
    """The address from which this machine would speak to others. Nothing is sent."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))  # an address that belongs to nobody: documentation's
        return str(probe.getsockname()[0])
    return "127.0.0.1"
