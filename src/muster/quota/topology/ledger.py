"""`Ledger`: how much is taken of each domain, for domains that are there and for those that are gone for now."""

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np

from muster.cluster.columns import PODS, Amounts, taller, wider
from muster.cluster.domains import Positions
from muster.quota.topology.assignments import DomainUsage, Values
from muster.quota.topology.tree import Span

_MOST: Final = 2**56
"""More than any domain has: absurd amounts count as this, so that many of them still add up inside an int64."""


class Ledger:
    """A column for each domain, by its values. Usage of a domain that no node is in stays here: its nodes may return,
    and its workload still gives back what it took."""

    def __init__(self) -> None:
        self.version = 0
        """Grows with every change of what is taken."""
        self._rows: dict[str, int] = {PODS: 0}
        self._columns: dict[Values, int] = {}
        self._taken: Amounts = np.zeros((4, 16), dtype=np.int64)

    def columns_of(self, domains: Sequence[Values]) -> Positions | Span:
        """Where the domains are, for `taken`. A range where they lie side by side: that costs no copy."""
        columns = np.array([self._column(values) for values in domains], dtype=np.intp)
        if (np.diff(columns) == 1).all():
            first = int(columns[0]) if len(columns) else 0
            return slice(first, first + len(columns))
        return columns

    def taken(self, resource: str, columns: Positions | Span) -> Amounts | None:
        """[domain] → how much of the resource is taken. None: nothing anywhere."""
        row = self._rows.get(resource)
        return None if row is None else self._taken[row, columns]

    def taken_of(self, resource: str, values: Values) -> int:
        row, column = self._rows.get(resource), self._columns.get(values)
        return 0 if row is None or column is None else int(self._taken[row, column])

    def all_taken_of(self, values: Values) -> dict[str, int]:
        amounts = {resource: self.taken_of(resource, values) for resource in self._rows}
        return {resource: amount for resource, amount in amounts.items() if amount}

    def change(self, usage: Iterable[DomainUsage], sign: int) -> None:
        """`sign`: 1 takes, -1 gives back exactly that."""
        self.version += 1
        for used in usage:
            column = self._column(used.values)
            for resource, amount in used.requests.items():
                if amount > 0:
                    row = self._row(resource)
                    self._taken[row, column] += sign * min(amount * used.count, _MOST)
            self._taken[0, column] += sign * used.count

    def give_back(self, other: "Ledger") -> None:
        """All that the other one has."""
        self.version += 1
        for resource, row in other._rows.items():
            mine = self._row(resource)
            for values, column in other._columns.items():
                self._taken[mine, self._column(values)] -= other._taken[row, column]

    def _row(self, resource: str) -> int:
        row = self._rows.setdefault(resource, len(self._rows))
        if row == self._taken.shape[0]:
            self._taken = taller(self._taken, 0)
        return row

    def _column(self, values: Values) -> int:
        column = self._columns.setdefault(values, len(self._columns))
        if column == self._taken.shape[1]:
            self._taken = wider(self._taken, 0)
        return column
