"""Points to be drawn: a few metrics of a trial side by side, each thinned out. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from muster.api.meta import Instant
from muster.api.raw import Document
from muster.experiments import metric_summaries
from muster.experiments.metric_reports import SEPARATOR
from muster.experiments.series import NO_STEP, Series, downsample

EPOCH: Final = "epoch"
"""A metric by which others are drawn, where it is reported with them."""


@dataclass(frozen=True, slots=True)
class Point:
    """`values`: by the names that were asked for; of a nested metric, nested."""

    steps: int
    at: Instant
    values: Document
    epoch: float | None


def is_of(path: str, asked: str) -> bool:
    """Whether the number at this path is one of the metric that was asked for. Nested ones are written with dots."""
    dotted = path.replace(SEPARATOR, ".")
    return dotted == asked or (dotted.startswith(f"{asked}.") and inside(path, asked) is not None)


def inside(path: str, asked: str) -> tuple[str, ...] | None:
    """The parts of the path that come after what was asked for; None where it is none of that."""
    parts = path.split(SEPARATOR)
    for count in range(1, len(parts) + 1):
        if ".".join(parts[:count]) == asked:
            return tuple(parts[count:])
    return None


def points(columns: Mapping[str, Series], asked: Sequence[str], most: int) -> list[Point]:
    """`columns`: by path. At most so many of each, and what the others were at the same time."""
    drawn = {path: column for path, column in columns.items() if any(is_of(path, name) for name in asked)}
    chosen: dict[tuple[int, float], Document] = {}
    for column in drawn.values():
        thin = downsample(column, most)
        for steps, time in zip(thin.steps.tolist(), thin.times.tolist(), strict=True):
            chosen[steps, time] = {}
    moments = sorted(chosen)
    for path, column in drawn.items():
        for moment, value in zip(moments, _values_at(column, moments), strict=True):
            if value is not None:
                for name in asked:
                    _put(chosen[moment], name, inside(path, name), value)
    epochs = _values_at(columns[EPOCH], moments) if EPOCH in columns else [None] * len(moments)
    return [
        Point(max(steps, 0), Instant(time), chosen[steps, time], epoch)
        for (steps, time), epoch in zip(moments, epochs, strict=True)
    ]


def _values_at(column: Series, moments: Sequence[tuple[int, float]]) -> list[float | None]:
    """The value at each of these, where there is one. Each step was reported once; what has none is known by time."""
    by_time = bool(len(column)) and column.steps[0] == NO_STEP
    axis = column.times if by_time else column.steps
    wanted = np.array([time if by_time else steps for steps, time in moments], axis.dtype)
    places = np.minimum(np.searchsorted(axis, wanted), len(axis) - 1)
    is_there = axis[places] == wanted
    return [value if there else None for value, there in zip(column.values[places].tolist(), is_there, strict=True)]


def _put(values: Document, name: str, path: Iterable[str] | None, value: float) -> None:
    if path is None:
        return
    *around, last = (name, *path)
    for part in around:
        values = values.setdefault(part, {})
    values[last] = metric_summaries.worded(value)
