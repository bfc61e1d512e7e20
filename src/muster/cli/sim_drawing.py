"""What `muster sim replay --plot` draws: how long jobs waited, by size and by queue, how full the cluster was, and what
each policy cost."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from muster.cli import plots
from muster.sim.replay.lives import Course
from muster.sim.replay.report import Report, Spread
from muster.sim.traces import Trace

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_POINTS: Final = 400
_MINUTE, _HOUR, _DAY = 60.0, 3600.0, 86400.0
_COLOURS: Final = ("#000000", "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00")
"""That people tell apart who see few colours."""
_TIMES: Final = {
    1.0: "≤ 1 s",
    10.0: "10 s",
    _MINUTE: "1 min",
    10 * _MINUTE: "10 min",
    _HOUR: "1 h",
    10 * _HOUR: "10 h",
    _DAY: "1 d",
    10 * _DAY: "10 d",
    100 * _DAY: "100 d",
}
Values: TypeAlias = npt.NDArray[np.float64]


def check(path: Path) -> None:
    """Raises BadRequest where nothing could be drawn there."""
    plots.check(path)


def draw(found: Sequence[Report], trace: Trace, path: Path) -> None:
    figure = plots.new_figure(path, 13, 12)
    panels = figure.subplots(3, 2)
    _waits(panels[0, 0], found)
    _spreads(panels[0, 1], found, "Waiting, by GPUs of the job", lambda each: each.wait_by_size)
    _over_time(panels[1, 0], found, trace, "GPUs in use", lambda course: course.busy)
    _over_time(panels[1, 1], found, trace, "Jobs waiting", lambda course: course.waiting)
    _spreads(panels[2, 0], found, "Waiting, by queue", _waits_by_queue)
    _prices(panels[2, 1], found)
    for axes in panels.flat:
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    panels[0, 0].legend(frameon=False)
    gpus, nodes = found[0].gpus, found[0].nodes
    figure.suptitle(f"{len(trace.jobs):,} jobs on {nodes:,} nodes with {gpus:,} GPUs", fontsize="x-large")
    plots.save(figure, path)


# Waiting


def _waits(axes: "Axes", found: Sequence[Report]) -> None:
    """Which part of the jobs waited longer: most wait for nothing, and the few who do are what policies differ in."""
    for each, colour in zip(found, _COLOURS, strict=False):
        count = len(each.waits)
        parts = np.geomspace(1.0, 1.0 / count, _POINTS)
        rows = count - np.maximum(1, np.round(parts * count).astype(int))
        waits = np.asarray(each.waits)[rows]
        axes.plot(waits[waits >= 1], 100 * parts[waits >= 1], color=colour, label=each.policy)
    axes.set(title="How long jobs waited", ylabel="% of jobs that waited for so long, or longer", yscale="log")
    axes.set_xscale("log")
    _mark_times(axes, "x")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")


def _waits_by_queue(each: Report) -> Mapping[str, Spread]:
    """Of the queues with the most work."""
    largest = sorted(each.queues, key=lambda name: -each.queues[name].gpu_hours)[:12]
    return {name: each.queues[name].wait for name in largest}


def _spreads(
    axes: "Axes", found: Sequence[Report], title: str, spreads: Callable[[Report], Mapping[str, Spread]]
) -> None:
    """A dot for the mean, a line to the 99th percentile."""
    names = list(spreads(found[0]))
    for number, (each, colour) in enumerate(zip(found, _COLOURS, strict=False)):
        places = np.arange(len(names)) + (number - (len(found) - 1) / 2) * 0.7 / len(found)
        listed = [spreads(each)[name] for name in names]
        means = np.array([max(spread.mean, 1.0) for spread in listed])
        tails = np.array([max(spread.p99, spread.mean, 1.0) for spread in listed])
        axes.vlines(places, means, tails, color=colour, linewidth=2, alpha=0.45)
        axes.plot(places, means, "o", color=colour, markersize=5)
    axes.set(title=f"{title}: mean, and up to the 99th percentile", yscale="log")
    axes.set_xticks(range(len(names)), names, rotation=30 if len(names) > 6 else 0)
    _mark_times(axes, "y")


def _mark_times(axes: "Axes", which: str) -> None:
    axis = axes.xaxis if which == "x" else axes.yaxis
    low, high = axes.get_xlim() if which == "x" else axes.get_ylim()
    shown = {time: name for time, name in _TIMES.items() if low <= time <= high}
    axis.set_ticks(list(shown), list(shown.values()))
    axis.set_ticks([], minor=True)


# Over time


def _over_time(
    axes: "Axes", found: Sequence[Report], trace: Trace, title: str, values: Callable[[Course], Sequence[int]]
) -> None:
    last = (trace.last_arrival - trace.starts) / _DAY
    for each, colour in zip(found, _COLOURS, strict=False):
        days, means = _averages(each.course, values(each.course), trace.starts)
        axes.plot(days, means, color=colour, linewidth=1.2, alpha=0.85)
    axes.axvline(last, color="grey", linewidth=0.8, linestyle=":")
    axes.set(title=title, xlabel="days (dotted: the last job has come)", xlim=(0, None), ylim=(0, None))


def _averages(course: Course, values: Sequence[int], starts: float) -> tuple[Values, Values]:
    """Over equal spans of time, so that a curve of months can be read; in days."""
    times = np.asarray(course.times) - starts
    summed = np.concatenate(([0.0], np.cumsum(np.diff(times) * np.asarray(values)[:-1])))
    edges = np.linspace(0, times[-1], _POINTS + 1)
    spans = np.diff(edges)
    if not spans.all():
        return np.zeros(1), np.array([float(values[0])])
    return edges[:-1] / _DAY, np.diff(np.interp(edges, times, summed)) / spans


# Prices


def _prices(axes: "Axes", found: Sequence[Report]) -> None:
    parts = (
        ("owed to queues of their quota", "#999999", [each.owed_gpu_hours for each in found]),
        ("lost by preemption", "#D55E00", [each.lost_gpu_hours for each in found]),
        ("idle while reserved", "#E69F00", [each.held_idle_gpu_hours for each in found]),
    )
    rows = np.arange(len(found))
    for number, (label, colour, hours) in enumerate(parts):
        bars = axes.barh(rows + (number - 1) * 0.27, hours, height=0.25, color=colour, label=label)
        axes.bar_label(bars, [f"{value:,.0f}" if value else "" for value in hours], padding=3, fontsize="small")
    axes.set(title="What it cost", xlabel="GPU hours")
    axes.set_yticks(rows, [each.policy for each in found])
    axes.margins(x=0.15)
    axes.invert_yaxis()
    axes.legend(fontsize="small", frameon=False)
