"""Holding nodes back for a gang that has waited too long, so that smaller work does not overtake it for ever.

A gang that was rejected for some time gets as many nodes as it would need if they were empty. Nobody of its own
priority or below is placed there any more; what runs there ends in its own time, and then the gang fits. One gang at a
time: the first in order.
"""

import numpy as np

from muster.cluster.columns import NodeMask
from muster.cluster.groups import GroupKey
from muster.placement.domains import Demand, pods_per_node
from muster.placement.queueing import SchedulingQueue
from muster.placement.queueing.entities import EntityKey, Queued
from muster.placement.scheduling import Scheduler


class Reservations:
    def __init__(self, scheduler: Scheduler, queue: SchedulingQueue, after: float | None) -> None:
        self._scheduler = scheduler
        self._queue = queue
        self._after = after
        self._holder: EntityKey | None = None
        self._priority = 0
        self._held: NodeMask | None = None
        self._nodes_version = -1

    def allowed(self, attempt: Queued, now: float) -> NodeMask | None:
        """The nodes that the attempt may use; None: all of them."""
        if self._after is None:
            return None
        oldest = self._queue.oldest_blocked_gang(now, self._after)
        cluster = self._scheduler.cluster
        if oldest is None:
            self._holder = self._held = None
            return None
        if oldest.key != self._holder or self._nodes_version != cluster.nodes_version:
            self._holder, self._nodes_version = oldest.key, cluster.nodes_version
            self._priority = max(pod.priority for pod in oldest.pods)
            self._held = self._choose(oldest)
        if self._held is None or attempt.key == self._holder:
            return None
        if max(pod.priority for pod in attempt.pods) > self._priority:
            return None
        return ~self._held

    def _choose(self, gang: Queued) -> NodeMask | None:
        """The emptiest nodes that together could hold the gang; None where all nodes together could not."""
        assert isinstance(gang.key, GroupKey)
        cluster, groups = self._scheduler.cluster, self._scheduler.groups
        group = groups.get(gang.key)
        missing = max(1, (group.min_count if group else 1) - groups.members(gang.key).scheduled_count)
        pod = gang.pods[0]
        demand = Demand(pod.shape.needs, missing, self._scheduler.judge(pod).steady_mask())
        slots = np.arange(cluster.width)
        if_empty = pods_per_node(cluster, demand, slots, cluster.allocatable[:, : cluster.width])
        free = pods_per_node(cluster, demand)
        order = np.lexsort((-if_empty, -free))
        reached = np.cumsum(if_empty[order])
        if not len(reached) or reached[-1] < missing:
            return None
        held = cluster.mask()
        held[order[: int(np.searchsorted(reached, missing)) + 1]] = True
        return held
