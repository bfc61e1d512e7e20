"""`muster up`."""

import importlib
from dataclasses import dataclass
from pathlib import Path

import click

from muster import assembly
from muster.api import raw
from muster.assembly import NodeSettings, ServeSettings, Started
from muster.cli import rendering, starting
from muster.cli.session import Session
from muster.sdk import config
from muster.version import VERSION


@dataclass(frozen=True, slots=True)
class _Options:
    nodes: int
    fake_gpus: int
    labels: tuple[str, ...]
    host: str
    port: int
    data: str | None
    scheduler_config: str | None
    quota_config: str | None
    admission_config: str | None
    quiet: bool
    verbose: bool


@click.command()
@click.option(
    "--nodes", default=1, type=click.IntRange(min=1), metavar="N", help="Share this machine out among N nodes."
)
@starting.fake_gpus_option
@starting.label_option
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
    """Start a whole platform on this machine.

    API server, controllers and this machine as a node, in one process, until Ctrl-C. Jobs that
    run go on when it stops, and are found again when it starts.

    \b
    Examples:
      muster up
      muster up --nodes 4 --fake-gpus 8
      muster up --port 0 --data /tmp/try
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
    node = NodeSettings(nodes=asked.nodes, fake_gpus=asked.fake_gpus, labels=starting.parse_labels(asked.labels))

    def announce(started: Started) -> None:
        if not asked.quiet:
            show_banner(started, data)

    work = assembly.up(settings, node, announce)
    starting.until_signalled(work, verbose=asked.verbose, address=f"{asked.host}:{asked.port}")


def show_banner(started: Started, data: Path) -> None:
    facts = {"address": started.url, "data": str(data)}
    if started.nodes:
        facts["nodes"] = ", ".join(started.nodes)
    facts["kubectl"] = f"export KUBECONFIG={started.kubeconfig}"
    hints = ["muster nodes", "muster run -- python -c 'print(\"hello\")'", "kubectl get pods -A"]
    if not started.nodes:
        facts["join"] = f"muster agent --server {started.url} --token $(cat {data / 'node-token'})"
    if rendering.is_terminal():
        importlib.import_module("muster.cli.rich_tables").print_banner(f"Muster {VERSION} is up", facts, hints)
        return
    starting.echo("\n".join([f"Muster {VERSION} is up", *(f"  {name:8} {value}" for name, value in facts.items())]))
