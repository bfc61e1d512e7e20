"""`muster scale`."""

from collections.abc import Sequence

import click

from muster.cli import choosing, completing
from muster.cli.connecting import connect, namespace_option
from muster.cli.session import Session
from muster.sdk import scaling


@click.command()
@click.argument("name", metavar="[KIND/]NAME", shell_complete=completing.jobs)
@click.option(
    "--replicas", multiple=True, required=True, metavar="[TASK=]N", help="How many pods; of which task, if several."
)
@namespace_option
@click.pass_obj
def command(session: Session, name: str, replicas: Sequence[str], namespace: str | None) -> None:
    """Change how many pods a job has.

    Of a batch job it is the number of pods at a time, of a pytorch job the workers. Where all pods
    of a volcano job had to start together, they still do: `minAvailable` follows.

    \b
    Examples:
      muster scale train --replicas worker=6
      muster scale train --replicas ps=2 --replicas worker=8
      muster scale primes --replicas 4
    """
    client = connect(session, namespace)
    job = choosing.job(client, name)
    changes = scaling.scale(client, job, scaling.parse(replicas))
    click.echo(f"{job.shown} scaled: {', '.join(changes)}" if changes else f"{job.shown} has that many already")
