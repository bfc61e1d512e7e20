"""Holding nodes back for what has waited too long, so that smaller work does not overtake it for ever.

A gang that was rejected for some time gets as many nodes as it would need if they were empty. Nobody of its own
priority or below is placed there any more; what runs there ends in its own time, and then the gang fits. The same for a
pod on its own that is large: no node has room for two of it. One at a time: the first in order that could fit at all.
"""

from collections.abc import Container, Iterator, Sequence
from dataclasses import replace
from itertools import islice

import numpy as np

from muster.cluster.columns import NodeMask
from muster.cluster.groups import Group, GroupKey, Mode
from muster.cluster.pods import PodInfo, PodShape
from muster.placement.domains import Demand, pods_per_node
from muster.placement.judging import Diagnosis
from muster.placement.queueing import SchedulingQueue
from muster.placement.queueing.entities import EntityKey, Place, Queued
from muster.placement.scheduling import GANG, Decision, Refusal, Scheduler

_LOOK_SECONDS = 1.0
"""How often to ask who has waited longest: it costs a look at every gang that waits."""

_MOST_AREAS = 64  # topology domains that are looked at for one gang
_MOST_ALONE = 1000  # large pods on their own that are remembered: the first of them are those that have their turn
LONGEST_HOLD_SECONDS = 3600.0
"""What runs on the nodes may never end: then they must not stay empty for ever either. Others have their turn."""


