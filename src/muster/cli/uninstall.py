"""`muster uninstall`."""

import asyncio
from dataclasses import dataclass

import click

from muster.api import raw
from muster.cli import clusters
from muster.cli.install import show
from muster.deploying import reaching, removing
from muster.deploying.removing import Removal
from muster.runtime.clock import SystemClock


@dataclass(frozen=True, slots=True)
class _Options:
    kubeconfig: str
    context: str
    namespace: str
    everything: bool
    yes: bool
    dry_run: bool


@click.command()
@clusters.options
@click.option("--all", "everything", is_flag=True, help="Also remove kinds that have objects, and those objects.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.option("--dry-run", is_flag=True, help="Say what would be removed, and remove nothing.")
def command(**options: raw.JSON) -> None:
    """Remove Muster's controllers from a Kubernetes cluster.

    Removes what `muster install` has made, and nothing else. Jobs that run go on as pods; nobody admits or places new
    ones. Kinds that still have objects stay, unless you say --all.

    \b
    Examples:
      muster uninstall
      muster uninstall --all
    """
    asyncio.run(_uninstall(_Options(**options)))


async def _uninstall(asked: _Options) -> None:
    async with reaching.store(reaching.cluster(asked.kubeconfig, asked.context)) as store:
        removal = await removing.plan(store, asked.namespace)
        if removal.is_empty:
            click.echo("Nothing of Muster is installed.")
        elif asked.dry_run:
            _print(removal, everything=asked.everything)
        else:
            if asked.everything and removal.lost and not asked.yes:
                _ask(removal)
            async for step in removing.remove(store, SystemClock(), removal, everything=asked.everything):
                show(step)


def _print(removal: Removal, *, everything: bool) -> None:
    stays = [] if everything or not removal.data else [*removal.data, *removal.home]
    for part in (*removal.parts, *removal.data, *removal.home):
        click.echo(f"{part.kind.name.lower()}/{part.key.name} would be {'kept' if part in stays else 'deleted'}")
    for defined in removal.definitions:
        goes = everything or not defined.objects
        fate = "would be deleted" if goes else "would be kept"
        click.echo(f"customresourcedefinition/{defined.kind.resource} {fate}: {defined.objects} objects")


def _ask(removal: Removal) -> None:
    click.confirm(f"This deletes {', '.join(removal.lost)}. Go on?", abort=True)
