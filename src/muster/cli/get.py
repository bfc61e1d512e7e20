"""`muster get`."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import click

from muster.api import errors, raw
from muster.api.raw import Document
from muster.cli import rendering, targets
from muster.cli.connecting import connect, namespace_option, output_option
from muster.cli.rendering import Table
from muster.cli.session import Session
from muster.cli.targets import Target
from muster.sdk import reading
from muster.sdk.client import Client
from muster.sdk.resources import Selection


@dataclass(frozen=True, slots=True)
class _Options:
    what: Sequence[str]
    namespace: str | None
    all_namespaces: bool
    selector: str
    field_selector: str
    watch: bool
    output: str | None


@click.command()
@click.argument("what", metavar="KIND [NAME]...", nargs=-1, required=True)
@namespace_option
@click.option("-A", "--all-namespaces", is_flag=True, help="Look in all namespaces.")
@click.option("-l", "--selector", default="", metavar="LABELS", help="Only objects with these labels.")
@click.option("--field-selector", default="", metavar="FIELDS", help="Only objects with these field values.")
@click.option("-w", "--watch", is_flag=True, help="Go on printing changes as they happen.")
@output_option("wide", "json", "yaml", "name")
@click.pass_obj
def command(session: Session, /, **options: raw.JSON) -> None:
    """List objects, or print one.

    KIND is any kind that the server has, by its plural, singular or short name.

    \b
    Examples:
      muster get pods
      muster get pod/web -o yaml
      muster get pods -l muster.dev/job=train -w
      muster get nodes,podgroups -A
    """
    asked = _Options(**options)
    client = connect(session, asked.namespace)
    found = targets.parse(asked.what, client.catalog())
    where = Selection(None if asked.all_namespaces else client.namespace, asked.selector, asked.field_selector)
    if asked.output in ("json", "yaml", "name"):
        _print_documents(client, found, where, asked.output)
        return
    is_mixed = len({target.resource for target in found}) > 1
    if asked.watch and (is_mixed or len(found) > 1):
        raise errors.BadRequest("--watch follows one kind or one object at a time")
    printer = _Printer(client, where, wide=asked.output == "wide", several=is_mixed)
    for target in found:
        printer.show(target)
    if asked.watch:
        printer.watch(found[0])


def _print_documents(client: Client, found: Sequence[Target], where: Selection, output: str) -> None:
    documents = [document for target in found for document in _documents(client, target, where)]
    if output == "name":
        for document in documents:
            resource = client.catalog().of_document(document)
            click.echo(f"{resource.label}/{document['metadata']['name']}")
        return
    is_one = len(found) == 1 and found[0].name
    shown = documents[0] if is_one else {"apiVersion": "v1", "kind": "List", "items": documents}
    click.echo(raw.to_yaml(shown) if output == "yaml" else _indented(shown), nl=output == "json")


def _indented(document: Document) -> str:
    return json.dumps(document, indent=2, ensure_ascii=False)


def _documents(client: Client, target: Target, where: Selection) -> Iterator[Document]:
    if target.name:
        yield client.get(target.resource, target.name, where.namespace)
    else:
        yield from client.list(target.resource, where)


class _Printer:
    """Prints the server's tables one after the other, and then their changes in the same columns."""

    def __init__(self, client: Client, where: Selection, *, wide: bool, several: bool) -> None:
        self._client = client
        self._where = where
        self._wide = wide
        self._several = several
        self._has_printed = False
        self._definitions: list[Document] = []
        self._widths: list[int] = []
        self._version = ""

    def show(self, target: Target) -> None:
        where = self._where if target.resource.namespaced else Selection(None, self._where.labels, self._where.fields)
        document = self._client.table(target.resource, where, target.name)
        self._definitions = list(document.get("columnDefinitions") or ())
        self._version = reading.text(document, "metadata", "resourceVersion")
        table = self._table(document, target)
        self._widths = rendering.column_widths(table)
        if not table.rows:
            if not self._several:
                place = f" in namespace {self._where.namespace}" if where.namespace else ""
                click.echo(f"No {target.resource.plural} found{place}.", err=True)
            return
        if self._has_printed:
            click.echo()
        rendering.print_table(table)
        self._has_printed = True

    def watch(self, target: Target) -> None:
        where = self._where if target.resource.namespaced else Selection(None, self._where.labels, self._where.fields)
        if target.name:
            where = Selection(where.namespace, where.labels, f"metadata.name={target.name}")
        for change in self._client.watch_table(target.resource, where, self._version):
            if change.type != "BOOKMARK":
                table = self._table(change.object, target)
                self._widths = self._widths if self._has_printed else rendering.column_widths(table)
                click.echo(rendering.plain(table, self._widths, with_header=not self._has_printed), nl=False)
                self._has_printed = True

    def _table(self, document: Document, target: Target) -> Table:
        shown = [index for index, column in enumerate(self._definitions) if self._wide or not column.get("priority")]
        with_namespace = self._where.namespace is None and target.resource.namespaced
        columns = [str(self._definitions[index]["name"]) for index in shown]
        rows = []
        for row in document.get("rows") or ():
            cells = [_cell(row["cells"][index]) for index in shown]
            if self._several and cells:
                cells[0] = f"{target.resource.label}/{cells[0]}"
            space = [reading.text(row, "object", "metadata", "namespace")] if with_namespace else []
            rows.append([*space, *cells])
        return Table([*(["Namespace"] if with_namespace else []), *columns], rows)


def _cell(value: raw.JSON) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "<none>" if value is None or value == "" else str(value)
