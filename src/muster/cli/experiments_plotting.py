"""`muster exp plot`."""

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from muster.api import errors, raw
from muster.api.raw import JSON
from muster.cli import experiments_words, plots, rendering
from muster.cli.plots import Curve, Drawing
from muster.cli.session import Session
from muster.sdk import experiments
from muster.sdk.determined import Determined
from muster.sdk.experiments import Experiment, Series, Trial

_PIPE = 100, 24
_LEAST_HEIGHT, _MOST_HEIGHT = 15, 30


@click.command("plot")
@experiments_words.ids_argument
@click.option("--metric", metavar="NAME", help="What to draw. [default: the searcher's metric]")
@click.option("--group", default=experiments.VALIDATION, metavar="NAME", help="Of which group. [default: validation]")
@click.option("--x", "axis", type=click.Choice(["steps", "time"]), default="steps", help="Over what. [default: steps]")
@click.option("--trials", "most", type=click.IntRange(1, 50), default=10, help="The best N of each. [default: 10]")
@click.option("--log/--linear", "is_log", default=None, help="The y axis. [default: as it fits the values]")
@click.option(
    "-o", "--output", metavar="FILE", type=click.Path(path_type=Path), help="Write a .png, .svg or .pdf instead."
)
@click.pass_obj
def plot(session: Session, /, **options: raw.JSON) -> None:
    """Draw a metric of trials, the best of them highlighted.

    In the terminal, or to a file. Several experiments go into one drawing.

    \b
    Examples:
      muster exp plot 12
      muster exp plot 12 --metric loss --group training --x time
      muster exp plot 12 13 -o compared.svg
    """
    server = experiments_words.connect(session)
    found = [experiments.get(server, experiment) for experiment in dict.fromkeys(options["experiments"])]
    wanted = _drawing(server, found, options)
    if options["output"] is not None:
        plots.write(wanted, options["output"])
        click.echo(f"{options['output']} written")
        return
    width, height = _room(len(wanted.curves))
    with_colour = rendering.is_terminal(sys.stdout) and not os.environ.get("NO_COLOR")
    click.echo(plots.text(wanted, width, height, with_colour=with_colour), nl=False)


def _room(curves: int) -> tuple[int, int]:
    """For the drawing, so that the names of its curves can be seen with it where they are few."""
    if not rendering.is_terminal(sys.stdout):
        return _PIPE
    size = shutil.get_terminal_size()
    return size.columns, min(max(size.lines - curves - 3, _LEAST_HEIGHT), _MOST_HEIGHT)


def _drawing(server: Determined, found: Sequence[Experiment], options: Mapping[str, JSON]) -> Drawing:
    metric, group = options["metric"] or found[0].metric, options["group"]
    if not metric:
        raise errors.BadRequest(f"--metric: experiment {found[0].id} has no metric of its own; name one")
    chosen = {
        experiment.id: experiments.ranked(experiment, experiments.trials(server, experiment))[: options["most"]]
        for experiment in found
    }
    trials = [trial for each in chosen.values() for trial in each]
    if not trials:
        raise errors.NotFound("there is nothing to draw: there are no trials yet")
    series = {each.trial: each for each in experiments.series(server, [trial.id for trial in trials], group, metric)}
    best = experiments.best(found[0], trials)
    curves = [
        curve(trial, series[trial.id], options["axis"], varied=experiments_words.varied(trials), best=best)
        for trial in trials
        if trial.id in series
    ]
    name = (
        f"experiment {found[0].id}: {found[0].name}"
        if len(found) == 1
        else f"experiments {', '.join(map(str, chosen))}"
    )
    x_label = "steps" if options["axis"] == "steps" else "seconds"
    title = f"{metric} ({group}), {name}"
    return plots.drawing(title, x_label, f"{group} {metric}", curves, is_log=options["is_log"])


def curve(trial: Trial, series: Series, axis: str, *, varied: Sequence[str], best: Trial | None) -> Curve:
    xs: Sequence[float] = series.steps if axis == "steps" else series.times
    chosen = experiments_words.hparams(trial, varied)
    label = f"trial {trial.id}{f'  {chosen}' if chosen else ''}"
    return Curve(label, xs, series.values, is_best=best is not None and best.id == trial.id)
