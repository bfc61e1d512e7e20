"""`muster doctor`."""

import asyncio
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import click
import msgspec

from muster.api import raw
from muster.assembly import checkup
from muster.cli import clusters, rendering
from muster.cli.connecting import output_option
from muster.cli.rendering import Table
from muster.cli.session import Session
from muster.deploying import diagnosing, findings, reaching
from muster.deploying.findings import Finding, Verdict
from muster.runtime.clock import SystemClock
from muster.sdk import config

SICK = 1
"""The exit code where something does not work."""


@dataclass(frozen=True, slots=True)
class _Options:
    kubeconfig: str
    context: str
    namespace: str
    output: str | None


@click.command()
@clusters.options
@output_option("json", "yaml")
@click.pass_obj
def command(session: Session, /, **options: raw.JSON) -> None:
    """Examine a cluster, or this machine, and say what is missing.

    With --kubeconfig, --context or KUBECONFIG it examines that Kubernetes cluster, whether Muster is installed there or
    not. Without, it looks at what `muster up` needs on this machine. The exit code is 1 where something does not work.

    \b
    Examples:
      muster doctor --kubeconfig ~/.kube/config
      muster doctor --context staging -o json
      muster doctor
    """
    asked = _Options(**options)
    if asked.kubeconfig or asked.context or os.environ.get("KUBECONFIG"):
        found = asyncio.run(_examine(asked))
    else:
        found = checkup.examine(config.data_directory(session.data or None), config.DEFAULT_PORT)
    _show(found, asked.output)
    if findings.worst(found) is Verdict.FAIL:
        sys.exit(SICK)


async def _examine(asked: _Options) -> list[Finding]:
    cluster = reaching.cluster(asked.kubeconfig, asked.context)
    return [finding async for finding in diagnosing.examine(cluster, SystemClock(), asked.namespace)]


def _show(found: Sequence[Finding], output: str | None) -> None:
    if output:
        listed = msgspec.to_builtins(found)
        click.echo(raw.to_yaml(listed) if output == "yaml" else json.dumps(listed, indent=2), nl=output == "json")
        return
    rows = [
        (each.about, each.verdict, f"{each.found} → {each.advice}" if each.advice else each.found) for each in found
    ]
    rendering.print_table(Table(("about", "state", "found → what to do"), rows))
