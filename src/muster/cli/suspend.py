"""`muster suspend`."""

from collections.abc import Sequence

import click

from muster.cli import changing
from muster.cli.connecting import namespace_option
from muster.cli.session import Session
from muster.sdk import operating
from muster.sdk.summaries import State


@click.command()
@changing.names_argument
@namespace_option
@changing.wait_option
@click.pass_obj
def command(session: Session, names: Sequence[str], namespace: str | None, wait: bool) -> None:
    """Suspend jobs: their pods end, they stay.

    For batch, volcano and pytorch jobs, and for cron jobs, which make no more jobs then. Quota and
    nodes are free for others. `muster resume` starts a suspended job from its beginning.

    \b
    Examples:
      muster suspend train
      muster suspend volcano/train pytorch/eval
    """
    changing.each(
        session, names, namespace, changing.Change("suspended", operating.suspend, (State.SUSPENDED,), wait=wait)
    )
