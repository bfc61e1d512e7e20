"""From which queue fair sharing takes next: from the root down to the child with the highest share.

Shares are kept from step to step: a workload that goes changes those of its queue and of the cohorts above it only.
"""

from collections import deque
from collections.abc import Iterable, Mapping

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


class Visits:
    """Which queue is next, again and again; whoever asks takes from it, or drops it, before asking again."""

    def __init__(self, preemptor: Node, candidates: Mapping[Node, Iterable[Ranked]], shares: Shares) -> None:
        self._preemptor = preemptor
        self._path = {preemptor, *preemptor.ancestors()}
        self._shares = shares
        self._waiting = {node: deque(infos) for node, infos in candidates.items()}
        self._children: dict[Node, list[Node]] = {}
        """By cohort, those among them below which there may be somebody left."""
        for node in self._waiting:
            self._enlist(node)

    def _enlist(self, node: Node) -> None:
        while node.parent is not None:
            is_known = node.parent in self._children
            self._children.setdefault(node.parent, []).append(node)
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
        while root in self._children:
            found = self._below(root)
            if found is not None:
                return found
        return None

    def _below(self, cohort: Node) -> Node | None:
        while True:
            alive = [child for child in self._children[cohort] if self._is_alive(child)]
            if not alive:
                del self._children[cohort]
                return None
            self._children[cohort] = alive
            found = self._first(alive)
            if found.is_queue:
                return found
            cohort = found

    def _is_alive(self, child: Node) -> bool:
        """Whether there is anybody left to take, and the child is the preemptor's own or borrows."""
        if not (self._waiting[child] if child.is_queue else child in self._children):
            return False
        is_own = child is self._preemptor if child.is_queue else child in self._path
        return is_own or bool(self._shares.of(child).borrowed)

    def _first(self, children: list[Node]) -> Node:
        best = children[0]
        for child in children[1:]:
            if self._comes_before(child, best):
                best = child
        return best

    def _comes_before(self, one: Node, other: Node) -> bool:
        ours, theirs = self._shares.of(one), self._shares.of(other)
        if ours != theirs:
            return ours > theirs
        if one.is_queue and other.is_queue:
            return self._first_candidate(one) < self._first_candidate(other)
        return not one.is_queue and (other.is_queue or one.name < other.name)

    def _first_candidate(self, queue: Node) -> tuple[bool, bool, Rank]:
        rank, info = self._waiting[queue][0]
        return not info.is_evicted, queue is self._preemptor, rank
