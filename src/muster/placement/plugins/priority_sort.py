"""PrioritySort: pods of higher priority first, and among equals the one that has waited longest."""

from typing import ClassVar, TypeAlias

from muster.api.meta import Instant
from muster.cluster.pods import PodInfo

SortKey: TypeAlias = tuple[int, float]
"""The pod with the lesser key goes first."""


class PrioritySort:
    name: ClassVar[str] = "PrioritySort"

    def sort_key(self, pod: PodInfo, queued: Instant) -> SortKey:
        """`queued`: since when the pod has been in the queue."""
        return -pod.priority, queued
