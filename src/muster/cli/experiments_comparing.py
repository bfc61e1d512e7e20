"""`muster exp metrics`, `best` and `compare`."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from muster.api import errors, raw
from muster.api.raw import JSON, Document
from muster.cli import experiments_progress, experiments_words, rendering
from muster.cli.connecting import output_option
from muster.cli.experiments_words import figure
from muster.cli.rendering import Table
from muster.cli.session import Session
from muster.sdk import experiments, experiments_downloads, reading
from muster.sdk.determined import Determined
from muster.sdk.experiments import Experiment, Trial


@click.command("metrics")
@experiments_words.id_argument
@click.option("--trial", type=int, metavar="ID", help="All that this trial has reported, step by step.")
@click.option("--group", default="validation", metavar="NAME", help="Of which group. [default: validation]")
@click.option("--tail", type=click.IntRange(min=1), metavar="N", help="Only the last N steps.")
@output_option("json")
@click.pass_obj
def metrics(session: Session, /, **options: raw.JSON) -> None:
    """Show what trials have reported: a summary of each, or one step by step.

    \b
    Examples:
      muster exp metrics 12
      muster exp metrics 12 --trial 31 --group training --tail 20
    """
    server = experiments_words.connect(session)
    found = experiments.get(server, options["experiment"])
    if options["trial"] is not None:
        _reported(server, found, options["trial"], options)
        return
    trials = experiments.ranked(found, experiments.trials(server, found))
    told = [summary for trial in trials for summary in experiments.summaries(trial)]
    if options["output"]:
        experiments_words.print_json({str(trial.id): trial.document.get("summaryMetrics") for trial in trials})
    elif told:
        rows = [
            [str(each.trial), each.group, each.name, str(each.count), *map(figure, (each.last, each.least, each.most))]
            for each in told
        ]
        rendering.print_table(Table(["trial", "group", "metric", "reports", "last", "least", "most"], rows, cut=True))
    else:
        click.echo("No metrics yet.", err=True)


def _reported(server: Determined, experiment: Experiment, trial: int, options: Mapping[str, JSON]) -> None:
    known = {each.id for each in experiments.trials(server, experiment)}
    if trial not in known:
        raise errors.NotFound(f"experiment {experiment.id} has no trial {trial}")
    rows = list(experiments.reports(server, trial, options["group"]))
    rows = rows[-options["tail"] :] if options["tail"] else rows
    if options["output"]:
        experiments_words.print_json([{"step": step, "time": at, "metrics": values} for step, at, values in rows])
        return
    if not rows:
        click.echo(f"Trial {trial} has reported nothing to the group {options['group']}.", err=True)
        return
    named = [experiments_words.flat(values) for _, _, values in rows]
    names = sorted({name for each in named for name in each})
    lines = [
        [str(step), at, *(figure(values.get(name)) for name in names)]
        for (step, at, _), values in zip(rows, named, strict=True)
    ]
    rendering.print_table(Table(["step", "time", *names], lines, cut=True))


@click.command("best")
@experiments_words.id_argument
@click.option(
    "--download", metavar="DIR", type=click.Path(path_type=Path), help="Fetch the best checkpoint into a new directory."
)
@output_option("json")
@click.pass_obj
def best(session: Session, experiment: int, download: Path | None, output: str | None) -> None:
    """Show the best trial of an experiment; fetch the best checkpoint.

    The best trial is the one that has reported the best metric. The best checkpoint is the one
    that was saved where the metric was best: it can be another trial's.

    \b
    Examples:
      muster exp best 12
      muster exp best 12 --download model
    """
    server = experiments_words.connect(session)
    found = experiments.get(server, experiment)
    winner = experiments.best(found, experiments.trials(server, found))
    if winner is None:
        raise errors.NotFound(f"experiment {experiment}: {experiments_words.NO_METRIC.format(metric=found.metric)}")
    if output:
        experiments_words.print_json(winner.document)
    else:
        told = [
            ("Trial", str(winner.id)),
            ("State", winner.state),
            (found.metric, figure(winner.metric)),
            ("Steps", str(winner.steps)),
            *((f"  {name}", figure(value)) for name, value in experiments_words.flat(winner.hparams).items()),
        ]
        width = max(len(name) for name, _ in told) + 1
        click.echo("\n".join(f"{name + ':':{width}} {value}" for name, value in told))
    if download is not None:
        _download(server, found, download)


def _download(server: Determined, experiment: Experiment, into: Path) -> None:
    checkpoint = experiments.best_checkpoint(server, experiment)
    sizes = reading.section(checkpoint, "resources")
    total = experiments_downloads.archive_bytes(int(size) for size in sizes.values())
    with experiments_progress.transfer("fetching", total) as told:
        experiments_downloads.fetch(server, reading.text(checkpoint, "uuid"), into, told)
    click.echo(f"{into}: {of_checkpoint(checkpoint, experiment.metric)}, {len(sizes)} files", err=True)


def of_checkpoint(checkpoint: Document, metric: str) -> str:
    """`checkpoint 0ab1… of trial 3 after 40 steps, loss 0.25`."""
    found, steps = reading.section(checkpoint, "training"), raw.dig(checkpoint, "metadata", "steps_completed")
    value = found.get("searcherMetric")
    said = f"checkpoint {checkpoint.get('uuid')} of trial {found.get('trialId')} after {steps} steps"
    return said if value is None else f"{said}, {metric} {figure(value)}"


@click.command("compare")
@experiments_words.ids_argument
@output_option("json")
@click.pass_obj
def compare(session: Session, experiments: Sequence[int], output: str | None) -> None:
    """Show experiments side by side: how they stand, what is best, what differs.

    \b
    Examples:
      muster exp compare 12 13 14
    """
    server = experiments_words.connect(session)
    columns = [_column(server, experiment) for experiment in dict.fromkeys(experiments)]
    if output:
        experiments_words.print_json(columns)
        return
    rendering.print_table(side_by_side(columns))


def _column(server: Determined, id: int) -> Document:
    found = experiments.get(server, id)
    winner = experiments.best(found, experiments.trials(server, found))
    return column(found, winner, time.time())


def column(found: Experiment, winner: Trial | None, now: float) -> Document:
    told: Document = {
        "experiment": str(found.id),
        "name": found.name,
        "state": found.state,
        "trials": str(found.trial_count),
        "time": experiments_words.took(found.started, found.ended, now),
        "metric": found.metric,
        "best": figure(None if winner is None else winner.metric),
        "best trial": "-" if winner is None else str(winner.id),
    }
    if winner is not None:
        chosen = experiments_words.flat(winner.hparams)
        told.update({f"best {name}": figure(value) for name, value in chosen.items()})
    told.update({f"config {name}": figure(value) for name, value in experiments_words.flat(found.config).items()})
    return told


def side_by_side(columns: Sequence[Document]) -> Table:
    """One line for each thing; of configurations only those that differ."""
    names = list(dict.fromkeys(name for column in columns for name in column))
    rows = [
        [name, *(str(column.get(name, "-")) for column in columns)]
        for name in names
        if name != "experiment"
        and not (name.startswith("config ") and len({column.get(name) for column in columns}) == 1)
    ]
    return Table(["", *(str(column["experiment"]) for column in columns)], rows, cut=True)
