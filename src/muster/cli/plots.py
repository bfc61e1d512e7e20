"""Curves, in the terminal or in a file. What draws them is large and not always installed: it is loaded when needed."""

import importlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Final

from muster.api import errors

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_UNDATED: Final[Mapping[str, dict[str, None]]] = {".png": {}, ".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
FORMATS: Final = tuple(_UNDATED)
_DECADES_FOR_LOG: Final = 2.0
_BEST, _OTHERS = "green", ("cyan", "blue", "magenta", "orange", "red", "gray")
_FILE_COLOURS: Final = ("C0", "C1", "C3", "C4", "C5", "C6", "C7", "C8", "C9")
_INSTALL: Final = "run \"pip install 'muster[plots]'\" where you type this"


@dataclass(frozen=True, slots=True)
class Curve:
    label: str
    xs: Sequence[float]
    ys: Sequence[float]
    is_best: bool = False


@dataclass(frozen=True, slots=True)
class Drawing:
    title: str
    x_label: str
    y_label: str
    curves: Sequence[Curve]
    is_log: bool = False
    """Of the y axis."""


def drawing(title: str, x_label: str, y_label: str, curves: Sequence[Curve], *, is_log: bool | None = None) -> Drawing:
    """`curves`: the best first. They are drawn the other way round, so that it lies above the others. `is_log`: None
    for where it makes sense. Raises NotFound where there is nothing to draw."""
    finite = [_finite(curve) for curve in sorted(reversed(curves), key=lambda curve: curve.is_best)]
    shown = [curve for curve in finite if curve.xs]
    if not shown:
        raise errors.NotFound(f"there is nothing to draw: no trial has reported {y_label}")
    values = [value for curve in shown for value in curve.ys]
    if is_log and min(values) <= 0:
        raise errors.BadRequest(f"--log: {y_label} has values that are not above 0")
    return Drawing(title, x_label, y_label, shown, spans_decades(values) if is_log is None else is_log)


def spans_decades(values: Sequence[float]) -> bool:
    """Whether a linear axis would show the small ones as nothing."""
    return min(values) > 0 and math.log10(max(values) / min(values)) >= _DECADES_FOR_LOG


def _finite(curve: Curve) -> Curve:
    kept = [(x, y) for x, y in zip(curve.xs, curve.ys, strict=True) if math.isfinite(y)]
    return Curve(curve.label, [x for x, _ in kept], [y for _, y in kept], curve.is_best)


# In the terminal


def text(wanted: Drawing, width: int, height: int, *, with_colour: bool) -> str:
    """Raises BadRequest where the library is not there."""
    plotext = _library("plotext", "drawing in the terminal")
    figure = plotext.figure
    figure.clear()
    figure.plot_size(width, height)
    figure.theme("colorless")  # but for the curves: whatever the terminal's own colours are, it fits
    figure.legend(active=False)  # it would lie over the curves: ours stands below
    colours = _colours(wanted)
    for curve, colour in zip(wanted.curves, colours, strict=True):
        signal = figure.signal(list(curve.xs), list(curve.ys), marker=plotext.marker("hd", (colour,)))
        figure.draw(signal.lines() if len(curve.xs) > 1 else signal)
    if wanted.is_log:
        figure.ruler("y").scale("log")
    figure.title(wanted.title)
    figure.label(wanted.x_label, "x")
    drawn: str = figure.build().string(colorless=not with_colour)
    return "\n".join([drawn.rstrip("\n"), *_legend(plotext, wanted, colours, with_colour=with_colour)]) + "\n"


def _legend(plotext: ModuleType, wanted: Drawing, colours: Sequence[str], *, with_colour: bool) -> list[str]:
    found = []
    for curve, colour in reversed(list(zip(wanted.curves, colours, strict=True))):
        mark = plotext.colorize("──", (colour,)).string() if with_colour else "──"
        found.append(f"  {mark} {curve.label}{'  (best)' if curve.is_best else ''}")
    return found


def _colours(wanted: Drawing) -> list[str]:
    return [_BEST if curve.is_best else _OTHERS[number % len(_OTHERS)] for number, curve in enumerate(wanted.curves)]


# In a file


def check(path: Path) -> None:
    """Raises BadRequest where `write` would for the name, or for want of the library."""
    if path.suffix.lower() not in FORMATS:
        raise errors.BadRequest(f"{path}: expected a name that ends in {', '.join(FORMATS)}")
    _library("matplotlib.figure", "drawing to a file")


def write(wanted: Drawing, path: Path) -> None:
    """Its name says which format. Raises BadRequest where the library is not there, or nothing can be written."""
    figure = new_figure(path, 8, 5)
    _draw(figure.subplots(), wanted)
    save(figure, path)


def new_figure(path: Path, width: float, height: float) -> "Figure":
    """Empty, in inches, to be saved there. Raises BadRequest as `check` does."""
    check(path)
    made: Figure = _library("matplotlib.figure", "drawing to a file").Figure((width, height), layout="constrained")
    return made


def save(figure: "Figure", path: Path) -> None:
    """What is drawn alike is written alike, byte for byte: without a date, and with names that are no random numbers.
    Raises BadRequest where nothing can be written."""
    library = _library("matplotlib", "drawing to a file")
    try:
        with library.rc_context({"svg.hashsalt": "muster"}):
            figure.savefig(path, dpi=150, metadata=_UNDATED[path.suffix.lower()])
    except OSError as error:
        raise errors.BadRequest(f"cannot write {path}: {error.strerror}") from error


def _draw(axes: "Axes", wanted: Drawing) -> None:
    for number, curve in enumerate(wanted.curves):
        colour = _FILE_COLOURS[number % len(_FILE_COLOURS)]
        (line,) = axes.plot(curve.xs, curve.ys, marker="o" if len(curve.xs) == 1 else "")
        if curve.is_best:
            line.set(color=_BEST, linewidth=2.5, label=f"{curve.label} (best)")
        else:
            line.set(color=colour, alpha=0.6, label=curve.label)
    if wanted.is_log:
        axes.set_yscale("log")
    axes.set_title(wanted.title)
    axes.set_xlabel(wanted.x_label)
    axes.set_ylabel(wanted.y_label)
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small", reverse=True)


def _library(name: str, what: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        package = name.partition(".")[0]
        raise errors.BadRequest(f"{what} needs {package}, which is not installed: {_INSTALL}") from error
