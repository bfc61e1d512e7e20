"""Room for a workload, while others are taken out in thought, one by one, until it fits."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Literal, Self

from muster.quota.amounts import FlavorResource
from muster.quota.preempting.books import Books, TreeBooks
from muster.quota.preempting.policies import Target, Wanted
from muster.quota.state import QueueState, QuotaState
from muster.quota.topology import TopologyAssignment
from muster.quota.workloads import WorkloadInfo


class Room:
    """A trial: everything that was taken out is back when the block ends, however it ends.

    Asking is what costs, so it is asked only when the answer may be another one. Taking out so much of something makes
    at most so much more of it available: what is lacking says how much must go before measuring again can be worth it.
    For places see `_Places`.
    """

    def __init__(self, state: QuotaState, wanted: Wanted, *, may_borrow: bool, books: Books | None = None) -> None:
        """`books`: in which it is tried out; by default in the tree itself."""
        self._state = state
        self._wanted = wanted
        self._node = wanted.queue.node
        self._books = books or TreeBooks(self._node)
        self._may_borrow = may_borrow
        self._taken: dict[str, tuple[QueueState, WorkloadInfo]] = {}
        # A slice may ask for less of something than the one that it replaces: less cannot be added and removed again.
        self._more = {what: amount for what, amount in wanted.amounts.items() if amount > 0}
        self._holds_wanted = False
        self._lacking = self._measured()
        self._places = _Places(state, wanted)
        self._failed_with = 0
        """So many taken out are too few."""
        self._ask_with, self._step = 1, 1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._books.close((queue.node, info) for queue, info in self._taken.values())
        if self._wanted.places:
            for _, info in self._taken.values():
                self._state.occupy(info.usage)
        self._taken.clear()

    @contextmanager
    def holding_wanted(self) -> Iterator[None]:
        """With the wanted workload counted as if it were in: shares are compared so."""
        self._node.add_all(self._more)
        self._holds_wanted = True
        try:
            yield
        finally:
            self._holds_wanted = False
            self._node.remove_all(self._more)

    # Moves

    def take(self, queue: QueueState, info: WorkloadInfo) -> None:
        quota = info.usage.quota
        self._books.remove(queue.node, quota)
        if self._wanted.places:
            self._state.vacate(info.usage)
            self._places.after_leaving(info)
        self._taken[info.key] = (queue, info)
        lacking = self._lacking
        for what in lacking:
            lacking[what] -= quota.get(what, 0)

    def _give_back(self, queue: QueueState, info: WorkloadInfo) -> None:
        del self._taken[info.key]
        self._books.add(queue.node, info.usage.quota)
        if self._wanted.places:
            self._state.occupy(info.usage)
            self._places.after_return(info)
        self._lacking = {}

    # Quota

    def could_fit(self, queues: Iterable[QueueState]) -> bool:
        """Whether there could be quota, at the very best, if all that these queues hold were taken out."""
        lacking = dict(self._lacking)
        if not lacking:
            return True
        for queue in queues:
            for what in lacking:
                lacking[what] -= queue.node.used(what)
        return all(amount <= 0 for amount in lacking.values())

    def _has_quota(self) -> bool:
        for amount in self._lacking.values():
            if amount > 0:
                return False
        self._lacking = self._measured()
        return not self._lacking

    def _measured(self) -> dict[FlavorResource, int]:
        """How much is lacking, where anything is."""
        if not self._holds_wanted:
            return self._lacks()
        self._node.remove_all(self._more)
        found = self._lacks()
        self._node.add_all(self._more)
        return found

    def _lacks(self) -> dict[FlavorResource, int]:
        found = {}
        for what, amount in self._wanted.amounts.items():
            available = self._books.available(what)
            # Who asks for nothing fits, however much others use beyond their quota.
            lack = amount - available if amount > max(0, available) else 0
            if not self._may_borrow:
                lack = max(lack, self._books.used(what) + amount - self._node.nominal(what))
            if lack > 0:
                found[what] = lack
        return found

    # Enough?

    def is_enough(self, *, is_last: bool = False) -> bool:
        """Whether those are enough who were taken out so far: then no more of them are out than it takes. May say no
        too early, unless nobody `is_last` to come."""
        count = len(self._taken)
        if count == self._failed_with:
            return False
        if not self._has_quota():
            self._failed_with = count
            return False
        if count < self._ask_with and self._places.are_steady and not is_last:
            return False
        if self._places.are_found():
            self._keep_fewest()
            return True
        self._failed_with = count
        self._step *= 2
        self._ask_with = count + self._step
        return False

    def _keep_fewest(self) -> None:
        taken = list(self._taken.values())
        few, enough = self._failed_with, len(taken)
        while enough - few > 1:
            middle = (few + enough) // 2
            self._keep(taken, middle)
            if self._has_quota() and self._places.are_found():
                enough = middle
            else:
                few = middle
        self._keep(taken, enough)

    def _keep(self, taken: Sequence[tuple[QueueState, WorkloadInfo]], count: int) -> None:
        while len(self._taken) > count:
            self._give_back(*taken[len(self._taken) - 1])
        while len(self._taken) < count:
            self.take(*taken[len(self._taken)])

    def spared(self, targets: Sequence[Target]) -> list[Target]:
        """Those who really have to go, of all who were taken out. All but the last were taken out before it was known
        that the last is enough: whoever may stay after all, stays, the last taken first."""
        *others, last = targets[: len(self._taken)]
        kept = [last]
        for target in reversed(others):
            known = self._places.known
            self._give_back(target.queue, target.info)
            if not (self._has_quota() and self._places.are_found()):
                self.take(target.queue, target.info)
                self._places.known = known
                kept.append(target)
        kept.reverse()
        return kept


class _Places:
    """Whether the pods find places in their topologies, if they need any.

    They are `steady` if there is one pod set: it finds places with more room if it does with less, and those that it
    found stay good whoever comes elsewhere. Of several each takes what seems best for itself, so with more room the
    first may take what the second needs.
    """

    def __init__(self, state: QuotaState, wanted: Wanted) -> None:
        self._state = state
        self._wanted = wanted
        requests = [request for asked in wanted.places.values() for request in asked]
        is_new = not wanted.info.has_reservation and all(request.previous is None for request in requests)
        self.are_steady = len(requests) == 1 and is_new
        self.known: frozenset[str] | Literal[False] | None = None
        """Lowest domains of the places that were found last; False: there are none; None: not known."""

    def after_leaving(self, info: WorkloadInfo) -> None:
        if info.usage.topology and (not self.are_steady or self.known is False):
            self.known = None

    def after_return(self, info: WorkloadInfo) -> None:
        if not info.usage.topology or self.known is None or (self.are_steady and self.known is False):
            return
        # Also what it takes of other flavors: those may have the same hosts.
        taken = (domain.values[-1] for domains in info.usage.topology.values() for domain in domains)
        if not self.are_steady or self.known is False or not self.known.isdisjoint(taken):
            self.known = None

    def are_found(self) -> bool:
        if self.known is None:
            self.known = self._found()
        return self.known is not False

    def _found(self) -> frozenset[str] | Literal[False]:
        hosts: set[str] = set()
        for flavor, requests in self._wanted.places.items():
            topology, info = self._state.topologies.flavor(flavor), self._wanted.info
            if topology is None:
                return False
            workload = info.view if info.has_reservation else None
            for placed in topology.find(requests, workload=workload).values():
                if placed.reason:
                    return False
                hosts.update(_hosts(placed.assignment))
        return frozenset(hosts)


def _hosts(assignment: TopologyAssignment | None) -> Iterator[str]:
    if assignment is not None:
        yield from (domain.values[-1] for domain in assignment.domains)
