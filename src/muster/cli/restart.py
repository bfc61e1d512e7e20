"""`muster restart`."""

import tempfile
from collections.abc import Sequence

import click

from muster.api import errors, raw
from muster.cli import changing, choosing
from muster.cli.connecting import connect, namespace_option
from muster.cli.session import Session
from muster.sdk import operating, remaking

_SAID = {
    "in place": "restarts",
    "anew": "made anew; its earlier pods and their logs are gone",
}


@click.command()
@changing.names_argument
@namespace_option
@click.pass_obj
def command(session: Session, names: Sequence[str], namespace: str | None) -> None:
    """Run jobs again from their beginning.

    A volcano job that is under way restarts in place, which counts as a retry. Batch and pytorch
    jobs, flows, and whatever has finished are deleted and made again, with all counts at zero.

    \b
    Examples:
      muster restart train
      muster restart volcano/train
    """
    client = connect(session, namespace)
    for job in [choosing.job(client, name) for name in names]:
        try:
            how = operating.restart(client, job)
        except remaking.Lost as error:
            raise errors.Unavailable(f"{error.message}; submit it yourself: {_saved(error.document)}") from error
        click.echo(f"{job.shown} {_SAID[how]}")


def _saved(document: raw.Document) -> str:
    with tempfile.NamedTemporaryFile("w", prefix="muster-", suffix=".yaml", delete=False) as file:
        file.write(raw.to_yaml(document))
    return f"muster submit -f {file.name}"
