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

    def load(self) -> tuple[int, Iterable[Row]]:
        """The last revision and every object. Called once, first."""
        ...

    def commit(self, rows: Sequence[Row], revision: int) -> None:
        """Returns once all rows survive a crash of the machine. Raises ApiError when they do not: then none of them
        may ever be seen."""
        ...

    def close(self) -> None: ...


class NoJournal:
    """Nothing survives: for tests and simulation."""

    def load(self) -> tuple[int, Iterable[Row]]:
        return 0, ()

    def commit(self, rows: Sequence[Row], revision: int) -> None:
        """Nothing to do."""

    def close(self) -> None:
        """Nothing to do."""


_: Journal = NoJournal()
