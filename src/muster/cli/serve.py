"""`muster serve`."""

import click

from muster import assembly
from muster.assembly import ServeSettings, Started
from muster.cli import starting
from muster.cli.session import Session
from muster.cli.up import show_banner
from muster.sdk import config


@click.command()
@starting.host_option
@starting.port_option
@starting.data_option
@starting.quiet_option
@starting.verbose_option
@click.pass_obj
def command(session: Session, host: str, port: int, data: str | None, quiet: bool, verbose: bool) -> None:
    """Start the API server and controllers, without a node.

    Machines join with `muster agent`; what it prints says how.

    \b
    Example:
      muster serve --host 0.0.0.0
    """
    directory = config.data_directory(data or session.data or None)

    def announce(started: Started) -> None:
        if not quiet:
            show_banner(started, directory)

    work = assembly.serve(ServeSettings(data=directory, host=host, port=port), announce)
    starting.until_signalled(work, verbose=verbose, address=f"{host}:{port}")
