"""How long an entity rests after an attempt that failed: twice as long each time, and longer for large gangs."""

import math
from dataclasses import dataclass

WINDOW_SECONDS = 1.0
"""Expiries are rounded down to whole windows: within one, order is that of the active set, not of the millisecond."""
_LARGEST_SHIFT = 1000  # what a float can still be doubled by


@dataclass(frozen=True, slots=True)
class Timing:
    initial_backoff: float = 1.0
    max_backoff: float = 10.0
    """0: no backoff at all."""
    max_unschedulable: float = 300.0
    """After so long without an event that helps, an entity is tried again in case an event was missed."""
    flush_every: float = 30.0


def duration(count: int, size: int, initial: float, longest: float) -> float:
    """The rest after the `count`-th failure in a row of an entity of `size` pods, in the unit of `initial`."""
    if count == 0:
        return 0
    if size > 1:
        longest = longest * math.sqrt(size)  # a large gang is costly to try, but not `size` times as costly
    return min(math.ldexp(initial, min(count - 1, _LARGEST_SHIFT)), longest)


def expiry(rejections: int, errors: int, size: int, since: float, timing: Timing) -> float | None:
    """When the rest is over, rounded down to a window; None where there is none. Errors in a row count on their own."""
    count = errors or rejections
    if timing.max_backoff == 0 or count == 0:
        return None
    return aligned(since + duration(count, size, timing.initial_backoff, timing.max_backoff))


def aligned(time: float) -> float:
    return math.floor(time / WINDOW_SECONDS) * WINDOW_SECONDS
