"""`muster stop`, which is also `muster cancel`."""

from collections.abc import Sequence

import click

from muster.api import errors
from muster.cli import changing, choosing
from muster.cli.connecting import connect, namespace_option
from muster.cli.session import Session
from muster.sdk import jobs, operating
from muster.sdk.client import Client
from muster.sdk.dialects import GANG, POD


@click.command()
@changing.names_argument
@namespace_option
@click.option("--grace-period", type=int, metavar="SECONDS", help="Time to end by itself before it is killed.")
@click.option("--wait/--no-wait", default=True, help="Wait until its processes have ended (the default).")
@click.pass_obj
def command(
    session: Session, names: Sequence[str], namespace: str | None, grace_period: int | None, wait: bool
) -> None:
    """Stop jobs of any kind and remove them.

    Their processes get SIGTERM, and SIGKILL when the grace period is over. Their logs go with them.
    What a job has made goes too: the jobs of a flow, those of a cron job. `muster suspend` keeps a
    job, and `muster cancel` is the same as `muster stop`.

    \b
    Examples:
      muster stop brisk-otter-417
      muster stop volcano/train --grace-period 5
    """
    client = connect(session, namespace)
    for name in names:
        shown, pods = _stop(client, name, grace_period)
        if wait:
            jobs.wait_gone(client, pods)
        click.echo(f"{shown} stopped")


def _stop(client: Client, name: str, grace_period: int | None) -> tuple[str, Sequence[str]]:
    try:
        job = choosing.job(client, name)
    except errors.NotFound:
        # A pod of some job, or what is left of a gang.
        return name, jobs.stop(client, name, grace_seconds=grace_period)
    pods = operating.stop(client, job, grace_seconds=grace_period)
    return (job.name if job.dialect in (GANG, POD) else job.shown), pods
