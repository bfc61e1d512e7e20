"""Who comes next under fair sharing: at each cohort its children compete, and the winner goes up a level.

Each competes with the share that its child would have with the workload admitted. What is decided for one workload
changes shares only on the way from its queue to the root; so every queue's entry is rated once, and a cohort that
is not on that way keeps its nominee.
"""

from collections.abc import Iterable, Iterator
from heapq import heapify, heappop
from typing import TypeAlias

from muster.api.meta import Instant
from muster.quota.amounts import FlavorResource
from muster.quota.entries import Entry
from muster.quota.gates import Gate, Gates
from muster.quota.shares import Share, share_of
from muster.quota.tree import Node
from muster.quota.workloads import WorkloadInfo

Rank: TypeAlias = tuple[bool, int, bool, float, float, int, Instant, str]


def rank(
    info: WorkloadInfo,
    share: Share,
    requested: Iterable[FlavorResource],
    gates: Gates,
    *,
    is_preemptor: bool = False,
    standing: int = 0,
) -> Rank:
    """`share`, `standing`: of the child that competes for it, the latter its priority among its siblings."""
    borrows = Gate.FAIR_SHARING_PRIORITIZE_NON_BORROWING in gates and share.borrows_any(requested)
    preempts_first = Gate.PRIORITIZE_PREEMPTOR_WORKLOADS in gates and is_preemptor
    priority = info.priority if Gate.PRIORITY_SORTING_WITHIN_COHORT in gates else 0
    endless = share.ratio if share.is_endless else 0.0
    return not preempts_first, -standing, borrows, share.value, endless, -priority, info.queued_since, info.key


_Competitor: TypeAlias = tuple[Rank, Entry]


class _Cohort:
    """One level: the entries of its own queues, best first, and the cohorts below it that have any."""

    __slots__ = ("children", "entries", "node", "nominee")

    def __init__(self, node: Node) -> None:
        self.node = node
        self.entries: list[_Competitor] = []
        self.children: dict[str, _Cohort] = {}
        self.nominee: _Competitor | None = None
        """The best of its subtree with its rank one level up; None: to be found out."""


class Tournament:
    """Entries in order. The caller counts what it decides for one before it asks for the next."""

    def __init__(self, entries: Iterable[Entry], gates: Gates) -> None:
        self._gates = gates
        self._alone: list[Entry] = []
        self._roots: dict[str, _Cohort] = {}
        for entry in entries:
            self._enter(entry)

    def _enter(self, entry: Entry) -> None:
        assert entry.queue is not None
        node = entry.queue.node
        # What holds quota already takes none from anybody.
        if node.parent is None or entry.info.has_reservation:
            self._alone.append(entry)
            return
        path = list(node.ancestors())
        cohort = self._roots.setdefault(path[-1].name, _Cohort(path[-1]))
        for below in reversed(path[:-1]):
            cohort = cohort.children.setdefault(below.name, _Cohort(below))
        share = share_of(node, entry.usage.quota)
        cohort.entries.append((self._rank(entry, share, node), entry))

    def __iter__(self) -> Iterator[Entry]:
        yield from self._alone
        for root in self._roots.values():
            _heapify(root)
            while (found := self._best(root)) is not None:
                self._take(root, found[1])
                yield found[1]

    def _best(self, cohort: _Cohort) -> _Competitor | None:
        best = cohort.entries[0] if cohort.entries else None
        for name in tuple(cohort.children):
            found = self._nominee(cohort.children[name])
            if found is None:
                del cohort.children[name]
            elif best is None or found[0] < best[0]:
                best = found
        return best

    def _nominee(self, cohort: _Cohort) -> _Competitor | None:
        if cohort.nominee is None:
            found = self._best(cohort)
            if found is not None:
                entry = found[1]
                assert entry.queue is not None
                entry.queue.node.add_all(entry.usage.quota)
                share = share_of(cohort.node)
                entry.queue.node.remove_all(entry.usage.quota)
                cohort.nominee = self._rank(entry, share, cohort.node), entry
        return cohort.nominee

    def _take(self, root: _Cohort, entry: Entry) -> None:
        """Out of the competition, and every cohort on its way up has to choose anew."""
        assert entry.queue is not None
        cohort = root
        for below in reversed(list(entry.queue.node.ancestors())[:-1]):
            cohort = cohort.children[below.name]
            cohort.nominee = None
        heappop(cohort.entries)

    def _rank(self, entry: Entry, share: Share, child: Node) -> Rank:
        is_preemptor, standing = entry.is_preemptor, child.priority
        return rank(entry.info, share, entry.usage.quota, self._gates, is_preemptor=is_preemptor, standing=standing)


def _heapify(cohort: _Cohort) -> None:
    heapify(cohort.entries)
    for child in cohort.children.values():
        _heapify(child)
