"""`Priorities`: the pods of every node from the most to the least important, as columns, for whoever looks for victims.

Most clusters preempt rarely, so following the pods costs next to nothing: a change is only noted, and nodes that have
changed are put in order when somebody asks.
"""

from collections.abc import Mapping, Sequence
from math import inf
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from muster.cluster.columns import Amounts, Codes
from muster.cluster.pods import NO_NEEDS, PodInfo

NOBODY = 0
"""The kind of a place that no pod takes."""
HIGHEST = 2**31
"""Above every priority."""
Times: TypeAlias = npt.NDArray[np.float64]


class Priorities:
    """A `PodObserver`. Ask `refresh` before reading columns."""

    def __init__(
        self, pods_on: Sequence[Mapping[str, PodInfo]], *, longest_log: int = 1 << 17, most_kinds: int = 1 << 15
    ) -> None:
        self._pods_on, self._longest_log, self._most_kinds = pods_on, longest_log, most_kinds
        self.changed: list[int] = []
        """Slots whose pods changed, oldest first: a reader remembers how far it has read. Starts afresh, with a new
        `epoch`, when it has grown long."""
        self.epoch = 0
        self.counts: Codes = np.zeros(16, dtype=np.int32)
        """[slot] → pods there."""
        self.kinds: Codes = np.zeros((8, 16), dtype=np.int32)
        """[place, slot] → kind of the pod, the most important first. Pods of a kind share priority and needs."""
        self.started: Times = np.full((8, 16), inf)
        """[place, slot] → when the pod started; infinity for one that has not."""
        self._read, self._read_epoch = 0, -1
        self._kind_of: dict[tuple[int, int], int] = {}
        self._needs_of: list[Mapping[str, int]] = [NO_NEEDS]
        self._priority_of = [HIGHEST]
        self._needs: dict[str, Amounts] = {}
        self._priorities: Amounts = np.zeros(0, dtype=np.int64)

    def pod_assigned(self, pod: PodInfo, slot: int) -> None:  # noqa: ARG002  # that it changed is enough
        self._note(slot)

    def pod_released(self, pod: PodInfo, slot: int) -> None:  # noqa: ARG002
        self._note(slot)

    def refresh(self) -> None:
        if self._read_epoch != self.epoch or len(self._priority_of) > self._most_kinds:
            self._forget_kinds()
            stale = set(range(len(self._pods_on)))
        else:
            stale = set(self.changed[self._read :])
        self._read, self._read_epoch = len(self.changed), self.epoch
        self._make_room(len(self._pods_on), max((len(self._pods_on[slot]) for slot in stale), default=0))
        for slot in stale:
            self._fill(slot)

    def priorities(self) -> Amounts:
        """[kind] → priority; HIGHEST for NOBODY."""
        if len(self._priorities) != len(self._priority_of):
            self._priorities = np.array(self._priority_of, dtype=np.int64)
        return self._priorities

    def needs(self, resource: str) -> Amounts:
        """[kind] → how much of the resource its pods take."""
        known = self._needs.get(resource)
        if known is None or len(known) != len(self._needs_of):
            amounts = (needs.get(resource, 0) for needs in self._needs_of)
            known = self._needs[resource] = np.fromiter(amounts, np.int64, len(self._needs_of))
        return known

    def _note(self, slot: int) -> None:
        if len(self.changed) >= self._longest_log:
            self.changed.clear()
            self.epoch += 1
        self.changed.append(slot)

    def _fill(self, slot: int) -> None:
        pods = sorted(self._pods_on[slot].values(), key=importance_of)
        count, before = len(pods), int(self.counts[slot])
        self.counts[slot] = count
        self.kinds[:count, slot] = [self._kind(pod) for pod in pods]
        self.started[:count, slot] = [inf if pod.started is None else pod.started for pod in pods]
        self.kinds[count:before, slot] = NOBODY

    def _kind(self, pod: PodInfo) -> int:
        key = (id(pod.needs), pod.priority)
        kind = self._kind_of.get(key)
        if kind is None:
            kind = self._kind_of[key] = len(self._needs_of)
            self._needs_of.append(pod.needs)  # which also keeps its id from being given to another
            self._priority_of.append(pod.priority)
        return kind

    def _forget_kinds(self) -> None:
        self._kind_of.clear()
        self._needs.clear()
        del self._needs_of[1:], self._priority_of[1:]
        self._priorities = np.zeros(0, dtype=np.int64)
        self.counts[:] = 0
        self.kinds[:] = NOBODY

    def _make_room(self, slots: int, places: int) -> None:
        places_now, slots_now = self.kinds.shape
        if slots <= slots_now and places <= places_now:
            return
        more = (max(0, _enough(places_now, places) - places_now), max(0, _enough(slots_now, slots) - slots_now))
        self.kinds = np.pad(self.kinds, ((0, more[0]), (0, more[1])), constant_values=NOBODY)
        self.started = np.pad(self.started, ((0, more[0]), (0, more[1])), constant_values=inf)
        self.counts = np.pad(self.counts, (0, more[1]))


def importance_of(pod: PodInfo) -> tuple[int, bool, float, str]:
    """Sorts the most important first: higher priority, then members of groups, then longer run; the uid to make it the
    same order every time."""
    return -pod.priority, pod.group is None, inf if pod.started is None else pod.started, pod.uid


def _enough(now: int, wanted: int) -> int:
    while now < wanted:
        now *= 2
    return now
