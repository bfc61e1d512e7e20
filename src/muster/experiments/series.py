"""One metric of one trial as columns, and fewer points of it that look the same. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

Steps: TypeAlias = npt.NDArray[np.int64]
Numbers: TypeAlias = npt.NDArray[np.float64]
Places: TypeAlias = npt.NDArray[np.intp]
NO_STEP: Final = -1
"""Of what was reported at no step."""
_WIDTH: Final = 24
"""Bytes that a point takes: a step, a time and a value."""


@dataclass(frozen=True, slots=True)
class Series:
    """Columns of the same length. `times`: seconds since 1970."""

    steps: Steps
    times: Numbers
    values: Numbers

    def __len__(self) -> int:
        return len(self.values)

    def at(self, places: Places | npt.NDArray[np.bool_]) -> "Series":
        return Series(self.steps[places], self.times[places], self.values[places])

    def ordered(self) -> "Series":
        """By step, and by time where there are none. What stands in order already is not moved."""
        if bool(np.all(self.steps[1:] >= self.steps[:-1])) and bool(self.steps[:1] != NO_STEP):
            return self
        return self.at(np.lexsort((self.times, self.steps)))

    def between(self, first: int, last: int) -> "Series":
        """Both included."""
        return self.at((self.steps >= first) & (self.steps <= last))

    def pack(self) -> bytes:
        return self.steps.tobytes() + self.times.tobytes() + self.values.tobytes()


def unpack(data: bytes) -> Series:
    count = len(data) // _WIDTH
    return Series(
        np.frombuffer(data, np.int64, count),
        np.frombuffer(data, np.float64, count, 8 * count),
        np.frombuffer(data, np.float64, count, 16 * count),
    )


def made_of(points: Sequence[tuple[int | None, float, float]]) -> Series:
    """Of steps, times and values."""
    return Series(
        np.array([NO_STEP if step is None else step for step, _, _ in points], np.int64),
        np.array([time for _, time, _ in points], np.float64),
        np.array([value for _, _, value in points], np.float64),
    )


def joined(parts: Sequence[Series]) -> Series:
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return made_of(())
    return Series(
        np.concatenate([part.steps for part in parts]),
        np.concatenate([part.times for part in parts]),
        np.concatenate([part.values for part in parts]),
    )


def downsample(series: Series, most: int) -> Series:
    """At most so many of its points, in order: the first and the last, and of each stretch in between the least, the
    greatest and, where there is one, a value that is no number. So a spike or a NaN among a million is still there."""
    if len(series) <= most:
        return series
    if most < 5:  # too few for a stretch
        return series.at(np.linspace(0, len(series) - 1, max(most, 0)).astype(np.intp))
    is_nan = np.isnan(series.values)
    stretches = (most - 2) // (3 if is_nan.any() else 2)
    lows, highs = np.where(is_nan, np.inf, series.values), np.where(is_nan, -np.inf, series.values)
    odd = _greatest(is_nan.astype(np.float64), stretches)
    ends = np.array([0, len(series) - 1])
    places = np.concatenate([ends, _greatest(-lows, stretches), _greatest(highs, stretches), odd[is_nan[odd]]])
    return series.at(np.unique(places))


def _greatest(values: Numbers, stretches: int) -> Places:
    """Where the greatest of each stretch is; of equal ones, the first."""
    width = -(-len(values) // stretches)
    rows = -(-len(values) // width)
    table = np.full(rows * width, -np.inf)
    table[: len(values)] = values
    found: Places = np.arange(rows) * width + np.argmax(table.reshape(rows, width), axis=1)
    return found
