"""This machine, as one or more nodes."""

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field

from muster.agent import devices


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """What one machine gives. `nodes` shares it out among so many nodes."""

    nodes: int = 1
    fake_gpus: int = 0
    name: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)


def shares(node: NodeSettings) -> list[tuple[str, devices.Machine]]:
    """The nodes that this machine is, by name, and what each offers."""
    machine = devices.discover(node.fake_gpus * node.nodes or None, os.environ.get("CUDA_VISIBLE_DEVICES"))
    name = node.name or socket.gethostname().lower().partition(".")[0]
    if node.nodes == 1:
        return [(name, machine)]
    return [(f"{name}-{index}", devices.share(machine, index, node.nodes)) for index in range(node.nodes)]
