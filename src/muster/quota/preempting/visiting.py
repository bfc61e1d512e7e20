"""From which queue fair sharing takes next: from the root down to the child with the highest share.

Shares are kept from step to step: a workload that goes changes those of its queue and of the cohorts above it only.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heapreplace
from typing import Final, TypeAlias

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


_Key: TypeAlias = tuple[float, float, bool, str, bool, bool, Rank]
_NO_RANK: Final[Rank] = (0, 0.0, "")


class Visits:
    """Which queue is next, again and again; whoever asks takes from it, or drops it, before asking again.

    Taking only ever lowers a share, and brings a later candidate to the front: the key of a child never gets better. So
    a heap with outdated keys will do: what comes out on top either is the best, or goes back with its new key.
    """

    def __init__(self, preemptor: Node, candidates: Mapping[Node, Sequence[Ranked]], shares: Shares) -> None:
        self._preemptor = preemptor
        self._path = {preemptor, *preemptor.ancestors()}
        self._shares = shares
        self._waiting = {node: deque(infos) for node, infos in candidates.items() if infos}
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

    def waiting(self, queue: Node) -> deque[Ranked]:
        """Its candidates that are left, in order."""
        return self._waiting[queue]

    def drop(self, queue: Node) -> list[Ranked]:
        """It is not visited again. Gives those that were left."""
        left = list(self._waiting[queue])
        self._waiting[queue].clear()
        return left

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
        """The highest share comes first; of two alike a cohort, and of two queues the one whose next candidate does."""
        value, ratio = self._shares.of(child).order
        if not child.is_queue:
            return -value, -ratio, False, child.name, False, False, _NO_RANK
        rank, info = self._waiting[child][0]
        return -value, -ratio, True, "", not info.is_evicted, child is self._preemptor, rank
