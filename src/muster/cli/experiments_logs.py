"""`muster exp logs`."""

import sys

import click

from muster.api import errors
from muster.cli import experiments_words, prefixes
from muster.cli.experiments_following import line_of
from muster.cli.merging import merged, one_by_one
from muster.cli.session import Session
from muster.sdk import experiments, reading

_MOST_FOLLOWED = 32


@click.command("logs")
@experiments_words.id_argument
@click.option("--trial", type=int, metavar="ID", help="Only of this trial.")
@click.option("-f", "--follow", is_flag=True, help="Go on until the trials that are there now have ended.")
@click.option("--tail", type=click.IntRange(min=0), metavar="N", help="Only the last N lines of each trial.")
@click.option("--timestamps", is_flag=True, help="Put the time before each line.")
@click.pass_obj
def logs(
    session: Session, experiment: int, trial: int | None, follow: bool, tail: int | None, timestamps: bool
) -> None:
    """Print what the trials of an experiment have written.

    Where there are several, each line carries its trial: `[31] epoch 1 ...`.

    \b
    Examples:
      muster exp logs 12 --tail 5
      muster exp logs 12 --trial 31 -f
    """
    server = experiments_words.connect(session)
    found = experiments.trials(server, experiments.get(server, experiment))
    ids = [each.id for each in found if trial in (None, each.id)]
    if not ids:
        what = "trials" if trial is None else f"trial {trial}"
        raise errors.NotFound(f"experiment {experiment} has no {what}{' yet' if trial is None else ''}")
    if follow and len(ids) > _MOST_FOLLOWED:
        raise errors.BadRequest(f"experiment {experiment} has {len(ids)} trials: choose one with --trial to follow it")
    writer = prefixes.Writer(sys.stdout, with_rank=len(ids) > 1, label=lambda number: str(ids[number]))
    streams = [experiments.logs(server, id, follow=follow, tail=tail) for id in ids]
    entries = merged(streams) if follow and len(ids) > 1 else one_by_one(streams)
    for number, entry in entries:
        line = line_of(entry)
        writer.write(number, f"{reading.text(entry, 'timestamp')} {line}" if timestamps else line)
