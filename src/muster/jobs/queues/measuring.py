"""What is in Volcano's queues, as its metrics tell it: pod groups by phase, what their pods hold and ask for, and what
groups that may start need. Kept up to date change by change, each for the cost of one group or pod.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from muster.jobs.queues.ledger import Amounts

INQUEUE: Final = "Inqueue"
PENDING: Final = "Pending"


@dataclass(slots=True, eq=False)
class Book:
    """Of one queue, without those below it. Amounts: cpu in thousandths, everything else in units."""

    phases: Counter[str] = field(default_factory=Counter)
    request: Counter[str] = field(default_factory=Counter)
    """Of all pods that have not ended."""
    allocated: Counter[str] = field(default_factory=Counter)
    """Of those among them that have a node."""
    inqueue: Counter[str] = field(default_factory=Counter)
    """The least that groups need that may start and have not."""


@dataclass(slots=True, eq=False)
class _Group:
    queue: str = ""
    """Empty while only its pods are known."""
    phase: str = ""
    minimum: Amounts = field(default_factory=dict)
    pods: int = 0
    request: Counter[str] = field(default_factory=Counter)
    allocated: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class _Pod:
    group: str
    amounts: Amounts
    is_placed: bool


class Books:
    """Groups and pods are known by any key. One owner."""

    def __init__(self) -> None:
        self.queues: dict[str, Book] = {}
        self._groups: dict[str, _Group] = {}
        self._pods: dict[str, _Pod] = {}

    def set_group(self, key: str, queue: str, phase: str | None, minimum: Mapping[str, int]) -> None:
        group = self._groups.setdefault(key, _Group())
        self._count(group, -1)
        group.queue, group.phase, group.minimum = queue, phase or PENDING, minimum
        self._count(group, 1)

    def remove_group(self, key: str) -> None:
        """Its pods may still be there: they count again should it come back."""
        group = self._groups.get(key)
        if group is not None:
            self._count(group, -1)
            group.queue = ""
            self._tidy(key, group)

    def is_placed(self, pod: str) -> bool | None:
        """None where it is not known."""
        known = self._pods.get(pod)
        return None if known is None else known.is_placed

    def set_pod(self, key: str, group: str, amounts: Amounts, *, is_placed: bool) -> None:
        self.remove_pod(key)
        self._pods[key] = _Pod(group, amounts, is_placed)
        self._add_pod(self._pods[key], 1)

    def remove_pod(self, key: str) -> None:
        known = self._pods.pop(key, None)
        if known is not None:
            self._add_pod(known, -1)

    def _add_pod(self, pod: _Pod, sign: int) -> None:
        group = self._groups.setdefault(pod.group, _Group())
        group.pods += sign
        book = self.queues.get(group.queue)
        for summed in (group, book):
            if summed is not None:
                _add(summed.request, pod.amounts, sign)
                if pod.is_placed:
                    _add(summed.allocated, pod.amounts, sign)
        self._tidy(pod.group, group)

    def _tidy(self, key: str, group: _Group) -> None:
        if not group.queue and not group.pods:
            self._groups.pop(key, None)

    def _count(self, group: _Group, sign: int) -> None:
        if not group.queue:
            return
        book = self.queues.setdefault(group.queue, Book())
        _add(book.phases, {group.phase: 1}, sign)
        _add(book.request, group.request, sign)
        _add(book.allocated, group.allocated, sign)
        if group.phase == INQUEUE:
            _add(book.inqueue, group.minimum, sign)
        if not book.phases:
            del self.queues[group.queue]


def _add(summed: Counter[str], amounts: Mapping[str, int], sign: int) -> None:
    for name, amount in amounts.items():
        found = summed[name] + sign * amount
        if found:
            summed[name] = found
        else:
            del summed[name]
