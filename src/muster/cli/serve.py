"""`muster serve`."""

import click

from muster.api import raw
from muster.assembly import starting as ways
from muster.assembly.configured import ServeSettings
from muster.assembly.platform import Started
from muster.cli import configuring, starting
from muster.cli.session import Session
from muster.cli.up import show_banner
from muster.sdk import config


@click.command()
@configuring.options
@starting.data_option
@starting.quiet_option
@starting.verbose_option
@click.pass_obj
def command(
    session: Session, /, data: str | None, quiet: bool, verbose: bool, print_config: bool, **flags: raw.JSON
) -> None:
    """Start the API server and controllers, without a node.

    Machines join with `muster agent`; what it prints says how.

    \b
    Example:
      muster serve --host 0.0.0.0
    """
    platform = configuring.settings(flags)
    if print_config:
        configuring.show(platform)
        return
    settings = ServeSettings(config.data_directory(data or session.data or None), platform)

    def announce(started: Started) -> None:
        if not quiet:
            show_banner(started, settings.data)

    work = ways.serve(settings, announce)
    starting.until_signalled(work, verbose=verbose, address=f"{platform.host}:{platform.port}")
