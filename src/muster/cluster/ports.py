"""`PortIndex`: which host ports are taken on which node.

Sparse, because few pods claim host ports: a column for every port ever used would cost more than all else together.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from muster.api import core
from muster.cluster.columns import NodeMask
from muster.cluster.pods import PodInfo

ANY_ADDRESS = "0.0.0.0"  # noqa: S104 (Kubernetes' word for a port of all addresses, nothing is bound here)
_SCRATCH = "host ports"


class HostPort(NamedTuple):
    address: str
    protocol: str
    number: int

    def conflicts(self, other: "HostPort") -> bool:
        return (
            self.number == other.number
            and self.protocol == other.protocol
            and (self.address == other.address or ANY_ADDRESS in (self.address, other.address))
        )


_Taken: TypeAlias = dict[str, dict[int, int]]
"""Address → slot → how many pods there claim the port."""


class PortIndex:
    """A `PodObserver`. Counts claims: two pods may hold one port for a while, when a node was given a pod by hand."""

    def __init__(self) -> None:
        self._taken: dict[tuple[str, int], _Taken] = {}

    def pod_assigned(self, pod: PodInfo, slot: int) -> None:
        for port in host_ports(pod):
            slots = self._taken.setdefault((port.protocol, port.number), {}).setdefault(port.address, {})
            slots[slot] = slots.get(slot, 0) + 1

    def pod_released(self, pod: PodInfo, slot: int) -> None:
        for port in host_ports(pod):
            place = (port.protocol, port.number)
            addresses = self._taken[place]
            slots = addresses[port.address]
            slots[slot] -= 1
            if not slots[slot]:
                del slots[slot]
                if not slots:
                    del addresses[port.address]
                    if not addresses:
                        del self._taken[place]

    def conflicting(self, wanted: Sequence[HostPort], width: int) -> NodeMask | None:
        """Nodes where one of the ports is taken; None where there is no such node."""
        mask: NodeMask | None = None
        for port in wanted:
            for slots in self._rivals(port):
                if mask is None:
                    mask = np.zeros(width, dtype=np.bool_)
                mask[np.fromiter(slots, np.intp, len(slots))] = True
        return mask

    def conflicts_at(self, wanted: Sequence[HostPort], slot: int) -> bool:
        return any(slot in slots for port in wanted for slots in self._rivals(port))

    def _rivals(self, port: HostPort) -> Iterable[dict[int, int]]:
        """The slots of every claim that conflicts with the port, by the address it was made for."""
        addresses = self._taken.get((port.protocol, port.number))
        if not addresses:
            return ()
        if port.address == ANY_ADDRESS:
            return addresses.values()
        return [addresses[address] for address in (port.address, ANY_ADDRESS) if address in addresses]


def host_ports(pod: PodInfo) -> tuple[HostPort, ...]:
    """The ports of the node that the pod claims, read once for its shape."""
    scratch = pod.shape.scratch
    found = scratch.get(_SCRATCH)
    if not isinstance(found, tuple):
        found = scratch[_SCRATCH] = host_ports_of(pod.spec)
    return found


def host_ports_of(spec: core.PodSpec) -> tuple[HostPort, ...]:
    """Init containers count only where they keep running beside the others."""
    containers = (*spec.containers, *(c for c in spec.init_containers if core.is_sidecar(c)))
    return tuple(
        HostPort(port.host_ip or ANY_ADDRESS, port.protocol or "TCP", port.host_port)
        for container in containers
        for port in container.ports
        if port.host_port is not None and port.host_port > 0
    )
