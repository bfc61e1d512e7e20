"""PrioritySort: pods of higher priority first, and among equals the one that has waited longest.

Among pods of one priority those come first whose annotation says so: unlike the priority it may change while they wait.
"""

from typing import ClassVar, TypeAlias

from muster.api.meta import Instant
from muster.cluster.pods import PodInfo

SortKey: TypeAlias = tuple[int, float]
"""The pod with the lesser key goes first."""

_FINER = 1000
"""More than there are queue priorities."""


class PrioritySort:
    name: ClassVar[str] = "PrioritySort"

    def sort_key(self, pod: PodInfo, queued: Instant) -> SortKey:
        """`queued`: since when the pod has been in the queue."""
        return -(pod.priority * _FINER + pod.queue_priority), queued
