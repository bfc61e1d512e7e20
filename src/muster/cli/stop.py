"""`muster stop`."""

from collections.abc import Sequence

import click

from muster.cli.connecting import connect, namespace_option
from muster.cli.session import Session
from muster.sdk import jobs


@click.command()
@click.argument("names", metavar="JOB...", nargs=-1, required=True)
@namespace_option
@click.option("--grace-period", type=int, metavar="SECONDS", help="Time to end by itself before it is killed.")
@click.option("--wait/--no-wait", default=True, help="Wait until its processes have ended (the default).")
@click.pass_obj
def command(
    session: Session, names: Sequence[str], namespace: str | None, grace_period: int | None, wait: bool
) -> None:
    """Stop a job and remove it.

    Its processes get SIGTERM, and SIGKILL when the grace period is over. Its logs go with it.

    \b
    Examples:
      muster stop brisk-otter-417
      muster stop train --grace-period 5
    """
    client = connect(session, namespace)
    for name in names:
        pods = jobs.stop(client, name, grace_seconds=grace_period)
        if wait:
            jobs.wait_gone(client, pods)
        click.echo(f"{name} stopped")
