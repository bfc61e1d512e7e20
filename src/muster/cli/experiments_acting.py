"""Commands that change experiments, and `muster exp wait`."""

import sys
from collections.abc import Sequence

import click

from muster.cli import durations, experiments_following, experiments_words
from muster.cli.session import Session
from muster.sdk import experiments

_DONE = {
    "pause": "pauses: its trials save what they have",
    "activate": "goes on",
    "cancel": "is being canceled: its trials save what they have",
    "kill": "is being killed",
    "archive": "archived",
    "unarchive": "is in the lists again",
}


def _act(session: Session, ids: Sequence[int], action: str) -> None:
    server = experiments_words.connect(session)
    experiments_words.each(ids, lambda experiment: experiments.act(server, experiment, action), _DONE[action])


@click.command("pause")
@experiments_words.ids_argument
@click.pass_obj
def pause(session: Session, experiments: Sequence[int]) -> None:
    """Pause experiments: trials save a checkpoint and give their slots back.

    \b
    Examples:
      muster exp pause 12
    """
    _act(session, experiments, "pause")


@click.command("activate")
@experiments_words.ids_argument
@click.pass_obj
def activate(session: Session, experiments: Sequence[int]) -> None:
    """Let paused experiments go on, from their checkpoints.

    \b
    Examples:
      muster exp activate 12
    """
    _act(session, experiments, "activate")


@click.command("cancel")
@experiments_words.ids_argument
@click.pass_obj
def cancel(session: Session, experiments: Sequence[int]) -> None:
    """End experiments gracefully: trials save a checkpoint first.

    \b
    Examples:
      muster exp cancel 12 13
    """
    _act(session, experiments, "cancel")


@click.command("kill")
@experiments_words.ids_argument
@click.pass_obj
def kill(session: Session, experiments: Sequence[int]) -> None:
    """End experiments at once; what trials have not saved is lost.

    \b
    Examples:
      muster exp kill 12
    """
    _act(session, experiments, "kill")


@click.command("archive")
@experiments_words.ids_argument
@click.option("--undo", is_flag=True, help="Put them back into the lists.")
@click.pass_obj
def archive(session: Session, experiments: Sequence[int], undo: bool) -> None:
    """Take experiments that are over out of the lists.

    \b
    Examples:
      muster exp archive 12
      muster exp archive 12 --undo
    """
    _act(session, experiments, "unarchive" if undo else "archive")


@click.command("delete")
@experiments_words.ids_argument
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.pass_obj
def delete(session: Session, experiments: Sequence[int], yes: bool) -> None:
    """Delete experiments that are over, with their checkpoints, metrics and logs.

    \b
    Examples:
      muster exp delete 12
      muster exp delete 12 13 --yes
    """
    if not yes:
        listed = ", ".join(map(str, experiments))
        click.confirm(f"Delete {listed} with all checkpoints, metrics and logs?", abort=True, err=True)
    _delete(session, experiments)


def _delete(session: Session, ids: Sequence[int]) -> None:
    server = experiments_words.connect(session)
    experiments_words.each(ids, lambda experiment: experiments.delete(server, experiment), "is being deleted")


@click.command("wait")
@experiments_words.id_argument
@click.option("--timeout", metavar="TIME", help="Give up after TIME, such as 90s or 2h.")
@click.pass_obj
def wait(session: Session, experiment: int, timeout: str | None) -> None:
    """Wait for the end of an experiment, and show its best trials.

    The exit code is 0 where it completes, 1 where it fails, is canceled, or takes longer. Ctrl-C
    leaves it running.

    \b
    Examples:
      muster exp wait 12
      muster exp wait 12 --timeout 2h
    """
    seconds = None if timeout is None else durations.parse(timeout)
    sys.exit(experiments_following.follow(experiments_words.connect(session), experiment, seconds))
