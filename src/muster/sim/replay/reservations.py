"""Which nodes to keep for a job that has waited too long, and from when it could have them. Pure."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple


class Tenant(NamedTuple):
    """Somebody who runs on a node: when that is expected to end, and how many GPUs are free then."""

    ends: float
    gpus: int


class Place(NamedTuple):
    """A node: its free GPUs, and who has the others."""

    free: int
    tenants: Sequence[Tenant]


class Reservation(NamedTuple):
    job: int
    nodes: frozenset[str]
    starts: float
    """When all that run there now are expected to have ended."""

    def lets_in(self, seconds: float, now: float) -> bool:
        """Whether somebody who is expected to take so long is gone before the nodes are needed."""
        return now + seconds <= self.starts


def reserve(job: int, pods: int, size: int, places: Mapping[str, Place], now: float) -> Reservation:
    """The nodes that have room for so many pods, of so many GPUs each, the soonest."""
    slots = [(when, name) for name, place in places.items() for when in _when_free(place, size, now)]
    chosen = sorted(slots)[:pods]
    assert len(chosen) == pods, "the nodes have room for it when nothing else runs"
    return Reservation(job, frozenset(name for _, name in chosen), chosen[-1][0])


def _when_free(place: Place, size: int, now: float) -> list[float]:
    """For the first pod that the node could take, the second, and so on: from when on."""
    free, found = place.free, [now] * (place.free // size)
    for tenant in sorted(place.tenants):
        free += tenant.gpus
        found += [max(tenant.ends, now)] * (free // size - len(found))
    return found
