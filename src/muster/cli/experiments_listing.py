"""`muster exp ls` and `muster exp describe`."""

import time

import click

from muster.api import raw
from muster.cli import durations, experiments_words, rendering
from muster.cli.connecting import output_option
from muster.cli.experiments_words import figure
from muster.cli.rendering import Table
from muster.cli.session import Session
from muster.sdk import experiments, reading
from muster.sdk.determined import Query
from muster.sdk.experiments import Experiment, Trial

_SHOWN_TRIALS = 10
_STATES = ("active", "queued", "running", "paused", "completed", "canceled", "error")


@click.command("ls")
@click.option("-n", "--limit", type=click.IntRange(min=1), default=20, metavar="N", help="The newest N. [default: 20]")
@click.option("-a", "--all", "everything", is_flag=True, help="All there are, also those that are archived.")
@click.option("--user", metavar="NAME", multiple=True, help="Only those of this user.")
@click.option(
    "--state",
    type=click.Choice(_STATES, case_sensitive=False),
    metavar="STATE",
    multiple=True,
    help=f"Only those in this state: {', '.join(_STATES)}.",
)
@click.option("--label", metavar="WORD", multiple=True, help="Only those with this label.")
@click.option("--name", metavar="TEXT", help="Only those whose name has this text in it.")
@output_option("json")
@click.pass_obj
def ls(session: Session, /, **options: raw.JSON) -> None:
    """List experiments, the newest first.

    \b
    Examples:
      muster exp ls
      muster exp ls --state active --user alice
      muster exp ls --label mnist -n 100
    """
    everything = options["everything"]
    query: Query = {
        "archived": None if everything else False,
        "users": options["user"],
        "states": [f"STATE_{state.upper()}" for state in options["state"]],
        "labels": options["label"],
        "name": options["name"],
        "showTrialData": True,
    }
    found = experiments.listed(experiments_words.connect(session), query, None if everything else options["limit"])
    if options["output"]:
        experiments_words.print_json([experiment.document for experiment in found])
    elif found:
        rendering.print_table(tabulate(found, time.time()))
    else:
        click.echo("No experiments. Make one: muster exp create DIR", err=True)


def tabulate(found: list[Experiment], now: float) -> Table:
    rows = [
        [
            str(experiment.id),
            experiment.name,
            experiment.state,
            experiments_words.share(experiment),
            str(experiment.trial_count),
            _best(experiment),
            experiment.user,
            durations.age(experiment.started, now),
            experiments_words.took(experiment.started, experiment.ended, now),
        ]
        for experiment in found
    ]
    columns = ["id", "name", "state", "done", "trials", "best", "user", "age", "time"]
    return Table(columns, rows, cut=True)


def _best(experiment: Experiment) -> str:
    found = experiment.document.get("bestTrialSearcherMetric")
    return "-" if found is None else f"{experiment.metric} {figure(found)}"


@click.command("describe")
@experiments_words.id_argument
@output_option("json")
@click.pass_obj
def describe(session: Session, experiment: int, output: str | None) -> None:
    """Show all about one experiment, and its best trials.

    \b
    Examples:
      muster exp describe 12
      muster exp describe 12 -o json
    """
    server = experiments_words.connect(session)
    found = experiments.get(server, experiment)
    trials = experiments.trials(server, found)
    if output:
        experiments_words.print_json({"experiment": found.document, "trials": [trial.document for trial in trials]})
        return
    now = time.time()
    click.echo("\n".join(f"{name + ':':13} {value}" for name, value in facts(found, trials, now) if value))
    if trials:
        ranked = experiments.ranked(found, trials)
        shown = ranked[:_SHOWN_TRIALS]
        click.echo("\nTrials, the best first:")
        best = experiments.best(found, trials)
        rendering.print_table(experiments_words.trial_table(shown, found.metric, now, best))
        if len(shown) < len(ranked):
            click.echo(f"and {len(ranked) - len(shown)} more: muster exp describe {experiment} -o json", err=True)


def facts(found: Experiment, trials: list[Trial], now: float) -> list[tuple[str, str]]:
    document = found.document
    best = experiments.best(found, trials)
    order = "smaller is better" if found.is_smaller_better else "larger is better"
    over = sum(trial.is_over for trial in trials)
    return [
        ("Experiment", f"{found.id} ({found.name})"),
        ("Description", reading.text(document, "description")),
        ("State", found.state + ("" if found.is_over else f", {found.progress:.0%} done")),
        ("User", found.user),
        ("Project", "/".join(filter(None, (reading.text(document, key) for key in ("workspaceName", "projectName"))))),
        ("Pool", reading.text(document, "resourcePool")),
        ("Labels", ", ".join(str(label) for label in document.get("labels") or ())),
        ("Searcher", f"{found.searcher}, {found.metric} ({order})"),
        ("Trials", f"{len(trials)}, {over} over"),
        ("Best", "" if best is None else f"trial {best.id}, {found.metric} {figure(best.metric)}"),
        ("Started", f"{durations.age(found.started, now)} ago"),
        ("Time", experiments_words.took(found.started, found.ended, now)),
        ("Notes", reading.text(document, "notes")),
    ]
