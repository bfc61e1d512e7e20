"""`muster apply`."""

import sys

import click

from muster.api import errors, raw
from muster.cli import files, reporting
from muster.cli.connecting import connect, namespace_option
from muster.cli.files import Found
from muster.cli.session import Session
from muster.sdk import reading
from muster.sdk.client import Client


@click.command()
@click.option(
    "-f",
    "--filename",
    multiple=True,
    required=True,
    metavar="FILE",
    help="A file, a directory, or - for standard input.",
)
@namespace_option
@click.option("--force-conflicts", is_flag=True, help="Take over fields that another manager has set.")
@click.option("--dry-run", is_flag=True, help="Let the server check everything and change nothing.")
@files.unknown_fields_option
@click.pass_obj
def command(session: Session, /, **options: raw.JSON) -> None:
    """Create or change objects from files.

    The server merges what the files say into what exists (server-side apply): fields that the
    files do not mention stay as they are.

    \b
    Examples:
      muster apply -f job.yaml
      muster apply -f manifests/
      cat job.yaml | muster apply -f -
    """
    client = connect(session, options["namespace"])
    found = files.read(options["filename"])
    # A namespace must exist before what is in it, wherever the files mention it.
    found.sort(key=lambda item: item.document.get("kind") != "Namespace")
    if not all([_apply(client, item, options) for item in found]):
        sys.exit(reporting.FAILURE)


def _apply(client: Client, item: Found, options: raw.JSON) -> bool:
    """False where it is refused: the rest is tried all the same, so that one run shows all that is wrong."""
    dry_run = options["dry_run"]
    strict = not options["ignore_unknown_fields"]
    try:
        resource = client.catalog().of_document(item.document)
        name = reading.text(item.document, "metadata", "name")
        before = _version(client, item, name)
        after = client.apply(item.document, force=options["force_conflicts"], dry_run=dry_run, strict=strict)
    except errors.ApiError as error:
        error.message = f"{item.source}: {error.message}"
        reporting.report(error)
        return False
    verb = "configured" if before else "created"
    if before and before == raw.dig(after, "metadata", "resourceVersion"):
        verb = "unchanged"
    click.echo(f"{resource.label}/{name} {verb}{' (dry run)' if dry_run else ''}")
    return True


def _version(client: Client, item: Found, name: str) -> str:
    if not name:
        return ""  # apply itself says what is missing
    resource = client.catalog().of_document(item.document)
    namespace = reading.text(item.document, "metadata", "namespace") or None
    try:
        return str(client.get(resource, name, namespace)["metadata"]["resourceVersion"])
    except errors.NotFound:
        return ""
