import importlib
import math

import pytest
from tests.unit.cli.exp_platform import ExpPlatform

from muster.api import errors
from muster.cli import experiments_words, main, plots
from muster.cli.plots import Curve


def curves(scale=1.0):
    steps = list(range(1, 30))
    return [
        Curve("trial 1", steps, [scale * (1 + 1 / step) for step in steps]),
        Curve("trial 2", steps, [scale / step for step in steps], is_best=True),
        Curve("trial 3", [1], [math.nan]),
    ]


def test_the_best_is_drawn_last_and_what_has_no_numbers_not_at_all():
    wanted = plots.drawing("title", "steps", "loss", curves())
    assert [curve.label for curve in wanted.curves] == ["trial 1", "trial 2"]


@pytest.mark.parametrize(
    ("values", "expected"), [([1, 2, 3], False), ([0.001, 1], True), ([0, 1000], False), ([-1, 5], False), ([7], False)]
)
def test_an_axis_is_logarithmic_where_values_span_decades(values, expected):
    assert plots.spans_decades(values) is expected


def test_in_the_terminal_it_fits_and_says_which_is_which():
    shown = plots.text(plots.drawing("loss of 12", "steps", "loss", curves()), 80, 15, with_colour=False)
    assert max(map(len, shown.splitlines())) <= 80
    assert "loss of 12" in shown
    assert shown.splitlines()[-2:] == ["  ── trial 2  (best)", "  ── trial 1"]
    assert "\x1b" not in shown
    assert "\x1b[38;5;2m" in plots.text(plots.drawing("t", "x", "y", curves()), 80, 15, with_colour=True)


def test_one_point_is_a_drawing_too():
    shown = plots.text(plots.drawing("t", "x", "y", [Curve("a", [3], [0.5])]), 60, 10, with_colour=False)
    assert "── a" in shown


@pytest.mark.parametrize("name", ["plot.png", "plot.svg"])
def test_files_are_written(tmp_path, name):
    plots.write(plots.drawing("t", "x", "y", curves(), is_log=True), tmp_path / name)
    start = (tmp_path / name).read_bytes()[:200]
    assert start.startswith(b"\x89PNG") or b"<svg" in (tmp_path / name).read_bytes()[:2000]


def test_what_cannot_be_drawn_is_told(tmp_path):
    with pytest.raises(errors.BadRequest, match=r"expected a name that ends in \.png, \.svg, \.pdf"):
        plots.write(plots.drawing("t", "x", "y", curves()), tmp_path / "plot.bmp")
    with pytest.raises(errors.BadRequest, match="cannot write"):
        plots.write(plots.drawing("t", "x", "y", curves()), tmp_path / "nowhere" / "plot.png")
    with pytest.raises(errors.NotFound, match="no trial has reported loss"):
        plots.drawing("t", "x", "loss", [curves()[2]])
    with pytest.raises(errors.BadRequest, match="--log: loss has values that are not above 0"):
        plots.drawing("t", "x", "loss", curves(-1.0), is_log=True)


def test_without_the_library_it_says_what_to_install(monkeypatch):
    def missing(name):
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(errors.BadRequest, match=r"needs plotext, which is not installed: run \"pip install 'muster\[p"):
        plots.text(plots.drawing("t", "x", "y", curves()), 60, 10, with_colour=False)


def series(trial, values):
    data = [
        {"batches": 10 * number, "values": {"loss": value}, "time": f"2026-01-02T03:00:{number:02}Z"}
        for number, value in enumerate(values, 1)
    ]
    return {"trial": {"id": trial}, "metrics": [{"group": "validation", "data": data}]}


@pytest.fixture
def platform(monkeypatch):
    found = ExpPlatform()
    found.answers["GET /trials/time-series"] = {
        "trials": [series(32, [1.0, "NaN", 0.25]), series(31, [1.0, 0.75, 0.5]), series(33, [])]
    }
    monkeypatch.setattr(experiments_words, "connect", lambda session: found.server)
    return found


def test_the_trials_of_an_experiment_in_one_drawing(platform, capsys):
    assert main.invoke(["exp", "plot", "12"]) == 0
    out = capsys.readouterr().out
    assert "loss (validation), experiment 12: digits" in out
    assert out.splitlines()[-2:] == ["  ── trial 32  lr=0.01  (best)", "  ── trial 31  lr=0.1"]
    [query] = platform.queries("/trials/time-series")
    assert "trialIds=32&trialIds=31&trialIds=33" in query
    assert "group=validation&metricNames=loss" in query


def test_over_time_and_to_a_file(platform, capsys, tmp_path):
    path = tmp_path / "a.svg"
    assert main.invoke(["exp", "plot", "12", "--x", "time", "--linear", "-o", str(path)]) == 0
    assert capsys.readouterr().out == f"{path} written\n"
    assert b"<svg" in path.read_bytes()
