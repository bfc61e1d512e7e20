"""Quota as a tree: queues are leaves, cohorts are what they borrow through.

Per node and flavor-resource: what it owns, may borrow and may lend, what its whole subtree owns, and what is used. A
cohort's usage is the sum of what its children use beyond what they keep for themselves, kept up to date with every
change; so both questions ("how much more may this queue use" and "does this fit") are a walk to the root.
The table is sparse (most queues name few flavors), hence dictionaries rather than a matrix.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from muster.quota.amounts import FlavorAmounts, FlavorResource

ONE = Fraction(1)


@dataclass(frozen=True, slots=True)
class Quota:
    """What one node owns of one flavor-resource, and how far it borrows and lends. None: without limit."""

    nominal: int = 0
    borrowing_limit: int | None = None
    lending_limit: int | None = None


@dataclass(slots=True, eq=False)
class Node:
    """A queue, or a cohort. Which of the two is said, because a queue and a cohort may have the same name."""

    name: str
    is_queue: bool
    parent: "Node | None" = None
    children: "list[Node]" = field(default_factory=list)
    weight: Fraction = ONE
    priority: int = 0
    """Among its siblings: the higher is served first, and gives last."""
    quotas: Mapping[FlavorResource, Quota] = field(default_factory=dict)
    is_declared: bool = True
    """False for a cohort that somebody names and nobody has made."""
    height: int = 0
    """The longest way down to a queue."""
    priorities: tuple[int, ...] = ()
    """Of all on the way from the root down to it, equally long for all nodes; empty where nobody has any."""
    subtree: dict[FlavorResource, int] = field(default_factory=dict)
    guaranteed: dict[FlavorResource, int] = field(default_factory=dict)
    """What it never lends: the parent does not see it."""
    usage: dict[FlavorResource, int] = field(default_factory=dict)
    beyond: "dict[FlavorResource, dict[Node, None]]" = field(default_factory=dict)
    """Children that use more than they own: whom to look at where somebody wants quota back."""
    _potential: dict[FlavorResource, int] = field(default_factory=dict)
    _lendable: dict[str, int] | None = None

    # Questions

    def nominal(self, what: FlavorResource) -> int:
        quota = self.quotas.get(what)
        return quota.nominal if quota is not None else 0

    def borrowing_limit(self, what: FlavorResource) -> int | None:
        quota = self.quotas.get(what)
        return quota.borrowing_limit if quota is not None else None

    def used(self, what: FlavorResource) -> int:
        return self.usage.get(what, 0)

    def owned(self, what: FlavorResource) -> int:
        """By the whole subtree, as far as this node can reach it."""
        return self.subtree.get(what, 0)

    def local_available(self, what: FlavorResource) -> int:
        """Left of what is never lent."""
        return max(0, self.guaranteed.get(what, 0) - self.usage.get(what, 0))

    def available(self, what: FlavorResource) -> int:
        """How much more may be used here, borrowing included. Negative where too much is used already."""
        owned, used = self.subtree.get(what, 0), self.usage.get(what, 0)
        if self.parent is None:
            return owned - used
        kept = self.guaranteed.get(what, 0)
        above = self.parent.available(what)
        limit = self.borrowing_limit(what)
        if limit is not None:
            above = min(above, owned - kept - max(0, used - kept) + limit)
        return max(0, kept - used) + above

    def potentially_available(self, what: FlavorResource) -> int:
        """How much could be used here if nobody used anything."""
        found = self._potential.get(what)
        if found is None:
            found = self.subtree.get(what, 0)
            if self.parent is not None:
                limit = self.borrowing_limit(what)
                most = None if limit is None else found + limit
                found = self.guaranteed.get(what, 0) + self.parent.potentially_available(what)
                found = found if most is None else min(found, most)
            self._potential[what] = found
        return found

    def lendable(self) -> dict[str, int]:
        """By resource, in all flavors together: how much could be used here if nobody used anything."""
        if self._lendable is None:
            found: dict[str, int] = {}
            for what in self.root().subtree:
                found[what.resource] = found.get(what.resource, 0) + self.potentially_available(what)
            self._lendable = found
        return self._lendable

    def borrows(self, what: FlavorResource, more: int = 0) -> bool:
        """Whether it uses, with so much more, beyond what it owns."""
        limit = self.nominal(what) if self.is_queue else self.owned(what)
        return limit < self.used(what) + more

    def borrow_height(self, what: FlavorResource, more: int) -> tuple[int, bool]:
        """How high up the tree the lender is (0: nobody lends), and whether there is anybody above who could be asked
        to give back."""
        if self.parent is None or not self.borrows(what, more):
            return 0, self.parent is not None
        remaining = more - self.local_available(what)
        last = self
        for node in self.ancestors():
            if not node.borrows(what, remaining):
                return node.height, node.parent is not None
            remaining -= node.local_available(what)
            last = node
        return last.height, False

    def ancestors(self) -> "Iterator[Node]":
        """From the parent to the root."""
        node = self.parent
        while node is not None:
            yield node
            node = node.parent

    def root(self) -> "Node":
        node = self
        while node.parent is not None:
            node = node.parent
        return node

    def path(self) -> str:
        """`/root/…/name`, as messages show it."""
        names = [self.name, *(node.name for node in self.ancestors())]
        return "/" + "/".join(reversed(names))

    def queues(self) -> "Iterator[Node]":
        """Of the whole subtree."""
        if self.is_queue:
            yield self
        for child in self.children:
            yield from child.queues()

    # Usage

    def add(self, what: FlavorResource, value: int) -> None:
        node = self
        while True:
            used = node.usage.get(what, 0)
            node.usage[what] = used + value
            if node.parent is None:
                return
            owned = node.subtree.get(what, 0)
            if (used > owned) is not (used + value > owned):
                node.note_beyond(what)
            value -= max(0, node.guaranteed.get(what, 0) - used)
            if value <= 0:
                return
            node = node.parent

    def remove(self, what: FlavorResource, value: int) -> None:
        node = self
        while True:
            used = node.usage.get(what, 0)
            node.usage[what] = used - value
            if node.parent is None:
                return
            owned = node.subtree.get(what, 0)
            if (used > owned) is not (used - value > owned):
                node.note_beyond(what)
            stored = used - node.guaranteed.get(what, 0)
            if stored <= 0:
                return
            value = min(value, stored)
            node = node.parent

    def note_beyond(self, what: FlavorResource) -> None:
        assert self.parent is not None
        listed = self.parent.beyond.get(what)
        if self.usage.get(what, 0) > self.subtree.get(what, 0):
            if listed is None:
                listed = self.parent.beyond[what] = {}
            listed[self] = None
        elif listed:
            listed.pop(self, None)

    def children_beyond(self, whats: Iterable[FlavorResource]) -> "Iterable[Node]":
        """Those that use more than they own of any of these."""
        found = [listed for what in whats if (listed := self.beyond.get(what))]
        if len(found) == 1:
            return found[0]
        return {node: None for listed in found for node in listed}

    def add_all(self, amounts: FlavorAmounts) -> None:
        for what, value in amounts.items():
            self.add(what, value)

    def remove_all(self, amounts: FlavorAmounts) -> None:
        for what, value in amounts.items():
            self.remove(what, value)


class QuotaTree:
    """All trees. Changes of edges or quotas are told one by one and take effect with `settle`."""

    def __init__(self) -> None:
        self.queues: dict[str, Node] = {}
        self.cohorts: dict[str, Node] = {}
        self.cycles: frozenset[str] = frozenset()
        """Cohorts in, or below, a circle of parents: nothing is admitted there."""
        self._parents: dict[tuple[bool, str], str] = {}
        self._is_settled = True
        self.version = 0
        """Grows with every change of edges or quotas."""

    def set_queue(
        self,
        name: str,
        cohort: str,
        quotas: Mapping[FlavorResource, Quota],
        weight: Fraction = ONE,
        priority: int = 0,
    ) -> None:
        node = self.queues.setdefault(name, Node(name, True))
        node.priority = priority
        self._set(node, cohort, quotas, weight)

    def set_cohort(
        self,
        name: str,
        parent: str,
        quotas: Mapping[FlavorResource, Quota],
        weight: Fraction = ONE,
        priority: int = 0,
    ) -> None:
        node = self.cohorts.setdefault(name, Node(name, False))
        node.is_declared = True
        node.priority = priority
        self._set(node, parent, quotas, weight)

    def _set(self, node: Node, parent: str, quotas: Mapping[FlavorResource, Quota], weight: Fraction) -> None:
        node.quotas, node.weight = quotas, weight
        self._parents[node.is_queue, node.name] = parent
        self._is_settled = False

    def remove_queue(self, name: str) -> None:
        if self.queues.pop(name, None) is not None:
            del self._parents[True, name]
            self._is_settled = False

    def remove_cohort(self, name: str) -> None:
        """Where somebody still names it, it lives on without quota of its own."""
        if self.cohorts.pop(name, None) is not None:
            self._parents.pop((False, name), None)
            self._is_settled = False

    def settle(self) -> None:
        if self._is_settled:
            return
        self._is_settled = True
        self.version += 1
        self._link()
        roots = self._roots()
        for root in roots:
            _recount(root)
        is_any = any(node.priority for node in (*self.queues.values(), *self.cohorts.values()))
        length = 1 + max((root.height for root in roots), default=0) if is_any else 0
        for root in roots:
            _line_up(root, (), length)

    def _link(self) -> None:
        used = {parent for parent in self._parents.values() if parent}
        for name in used - self.cohorts.keys():
            self.cohorts[name] = Node(name, False, is_declared=False)
            self._parents[False, name] = ""
        for name in [name for name, node in self.cohorts.items() if not node.is_declared and name not in used]:
            del self.cohorts[name], self._parents[False, name]
        nodes = (*self.queues.values(), *self.cohorts.values())
        for node in nodes:
            node.children.clear()
            node.parent = None
        self.cycles = frozenset(name for name in self.cohorts if self._is_endless(name))
        for node in nodes:
            parent = self._parents[node.is_queue, node.name]
            if parent and parent not in self.cycles:
                node.parent = self.cohorts[parent]
                node.parent.children.append(node)

    def _is_endless(self, cohort: str) -> bool:
        seen = {cohort}
        while cohort := self._parents[False, cohort]:
            if cohort in seen:
                return True
            seen.add(cohort)
        return False

    def is_in_cycle(self, queue: str) -> bool:
        self.settle()
        return self._parents.get((True, queue), "") in self.cycles

    def circle(self, queue: str) -> list[str]:
        """The cohorts that are each other's parents, in or below which the queue is; from the alphabetically first on,
        so that all who are told are told the same."""
        self.settle()
        seen: dict[str, None] = {}
        cohort = self._parents.get((True, queue), "")
        while cohort and cohort not in seen:
            seen[cohort] = None
            cohort = self._parents[False, cohort]
        if not cohort:
            return []
        names = list(seen)
        names = names[names.index(cohort) :]
        first = names.index(min(names))
        return [*names[first:], *names[:first]]

    def _roots(self) -> list[Node]:
        return [node for node in (*self.queues.values(), *self.cohorts.values()) if node.parent is None]


def _line_up(node: Node, above: tuple[int, ...], length: int) -> None:
    own = (*above, node.priority)[:length]
    node.priorities = (*own, *(0,) * (length - len(own)))
    for child in node.children:
        _line_up(child, own, length)


def _recount(node: Node) -> None:
    """Bottom up: what the subtree owns, and what of a cohort is used, from the usage of its queues."""
    for child in node.children:
        _recount(child)
    node.height = 1 + max((child.height for child in node.children), default=0) if not node.is_queue else 0
    node.subtree = {what: quota.nominal for what, quota in node.quotas.items()}
    if not node.is_queue:
        node.usage = {}
    for child in node.children:
        for what, owned in child.subtree.items():
            node.subtree[what] = node.subtree.get(what, 0) + owned - child.guaranteed.get(what, 0)
        for what, used in child.usage.items():
            beyond = max(0, used - child.guaranteed.get(what, 0))
            node.usage[what] = node.usage.get(what, 0) + beyond
    node.guaranteed = {
        what: max(0, node.subtree.get(what, 0) - quota.lending_limit)
        for what, quota in node.quotas.items()
        if quota.lending_limit is not None
    }
    node._potential = {}
    node.beyond = {}
    for child in node.children:
        for what in child.usage:
            child.note_beyond(what)
    node._lendable = None
