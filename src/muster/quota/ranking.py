"""In which order the workloads that hold quota in one queue lose it, where one has to.

Whoever is evicted already comes first: taking from it costs nothing. Who is not to be preempted is not here. Kept with
the queue, because most searches for victims look at queues in which nothing has changed since the last one, and take
few of many.
"""

from bisect import bisect_left, insort_right
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cmp_to_key
from operator import itemgetter
from typing import Final, TypeAlias

from muster.api.meta import Instant
from muster.quota.workloads import WorkloadInfo

Rank: TypeAlias = tuple[int, float, str]
"""Priority, minus the time at which quota was reserved, and uid: the smaller goes first."""
Ranked: TypeAlias = tuple[Rank, WorkloadInfo]


@dataclass(slots=True)
class Ranking:
    """`is_by_rank` is not so where the past usage of local queues comes before rank."""

    evicted: list[Ranked]
    others: list[Ranked]
    is_by_rank: bool = True
    is_lasting: bool = True
    """It does not depend on what time it is: it can be kept, and follow what changes."""

    @property
    def all(self) -> list[Ranked]:
        return self.evicted + self.others

    def insert(self, info: WorkloadInfo) -> bool:
        """False where that cannot be: its place depends on what time it is."""
        if info.reserved_at is None:
            return False
        if _is_spared(info):
            return True
        insort_right(self._part(info), (rank_of(info), info), key=_RANK)
        return True

    def remove(self, info: WorkloadInfo) -> None:
        if _is_spared(info):
            return
        part = self._part(info)
        index = bisect_left(part, rank_of(info), key=_RANK)
        while part[index][1] is not info:
            index += 1
        del part[index]

    def _part(self, info: WorkloadInfo) -> list[Ranked]:
        return self.evicted if info.is_evicted else self.others


_RANK: Final = itemgetter(0)
_UNKNOWN: Final = Instant(0.0)


def rank_of(info: WorkloadInfo, now: Instant = _UNKNOWN) -> Rank:
    """`now`: for one that does not say since when it holds quota."""
    reserved = info.reserved_at
    return info.priority, -(now if reserved is None else reserved), info.uid


def ranking(infos: Iterable[WorkloadInfo], now: Instant, *, by_usage: bool = False) -> Ranking:
    """Of workloads of one queue. `by_usage`: those of the local queue that used most go first."""
    listed = [info for info in infos if not info.is_protected or info.is_evicted]
    ranked = sorted(((rank_of(info, now), info) for info in listed), key=_RANK)
    if by_usage and all(info.local_queue_usage is not None for info in listed):
        ranked.sort(key=lambda entry: -(entry[1].local_queue_usage or 0.0))
    elif by_usage:
        # With some of it unknown this is no total order: the order by rank beneath makes the outcome the same each
        # time.
        ranked.sort(key=cmp_to_key(_compare_usage))
    return Ranking(
        [entry for entry in ranked if entry[1].is_evicted],
        [entry for entry in ranked if not entry[1].is_evicted],
        not by_usage,
        not by_usage and all(info.reserved_at is not None for info in listed),
    )


def _is_spared(info: WorkloadInfo) -> bool:
    """It is not to be preempted, and has not been told to stop for another reason either."""
    return info.is_protected and not info.is_evicted


def _compare_usage(one: Ranked, other: Ranked) -> int:
    ours, theirs = one[1].local_queue_usage, other[1].local_queue_usage
    if ours is not None and theirs is not None and ours != theirs and one[1].local_queue != other[1].local_queue:
        return -1 if ours > theirs else 1
    return -1 if one[0] < other[0] else int(one[0] > other[0])
