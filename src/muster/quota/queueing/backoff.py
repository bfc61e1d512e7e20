"""Workloads that were put back and have to rest before they are looked at again."""

from heapq import heappop, heappush

from muster.api.meta import Instant
from muster.quota.workloads import REQUEUED, WorkloadInfo


def is_backoff_over(info: WorkloadInfo, now: Instant) -> bool:
    requeued = info.conditions.get(REQUEUED)
    if requeued is not None and requeued.status == "False":
        return False
    return info.rests_until is None or info.rests_until <= now


class Backoffs:
    """When which rest ends. Each is told once; whoever asks for more sets it again."""

    def __init__(self) -> None:
        self._at: dict[str, Instant] = {}
        self._heap: list[tuple[Instant, str]] = []

    def set(self, key: str, at: Instant | None) -> None:
        """None: it does not rest."""
        if at is None:
            self._at.pop(key, None)
        elif self._at.get(key) != at:
            self._at[key] = at
            heappush(self._heap, (at, key))

    def next_due(self) -> Instant | None:
        self._drop_stale()
        return self._heap[0][0] if self._heap else None

    def take(self, now: Instant) -> list[str]:
        """Whose rest has ended, the earliest first."""
        due: list[str] = []
        while (at := self.next_due()) is not None and at <= now:
            key = heappop(self._heap)[1]
            del self._at[key]
            due.append(key)
        return due

    def _drop_stale(self) -> None:
        while self._heap and self._at.get(self._heap[0][1]) != self._heap[0][0]:
            heappop(self._heap)
