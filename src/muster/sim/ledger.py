"""What is true after every commit, and those who look at it: each invariant sees each change, and then the whole."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, Protocol, TypeVar

from muster.api.everything import REGISTRY
from muster.api.kinds import Kind
from muster.api.objects import Key, Object
from muster.runtime.clock import Clock
from muster.sim.tape import Commit

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


@dataclass(slots=True)
class Ledger:
    """Listens to a tape."""

    invariants: Sequence[Invariant]
    objects: dict[Kind, dict[Key, Object]] = field(default_factory=dict)
    violation: Violation | None = None
    commits: int = 0

    def take(self, commit: Commit) -> None:
        self.commits += 1
        touched: dict[str, Invariant] = {}
        for row in commit.rows:
            kind = _BY_RESOURCE[row.resource]
            here = self.objects.setdefault(kind, {})
            old = here.pop(row.key, None)
            new = None if row.data is None else Object(kind, row.data)
            if new is not None:
                here[row.key] = new
            for invariant in self.invariants:
                if kind in invariant.kinds:
                    touched[invariant.name] = invariant
                    invariant.heard(old, new)
        for invariant in touched.values():
            self.violation = self.violation or invariant.broken()

    def find(self, kind: Kind, key: Key) -> Object | None:
        return self.objects.get(kind, {}).get(key)

    def all(self, kind: Kind) -> Iterable[Object]:
        return self.objects.get(kind, {}).values()


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
