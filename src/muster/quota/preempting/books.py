"""Where it is written what a queue and those above it use while workloads are taken out in thought.

In the tree itself, where shares are read off it too; else in a copy of the few numbers that a search is about, which
costs a fraction of that, and nothing to throw away.
"""

from collections.abc import Iterable
from typing import Protocol

from muster.quota.amounts import FlavorAmounts, FlavorResource
from muster.quota.tree import Node
from muster.quota.workloads import WorkloadInfo


class Books(Protocol):
    """`available` and `used` are asked for the preemptor's own queue."""

    def remove(self, queue: Node, amounts: FlavorAmounts) -> None: ...
    def add(self, queue: Node, amounts: FlavorAmounts) -> None: ...
    def available(self, what: FlavorResource) -> int: ...
    def used(self, what: FlavorResource) -> int: ...
    def close(self, gone: Iterable[tuple[Node, WorkloadInfo]]) -> None:
        """Those who are still out are put back."""
        ...


class TreeBooks:
    def __init__(self, node: Node) -> None:
        self._node = node

    def remove(self, queue: Node, amounts: FlavorAmounts) -> None:
        queue.remove_all(amounts)

    def add(self, queue: Node, amounts: FlavorAmounts) -> None:
        queue.add_all(amounts)

    def available(self, what: FlavorResource) -> int:
        return self._node.available(what)

    def used(self, what: FlavorResource) -> int:
        return self._node.used(what)

    def close(self, gone: Iterable[tuple[Node, WorkloadInfo]]) -> None:
        """Queue by queue: what a tree has used in the end does not depend on the order."""
        totals: dict[Node, dict[FlavorResource, int]] = {}
        for node, info in gone:
            total = totals.setdefault(node, {})
            for what, amount in info.usage.quota.items():
                total[what] = total.get(what, 0) + amount
        for node, total in totals.items():
            node.add_all(total)


class Account:
    """One resource of one node."""

    __slots__ = ("kept", "most_lent", "owned", "parent", "used")

    def __init__(self, node: Node, what: FlavorResource, parent: "Account | None") -> None:
        limit = node.borrowing_limit(what)
        self.used = node.usage.get(what, 0)
        self.owned = node.subtree.get(what, 0)
        self.kept = node.guaranteed.get(what, 0)
        self.most_lent = None if limit is None else self.owned - self.kept + limit
        """What may come from above at the most, of its own that it lends included."""
        self.parent = parent


class CopiedBooks:
    """The arithmetic of `Node`, for some resources only."""

    def __init__(self, node: Node, needing: frozenset[FlavorResource], others: Iterable[FlavorResource]) -> None:
        self._whats = (*needing, *(what for what in others if what not in needing))
        self._needing = len(needing)
        self._known: dict[Node, tuple[Account, ...]] = {}
        self._own = {what: _path(account) for what, account in zip(self._whats, self._of(node), strict=True)}

    def _of(self, node: Node) -> tuple[Account, ...]:
        found = self._known.get(node)
        if found is None:
            parents = self._of(node.parent) if node.parent is not None else (None,) * len(self._whats)
            found = tuple(Account(node, what, parent) for what, parent in zip(self._whats, parents, strict=True))
            self._known[node] = found
        return found

    def is_within_quota(self, node: Node) -> bool:
        """Whether it uses no more than it owns, of anything of which there is too little."""
        accounts = self._known.get(node)
        if accounts is None:
            accounts = self._of(node)
        for account in accounts[: self._needing]:  # noqa: SIM110 - a generator costs more than all the rest
            if account.used > account.owned:
                return False
        return True

    def remove(self, queue: Node, amounts: FlavorAmounts) -> None:
        accounts = self._known.get(queue)
        if accounts is None:
            accounts = self._of(queue)
        for what, account in zip(self._whats, accounts, strict=True):
            value = amounts.get(what)
            if value:
                _remove(account, value)

    def add(self, queue: Node, amounts: FlavorAmounts) -> None:
        for what, account in zip(self._whats, self._of(queue), strict=True):
            value = amounts.get(what)
            if value:
                _add(account, value)

    def available(self, what: FlavorResource) -> int:
        root, *below = self._own[what]
        found = root.owned - root.used
        for account in below:
            used, kept = account.used, account.kept
            if account.most_lent is not None:
                most = account.most_lent - used + kept if used > kept else account.most_lent
                found = min(found, most)
            if kept > used:
                found += kept - used
        return found

    def used(self, what: FlavorResource) -> int:
        return self._own[what][-1].used

    def close(self, gone: Iterable[tuple[Node, WorkloadInfo]]) -> None:
        """The tree has not been touched."""


def _path(account: Account | None) -> tuple[Account, ...]:
    """From the root down."""
    found = []
    while account is not None:
        found.append(account)
        account = account.parent
    return tuple(reversed(found))


def _remove(account: Account, value: int) -> None:
    while True:
        used = account.used
        account.used = used - value
        stored = used - account.kept
        if account.parent is None or stored <= 0:
            return
        value = min(value, stored)
        account = account.parent


def _add(account: Account, value: int) -> None:
    while True:
        used = account.used
        account.used = used + value
        if used < account.kept:
            value -= account.kept - used
        if account.parent is None or value <= 0:
            return
        account = account.parent
