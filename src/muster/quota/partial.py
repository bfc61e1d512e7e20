"""Partial admission: with how many pods a workload could start, if not with all."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from muster.quota.workloads import WorkloadInfo

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class CountRange:
    """Of one pod set: what it would like, and what it could start with."""

    count: int
    least: int


def count_ranges(info: WorkloadInfo) -> list[CountRange]:
    return [
        CountRange(pods.count, pods.count if pods.spec.min_count is None else min(pods.count, pods.spec.min_count))
        for pods in info.pod_sets
    ]


def search_partial(ranges: Sequence[CountRange], attempt: Callable[[Sequence[int]], T | None]) -> T | None:
    """What `attempt` makes of the largest counts that it does not refuse; None where it refuses the least.

    All pod sets are reduced in step, each by its share. More pods are taken never to fit where fewer do not, so a
    binary search finds the place.
    """
    leeway = [pods.count - pods.least for pods in ranges]
    most = sum(leeway)
    if not most:
        return None
    best: T | None = None
    low, high = 0, most + 1
    while low < high:
        reduction = (low + high) // 2
        counts = [pods.count - part * reduction // most for pods, part in zip(ranges, leeway, strict=True)]
        found = attempt(counts)
        if found is None:
            low = reduction + 1
        else:
            best, high = found, reduction
    return best
