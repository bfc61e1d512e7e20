"""Which brackets a search has: how many trials in each, how many of them at once, and compared at which lengths.

Numbers are Determined's (0.38), except that bounds are bounds: all brackets together make no more than `max_trials`
trials, and `searching` runs no more than `max_concurrent_trials` at once; Determined's make and run one each at least.
"""

from collections.abc import Iterator, Sequence

from muster.search.brackets import Shape
from muster.search.config import AdaptiveAsha, AsyncHalving, Grid, Mode, Optuna, Random, SearcherConfig, Single
from muster.search.hyperparameters import Space


def shapes(config: SearcherConfig, space: Space) -> list[Shape]:
    match config:
        case Single():
            return [Shape(1)]
        case Grid():
            return [Shape(space.points)]
        case Random() | Optuna():
            return [Shape(config.max_trials)]
        case AsyncHalving():
            return [_halving_shape(config)]
        case AdaptiveAsha():
            return list(_adaptive_shapes(config))


def max_concurrent(config: SearcherConfig) -> int | None:
    """Over all brackets; None for no bound."""
    return None if isinstance(config, Single) else config.max_concurrent_trials or None


def _halving_shape(config: AsyncHalving) -> Shape:
    """Unbounded, as many run at once as it takes for one of them to reach the last rung."""
    at_once = config.max_concurrent_trials or max(int(config.divisor ** (config.num_rungs - 1)), 1)
    return Shape(config.max_trials, at_once, rung_lengths(config.num_rungs, config.divisor, config.max_time))


def _adaptive_shapes(config: AdaptiveAsha) -> Iterator[Shape]:
    """Those with most rungs come first: they stop most trials, and so find something good soonest."""
    rungs = sorted(config.bracket_rungs or _rungs_of_mode(config), reverse=True)
    trials = _split_trials(config.max_trials, config.divisor, rungs)
    for bracket, (max_trials, at_once) in enumerate(zip(trials, _split_places(config, trials), strict=True)):
        yield Shape(max_trials, at_once, rung_lengths(rungs[bracket], config.divisor, config.max_time))


def rung_lengths(count: int, divisor: float, longest: int) -> tuple[int, ...]:
    return tuple(max(int(longest / divisor**level), 1) for level in reversed(range(count)))


def _rungs_of_mode(config: AdaptiveAsha) -> Sequence[int]:
    """Of each bracket. No rung is shorter than 1, nor is there one that no trial would be left for."""
    most = min(config.max_rungs, _powers(config.divisor, config.max_time), _powers(config.divisor, config.max_trials))
    match config.mode:
        case Mode.AGGRESSIVE:
            return [most]
        case Mode.STANDARD:
            return range((most - 1) // 2 + 1, most + 1)
        case Mode.CONSERVATIVE:
            return range(1, most + 1)


def _powers(divisor: float, limit: int) -> int:
    """How many powers of `divisor`, from the zeroth on, are within `limit`. Counted, as logarithms miss by a little."""
    power, count = divisor, 1
    while power <= limit:
        power *= divisor
        count += 1
    return count


def _split_trials(max_trials: int, divisor: float, rungs: Sequence[int]) -> list[int]:
    """So that brackets train for about the same time in all: one with r rungs needs about r full trainings for
    divisor**(r - 1) trials. What does not divide goes to the first; brackets that nothing is left for are not there."""
    weights = [divisor ** (count - 1) / count for count in rungs]
    wanted = [max(int(weight / sum(weights) * max_trials), 1) for weight in weights]
    wanted[0] += max(max_trials - sum(wanted), 0)
    found: list[int] = []
    for count in wanted:
        if left := min(count, max_trials - sum(found)):
            found.append(left)
    return found


def _split_places(config: AdaptiveAsha, trials: Sequence[int]) -> list[int]:
    """Evenly; what does not divide goes to the first ones. Unbounded, each has what the smallest needs."""
    brackets = len(trials)
    if not config.max_concurrent_trials:
        return [max(trials[-1], int(config.divisor))] * brackets
    each, more = divmod(max(config.max_concurrent_trials, brackets), brackets)
    return [each + (bracket < more) for bracket in range(brackets)]
