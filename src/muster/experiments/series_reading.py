"""Series of a trial as they are asked for: which metrics, from where to where, how many points. Functions of a
connection around pure ones."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
from sqlalchemy import Connection

from muster.experiments import metric_blocks, series_points
from muster.experiments.series import NO_STEP, Series
from muster.experiments.series_points import EPOCH, Point
from muster.experiments.states import TrialId

BATCHES: Final = "batches"
TIME: Final = "time"
AXES: Final = (BATCHES, TIME, EPOCH)


@dataclass(frozen=True, slots=True)
class Bounds:
    """None: not bounded. `included`, `excluded`: single values; empty for no matter."""

    above: float | None = None
    from_: float | None = None
    below: float | None = None
    to: float | None = None
    included: Sequence[float] = ()
    excluded: Sequence[float] = ()

    def hold(self, values: npt.NDArray[np.float64] | npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Where they do."""
        kept = np.ones(len(values), np.bool_)
        for bound, compare in (
            (self.above, np.greater), (self.from_, np.greater_equal), (self.below, np.less), (self.to, np.less_equal),
        ):  # fmt: skip
            if bound is not None:
                kept &= compare(values, bound)
        if self.included:
            kept &= np.isin(values, self.included)
        return kept & ~np.isin(values, self.excluded) if self.excluded else kept


@dataclass(frozen=True, slots=True)
class Wanted:
    """`names`: of metrics, nested ones with dots. `bounds`: by axis. `most`: points of each."""

    group: str
    names: Sequence[str]
    most: int
    bounds: Mapping[str, Bounds]


def points(connection: Connection, trial: TrialId, wanted: Wanted) -> list[Point]:
    """In order."""
    columns = metric_blocks.read(
        connection,
        trial,
        wanted.group,
        lambda path: path == EPOCH or any(series_points.is_of(path, name) for name in wanted.names),
    )
    return series_points.points(narrowed(columns, wanted.bounds), wanted.names, wanted.most)


def narrowed(columns: Mapping[str, Series], bounds: Mapping[str, Bounds]) -> Mapping[str, Series]:
    """To what is within the bounds. Without epochs, no epoch is; what belongs to no step, no bound of steps holds
    off."""
    epochs = columns.get(EPOCH)
    for axis, bound in bounds.items():
        if axis == EPOCH:
            held = np.array([], np.int64) if epochs is None else epochs.steps[bound.hold(epochs.values)]
            columns = {path: column.at(np.isin(column.steps, held)) for path, column in columns.items()}
        elif axis == TIME:
            columns = {path: column.at(bound.hold(column.times)) for path, column in columns.items()}
        else:
            columns = {
                path: column.at(bound.hold(column.steps) | (column.steps == NO_STEP))
                for path, column in columns.items()
            }
    return {path: column for path, column in columns.items() if len(column)}
