"""Workloads of one local queue and one shape that share a verdict, kept together so that a verdict or a flush costs the
same for ten thousand of them as for one.

A crowd is closed while its verdict holds: all in it are parked. A flush opens it: all in it are active, but only the
first stands in the queue's order; when that one leaves, the next takes its place. They share priority, so none of
them could have come before it.
"""

from collections.abc import Iterator, Set
from dataclasses import dataclass, field
from itertools import chain
from typing import TypeAlias

from muster.quota.queueing.lanes import Lanes
from muster.quota.workloads import WorkloadInfo

_Id: TypeAlias = tuple[str, str]


@dataclass(slots=True, eq=False)
class Crowd:
    id: _Id
    """Local queue and shape."""
    namespace: str
    reason: str
    """What those in it have been told."""
    is_open: bool = False
    members: Lanes = field(default_factory=Lanes)
    """Without the one that stands in front of an open crowd."""


class Crowds:
    def __init__(self) -> None:
        self._closed: dict[_Id, Crowd] = {}
        self._open: dict[_Id, Crowd] = {}
        self._crowd_of: dict[str, Crowd] = {}
        self._behind: dict[str, Crowd] = {}  # by key of the one in front
        self._open_size = 0

    @property
    def open_size(self) -> int:
        return self._open_size

    @property
    def closed_size(self) -> int:
        return len(self._crowd_of) - self._open_size

    def __contains__(self, key: str) -> bool:
        return key in self._crowd_of

    def has_closed(self, where: _Id) -> bool:
        return where in self._closed

    def get_closed(self, key: str) -> WorkloadInfo | None:
        crowd = self._crowd_of.get(key)
        return None if crowd is None or crowd.is_open else crowd.members.get(key)

    def open_members(self) -> Iterator[WorkloadInfo]:
        return chain.from_iterable(crowd.members for crowd in self._open.values())

    def closed_members(self) -> Iterator[WorkloadInfo]:
        return chain.from_iterable(crowd.members for crowd in self._closed.values())

    def closed_sizes(self) -> dict[str, int]:
        """By local queue."""
        found: dict[str, int] = {}
        for (local_queue, _), crowd in self._closed.items():
            found[local_queue] = found.get(local_queue, 0) + len(crowd.members)
        return found

    def open_shapes(self) -> set[str]:
        return {shape for _, shape in self._open}

    def closed_shapes(self) -> set[str]:
        return {shape for _, shape in self._closed}

    def leads(self, key: str) -> bool:
        """It stands in front of an open crowd."""
        return key in self._behind

    def join(self, info: WorkloadInfo, reason: str) -> None:
        """It is parked, for its shape."""
        where = info.local_queue, info.shape
        crowd = self._closed.get(where)
        if crowd is None:
            crowd = self._closed[where] = Crowd(where, info.view.metadata.namespace, reason)
        crowd.members.put(info, 1)
        self._crowd_of[info.key] = crowd

    def replace(self, info: WorkloadInfo) -> None:
        """It has changed, but not in its shape nor its place."""
        self._crowd_of[info.key].members.put(info, 1)

    def discard(self, key: str) -> bool:
        """Whether it was in an open one."""
        crowd = self._crowd_of.pop(key)
        crowd.members.discard(key)
        if crowd.is_open:
            self._open_size -= 1
        elif not len(crowd.members):
            del self._closed[crowd.id]
        return crowd.is_open

    def open(self, namespaces: frozenset[str], hopeless: Set[str] = frozenset()) -> tuple[int, list[WorkloadInfo]]:
        """All of these namespaces, but for shapes that are `hopeless`. How many are active then, and those who stand in
        front."""
        opened = [
            crowd for crowd in self._closed.values() if crowd.namespace in namespaces and crowd.id[1] not in hopeless
        ]
        size, fronts = 0, list[WorkloadInfo]()
        for crowd in opened:
            del self._closed[crowd.id]
            self._open[crowd.id] = crowd
            crowd.is_open = True
            size += len(crowd.members)
            self._open_size += len(crowd.members)
            front = self._advance(crowd)
            if front is not None:
                fronts.append(front)
        return size, fronts

    def close(self, front: WorkloadInfo) -> Crowd:
        """With the one in front of it back in it."""
        crowd = self._behind.pop(front.key)
        del self._open[crowd.id]
        self._closed[crowd.id] = crowd
        crowd.is_open = False
        self._open_size -= len(crowd.members)
        crowd.members.put(front, 1)
        self._crowd_of[front.key] = crowd
        return crowd

    def next_after(self, key: str) -> WorkloadInfo | None:
        """Who stands in front now that this one has left."""
        crowd = self._behind.pop(key, None)
        return None if crowd is None else self._advance(crowd)

    def _advance(self, crowd: Crowd) -> WorkloadInfo | None:
        front = crowd.members.pop()
        if front is None:
            del self._open[crowd.id]
            return None
        del self._crowd_of[front.key]
        self._behind[front.key] = crowd
        self._open_size -= 1
        return front
