"""`muster version`."""

import click

from muster.api import errors, raw
from muster.cli.connecting import connect, output_option
from muster.cli.session import Session
from muster.version import VERSION


@click.command()
@output_option("json", "yaml")
@click.pass_obj
def command(session: Session, output: str | None) -> None:
    """Print the versions of this program and the server.

    \b
    Example:
      muster version
    """
    found = {"client": VERSION, "server": _server_version(session)}
    if output == "json":
        click.echo(raw.encode(found).decode())
    elif output == "yaml":
        click.echo(raw.to_yaml(found), nl=False)
    else:
        click.echo(f"muster  {VERSION}\nserver  {found['server'] or 'not running'}")


def _server_version(session: Session) -> str | None:
    try:
        return connect(session).server_version()
    except errors.Unavailable:
        return None
