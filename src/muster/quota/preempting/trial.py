"""Whom to take out for quota alone: the last that may stay stays, then the last before it, and so on.

Specified is to take out one candidate after the other until the workload fits, and then to go back from the last to the
first and let everybody stay who may. Candidates of the preemptor's own queue come after those of others; but where that
queue has reached a limit of its own, only they can help, and hundreds of others would be taken out and put back for
nothing. More room never makes anything fit worse, so the outcome is the same if the own ones are taken out ahead, and
of the others only as many as it takes to say who may stay.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from muster.quota.amounts import FlavorResource
from muster.quota.preempting.books import CopiedBooks
from muster.quota.preempting.policies import Target, Wanted

_NOTHING: Final = FlavorResource("", "")


class Part:
    """Candidates that come one after the other in the order; `taken`: those who are out, in that order."""

    __slots__ = ("is_own", "source", "taken")

    def __init__(self, source: Iterator[Target], *, is_own: bool) -> None:
        self.source = source
        self.is_own = is_own
        self.taken: list[Target] = []


class Trial:
    def __init__(self, wanted: Wanted, books: CopiedBooks, *, may_borrow: bool) -> None:
        self._wanted = wanted
        self._books = books
        self._limits = self._own_limits(may_borrow)
        self._lacking = _NOTHING
        self._lack = 0
        """So much more of that must go before measuring again can be worth it: whoever goes makes at most as much
        available as it held."""

    def _own_limits(self, may_borrow: bool) -> list[tuple[FlavorResource, int]]:
        """How much its queue may use, the wanted workload not counted, whatever others use."""
        node, found = self._wanted.queue.node, []
        for what, amount in self._wanted.amounts.items():
            limits = [] if may_borrow else [node.nominal(what)]
            limit = node.borrowing_limit(what)
            if amount > 0 and node.parent is not None and limit is not None:
                limits.append(node.owned(what) + limit)
            if limits:
                found.append((what, min(limits) - amount))
        return found

    def find(self, parts: Sequence[Part]) -> list[Target]:
        """`parts`: in order. Nobody, where nothing helps."""
        if self._is_within_limits() and self._fits():
            # It lacks something that is not asked about here: one is taken out before that is found out.
            return next(([target] for part in parts for target in part.source), [])
        for part in parts:
            if part.is_own:
                while not self._is_within_limits() and self._take_next(part):
                    pass
        if not self._is_within_limits() or not self._fits_with(parts):
            return []
        for number in range(len(parts) - 1, -1, -1):
            self._let_stay(parts[number], parts[:number])
        return [target for part in parts for target in part.taken]

    def _let_stay(self, part: Part, before: Sequence[Part]) -> None:
        kept: list[Target] = []
        for target in reversed(part.taken):
            self._books.add(target.queue.node, target.info.usage.quota)
            self._lack = 0
            if not self._is_within_limits() or not self._fits_with(before):
                self._books.remove(target.queue.node, target.info.usage.quota)
                self._lack = 0
                kept.append(target)
        kept.reverse()
        part.taken = kept

    def _fits_with(self, parts: Sequence[Part]) -> bool:
        """Whether it fits with all of these out; as few of them are taken out as it takes to say so."""
        if self._fits():
            return True
        for part in parts:
            while self._take_next(part):
                if self._fits():
                    return True
        return False

    def _take_next(self, part: Part) -> bool:
        target = next(part.source, None)
        if target is None:
            return False
        quota = target.info.usage.quota
        self._books.remove(target.queue.node, quota)
        part.taken.append(target)
        if self._lack > 0:
            self._lack -= quota.get(self._lacking, 0)
        return True

    # Measuring

    def _is_within_limits(self) -> bool:
        for what, most in self._limits:  # noqa: SIM110 - asked for every candidate
            if self._books.used(what) > most:
                return False
        return True

    def _fits(self) -> bool:
        if self._lack > 0:
            return False
        for what, amount in self._wanted.amounts.items():
            if amount > 0:  # who asks for nothing fits, however much others use beyond their quota
                lack = amount - self._books.available(what)
                if lack > 0:
                    self._lacking, self._lack = what, lack
                    return False
        return True
