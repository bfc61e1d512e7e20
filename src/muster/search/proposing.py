"""Who says what is tried next. Some only propose; others learn from what became of what they proposed."""

from typing import Protocol, runtime_checkable

from muster.api.raw import Document
from muster.search.hyperparameters import Space
from muster.search.protocol import ExitReason
from muster.search.randomness import Source


class Proposer(Protocol):
    def propose(self, number: int, source: Source) -> Document:
        """The hyperparameters of trial `number`; called once for each, from 0 on."""
        ...


@runtime_checkable
class Learner(Proposer, Protocol):
    def report(self, number: int, metric: float, length: float) -> bool:
        """Whether the trial is to stop. Each report of a trial is longer than the one before."""
        ...

    def close(self, number: int, reason: ExitReason | None) -> None: ...

    def saved(self) -> bytes: ...

    def load(self, saved: bytes) -> None:
        """Into one that has proposed nothing yet. Raises ValueError where something else was saved."""
        ...


class AtRandom:
    def __init__(self, space: Space) -> None:
        self._space = space

    def propose(self, number: int, source: Source) -> Document:  # noqa: ARG002
        return self._space.at(source.units(len(self._space.axes)))


class OverGrid:
    def __init__(self, space: Space) -> None:
        self._space = space

    def propose(self, number: int, source: Source) -> Document:  # noqa: ARG002
        return self._space.point(number)


_: tuple[type[Proposer], ...] = (AtRandom, OverGrid)
