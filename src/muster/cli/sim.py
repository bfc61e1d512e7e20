"""`muster sim`: a cluster in virtual time, without a platform."""

import click

from muster.cli import sim_replay, sim_run
from muster.cli.groups import Group


@click.group(cls=Group)
def command() -> None:
    """Simulate a cluster in virtual time.

    No server is asked and nothing is left running: the same seed gives the same result.

    \b
    Examples:
      muster sim replay trace.csv --nodes 64x8 --policy all
      muster sim run --seeds 200
    """


for _each in (sim_replay.replay_command, sim_run.run_command):
    command.add_command(_each)
