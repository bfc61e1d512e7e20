"""`muster resume`."""

from collections.abc import Sequence

import click

from muster.cli import changing
from muster.cli.connecting import namespace_option
from muster.cli.session import Session
from muster.sdk import operating
from muster.sdk.summaries import OVER, State

_AWAKE = (State.PENDING, State.RUNNING, State.RESTARTING, State.SCHEDULED, *OVER)


@click.command()
@changing.names_argument
@namespace_option
@changing.wait_option
@click.pass_obj
def command(session: Session, names: Sequence[str], namespace: str | None, wait: bool) -> None:
    """Resume suspended jobs.

    A job goes through its queue again and starts from its beginning. What a batch job has completed
    before stays counted.

    \b
    Examples:
      muster resume train
      muster resume cron/nightly
    """
    changing.each(session, names, namespace, changing.Change("resumed", operating.resume, _AWAKE, wait=wait))
