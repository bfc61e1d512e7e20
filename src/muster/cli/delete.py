"""`muster delete`."""

from collections.abc import Sequence
from dataclasses import dataclass

import click

from muster.api import errors, raw
from muster.cli import files, targets
from muster.cli.connecting import connect, namespace_option
from muster.cli.session import Session
from muster.cli.targets import Target
from muster.sdk.client import Client
from muster.sdk.resources import Selection


@dataclass(frozen=True, slots=True)
class _Options:
    what: Sequence[str]
    namespace: str | None
    filename: Sequence[str]
    selector: str
    all: bool
    grace_period: int | None
    wait: bool
    ignore_not_found: bool


@click.command()
@click.argument("what", metavar="[KIND NAME]...", nargs=-1)
@namespace_option
@click.option(
    "-f", "--filename", multiple=True, metavar="FILE", help="Delete what this file, directory or - describes."
)
@click.option("-l", "--selector", default="", metavar="LABELS", help="Delete all of the kind with these labels.")
@click.option("--all", is_flag=True, help="Delete all of the kind in the namespace.")
@click.option("--grace-period", type=int, metavar="SECONDS", help="Time for running pods to end by themselves.")
@click.option("--wait/--no-wait", default=True, help="Wait until they are gone (the default).")
@click.option("--ignore-not-found", is_flag=True, help="Treat what is not there as deleted.")
@click.pass_obj
def command(session: Session, /, **options: raw.JSON) -> None:
    """Delete objects.

    What an object owns goes with it: deleting a PodGroup ends its pods.

    \b
    Examples:
      muster delete pod/web
      muster delete -f job.yaml
      muster delete pods -l muster.dev/job=train
    """
    asked = _Options(**options)
    client = connect(session, asked.namespace)
    if asked.filename:
        found = _in_files(client, asked.filename)
    elif not asked.what:
        raise click.UsageError("say what to delete: KIND NAME, KIND/NAME or -f FILE")
    elif asked.selector or asked.all:
        found = _matching(client, asked.what, Selection(client.namespace, asked.selector))
    else:
        found = [(target, client.namespace) for target in targets.named(asked.what, client.catalog())]
    deleted = [(target, inside) for target, inside in found if _delete(client, target, inside, asked)]
    if asked.wait:
        for target, inside in deleted:
            client.wait_gone(target.resource, target.name, inside)


def _in_files(client: Client, names: Sequence[str]) -> list[tuple[Target, str]]:
    found = []
    for item in files.read(names):
        metadata = item.document.get("metadata") or {}
        if not metadata.get("name"):
            raise errors.BadRequest(f"{item.source}: metadata.name is missing")
        target = Target(client.catalog().of_document(item.document), str(metadata["name"]))
        found.append((target, str(metadata.get("namespace") or client.namespace)))
    return found[::-1]  # what was created last may use what was created first


def _matching(client: Client, what: Sequence[str], where: Selection) -> list[tuple[Target, str]]:
    return [
        (Target(target.resource, str(item["metadata"]["name"])), str(item["metadata"].get("namespace", "")))
        for target in targets.parse(what, client.catalog())
        for item in client.list(target.resource, where)
    ]


def _delete(client: Client, target: Target, namespace: str, asked: _Options) -> bool:
    try:
        client.delete(target.resource, target.name, namespace, grace_seconds=asked.grace_period)
    except errors.NotFound:
        if not asked.ignore_not_found:
            raise
        return False
    click.echo(f"{target.resource.label}/{target.name} deleted")
    return True
