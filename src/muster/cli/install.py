"""`muster install`."""

import asyncio
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import click
import msgspec

from muster.api import errors, raw
from muster.assembly import configured
from muster.cli import clusters
from muster.deploying import definitions, installing, manifests, pieces, reaching, surroundings, values
from muster.deploying.installing import Installer, Step
from muster.deploying.slots import Chosen
from muster.runtime.clock import SystemClock
from muster.settings import reading
from muster.settings.reading import Given
from muster.settings.sections import PlatformSettings
from muster.version import VERSION


@dataclass(frozen=True, slots=True)
class _Options:
    kubeconfig: str
    context: str
    namespace: str
    values: Sequence[str]
    assignments: Sequence[str]
    dry_run: bool
    print_only: bool

    def given(self) -> list[Given]:
        files = [reading.from_file(Path(name).expanduser()) for name in self.values]
        return [*files, reading.from_assignments(self.assignments)]


@click.command()
@clusters.options
@click.option("-f", "--values", multiple=True, metavar="FILE", help="Values, as in the chart's values.yaml.")
@click.option("--set", "assignments", multiple=True, metavar="KEY=VALUE", help="One value: image.repository=…")
@click.option("--dry-run", is_flag=True, help="Let the API server check everything and change nothing.")
@click.option("--print", "print_only", is_flag=True, help="Print the manifests, and ask no cluster.")
def command(**options: raw.JSON) -> None:
    """Install Muster's controllers on a Kubernetes cluster.

    Defines the kinds that the cluster does not know, and starts two controllers of which one leads. What Kueue, Volcano
    or anybody else has installed stays as it is: where their controllers run, Muster looks after objects with the label
    muster.dev/class=muster and leaves the others to them. Run it again to change values or to upgrade.

    \b
    Examples:
      muster install --set image.repository=registry.example.com/muster
      muster install --context staging -f values.yaml --dry-run
      muster install --print | less
    """
    asked = _Options(**options)
    given = asked.given()
    chosen = Chosen(values.read(given), asked.namespace)
    _check(chosen)
    if asked.print_only:
        _print(chosen)
    else:
        asyncio.run(_install(asked, chosen, says_whose=any("unlabelled" in each.values for each in given)))


def _check(chosen: Chosen) -> None:
    """The configurations, as the programs will read them: they would not start with a wrong one."""
    reading.merge(PlatformSettings, [Given("value server.settings", dict(chosen.values.server.settings))])
    with tempfile.TemporaryDirectory(prefix="muster-install-") as folder:
        files = {name: Path(folder) / name for name in pieces.CONFIGURATIONS if chosen.value(name)}
        for name, file in files.items():
            file.write_text(chosen.encoded(name))
        try:
            settings = reading.merge(PlatformSettings, [Given("values", {name: str(files[name]) for name in files})])
            configured.policies(settings)
        except errors.ApiError as error:
            error.message = error.message.replace(f"{folder}/", "value ")
            raise


def _print(chosen: Chosen) -> None:
    kinds = [definitions.definition(kind) for kind in definitions.kinds()]
    documents = [*kinds, manifests.namespace(chosen), *manifests.documents(chosen)]
    click.echo("---\n".join(map(raw.to_yaml, documents)), nl=False)


async def _install(asked: _Options, chosen: Chosen, *, says_whose: bool) -> None:
    async with reaching.store(reaching.cluster(asked.kubeconfig, asked.context)) as store:
        if not says_whose:
            others = await surroundings.neighbours(store)
            whose = installing.whose_unlabelled(others)
            chosen = replace(chosen, values=msgspec.structs.replace(chosen.values, unlabelled=whose))
            for other in others:
                _tell(f"{other.project} runs here ({other.deployment}): objects without a class stay its own")
        async for step in Installer(store, SystemClock(), dry_run=asked.dry_run).install(chosen):
            show(step, dry_run=asked.dry_run)
    if not asked.dry_run:
        flags = {"--kubeconfig": asked.kubeconfig, "--context": asked.context, "--namespace": asked.namespace}
        doctor = " ".join(["muster doctor", *(f"{name} {value}" for name, value in flags.items() if value)])
        click.echo(f"Muster {VERSION} is installed in {asked.namespace}. How it does: {doctor}")


def show(step: Step, *, dry_run: bool = False) -> None:
    note = f": {step.note}" if step.note else ""
    line = f"{step.label} {step.outcome}{note}{' (dry run)' if dry_run else ''}"
    if step.is_warning:
        _tell(line)
    else:
        click.echo(line)


def _tell(text: str) -> None:
    click.echo(f"note: {text}", err=True)
