"""`muster up`."""

import importlib
from pathlib import Path

import click

from muster.api import raw
from muster.assembly import starting as ways
from muster.assembly.configured import ServeSettings
from muster.assembly.machines import NodeSettings
from muster.assembly.platform import Started
from muster.cli import configuring, rendering, starting
from muster.cli.session import Session
from muster.sdk import config
from muster.version import VERSION


@click.command()
@click.option(
    "--nodes", default=1, type=click.IntRange(min=1), metavar="N", help="Share this machine out among N nodes."
)
@starting.fake_gpus_option
@starting.label_option
@configuring.options
@starting.data_option
@starting.quiet_option
@starting.verbose_option
@click.pass_obj
def command(
    session: Session, /, data: str | None, quiet: bool, verbose: bool, print_config: bool, **flags: raw.JSON
) -> None:
    """Start a whole platform on this machine.

    API server, controllers and this machine as a node, in one process, until Ctrl-C. Jobs that
    run go on when it stops, and are found again when it starts.

    \b
    Examples:
      muster up
      muster up --nodes 4 --fake-gpus 8
      muster up --port 0 --data /tmp/try
    """
    platform = configuring.settings(flags)
    if print_config:
        configuring.show(platform)
        return
    settings = ServeSettings(config.data_directory(data or session.data or None), platform)
    labels = starting.parse_labels(flags["labels"])
    node = NodeSettings(nodes=flags["nodes"], fake_gpus=flags["fake_gpus"], labels=labels)

    def announce(started: Started) -> None:
        if not quiet:
            show_banner(started, settings.data)

    work = ways.up(settings, node, announce)
    starting.until_signalled(work, verbose=verbose, address=f"{platform.host}:{platform.port}")


def show_banner(started: Started, data: Path) -> None:
    facts = {"address": started.url, "data": str(data)}
    if started.nodes:
        facts["nodes"] = ", ".join(started.nodes)
    if started.kubeconfig is not None:
        facts["kubectl"] = f"export KUBECONFIG={started.kubeconfig}"
    facts["det"] = f"export DET_MASTER={started.url}"
    if started.password:
        facts["login"] = f"admin, password {started.password} (shown this once)"
    hints = ["muster nodes", "muster run -- python -c 'print(\"hello\")'", "kubectl get pods -A"]
    if started.kubeconfig is None:
        hints = ["det cmd run echo hello", "kubectl get allocations -A"]
    elif not started.nodes:
        facts["join"] = f"muster agent --server {started.url} --token $(cat {data / 'node-token'})"
    if rendering.is_terminal():
        importlib.import_module("muster.cli.rich_tables").print_banner(f"Muster {VERSION} is up", facts, hints)
        return
    starting.echo("\n".join([f"Muster {VERSION} is up", *(f"  {name:8} {value}" for name, value in facts.items())]))
