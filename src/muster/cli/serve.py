"""`muster serve`."""

from dataclasses import dataclass

import click

from muster import assembly
from muster.api import raw
from muster.assembly import ServeSettings, Started
from muster.cli import starting
from muster.cli.session import Session
from muster.cli.up import show_banner
from muster.sdk import config


@dataclass(frozen=True, slots=True)
class _Options:
    host: str
    port: int
    data: str | None
    scheduler_config: str | None
    quota_config: str | None
    admission_config: str | None
    quiet: bool
    verbose: bool


@click.command()
@starting.host_option
@starting.port_option
@starting.data_option
@starting.scheduler_option
@starting.quota_option
@starting.admission_option
@starting.quiet_option
@starting.verbose_option
@click.pass_obj
def command(session: Session, /, **options: raw.JSON) -> None:
    """Start the API server and controllers, without a node.

    Machines join with `muster agent`; what it prints says how.

    \b
    Example:
      muster serve --host 0.0.0.0
    """
    asked = _Options(**options)
    data = config.data_directory(asked.data or session.data or None)
    settings = ServeSettings(
        data=data,
        host=asked.host,
        port=asked.port,
        scheduler_config=config.scheduler_configuration(asked.scheduler_config),
        quota_config=config.quota_configuration(asked.quota_config),
        admission_config=config.admission_configuration(asked.admission_config),
    )

    def announce(started: Started) -> None:
        if not asked.quiet:
            show_banner(started, data)

    work = assembly.serve(settings, announce)
    starting.until_signalled(work, verbose=asked.verbose, address=f"{asked.host}:{asked.port}")
