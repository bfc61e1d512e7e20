"""Room for a workload, while others are taken out in thought."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from muster.quota.amounts import FlavorResource
from muster.quota.preempting.policies import Target, Wanted
from muster.quota.state import QueueState, QuotaState
from muster.quota.workloads import WorkloadInfo


class Room:
    """A trial: everything that was taken out is back when the block ends, however it ends.

    Taking out so much of something makes at most so much more of it available. So, once measured, what is lacking says
    how much must be taken out at least before measuring again can be worth it.
    """

    def __init__(self, state: QuotaState, wanted: Wanted, *, may_borrow: bool, is_partial: bool = False) -> None:
        """`is_partial`: of what nobody asks for nothing is taken out, so nothing may be concluded from it."""
        self._state = state
        self._wanted = wanted
        self._whats = tuple(wanted.needing.union(wanted.amounts)) if is_partial else None
        self._node = wanted.queue.node
        self._may_borrow = may_borrow
        self._taken: dict[str, tuple[QueueState, WorkloadInfo]] = {}
        # A slice may ask for less of something than the one that it replaces: less cannot be added and removed again.
        self._more = {what: amount for what, amount in wanted.amounts.items() if amount > 0}
        self._holds_wanted = False
        self._lacking = self._measured()
        self._is_placed: bool | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._wanted.places:
            for queue, info in self._taken.values():
                self._state.add_usage(queue, info.usage)
        else:
            self._return_all()
        self._taken.clear()

    def _return_all(self) -> None:
        """Queue by queue: what a tree has used in the end does not depend on the order."""
        totals: dict[str, dict[FlavorResource, int]] = {}
        for queue, info in self._taken.values():
            total = totals.setdefault(queue.name, {})
            for what, amount in self._amounts(info).items():
                total[what] = total.get(what, 0) + amount
        for name, total in totals.items():
            self._state.queues[name].node.add_all(total)

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
        if self._wanted.places:
            self._state.remove_usage(queue, info.usage)
            self._forget_placing(info)
        else:
            queue.node.remove_all(self._amounts(info))
        self._taken[info.key] = (queue, info)
        lacking, quota = self._lacking, info.usage.quota
        for what in lacking:
            lacking[what] -= quota.get(what, 0)

    def give_back(self, queue: QueueState, info: WorkloadInfo) -> None:
        del self._taken[info.key]
        if self._wanted.places:
            self._state.add_usage(queue, info.usage)
            self._forget_placing(info)
        else:
            queue.node.add_all(self._amounts(info))
        self._lacking = {}

    def _amounts(self, info: WorkloadInfo) -> Mapping[FlavorResource, int]:
        quota = info.usage.quota
        if self._whats is None:
            return quota
        return {what: quota[what] for what in self._whats if what in quota}

    def _forget_placing(self, info: WorkloadInfo) -> None:
        if not self._wanted.places.keys().isdisjoint(info.usage.topology):
            self._is_placed = None

    # Questions

    def fits(self) -> bool:
        for amount in self._lacking.values():
            if amount > 0:
                return False
        self._lacking = self._measured()
        return not self._lacking and self._finds_places()

    def could_fit(self, queues: Iterable[QueueState]) -> bool:
        """Whether it could, at the very best, if all that these queues hold were taken out."""
        lacking = dict(self._lacking)
        if not lacking:
            return True
        for queue in queues:
            for what in lacking:
                lacking[what] -= queue.node.used(what)
        return all(amount <= 0 for amount in lacking.values())

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
            available = self._node.available(what)
            # Who asks for nothing fits, however much others use beyond their quota.
            lack = amount - available if amount > max(0, available) else 0
            if not self._may_borrow:
                lack = max(lack, self._node.used(what) + amount - self._node.nominal(what))
            if lack > 0:
                found[what] = lack
        return found

    def _finds_places(self) -> bool:
        if self._is_placed is None:
            self._is_placed = all(self._finds_place(flavor) for flavor in self._wanted.places)
        return self._is_placed

    def _finds_place(self, flavor: str) -> bool:
        topology, info = self._state.topologies.flavor(flavor), self._wanted.info
        if topology is None:
            return False
        workload = info.view if info.has_reservation else None
        found = topology.find(self._wanted.places[flavor], workload=workload)
        return not any(placed.reason for placed in found.values())

    # Afterwards

    def spare(self, targets: list[Target]) -> list[Target]:
        """Those who really have to go. All but the last were taken out before it was known that the last is enough:
        whoever may stay after all, stays, the last taken first."""
        kept = [targets[-1]]
        for target in reversed(targets[:-1]):
            self.give_back(target.queue, target.info)
            if not self.fits():
                self.take(target.queue, target.info)
                kept.append(target)
        kept.reverse()
        return kept
