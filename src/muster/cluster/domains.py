"""Topology domains: nodes that have the same value for a label are one domain of that label's key."""

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from muster.cluster.columns import ABSENT, Amounts, Codes, NodeMask

Positions: TypeAlias = npt.NDArray[np.intp]


class Domains:
    """The domains of one topology key, numbered from 0. Nodes without the label are in none: their number is `count`,
    and every vector over domains has one place more for them, which stays 0."""

    __slots__ = ("count", "of")

    def __init__(self, codes: Codes | None, width: int) -> None:
        """`codes`: of the label's values by slot (`ClusterState.labelled`)."""
        if codes is None:
            self.count = 0
            self.of: Positions = np.zeros(width, dtype=np.intp)
            return
        present = np.zeros(int(codes.max(initial=0)) + 2, dtype=np.bool_)
        present[codes] = True  # ABSENT is the last place
        present[ABSENT] = False
        numbers = np.cumsum(present) - 1
        self.count = int(numbers[-1]) + 1
        numbers[ABSENT] = self.count
        self.of = numbers[codes]
        """[slot] → its domain."""

    def sums(self, by_slot: Amounts) -> Amounts:
        """[domain] → the sum over its nodes."""
        summed = np.bincount(self.of, weights=by_slot, minlength=self.count + 1)
        summed[self.count] = 0
        return summed.astype(np.int64)

    def sparse_sums(self, by_slot: dict[int, int]) -> Amounts:
        """As `sums`, of counts that are 0 where nothing is said."""
        slots = np.fromiter(by_slot, np.intp, len(by_slot))
        amounts = np.fromiter(by_slot.values(), np.int64, len(by_slot))
        summed = np.bincount(self.of[slots], weights=amounts, minlength=self.count + 1)
        summed[self.count] = 0
        return summed.astype(np.int64)

    def zeros(self) -> Amounts:
        return np.zeros(self.count + 1, dtype=np.int64)

    @property
    def outside(self) -> NodeMask:
        """Nodes that are in no domain."""
        outside: NodeMask = self.of == self.count
        return outside
