"""Which active workloads have which shape.

Working out a shape costs more than everything else that a queue does with a workload, so it is put off until somebody
asks for all of one shape: many workloads are admitted before that.
"""

from collections.abc import Iterable

from muster.quota.queueing.lanes import Lanes


class ShapeIndex:
    def __init__(self) -> None:
        self._keys: dict[str, set[str]] = {}
        self._shape_of: dict[str, str] = {}
        self._unsorted: dict[str, None] = {}

    def add(self, key: str) -> None:
        """It is active, perhaps with another shape than before."""
        if key in self._shape_of:
            self.discard(key)
        self._unsorted[key] = None

    def add_new(self, keys: Iterable[str]) -> None:
        """They have become active."""
        self._unsorted.update(dict.fromkeys(keys))

    def discard(self, key: str) -> None:
        self._unsorted.pop(key, None)
        shape = self._shape_of.pop(key, None)
        if shape is not None:
            alike = self._keys[shape]
            alike.remove(key)
            if not alike:
                del self._keys[shape]

    def keys_of(self, shape: str, active: Lanes) -> list[str]:
        self._sort(active)
        return sorted(self._keys.get(shape, ()))

    def shapes(self, active: Lanes) -> set[str]:
        self._sort(active)
        return set(self._keys)

    def _sort(self, active: Lanes) -> None:
        for key in self._unsorted:
            info = active.get(key)
            if info is not None:
                self._shape_of[key] = info.shape
                self._keys.setdefault(info.shape, set()).add(key)
        self._unsorted.clear()
