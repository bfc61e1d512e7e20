"""`muster sim`: a cluster in virtual time, without a platform."""

import click

from muster.cli import sim_replay


@click.group()
def command() -> None:
    """Simulate a cluster in virtual time.

    Nothing is started and no server is asked: it all happens in this process, and the same seed gives
    the same result.

    \b
    Examples:
      muster sim replay trace.csv --nodes 64x8 --compare
    """


for _each in (sim_replay.replay_command,):
    command.add_command(_each)
