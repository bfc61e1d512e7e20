"""The configuration of a task as it is understood: typed, complete, and as a document for people to read. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from muster.api.raw import Document
from muster.engines.protocol import DEFAULT_PRIORITY

DEVICES: Final = ("cpu", "cuda", "rocm")
"""What images and variables can be told apart by."""


class TaskType(StrEnum):
    COMMAND = "COMMAND"
    NOTEBOOK = "NOTEBOOK"
    SHELL = "SHELL"
    TENSORBOARD = "TENSORBOARD"
    GENERIC = "GENERIC"
    TRIAL = "TRIAL"
    CHECKPOINT_GC = "CHECKPOINT_GC"

    @property
    def words(self) -> str:
        special = {"TENSORBOARD": "TensorBoard", "GENERIC": "Generic task", "CHECKPOINT_GC": "Removal of checkpoints"}
        return special.get(self.value, self.value.capitalize())


class IdleType(StrEnum):
    """What keeps a notebook from being idle, beside requests to it."""

    KERNELS_OR_TERMINALS = "kernels_or_terminals"
    KERNEL_CONNECTIONS = "kernel_connections"
    ACTIVITY = "activity"


@dataclass(frozen=True, slots=True)
class BindMount:
    host_path: str
    container_path: str
    """Relative to the working directory, or absolute."""
    is_read_only: bool = False
    propagation: str = "rprivate"

    def document(self) -> Document:
        return {
            "host_path": self.host_path,
            "container_path": self.container_path,
            "read_only": self.is_read_only,
            "propagation": self.propagation,
        }


@dataclass(frozen=True, slots=True)
class ConfigPort:
    """A port of the task that is reached through the server."""

    port: int
    is_tcp: bool = False
    is_unauthenticated: bool = False

    def document(self) -> Document:
        return {
            "proxy_port": self.port,
            "proxy_tcp": self.is_tcp,
            "unauthenticated": self.is_unauthenticated,
        }


@dataclass(frozen=True, slots=True)
class Environment:
    image: Mapping[str, str] = field(default_factory=dict)
    """By device."""
    variables: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """By device: `NAME=value`; the first of a name counts."""
    proxy_ports: Sequence[ConfigPort] = ()
    ports: Mapping[str, int] = field(default_factory=dict)
    is_pulled_always: bool = False
    add_capabilities: Sequence[str] = ()
    drop_capabilities: Sequence[str] = ()
    pod_spec: Document = field(default_factory=dict)

    def variables_of(self, device: str) -> dict[str, str]:
        found: dict[str, str] = {}
        for each in self.variables.get(device, ()):
            name, _, value = each.partition("=")
            found.setdefault(name, value)
        return found

    def document(self) -> Document:
        return {
            "image": {device: self.image.get(device, "") for device in DEVICES},
            "environment_variables": {device: list(self.variables.get(device, ())) for device in DEVICES},
            "proxy_ports": [port.document() for port in self.proxy_ports],
            "ports": dict(self.ports),
            "force_pull_image": self.is_pulled_always,
            "add_capabilities": list(self.add_capabilities),
            "drop_capabilities": list(self.drop_capabilities),
            "pod_spec": self.pod_spec or None,
        }


@dataclass(frozen=True, slots=True)
class Resources:
    slots: int = 1
    pool: str = ""
    """Empty: the workspace's, or the default one."""
    priority: int = DEFAULT_PRIORITY
    shm_bytes: int | None = None
    is_single_node: bool = True

    def document(self) -> Document:
        return {
            "slots": self.slots,
            "resource_pool": self.pool,
            "priority": self.priority,
            "weight": 1,
            "shm_size": self.shm_bytes,
            "is_single_node": self.is_single_node,
            "devices": [],
        }


@dataclass(frozen=True, slots=True)
class TaskConfig:
    description: str = ""
    """Empty: one is made up."""
    entrypoint: Sequence[str] = ()
    environment: Environment = Environment()
    resources: Resources = Resources()
    bind_mounts: Sequence[BindMount] = ()
    idle_seconds: float | None = None
    """None or 0: it may be idle for ever."""
    notebook_idle_type: IdleType = IdleType.KERNELS_OR_TERMINALS
    work_dir: str = ""
    tensorboard_args: Sequence[str] = ()
    is_debug: bool = False
    preemption_seconds: int | None = None
    """Of a generic task. None: as the cluster has it."""

    def document(self) -> Document:
        return {
            "description": self.description,
            "entrypoint": list(self.entrypoint),
            "environment": self.environment.document(),
            "resources": self.resources.document(),
            "bind_mounts": [mount.document() for mount in self.bind_mounts],
            "idle_timeout": None if self.idle_seconds is None else f"{self.idle_seconds:g}s",
            "notebook_idle_type": self.notebook_idle_type.value,
            "work_dir": self.work_dir or None,
            "tensorboard_args": list(self.tensorboard_args),
            "debug": self.is_debug,
            "preemption_timeout": self.preemption_seconds,
            "slurm": {},
            "pbs": {},
        }
