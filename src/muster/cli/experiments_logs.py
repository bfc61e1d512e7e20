"""`muster exp logs`."""

import queue
import sys
import threading
from collections.abc import Iterator, Sequence

import click

from muster.api import errors
from muster.api.raw import Document
from muster.cli import experiments_words, prefixes
from muster.cli.experiments_following import line_of
from muster.cli.session import Session
from muster.sdk import experiments, reading
from muster.sdk.determined import Determined

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
    entries = _merged(server, ids, tail) if follow and len(ids) > 1 else _one_by_one(server, ids, tail, follow=follow)
    for number, entry in entries:
        line = line_of(entry)
        writer.write(number, f"{reading.text(entry, 'timestamp')} {line}" if timestamps else line)


def _one_by_one(
    server: Determined, ids: Sequence[int], tail: int | None, *, follow: bool
) -> Iterator[tuple[int, Document]]:
    for number, id in enumerate(ids):
        for entry in experiments.logs(server, id, follow=follow, tail=tail):
            yield number, entry


def _merged(server: Determined, ids: Sequence[int], tail: int | None) -> Iterator[tuple[int, Document]]:
    """Lines as they come. One thread a trial; this one alone writes, so lines stay whole."""
    found: queue.SimpleQueue[tuple[int, Document] | errors.ApiError | None] = queue.SimpleQueue()

    def read(number: int, id: int) -> None:
        try:
            for entry in experiments.logs(server, id, follow=True, tail=tail):
                found.put((number, entry))
            found.put(None)
        except errors.ApiError as error:
            found.put(error)

    for number, id in enumerate(ids):
        threading.Thread(target=read, args=[number, id], daemon=True).start()
    unread = len(ids)
    while unread:
        item = found.get()
        if isinstance(item, tuple):
            yield item
        elif item is None:
            unread -= 1
        else:
            raise item
