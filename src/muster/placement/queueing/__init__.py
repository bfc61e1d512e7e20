"""What is to be placed next: pods and gangs that are ready, backing off, waiting for a change, or held back."""

from muster.placement.queueing.backoff import Timing
from muster.placement.queueing.entities import Counts, EntityKey, Place, Queued, Standing
from muster.placement.queueing.queue import BY_PRIORITY, SchedulingQueue, SortBy
from muster.placement.queueing.waking import ClusterChange, Fault

__all__ = [
    "BY_PRIORITY",
    "ClusterChange",
    "Counts",
    "EntityKey",
    "Fault",
    "Place",
    "Queued",
    "SchedulingQueue",
    "SortBy",
    "Standing",
    "Timing",
]
