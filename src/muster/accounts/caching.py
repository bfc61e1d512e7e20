"""A small memory for what nearly every request asks."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar

from muster.runtime.clock import Clock

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
_SECONDS: Final = 10.0
_MOST: Final = 10_000


class Cache(Generic[K, V]):
    """Bounded in number and in age. What was read before something was dropped must not be put in afterwards: name the
    `generation` that was when the reading began."""

    def __init__(self, clock: Clock, *, seconds: float = _SECONDS, most: int = _MOST) -> None:
        self._clock = clock
        self._seconds = seconds
        self._most = most
        self._entries: OrderedDict[K, tuple[V, float]] = OrderedDict()
        self.generation = 0

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: K) -> V | None:
        found = self._entries.get(key)
        if found is None or found[1] <= self._clock.monotonic():
            return None
        return found[0]

    def put(self, key: K, value: V, generation: int) -> None:
        if generation != self.generation:
            return
        self._entries[key] = (value, self._clock.monotonic() + self._seconds)
        self._entries.move_to_end(key)
        while len(self._entries) > self._most:
            self._entries.popitem(last=False)

    def drop(self, is_stale: Callable[[K, V], bool]) -> None:
        self.generation += 1
        for key in [key for key, (value, _) in self._entries.items() if is_stale(key, value)]:
            del self._entries[key]

    def clear(self) -> None:
        self.generation += 1
        self._entries.clear()
