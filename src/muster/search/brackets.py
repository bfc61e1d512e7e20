"""Asynchronous successive halving, in the variant that stops (Li et al. 2018, as Determined does it).

A bracket has rungs: lengths of training at which its trials are compared. A trial that has reached one goes on if it is
among the best 1/divisor of all that have reached it so far, itself included; at least the best of them goes on. Who has
reached the last has trained as long as any trial may. A bracket without rungs stops nobody: with it, random and grid
search are of the same kind as the others.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, isfinite
from typing import Final

import msgspec

from muster.api import errors
from muster.search.protocol import ExitReason

_WORST: Final = inf


@dataclass(frozen=True, slots=True)
class Shape:
    """What a bracket may use. `rungs`: lengths of training, each at least as long as the one before."""

    max_trials: int
    max_concurrent: int | None = None
    """None for no bound."""
    rungs: tuple[int, ...] = ()


class Bracket(msgspec.Struct):
    """`rungs`: what trials had to show there, best first; the last needs none."""

    rungs: list[list[float]]
    made: int = 0
    running: int = 0


class Climb(msgspec.Struct):
    """Where a trial that runs has come to. `shown`: what it had to show at each rung that it has reached."""

    bracket: int
    shown: list[float] = []


class State(msgspec.Struct):
    brackets: list[Bracket]
    climbs: dict[int, Climb] = {}
    """By the numbers of trials that run."""
    replaced: int = 0


class Brackets:
    """All brackets of a search. Metrics are costs: the smaller the better."""

    def __init__(self, shapes: Sequence[Shape], divisor: float, *, can_replace: bool) -> None:
        """`can_replace`: another trial is made for one with invalid hyperparameters; not without end, as it may be that
        none are valid."""
        self._shapes = tuple(shapes)
        self._divisor = divisor
        self.max_trials: Final = sum(shape.max_trials for shape in shapes)
        self._most_replaced = self.max_trials if can_replace else 0
        self.state = State([Bracket([[] for _ in shape.rungs[:-1]]) for shape in shapes])

    def load(self, state: State) -> None:
        """Raises Invalid where it is not of the same brackets."""
        found = [len(bracket.rungs) for bracket in state.brackets]
        wanted = [len(bracket.rungs) for bracket in self.state.brackets]
        if found != wanted:
            raise errors.Invalid(f"the snapshot has brackets with {found} rungs below the last, the searcher {wanted}")
        self.state = state

    @property
    def made(self) -> int:
        """Trials, without those that were replaced."""
        return sum(bracket.made for bracket in self.state.brackets)

    def next_bracket(self) -> int | None:
        """That the next trial belongs to: the first with room, so those that stop most come first."""
        for index, (shape, bracket) in enumerate(zip(self._shapes, self.state.brackets, strict=True)):
            has_place = shape.max_concurrent is None or bracket.running < shape.max_concurrent
            if has_place and bracket.made < shape.max_trials:
                return index
        return None

    def add(self, number: int, index: int) -> None:
        bracket = self.state.brackets[index]
        bracket.made += 1
        bracket.running += 1
        self.state.climbs[number] = Climb(index)

    def report(self, number: int, cost: float, length: float) -> bool:
        """Whether the trial is to stop. One report can take it past several rungs."""
        climb = self.state.climbs[number]
        lengths, rungs = self._shapes[climb.bracket].rungs, self.state.brackets[climb.bracket].rungs
        cost = cost if isfinite(cost) else _WORST
        for level in range(len(climb.shown), len(lengths)):
            if length < lengths[level]:
                return False
            if level == len(rungs):
                return True
            climb.shown.append(cost)
            rank = _insert(rungs[level], cost)
            if rank >= max(int(len(rungs[level]) / self._divisor), 1):
                return True
        return False

    def exit(self, number: int, reason: ExitReason) -> None:
        """A trial that could not go on was worse than all at the rung that it did not reach. One with invalid
        hyperparameters has never been, as far as they can be replaced."""
        climb = self.state.climbs[number]
        bracket = self.state.brackets[climb.bracket]
        if reason is ExitReason.INVALID_HP:
            for rung, cost in zip(bracket.rungs, climb.shown, strict=False):
                rung.pop(bisect_left(rung, cost))
            climb.shown.clear()
            if self.state.replaced < self._most_replaced:
                self.state.replaced += 1
                bracket.made -= 1
        elif len(climb.shown) < len(bracket.rungs):
            _insert(bracket.rungs[len(climb.shown)], _WORST)

    def close(self, number: int) -> None:
        climb = self.state.climbs.pop(number)
        self.state.brackets[climb.bracket].running -= 1


def _insert(rung: list[float], cost: float) -> int:
    """Its rank, from 0. Among equals the newest is first, but not among those that have nothing to show."""
    if cost == _WORST:
        rung.append(cost)
        return len(rung) - 1
    rank = bisect_left(rung, cost)
    rung.insert(rank, cost)
    return rank
