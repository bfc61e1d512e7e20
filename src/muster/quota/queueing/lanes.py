"""The active workloads of one queue, in the order in which they are looked at.

Heaps with lazy deletion: what was taken out stays in its heap until it comes to the top. Where past usage of local
queues comes first in the order, each local queue has a lane of its own, and taking the first compares the heads of the
lanes: usage may then change at any time without anything to rebuild.
"""

from collections.abc import Callable, Iterator, Sequence
from heapq import heapify, heappop, heappush
from typing import Final, TypeAlias

from muster.api.meta import Instant
from muster.quota.workloads import WorkloadInfo

Order: TypeAlias = tuple[int, int, Instant, str, str]
"""Rank (0: before all others), priority downwards, since when it waits, uid, key."""
_Entry: TypeAlias = tuple[int, int, Instant, str, str, int, WorkloadInfo]
_SLACK: Final = 64
_FEW: Final = 16  # times fewer than there are: cheaper to push than to order all anew


def order(info: WorkloadInfo, rank: int) -> Order:
    return rank, -info.priority, info.queued_since, info.uid, info.key


class Lanes:
    def __init__(self, usage_of: Callable[[str], float] | None = None) -> None:
        """`usage_of`: of a local queue, where that comes first."""
        self._usage_of = usage_of
        self._lanes: dict[str, list[_Entry]] = {}
        self._entries: dict[str, _Entry] = {}
        self._stored = 0  # in all heaps, what was taken out included
        self._serial = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: str) -> bool:
        return key in self._entries

    def __iter__(self) -> Iterator[WorkloadInfo]:
        """In no order."""
        return (entry[-1] for entry in self._entries.values())

    def get(self, key: str) -> WorkloadInfo | None:
        entry = self._entries.get(key)
        return None if entry is None else entry[-1]

    def put(self, info: WorkloadInfo, rank: int) -> None:
        """Adds it, or moves it to where it now belongs."""
        entry = self._enter(info, rank)
        heappush(self._lanes.setdefault(self._lane(info), []), entry)
        self._stored += 1
        self._compact()

    def put_all(self, infos: Sequence[WorkloadInfo], first: str | None) -> None:
        """Many at once, for less than one by one. `first`: the key of the one that comes before all others."""
        if len(infos) * _FEW < self._stored:
            for info in infos:
                self.put(info, 0 if info.key == first else 1)
            return
        for info in infos:
            entry = self._enter(info, 0 if info.key == first else 1)
            self._lanes.setdefault(self._lane(info), []).append(entry)
        self._stored += len(infos)
        for lane in self._lanes.values():
            heapify(lane)
        self._compact()

    def discard(self, key: str) -> WorkloadInfo | None:
        entry = self._entries.pop(key, None)
        return None if entry is None else entry[-1]

    def peek(self) -> WorkloadInfo | None:
        found = self._first()
        return None if found is None else self._lanes[found][0][-1]

    def pop(self) -> WorkloadInfo | None:
        found = self._first()
        if found is None:
            return None
        entry = heappop(self._lanes[found])
        self._stored -= 1
        del self._entries[entry[-1].key]
        return entry[-1]

    def _enter(self, info: WorkloadInfo, rank: int) -> _Entry:
        self._serial += 1  # what was taken out may be equal to what came back: never compare the workloads themselves
        entry = (rank, -info.priority, info.queued_since, info.uid, info.key, self._serial, info)
        self._entries[info.key] = entry
        return entry

    def _lane(self, info: WorkloadInfo) -> str:
        return "" if self._usage_of is None else info.local_queue

    def _first(self) -> str | None:
        """The lane whose head comes first, with that head on its top."""
        best: str | None = None
        best_order: tuple[float, _Entry] | None = None
        for name in tuple(self._lanes):
            lane = self._lanes[name]
            while lane and self._entries.get(lane[0][4]) is not lane[0]:
                heappop(lane)
                self._stored -= 1
            if not lane:
                del self._lanes[name]
                continue
            if self._usage_of is None:
                return name
            found = (self._usage_of(name), lane[0])
            if best_order is None or found < best_order:
                best, best_order = name, found
        return best

    def _compact(self) -> None:
        """Keeps the heaps from growing without end where workloads change often and are never at the top."""
        if self._stored <= 2 * len(self._entries) + _SLACK:
            return
        self._lanes.clear()
        for entry in self._entries.values():
            self._lanes.setdefault(self._lane(entry[-1]), []).append(entry)
        for lane in self._lanes.values():
            heapify(lane)
        self._stored = len(self._entries)
