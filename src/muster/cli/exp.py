"""`muster exp`: experiments and hyperparameter search, from the command line."""

import click

from muster.cli import (
    experiments_acting,
    experiments_comparing,
    experiments_creating,
    experiments_listing,
    experiments_logs,
    experiments_plotting,
)
from muster.cli.groups import Group


@click.group(cls=Group)
def command() -> None:
    """Run experiments and hyperparameter searches.

    An experiment trains a model once, or many times with hyperparameters that a search chooses.
    Its configuration is Determined's. Ctrl-C never ends one: `muster exp cancel` does.

    \b
    Examples:
      muster exp create examples/search --follow
      muster exp ls
      muster exp plot 12
      muster exp best 12 --download model
    """


for _each in (
    experiments_creating.create,
    experiments_listing.ls,
    experiments_listing.describe,
    experiments_logs.logs,
    experiments_comparing.metrics,
    experiments_comparing.best,
    experiments_comparing.compare,
    experiments_plotting.plot,
    experiments_creating.preview,
    experiments_acting.wait,
    experiments_acting.pause,
    experiments_acting.activate,
    experiments_acting.cancel,
    experiments_acting.kill,
    experiments_acting.archive,
    experiments_acting.delete,
):
    command.add_command(_each)
