"""How Kueue's metrics are named and labelled: by ClusterQueue, and most of them by LocalQueue too."""

from collections.abc import Callable
from typing import Final, Generic, NamedTuple, TypeVar

from muster.runtime.metrics import Counter, Histogram, Registry

PREFIX: Final = "kueue_"
LOCAL_PREFIX: Final = "kueue_local_queue_"
ROLE: Final = "standalone"
"""Every series carries `replica_role`: here nobody stands by."""


class Where(NamedTuple):
    """Whose series count something. `queue`: empty where there is no such queue. `local_queue`: name and namespace;
    None where that is not measured."""

    queue: str
    local_queue: tuple[str, str] | None
    priority_class: str


_Kept = TypeVar("_Kept", Counter, Histogram)


class PerQueue(Generic[_Kept]):
    """The same thing measured by ClusterQueue and, where `is_local`, by LocalQueue."""

    def __init__(
        self, make: Callable[[str, str, tuple[str, ...]], _Kept], name: str, help: str, *more: str, is_local: bool
    ) -> None:
        """`more`: labels between those of the queue and `priority_class`."""
        tail: tuple[str, ...] = (*more, "priority_class", "replica_role")
        self._own: _Kept = make(f"{PREFIX}{name}", help, ("cluster_queue", *tail))
        labels: tuple[str, ...] = ("name", "namespace", *tail)
        self._local: _Kept | None = None
        if is_local:
            self._local = make(f"{LOCAL_PREFIX}{name}", f"{help}, by LocalQueue", labels)

    def series(self, where: Where, *more: str) -> list[tuple[_Kept, tuple[str, ...]]]:
        """Which are concerned, with the values of their labels."""
        tail: tuple[str, ...] = (*more, where.priority_class, ROLE)
        found: list[tuple[_Kept, tuple[str, ...]]] = [(self._own, (where.queue, *tail))] if where.queue else []
        if self._local is not None and where.local_queue is not None:
            name, namespace = where.local_queue
            found.append((self._local, (name, namespace, *tail)))
        return found

    def forget_queue(self, name: str) -> None:
        self._own.forget(cluster_queue=name)

    def forget_local_queue(self, name: str, namespace: str) -> None:
        if self._local is not None:
            self._local.forget(name=name, namespace=namespace)


class QueueCounter(PerQueue[Counter]):
    def __init__(self, registry: Registry, name: str, help: str, *more: str, is_local: bool = True) -> None:
        super().__init__(registry.counter, name, help, *more, is_local=is_local)

    def add(self, where: Where, *more: str, by: float = 1.0) -> None:
        for counter, values in self.series(where, *more):
            counter.add(*values, by=by)


class QueueHistogram(PerQueue[Histogram]):
    def __init__(self, registry: Registry, name: str, help: str, *more: str, is_local: bool = True) -> None:
        super().__init__(registry.histogram, name, help, *more, is_local=is_local)

    def observe(self, seconds: float, where: Where, *more: str) -> None:
        for histogram, values in self.series(where, *more):
            histogram.observe(max(0.0, seconds), *values)