class Reservations:
    def __init__(self, scheduler: Scheduler, queue: SchedulingQueue, after: float | None) -> None:
        self._scheduler = scheduler
        self._queue = queue
        self._after = after
        self._holder: EntityKey | None = None
        self._name = ""
        self._witness = ""  # uid of a member of the holder: while that waits, the holder does
        self._priority = 0
        self._held: NodeMask | None = None
        self._nodes_version = -1
        self._looked_at = float("-inf")
        self._since = 0.0
        self._tired: dict[
            EntityKey, float
        ] = {}  # gangs that had their turn in vain, and until when they are passed over
        self._hopeless: set[EntityKey] = set()  # gangs larger than the cluster, as it is now
        self._turned_away: dict[str, None] = {}  # uids, in order
        self._alone: dict[EntityKey, tuple[Queued, float]] = {}  # large pods that were rejected, and since when
        self._large: dict[PodShape, bool] = {}  # with the nodes as they are now

    def held_from(self, attempt: Queued, now: float) -> NodeMask | None:
        """The nodes that the attempt must leave alone; None where there are none."""
        if self._after is None:
            return None
        self._update(now)
        if self._held is None or attempt.key == self._holder:
            return None
        return None if max(pod.priority for pod in attempt.pods) > self._priority else self._held

    def explained(self, decision: Decision, held: NodeMask | None) -> Decision:
        """The decision, with what is held back among its reasons where that made a difference."""
        refusal = decision.refusal
        if refusal is None or held is None:
            return decision
        judgement = self._scheduler.judge(refusal.pods[0])
        count = int((judgement.feasible & held).sum())
        if not count:
            return decision
        self._turned_away.update((pod.uid, None) for pod in refusal.pods)
        return replace(decision, refusal=self._with_reason(refusal, count))

    def note(self, decision: Decision, now: float) -> None:
        """Since when large pods wait; of gangs the queue knows."""
        attempt = decision.attempt
        if self._after is None or isinstance(attempt.key, GroupKey):
            return
        if decision.refusal is None:
            self._alone.pop(attempt.key, None)
        elif attempt.key in self._alone:
            self._alone[attempt.key] = (attempt, self._alone[attempt.key][1])
        elif len(self._alone) < _MOST_ALONE and self._is_large(attempt.pods[0]):
            self._alone[attempt.key] = (attempt, now)

    def _is_large(self, pod: PodInfo) -> bool:
        found = self._large.get(pod.shape)
        if found is None:
            cluster = self._scheduler.cluster
            demand = Demand(pod.shape.needs, 1, self._scheduler.judge(pod).steady_mask())
            if_empty = pods_per_node(cluster, demand, None, cluster.allocatable[:, : cluster.width])
            found = self._large[pod.shape] = int(if_empty.max(initial=0)) == 1
        return found

    def look(self, now: float) -> None:
        """Whether the holder still waits; if not, those who had to leave its nodes alone are tried again."""
        if self._holder is not None and not self._is_waiting():
            self._update(now)

    def _with_reason(self, refusal: Refusal, count: int) -> Refusal:
        nodes = self._scheduler.cluster.node_count
        counts = {**refusal.counts, f"node(s) were held back for {self._name}": count}
        before, after = Diagnosis(nodes, refusal.counts).message, Diagnosis(nodes, counts).message
        # GANG, since nothing that other plugins listen to gives the nodes back: `_update` does.
        return replace(
            refusal, message=refusal.message.replace(before, after), counts=counts, plugins=refusal.plugins | {GANG}
        )

    def _update(self, now: float) -> None:
        version = self._scheduler.cluster.nodes_version
        is_due = now >= self._looked_at + _LOOK_SECONDS
        if not is_due and version == self._nodes_version and (self._holder is None or self._is_waiting()):
            return
        self._looked_at = now
        if version != self._nodes_version:
            self._hopeless.clear()
            self._large.clear()
        if self._holder is not None and now >= self._since + LONGEST_HOLD_SECONDS:
            self._tired[self._holder] = now + LONGEST_HOLD_SECONDS
        self._tired = {key: until for key, until in self._tired.items() if now < until}
        before = self._holder
        self._appoint(now, is_stale=version != self._nodes_version)
        self._nodes_version = version
        if self._holder != before:
            self._since = now
            away, self._turned_away = self._turned_away, {}
            self._queue.activate(away, now)

    def _appoint(self, now: float, *, is_stale: bool) -> None:
        """Finds whom to hold nodes back for. `is_stale`: and which, since nodes have changed."""
        assert self._after is not None
        while True:
            passing_over = self._tired.keys() | self._hopeless
            gang = self._queue.oldest_blocked_gang(now, self._after, passing_over)
            first = min(
                (found for found in (gang, self._oldest_alone(now, passing_over)) if found), key=_order, default=None
            )
            if first is None:
                self._holder = self._held = None
                return
            if first.key != self._holder or is_stale:
                held = self._choose(first, self._held if first.key == self._holder else None)
                if held is None:
                    self._hopeless.add(first.key)
                    continue
                self._held = held
            self._holder, self._witness = first.key, first.pods[0].uid
            self._name = str(first.key) if isinstance(first.key, GroupKey) else f"pod/{first.pods[0].key}"
            self._priority = max(pod.priority for pod in first.pods)
            return

    def _oldest_alone(self, now: float, passing_over: Container[EntityKey]) -> Queued | None:
        assert self._after is not None
        for key in [key for key in self._alone if self._queue.standing(str(key)) is None]:
            del self._alone[key]
        waited = (
            attempt
            for key, (attempt, since) in self._alone.items()
            if now - since >= self._after and key not in passing_over
        )
        return min(waited, key=_order, default=None)

    def _is_waiting(self) -> bool:
        standing = self._queue.standing(self._witness)
        return standing is not None and standing.place is not Place.GATED

    def _choose(self, gang: Queued, before: NodeMask | None) -> NodeMask | None:
        """The emptiest nodes that together could hold the gang; None where all nodes together could not. Those held
        `before` come first: they have been emptying."""
        cluster, groups = self._scheduler.cluster, self._scheduler.groups
        group, missing = None, 1
        if isinstance(gang.key, GroupKey):
            group = groups.get(gang.key) or Group(gang.key)
            missing = max(1, group.min_count - groups.members(gang.key).scheduled_count)
        shapes: dict[PodShape, list[PodInfo]] = {}
        for pod in gang.pods[:missing]:
            shapes.setdefault(pod.shape, []).append(pod)
        kept = cluster.mask()
        if before is not None:
            kept[: len(before)] = before
        demands = [
            Demand(shape.needs, len(pods), self._scheduler.judge(pods[0]).steady_mask())
            for shape, pods in shapes.items()
        ]
        areas = islice(self._areas(group, demands, kept), _MOST_AREAS)
        return next((held for area in areas if (held := self._within(area, demands, kept)) is not None), None)

    def _areas(self, group: Group | None, demands: Sequence[Demand], kept: NodeMask) -> Iterator[NodeMask]:
        """Where the whole gang may be: anywhere, or in any one domain that its topology asks for, of which the first is
        that with most of `kept`, or else the emptiest."""
        cluster, topology = self._scheduler.cluster, group.topology if group is not None else None
        if group is None or topology is None or topology.mode is not Mode.REQUIRED:
            yield cluster.mask(True)
            return
        levels, requirement = self._scheduler.gangs.levels(topology)
        if requirement.widest >= len(levels):
            return
        level = levels[requirement.widest]
        there = [cluster.slots.get(node) for _, node in self._scheduler.groups.members(group.key).scheduled()]
        pinned = np.array([slot for slot in there if slot is not None], dtype=np.intp)
        free = level.sums(np.sum([pods_per_node(cluster, demand) for demand in demands], axis=0))
        is_possible = level.containing(pinned)
        for number in np.lexsort((-free, -level.sums(kept.astype(np.int64)))):
            if is_possible[number]:
                yield level.nodes(int(number))

    def _within(self, area: NodeMask, demands: Sequence[Demand], kept: NodeMask) -> NodeMask | None:
        cluster = self._scheduler.cluster
        slots, held = np.arange(cluster.width), cluster.mask()
        for demand in demands:
            # Nodes of their own for each shape: holds more than they need together, but surely enough.
            mine = replace(demand, feasible=demand.feasible & area & ~held)
            if_empty = pods_per_node(cluster, mine, slots, cluster.allocatable[:, : cluster.width])
            order = np.lexsort((-if_empty, -pods_per_node(cluster, mine), ~kept))
            reached = np.cumsum(if_empty[order])
            if not len(reached) or reached[-1] < mine.count:
                return None
            held[order[: int(np.searchsorted(reached, mine.count)) + 1]] = True
        return held


def _order(attempt: Queued) -> tuple[int, float]:
    return -max(pod.priority for pod in attempt.pods), attempt.arrived
