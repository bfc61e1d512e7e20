"""A heap of entities whose entries are void once the entity has moved: taking out is free, and paid when met."""

import heapq
from typing import TypeAlias

from muster.placement.plugins.priority_sort import SortKey
from muster.placement.queueing.entities import Entity

Entry: TypeAlias = tuple[float, SortKey, int, int, Entity]
"""(when it is due, sort key, number, token, entity): no two entries are compared further than the token."""
_SLACK = 1000


class LazyHeap:
    def __init__(self) -> None:
        self._entries: list[Entry] = []

    def push(self, due: float, order: SortKey, entity: Entity, live: int) -> None:
        """`live`: how many entries are not void at most; far more than that are swept out."""
        if len(self._entries) > 2 * live + _SLACK:
            self._entries = [entry for entry in self._entries if entry[3] == entry[4].token]
            heapq.heapify(self._entries)
        heapq.heappush(self._entries, (due, order, entity.number, entity.token, entity))

    def first(self) -> Entity | None:
        entries = self._entries
        while entries and entries[0][3] != entries[0][4].token:
            heapq.heappop(entries)
        return entries[0][4] if entries else None

    def due(self) -> float | None:
        """When the first is."""
        return None if self.first() is None else self._entries[0][0]
