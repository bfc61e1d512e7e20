"""What the commands about experiments have in common: how figures, hyperparameters and times read."""

import json
from collections.abc import Callable, Mapping, Sequence

import click

from muster.api import errors, raw, timestamps
from muster.api.raw import JSON
from muster.cli import connecting, durations
from muster.cli.rendering import Table
from muster.cli.session import Session
from muster.sdk import determined
from muster.sdk.determined import Determined
from muster.sdk.experiments import Experiment, Trial

NO_METRIC = "no trial has reported {metric} yet"
id_argument = click.argument("experiment", metavar="ID", type=click.IntRange(min=1))
ids_argument = click.argument("experiments", metavar="ID...", type=click.IntRange(min=1), nargs=-1, required=True)


def connect(session: Session) -> Determined:
    return determined.connect(connecting.connection(session))


def figure(value: JSON) -> str:
    """Six digits say enough; what is no number is shown as it is."""
    found = determined.number(value)
    if found is not None:
        return f"{found:.6g}"
    return "-" if value is None else value if isinstance(value, str) else raw.encode(value).decode()


def flat(hparams: Mapping[str, JSON], prefix: str = "") -> dict[str, JSON]:
    """By dotted names, all levels."""
    found: dict[str, JSON] = {}
    for name, value in hparams.items():
        if isinstance(value, dict) and value:
            found.update(flat(value, f"{prefix}{name}."))
        else:
            found[f"{prefix}{name}"] = value
    return found


def hparams(trial: Trial, names: Sequence[str] | None = None) -> str:
    """`lr=0.1 width=32`; `names`: only these."""
    known = flat(trial.hparams)
    return "  ".join(
        f"{name}={figure(known[name])}" for name in (names if names is not None else known) if name in known
    )


def varied(trials: Sequence[Trial]) -> list[str]:
    """The hyperparameters that tell trials apart; all where there is nothing to tell apart."""
    found = [flat(trial.hparams) for trial in trials]
    names = sorted({name for each in found for name in each})
    if len(trials) < 2:
        return names
    return [name for name in names if any(each.get(name) != found[0].get(name) for each in found)]


def took(started: str, ended: str, now: float) -> str:
    try:
        end = timestamps.parse(ended) if ended else now
        return durations.show_whole(end - timestamps.parse(started))
    except timestamps.BadTimestamp:
        return "-"


def share(experiment: Experiment) -> str:
    return f"{experiment.progress:.0%}" if not experiment.is_over else "-"


def trial_table(trials: Sequence[Trial], metric: str, now: float, best: Trial | None = None) -> Table:
    names = varied(trials)
    rows = [
        [
            f"{trial.id}{' *' if best is not None and trial.id == best.id else ''}",
            trial.state,
            str(trial.steps),
            figure(trial.metric),
            took(trial.started, trial.ended, now),
            str(trial.restarts),
            hparams(trial, names),
        ]
        for trial in trials
    ]
    return Table(["trial", "state", "steps", metric or "metric", "time", "restarts", "hyperparameters"], rows, cut=True)


def print_json(value: JSON) -> None:
    click.echo(json.dumps(value, indent=2))


def each(experiments: Sequence[int], do: Callable[[int], None], done: str) -> None:
    """All that can be done is, and what cannot is told at the end. Raises ApiError."""
    failed: list[errors.ApiError] = []
    for experiment in experiments:
        try:
            do(experiment)
        except errors.ApiError as error:
            failed.append(error)
            click.echo(f"error: experiment {experiment}: {error.message}", err=True)
        else:
            click.echo(f"experiment {experiment} {done}")
    if failed:
        raise click.exceptions.Exit(2)
