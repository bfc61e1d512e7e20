"""What is true after every commit, and those who look at it: each invariant sees each change, and then the whole."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, Protocol, TypeVar

from muster.api.everything import REGISTRY
from muster.api.kinds import Kind
from muster.api.objects import Key, Object
from muster.runtime.clock import Clock
from muster.sim.tape import Commit
from muster.store.journal import Row

T = TypeVar("T")
_BY_RESOURCE: Mapping[str, Kind] = {kind.resource: kind for kind in REGISTRY}


class Place(NamedTuple):
    kind: str
    key: Key

    def __str__(self) -> str:
        return f"{self.kind} {self.key}"


@dataclass(frozen=True, slots=True)
class Violation:
    """`about`: the objects whose stories explain it."""

    invariant: str
    message: str
    about: tuple[Place, ...] = ()

    def __str__(self) -> str:
        return f"{self.invariant}: {self.message}"


class Invariant(Protocol):
    name: str
    kinds: frozenset[Kind]

    def heard(self, old: Object | None, new: Object | None) -> None:
        """One object of its kinds has changed."""
        ...

    def broken(self) -> Violation | None:
        """Called when all changes of a commit have been heard."""
        ...


class Ledger:
    """Listens to a tape."""

    def __init__(self, invariants: Sequence[Invariant]) -> None:
        self.rows: dict[Kind, dict[Key, bytes]] = {}
        """Everything, as it is on the tape."""
        self.violation: Violation | None = None
        self.commits = 0
        self._listening = {kind: [one for one in invariants if kind in one.kinds] for kind in REGISTRY}
        self._objects: dict[Kind, dict[Key, Object]] = {}
        """Of kinds that somebody listens to: to decode the rest, leases and events, would be half of the work."""

    def take(self, commit: Commit) -> None:
        self.commits += 1
        touched: dict[str, Invariant] = {}
        for row in commit.rows:
            kind = _BY_RESOURCE[row.resource]
            rows = self.rows.setdefault(kind, {})
            if row.data is None:
                rows.pop(row.key, None)
            else:
                rows[row.key] = row.data
            listening = self._listening[kind]
            if listening:
                old, new = self._changed(kind, row)
                for invariant in listening:
                    touched[invariant.name] = invariant
                    invariant.heard(old, new)
        for invariant in touched.values():
            self.violation = self.violation or invariant.broken()

    def _changed(self, kind: Kind, row: Row) -> tuple[Object | None, Object | None]:
        """What it was, and what it is."""
        objects = self._objects.setdefault(kind, {})
        old = objects.pop(row.key, None)
        if row.data is None:
            return old, None
        new = objects[row.key] = Object(kind, row.data)
        return old, new

    def find(self, kind: Kind, key: Key) -> Object | None:
        found = self.rows.get(kind, {}).get(key)
        return None if found is None else Object(kind, found)

    def all(self, kind: Kind) -> Iterable[Object]:
        """Of a kind that somebody listens to."""
        return self._objects.get(kind, {}).values()


class Recent(Generic[T]):
    """Versions of a setting that somebody may still act on: those that held within the last so many seconds."""

    def __init__(self, clock: Clock, seconds: float = 120.0) -> None:
        self._clock = clock
        self._seconds = seconds
        self._versions: dict[str, list[tuple[float, T]]] = {}  # each with the time at which it was replaced

    def put(self, name: str, value: T) -> None:
        now = self._clock.monotonic()
        kept = [pair for pair in self._versions.get(name, []) if pair[0] > now - self._seconds]
        if kept:
            kept[-1] = (min(kept[-1][0], now), kept[-1][1])
        self._versions[name] = [*kept, (float("inf"), value)]

    def all(self, name: str) -> list[T]:
        now = self._clock.monotonic()
        return [value for until, value in self._versions.get(name, []) if until > now - self._seconds]
