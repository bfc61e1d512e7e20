"""The `Journal` protocol: what makes an embedded store durable. Memory is the index; the journal is the truth."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from muster.api.objects import Key


class Row(NamedTuple):
    """One object as it is now (`data`), or no longer (None)."""

    resource: str  # Kind.resource: "pods", "jobs.batch"
    key: Key
    data: bytes | None


class Journal(Protocol):
    """Called by one thread at a time."""

    @property
    def is_slow(self) -> bool:
        """Whether `commit` may wait for a disk: it is then called on a thread. Else all is done in one turn of the
        event loop, and simulations are deterministic."""
        ...

    def load(self) -> tuple[int, Iterable[Row]]:
        """The last revision and every object. Called once, first."""
        ...

    def commit(self, rows: Sequence[Row], revision: int) -> None:
        """Returns once all rows survive a crash of the machine. Raises ApiError when they do not: then none of them
        may ever be seen."""
        ...

    def close(self) -> None: ...


class NoJournal:
    """Nothing survives: for tests."""

    is_slow = False

    def load(self) -> tuple[int, Iterable[Row]]:
        return 0, ()

    def commit(self, rows: Sequence[Row], revision: int) -> None:
        """Nothing to do."""

    def close(self) -> None:
        """Nothing to do."""


_: Journal = NoJournal()
