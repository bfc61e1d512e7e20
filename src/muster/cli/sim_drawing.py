"""What `muster sim replay --plot` draws: how long jobs waited, and how full the cluster was."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np

from muster.cli import plots
from muster.cli.plots import Curve, Drawing
from muster.sim.replay.lives import Course
from muster.sim.replay.report import Report

_POINTS: Final = 300
_DAY: Final = 86400.0


def check(path: Path) -> None:
    """Raises BadRequest where nothing could be drawn there."""
    plots.check(path)


def draw(found: Sequence[Report], starts: float, path: Path) -> None:
    plots.write_all([_waits(found), _use(found, starts)], path)


def _waits(found: Sequence[Report]) -> Drawing:
    """Which part of the jobs waited longer: most wait for nothing, and the few who do are what policies differ in."""
    curves = []
    for each in found:
        count = len(each.waits)
        parts = np.geomspace(1.0, 1.0 / count, _POINTS)
        rows = count - np.maximum(1, np.round(parts * count).astype(int))
        curves.append(Curve(each.policy, list(np.asarray(each.waits)[rows] / 3600), list(100 * parts)))
    return Drawing("How long jobs waited", "hours", "% of jobs that waited for so long, or longer", curves, is_log=True)


def _use(found: Sequence[Report], starts: float) -> Drawing:
    curves = [Curve(each.policy, *_averages(each.course, starts)) for each in found]
    return Drawing("GPUs in use", "days", "GPUs", curves)


def _averages(course: Course, starts: float) -> tuple[list[float], list[float]]:
    """Over equal spans of time, so that a curve of months can be read."""
    times = np.asarray(course.times) - starts
    used = np.concatenate(([0.0], np.cumsum(np.diff(times) * np.asarray(course.busy)[:-1])))
    edges = np.linspace(0, times[-1], _POINTS + 1)
    spans = np.diff(edges)
    if not spans.all():
        return [0.0], [float(course.busy[0])]
    return list(edges[:-1] / _DAY), list(np.diff(np.interp(edges, times, used)) / spans)
