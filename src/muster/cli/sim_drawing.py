"""What `muster sim replay --plot` draws: how long jobs waited, all of them and by size and queue, how full the cluster
was, and what each policy cost. A policy has the same colour, dashes and marker everywhere, and one legend above all."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from muster.cli import plots
from muster.sim.replay.lives import Course
from muster.sim.replay.report import Report, Spread
from muster.sim.traces import Trace

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_POINTS: Final = 400
_SPANS: Final = 150
"""Into how many the time is divided for curves over it: one is some hours of months."""
_MINUTE, _HOUR, _DAY = 60.0, 3600.0, 86400.0


class _Look(NamedTuple):
    colour: str
    dashes: str | tuple[int, tuple[int, ...]]
    marker: str


_LOOKS: Final = (
    _Look("#000000", "-", "o"),
    _Look("#0072B2", (0, (6, 2)), "s"),
    _Look("#D55E00", "-", "^"),
    _Look("#2CA089", (0, (3, 1, 1, 1)), "D"),
    _Look("#D98CB3", (0, (2, 1)), "v"),
)
"""Told apart by people who see few colours, and in grey: from dark to light, with other dashes and markers beside."""
_TIMES: Final = {
    1.0: "≤ 1 s",
    10.0: "10 s",
    _MINUTE: "1 min",
    10 * _MINUTE: "10 min",
    _HOUR: "1 h",
    _DAY: "1 d",
    10 * _DAY: "10 d",
    100 * _DAY: "100 d",
}
_BETWEEN: Final = {
    3.0: "3 s",
    30.0: "30 s",
    3 * _MINUTE: "3 min",
    30 * _MINUTE: "30 min",
    3 * _HOUR: "3 h",
    8 * _HOUR: "8 h",
    3 * _DAY: "3 d",
    30 * _DAY: "30 d",
}
"""For axes on which few of the others lie."""
_FEW: Final = 4
Values: TypeAlias = npt.NDArray[np.float64]


def check(path: Path) -> None:
    """Raises BadRequest where nothing could be drawn there."""
    plots.check(path)


def draw(found: Sequence[Report], trace: Trace, path: Path) -> None:
    figure = plots.new_figure(path, 13, 15)
    panels = figure.subplot_mosaic(
        [["within", "longer"], ["size", "queue"], ["used", "waiting"], ["price", "price"]],
        height_ratios=[1, 1, 1, 0.55 + 0.09 * len(found)],
    )
    _started_within(panels["within"], found)
    _waited_longer(panels["longer"], found)
    _spreads(panels["size"], found, "GPUs of the job", lambda each: each.wait_by_size)
    _spreads(panels["queue"], found, "queue", _waits_by_queue)
    _over_time(panels["used"], found, trace, "GPUs in use", lambda course: course.busy)
    _over_time(panels["waiting"], found, trace, "Jobs waiting", lambda course: course.waiting)
    _prices(panels["price"], found)
    for axes in panels.values():
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    figure.legend(
        panels["within"].get_lines(),
        [each.policy for each in found],
        title=f"{len(trace.jobs):,} jobs on {found[0].nodes:,} nodes with {found[0].gpus:,} GPUs",
        title_fontsize="x-large",
        loc="outside upper center",
        ncols=len(found),
        frameon=False,
    )
    plots.save(figure, path)


# Waiting


def _started_within(axes: "Axes", found: Sequence[Report]) -> None:
    """Their distribution: here one sees what became of most of the jobs."""
    for each, look in zip(found, _LOOKS, strict=False):
        waits = np.maximum(1.0, np.asarray(each.waits))
        axes.step(waits, np.linspace(0, 100, len(waits) + 1)[1:], where="post", color=look.colour, ls=look.dashes)
    axes.set(title="How long jobs waited: most of them", ylabel="% of jobs that waited no longer", ylim=(0, 101))
    axes.set(xscale="log", xlabel="waited")
    _mark_times(axes, "x")


def _waited_longer(axes: "Axes", found: Sequence[Report]) -> None:
    """What is left above it, on a log axis: here one sees the few who waited long."""
    for each, look in zip(found, _LOOKS, strict=False):
        count = len(each.waits)
        parts = np.geomspace(1.0, 1.0 / count, _POINTS)
        rows = count - np.maximum(1, np.round(parts * count).astype(int))
        waits = np.asarray(each.waits)[rows]
        axes.plot(waits[waits >= 1], 100 * parts[waits >= 1], color=look.colour, ls=look.dashes)
    axes.set(title="How long jobs waited: the longest", ylabel="% of jobs that waited so long, or longer", yscale="log")
    axes.set(xscale="log", xlabel="waited")
    _mark_times(axes, "x")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")


def _waits_by_queue(each: Report) -> Mapping[str, Spread]:
    """Of the queues with the most work."""
    largest = sorted(each.queues, key=lambda name: -each.queues[name].gpu_hours)[:12]
    return {name: each.queues[name].wait for name in largest}


def _spreads(axes: "Axes", found: Sequence[Report], by: str, spreads: Callable[[Report], Mapping[str, Spread]]) -> None:
    """A mark for the mean, a line to the 99th percentile."""
    names = list(spreads(found[0]))
    for number, (each, look) in enumerate(zip(found, _LOOKS, strict=False)):
        places = np.arange(len(names)) + (number - (len(found) - 1) / 2) * 0.7 / len(found)
        listed = [spreads(each)[name] for name in names]
        means = np.array([max(spread.mean, 1.0) for spread in listed])
        tails = np.array([max(spread.p99, spread.mean, 1.0) for spread in listed])
        axes.vlines(places, means, tails, color=look.colour, linewidth=2, alpha=0.45)
        axes.plot(places, means, look.marker, color=look.colour, markersize=5)
    title = f"Waiting by {by}: mean to 99th percentile"
    axes.set(title=title, yscale="log", xlabel=by, ylabel="waited")
    axes.set_xticks(range(len(names)), names, rotation=30 if len(names) > 6 else 0)
    _mark_times(axes, "y")


def _mark_times(axes: "Axes", which: str) -> None:
    axis = axes.xaxis if which == "x" else axes.yaxis
    low, high = axes.get_xlim() if which == "x" else axes.get_ylim()
    shown = {time: name for time, name in _TIMES.items() if low <= time <= high}
    if len(shown) < _FEW:
        shown |= {time: name for time, name in _BETWEEN.items() if low <= time <= high}
    axis.set_ticks(list(shown), list(shown.values()))
    axis.set_ticks([], minor=True)


# Over time


def _over_time(
    axes: "Axes", found: Sequence[Report], trace: Trace, title: str, values: Callable[[Course], Sequence[int]]
) -> None:
    last = (trace.last_arrival - trace.starts) / _DAY
    for each, look in zip(found, _LOOKS, strict=False):
        days, means = _averages(each.course, values(each.course), trace.starts)
        axes.plot(days, means, color=look.colour, ls=look.dashes, linewidth=1.3)
    axes.axvline(last, color="grey", linewidth=0.8)
    axes.set(title=title, ylabel=title, xlabel="days since the first job came; grey line: the last one has")
    axes.set(xlim=(0, None), ylim=(0, None))


def _averages(course: Course, values: Sequence[int], starts: float) -> tuple[Values, Values]:
    """Over equal spans of time, so that a curve of months can be read; in days."""
    times = np.asarray(course.times) - starts
    summed = np.concatenate(([0.0], np.cumsum(np.diff(times) * np.asarray(values)[:-1])))
    edges = np.linspace(0, times[-1], _SPANS + 1)
    spans = np.diff(edges)
    if not spans.all():
        return np.zeros(1), np.array([float(values[0])])
    return edges[:-1] / _DAY, np.diff(np.interp(edges, times, summed)) / spans


# Prices


def _prices(axes: "Axes", found: Sequence[Report]) -> None:
    parts = (
        ("owed to queues of their quota", "#555555", [each.owed_gpu_hours for each in found]),
        ("lost by preemption", "#D55E00", [each.lost_gpu_hours for each in found]),
        ("idle while reserved", "#F0C987", [each.held_idle_gpu_hours for each in found]),
    )
    rows = np.arange(len(found))
    for number, (label, colour, hours) in enumerate(parts):
        bars = axes.barh(rows + (number - 1) * 0.27, hours, height=0.25, color=colour, label=label)
        axes.bar_label(bars, [f"{value:,.0f}" if value else "" for value in hours], padding=3, fontsize="small")
    axes.set_title("What it cost", pad=28)
    axes.set_xlabel("GPU hours")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.set_yticks(rows, [each.policy for each in found])
    axes.margins(x=0.1)
    axes.invert_yaxis()
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=len(parts), frameon=False)
