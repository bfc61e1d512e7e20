"""Waiting for an experiment: how it stands, until it is over."""

import importlib
import sys
import time
from collections.abc import Sequence
from typing import Final, Protocol

import click

from muster.cli import durations, experiments_words, rendering
from muster.sdk import experiments
from muster.sdk.determined import Determined
from muster.sdk.experiments import Experiment, Trial

INTERRUPTED: Final = 130
LOOK_SECONDS: Final = 1.0
_TAIL: Final = 10


class View(Protocol):
    def moved(self, experiment: Experiment, trials: Sequence[Trial]) -> None: ...
    def close(self) -> None: ...


class PlainView:
    """A line whenever there is news."""

    def __init__(self) -> None:
        self._told: list[str] = []

    def moved(self, experiment: Experiment, trials: Sequence[Trial]) -> None:
        best = experiments.best(experiment, trials)
        news = [f"{experiment.state}, {experiment.trial_count} trials"]
        if best is not None:
            news.append(f"best so far: trial {best.id}, {experiment.metric} {experiments_words.figure(best.metric)}")
        for line in news:
            if line not in self._told:
                click.echo(f"experiment {experiment.id}: {line}", err=True)
        self._told = news

    def close(self) -> None:
        return


class LiveView:
    def __init__(self, experiment: int) -> None:
        self._bar = importlib.import_module("muster.cli.experiments_bars").LiveBar(f"experiment {experiment}")

    def moved(self, experiment: Experiment, trials: Sequence[Trial]) -> None:
        self._bar.show(experiment.progress, situation(experiment, trials))

    def close(self) -> None:
        self._bar.close()


def situation(experiment: Experiment, trials: Sequence[Trial]) -> str:
    """`Running  3 of 16 trials over  best loss 0.31 (trial 5)`."""
    over = sum(trial.is_over for trial in trials)
    best = experiments.best(experiment, trials)
    said = f"{experiment.state}  {over} of {len(trials)} trials over"
    if best is not None:
        said += f"  best {experiment.metric} {experiments_words.figure(best.metric)} (trial {best.id})"
    return said


def open_view(experiment: int) -> View:
    return LiveView(experiment) if rendering.is_terminal(sys.stderr) else PlainView()


def wait(
    server: Determined, experiment: int, view: View, timeout: float | None = None
) -> tuple[Experiment, list[Trial]] | None:
    """Until it is over; None where it is not after `timeout` seconds."""
    deadline = None if timeout is None else time.monotonic() + timeout
    while True:
        began = time.monotonic()
        found = experiments.get(server, experiment)
        trials = experiments.trials(server, found)
        view.moved(found, trials)
        if found.is_over:
            return found, trials
        if deadline is not None and began >= deadline:
            return None
        # Many trials take long to be told: whoever waits for them must not keep the server busy.
        time.sleep(max(LOOK_SECONDS, 5 * (time.monotonic() - began)))


def follow(server: Determined, experiment: int, timeout: float | None = None) -> int:
    """To its end, and how it ended; the exit code of the command. Who interrupts it leaves the experiment alone."""
    view = open_view(experiment)
    try:
        ended = wait(server, experiment, view, timeout)
    except KeyboardInterrupt:
        view.close()
        click.echo(
            f"experiment {experiment} goes on. Wait for it: muster exp wait {experiment}   "
            f"See it: muster exp describe {experiment}   End it: muster exp cancel {experiment}",
            err=True,
        )
        return INTERRUPTED
    finally:
        view.close()
    if ended is None:
        assert timeout is not None
        click.echo(f"experiment {experiment} is not over after {durations.show(timeout)}; it goes on", err=True)
        return 1
    print_end(server, *ended)
    return 0 if ended[0].state == "Completed" else 1


def print_end(server: Determined, experiment: Experiment, trials: Sequence[Trial]) -> None:
    lasted = experiments_words.took(experiment.started, experiment.ended, time.time())
    click.echo(f"experiment {experiment.id} ({experiment.name}): {experiment.state} after {lasted}", err=True)
    best = experiments.best(experiment, trials)
    if best is not None:
        top = experiments.ranked(experiment, trials)[:5]
        rendering.print_table(experiments_words.trial_table(top, experiment.metric, time.time(), best))
        click.echo(f"\nBest: trial {best.id}, {experiment.metric} {experiments_words.figure(best.metric)}")
        click.echo(f"Fetch the best checkpoint: muster exp best {experiment.id} --download DIR", err=True)
    failed = next((trial for trial in trials if trial.state == "Error"), None)
    if failed is not None:
        click.echo(f"trial {failed.id} failed; the end of its log:", err=True)
        for entry in experiments.logs(server, failed.id, tail=_TAIL):
            click.echo(f"  {line_of(entry)}", err=True)


def line_of(entry: dict[str, object]) -> str:
    """Without the time, where the server tells it apart."""
    return str(entry.get("log") or entry.get("message") or "").rstrip("\n")
