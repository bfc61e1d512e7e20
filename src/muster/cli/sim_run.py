"""`muster sim run`: the whole control plane through faults."""

import sys
from pathlib import Path

import click
import msgspec

from muster.api import errors
from muster.assembly.controlling import controllers
from muster.sim import planning, plans, running
from muster.sim.plans import Plan


@click.command("run")
@click.option("--seed", default=0, metavar="N", help="The first seed.")
@click.option("--seeds", "count", default=1, metavar="COUNT", help="How many seeds, one after the other.")
@click.option("--days", type=click.IntRange(1), metavar="N", help="Virtual days, with few jobs and faults in each.")
@click.option(
    "--plan", "file", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="A plan to run instead."
)
@click.option(
    "--save", type=click.Path(dir_okay=False, path_type=Path), help="Where the shortest failing plan is written."
)
@click.option("--workers", default=1, show_default=True, metavar="N", help="Processes that share the seeds.")
def run_command(seed: int, count: int, days: int | None, file: Path | None, save: Path | None, workers: int) -> None:
    """Put the whole control plane through crashes, losses and storms, and check every state on the way.

    Prints a line for each seed, with a fingerprint of all that happened. Exits with 1 at the first seed that
    breaks an invariant, says which events are enough for that, and tells the story of the objects
    that it is about.

    \b
    Examples:
      muster sim run --seed 7
      muster sim run --seeds 200 --workers 2
      muster sim run --days 10
    """
    seeds = range(seed, seed + count)
    again = "muster sim run --seed"
    if file is not None:
        chosen = [_read(file)]
        again = f"muster sim run --plan {file}"
    elif days is not None:
        chosen = [planning.days(number, days) for number in seeds]
        again = f"muster sim run --days {days} --seed"
    else:
        chosen = [planning.plan(number) for number in seeds]
    for outcome in running.run_all(chosen, controllers, workers):
        click.echo(running.line(outcome))
        if outcome.violation is not None:
            command = again if file is not None else f"{again} {outcome.plan.seed}"
            shortest, report = running.explain(outcome, controllers, command)
            if save is not None:
                save.write_bytes(plans.encode(shortest))
            click.echo(report)
            sys.exit(1)


def _read(path: Path) -> Plan:
    try:
        return plans.decode(path.read_bytes())
    except msgspec.DecodeError as error:
        raise errors.BadRequest(f"{path} is no plan: {error}") from error
