"""From which queue fair sharing takes next: from the root down to the child with the highest share.

Shares are kept from step to step: a workload that goes changes those of its queue and of the cohorts above it only.
"""

from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heapreplace
from typing import Final, TypeAlias

from muster.quota.preempting.policies import Picker
from muster.quota.ranking import Rank, Ranked
from muster.quota.shares import Share, share_of
from muster.quota.tree import Node


class Shares:
    def __init__(self) -> None:
        self._known: dict[Node, Share] = {}

    def of(self, node: Node) -> Share:
        found = self._known.get(node)
        if found is None:
            found = self._known[node] = share_of(node)
        return found

    def forget(self, queue: Node) -> None:
        """What the queue uses has changed."""
        self._known.pop(queue, None)
        for cohort in queue.ancestors():
            self._known.pop(cohort, None)


_Key: TypeAlias = tuple[int, float, float, bool, str, bool, bool, Rank]
_NO_RANK: Final[Rank] = (0, 0.0, "")


class Waiting:
    """Candidates of one queue that are left, in order; each is picked only when it comes to the front."""

    __slots__ = ("_index", "_picker", "_ranked")

    def __init__(self, ranked: Sequence[Ranked], picker: Picker | None = None) -> None:
        """`picker`: who picks them out of these; None: they are picked already."""
        self._ranked = ranked
        self._picker = picker
        self._index = self._next(0)

    def __bool__(self) -> bool:
        return self._index >= 0

    @property
    def first(self) -> Ranked:
        return self._ranked[self._index]

    def pop(self) -> Ranked:
        found = self._ranked[self._index]
        self._index = self._next(self._index + 1)
        return found

    def _next(self, start: int) -> int:
        if self._picker is not None:
            return self._picker.first(self._ranked, start, False)
        return start if start < len(self._ranked) else -1

    def clear(self) -> None:
        self._index = -1


class Visits:
    """Which queue is next, again and again; whoever asks takes from its candidates, or clears them, before the next.

    Taking only ever lowers a share, and brings a later candidate to the front: the key of a child never gets better. So
    a heap with outdated keys will do: what comes out on top either is the best, or goes back with its new key.
    """

    def __init__(self, preemptor: Node, candidates: Mapping[Node, Waiting], shares: Shares) -> None:
        self._preemptor = preemptor
        self._path = {preemptor, *preemptor.ancestors()}
        self._shares = shares
        self._waiting = {node: waiting for node, waiting in candidates.items() if waiting}
        self._heaps: dict[Node, list[tuple[_Key, int, Node]]] = {}
        """By cohort, its children below which there may be somebody left."""
        for number, node in enumerate(self._waiting):
            self._enlist(node, number)
        for heap in self._heaps.values():
            heapify(heap)

    def _enlist(self, node: Node, number: int) -> None:
        while node.parent is not None:
            is_known = node.parent in self._heaps
            self._heaps.setdefault(node.parent, []).append((self._key(node), number, node))
            if is_known:
                return
            node = node.parent

    def next(self) -> Node | None:
        if self._preemptor.parent is None:
            return self._preemptor if self._waiting.get(self._preemptor) else None
        root = self._preemptor.root()
        while root in self._heaps:
            found = self._below(root)
            if found is not None:
                return found
        return None

    def _below(self, cohort: Node) -> Node | None:
        while True:
            best = self._best(self._heaps[cohort])
            if best is None:
                del self._heaps[cohort]
                return None
            if best.is_queue:
                return best
            cohort = best

    def _best(self, heap: list[tuple[_Key, int, Node]]) -> Node | None:
        while heap:
            key, number, child = heap[0]
            if not self._is_alive(child):
                heappop(heap)
                continue
            current = self._key(child)
            if current == key:
                return child
            heapreplace(heap, (current, number, child))
        return None

    def _is_alive(self, child: Node) -> bool:
        """Whether there is anybody left to take, and the child is the preemptor's own or borrows."""
        if not (self._waiting[child] if child.is_queue else child in self._heaps):
            return False
        return child in self._path or bool(self._shares.of(child).borrowed)

    def _key(self, child: Node) -> _Key:
        """The least important comes first, then the highest share; of two alike a cohort, and of two queues the one
        whose next candidate does."""
        value, ratio = self._shares.of(child).order
        if not child.is_queue:
            return child.priority, -value, -ratio, False, child.name, False, False, _NO_RANK
        rank, info = self._waiting[child].first
        return child.priority, -value, -ratio, True, "", not info.is_evicted, child is self._preemptor, rank
