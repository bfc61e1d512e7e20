"""Asynchronous successive halving once more, as it was published: slowly, and in other words than `muster.search`.

Each bracket remembers for every rung what each trial had when it got there. Whether one goes on is found by sorting all
of them anew. Costs: the smaller the better.
"""

import math
from dataclasses import dataclass, field


@dataclass
class ReferenceBracket:
    levels: list[int]
    budget: int
    places: float
    eta: float
    reached: list[dict[str, float]] = field(default_factory=list)
    spent: int = 0
    busy: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.reached = [{} for _ in self.levels]

    def survives(self, trial: str, cost: float, resource: float) -> bool:
        for k, level in enumerate(self.levels):
            if resource >= level and trial not in self.reached[k]:
                self.reached[k][trial] = math.inf if math.isnan(cost) else cost
                if k == len(self.levels) - 1 or not self._is_on_top(k, trial):
                    return False
        return True

    def _is_on_top(self, k: int, trial: str) -> bool:
        """The last that came is put before its equals, but who has nothing to show behind everybody."""
        everybody = list(reversed(self.reached[k].items()))
        finite = [each for each in everybody if each[1] < math.inf]
        ranking = [name for name, _ in sorted(finite, key=lambda each: each[1])]
        ranking += [name for name, cost in self.reached[k].items() if cost == math.inf]
        top = max(1, math.floor(len(ranking) / self.eta))
        return trial in ranking[:top]

    def fails(self, trial: str) -> None:
        for reached in self.reached:
            if trial not in reached:
                reached[trial] = math.inf
                return

    def forget(self, trial: str) -> None:
        for reached in self.reached:
            reached.pop(trial, None)
        self.spent -= 1


class Reference:
    def __init__(self, brackets: list[ReferenceBracket], places: float) -> None:
        self.brackets = brackets
        self.places = places
        self.home: dict[str, ReferenceBracket] = {}

    def room(self) -> int:
        """How many trials should be asked for now, if trials are put into the first bracket that takes them."""
        wanted, running = 0, sum(len(bracket.busy) for bracket in self.brackets)
        for bracket in self.brackets:
            free = min(
                bracket.places - len(bracket.busy), bracket.budget - bracket.spent, self.places - running - wanted
            )
            wanted += max(int(free), 0)
        return wanted

    def enters(self, trial: str) -> None:
        bracket = next(b for b in self.brackets if len(b.busy) < b.places and b.spent < b.budget)
        bracket.busy.add(trial)
        bracket.spent += 1
        self.home[trial] = bracket

    def leaves(self, trial: str) -> None:
        self.home[trial].busy.discard(trial)


def geometric(longest: int, eta: float, count: int) -> list[int]:
    return [max(1, math.floor(longest / eta ** (count - 1 - k))) for k in range(count)]


def one_bracket(trials: int, places: int, eta: float, count: int, longest: int) -> Reference:
    return Reference([ReferenceBracket(geometric(longest, eta, count), trials, places, eta)], places)


def tournament(trials: int, places: int, eta: float, counts: list[int], longest: int) -> Reference:
    """Brackets with `counts` rungs, most first; trials so that all have about the same to compute."""
    counts = sorted(counts, reverse=True)
    total = sum(eta ** (count - 1) / count for count in counts)
    budgets = [max(1, math.floor(trials * (eta ** (count - 1) / count) / total + 1e-9)) for count in counts]
    budgets[0] += trials - sum(budgets)
    share = [places // len(counts) + (1 if k < places % len(counts) else 0) for k in range(len(counts))]
    return Reference(
        [
            ReferenceBracket(geometric(longest, eta, count), budget, part, eta)
            for count, budget, part in zip(counts, budgets, share, strict=True)
        ],
        places,
    )
