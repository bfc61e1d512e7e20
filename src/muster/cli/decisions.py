"""`muster decisions`."""

import importlib
import sys
from typing import BinaryIO

import click

from muster.api import errors
from muster.cli.connecting import connect
from muster.cli.session import Session


@click.group(invoke_without_command=True)
@click.pass_context
def command(ctx: click.Context) -> None:
    """Print the scheduler's log of decisions, or decide them again.

    The log has what the scheduler was told and what it decided, of the last few thousand changes. It
    is enough to decide all of it again: to find out why, or whether a change of Muster decides otherwise.

    \b
    Examples:
      muster decisions > log.jsonl
      muster decisions replay log.jsonl
    """
    if ctx.invoked_subcommand is None:
        session: Session = ctx.obj
        sys.stdout.buffer.write(connect(session, None).decisions())


@command.command()
@click.argument("file", type=click.File("rb"))
@click.option("--seed", default=0, metavar="N", help="The seed that the scheduler had, where it was not the usual one.")
def replay(file: BinaryIO, seed: int) -> None:
    """Decide everything in a log again, and show what comes out otherwise.

    Uses the default configuration of the scheduler. Exits with 1 where a decision differs.
    """
    chapters: list[list[bytes]] = []
    for line in file:
        if line.startswith(b'{"began"'):
            chapters.append([])
        if not chapters:
            raise errors.BadRequest(f"{file.name} is no log of decisions: it does not begin with one of its chapters")
        chapters[-1].append(line)
    logbook = importlib.import_module("muster.placement.logbook")
    engine = importlib.import_module("muster.placement.engine")
    registry = importlib.import_module("muster.api.everything").REGISTRY
    decisions, differing = 0, 0
    for chapter in chapters:
        count, differences = logbook.replay(chapter, engine.default_engine(seed=seed), registry)
        decisions += count
        differing += len(differences)
        for one in differences:
            click.echo(f"decision {one.number}:\n  logged   {one.logged}\n  replayed {one.replayed}")
    click.echo(f"{decisions} decisions, {differing} differ")
    if differing:
        click.get_current_context().exit(1)
