"""`muster describe`: everything about an object, in the order in which a person asks."""

import time
from collections.abc import Iterator, Sequence

import click

from muster.api import raw
from muster.api.raw import JSON, Document
from muster.cli import durations, queues, rendering, targets
from muster.cli.connecting import connect, namespace_option
from muster.cli.rendering import Table
from muster.cli.session import Session
from muster.sdk import gangs, reading, resources
from muster.sdk.client import Client
from muster.sdk.resources import CLUSTER_QUEUES, PODS, WORKLOADS, Selection

_NOISE = ("managedFields", "name", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp", "selfLink")


@click.command()
@click.argument("what", metavar="KIND NAME...", nargs=-1, required=True)
@namespace_option
@click.pass_obj
def command(session: Session, what: Sequence[str], namespace: str | None) -> None:
    """Show all about one object, with its events.

    \b
    Examples:
      muster describe pod/web
      muster describe node node-0
    """
    client = connect(session, namespace)
    for number, target in enumerate(targets.named(what, client.catalog())):
        document = client.get(target.resource, target.name)
        events = _events(client, document) if target.resource != resources.EVENTS else []
        click.echo(("\n\n" if number else "") + describe(document, events, time.time()), nl=False)


def _events(client: Client, document: Document) -> Sequence[Document]:
    uid = reading.text(document, "metadata", "uid")
    inside = reading.text(document, "metadata", "namespace") or None
    found = client.list(resources.EVENTS, Selection(inside, fields=f"involvedObject.uid={uid}"))
    return sorted(found, key=_when)


def _when(event: Document) -> str:
    for field in ("lastTimestamp", "eventTime", "firstTimestamp"):
        if raw.dig(event, field):
            return str(event[field])
    return reading.text(event, "metadata", "creationTimestamp")


def describe(document: Document, events: Sequence[Document], now: float) -> str:
    metadata = reading.section(document, "metadata")
    lines = [*_head(document, metadata, now)]
    for section in (key for key in document if key not in ("apiVersion", "kind", "metadata", "status")):
        lines += ["", f"{_title(section)}:", *_indent(_block(document[section]))]
    status = dict(reading.section(document, "status"))
    conditions = status.pop("conditions", None)
    if status:
        lines += ["", "Status:", *_indent(_block(status))]
    if isinstance(conditions, list) and conditions:
        lines += ["", "Conditions:", *_indent(_conditions(conditions, now))]
    lines += ["", "Events:" if events else "Events: none", *_indent(_event_lines(events, now))]
    return "\n".join(lines) + "\n"


def _head(document: Document, metadata: Document, now: float) -> Iterator[str]:
    yield f"Name:         {metadata.get('name', '')}"
    if metadata.get("namespace"):
        yield f"Namespace:    {metadata['namespace']}"
    yield f"Kind:         {document.get('kind', '')} ({document.get('apiVersion', '')})"
    created = str(metadata.get("creationTimestamp", ""))
    yield f"Created:      {created} ({durations.age(created, now)} ago)"
    if document.get("kind") == PODS.kind and document.get("apiVersion") == PODS.api_version:
        yield from _pod_head(document)
    elif str(document.get("apiVersion", "")).startswith(f"{WORKLOADS.group}/"):
        yield from _quota_head(document)
    if metadata.get("deletionTimestamp"):
        yield f"Terminating:  since {metadata['deletionTimestamp']}"
    for reference in metadata.get("ownerReferences") or ():
        yield f"Owned by:     {reference.get('kind')}/{reference.get('name')}"
    for field in (key for key in metadata if key not in (*_NOISE, "ownerReferences", "deletionTimestamp")):
        yield f"{_title(field)}:"
        yield from _indent(_block(metadata[field]))


def _pod_head(document: Document) -> Iterator[str]:
    member = gangs.observe_pod(document)
    yield f"State:        {member.phase}{f' on {member.node}' if member.node else ''}"
    if member.exit_code is not None:
        yield f"Exit code:    {member.exit_code}"
    if member.reason:
        yield f"Why:          {member.reason}"


def _quota_head(document: Document) -> Iterator[str]:
    """Of a workload, why it waits; of a queue, how full it is."""
    if document.get("kind") == WORKLOADS.kind:
        found = {reading.text(entry, "type"): entry for entry in reading.objects(document, "status", "conditions")}
        is_true = {name for name, entry in found.items() if entry.get("status") == "True"}
        if "Waiting" in is_true and not is_true & {"QuotaReserved", "Finished"}:
            yield f"Why:          {reading.text(found['Waiting'], 'message')}"
    elif document.get("kind") == CLUSTER_QUEUES.kind:
        queue = queues.read(document)
        yield f"State:        {queue.state}, {queue.pending} waiting, {queue.admitted} admitted"
        for line in queue.lines:
            yield f"Used:         {line.shown(10)} {line.resource} of {line.flavor}"


def _block(value: JSON) -> list[str]:
    return raw.to_yaml(value).rstrip("\n").split("\n")


def _indent(lines: Sequence[str]) -> list[str]:
    return [f"  {line}".rstrip() for line in lines]


def _title(field: str) -> str:
    """`podIP` -> `Pod IP`, `ownerReferences` -> `Owner references`."""
    spaced = "".join(
        f" {letter}" if letter.isupper() and index and not field[index - 1].isupper() else letter
        for index, letter in enumerate(field)
    )
    return (spaced[:1].upper() + spaced[1:]).replace(" I P", " IP")


def _conditions(conditions: Sequence[Document], now: float) -> list[str]:
    rows = [
        [
            reading.text(entry, "type"),
            reading.text(entry, "status"),
            durations.age(reading.text(entry, "lastTransitionTime"), now),
            reading.text(entry, "reason") or "-",
            reading.text(entry, "message") or "-",
        ]
        for entry in conditions
    ]
    return _table(Table(["Type", "Status", "Since", "Reason", "Message"], rows))


def _event_lines(events: Sequence[Document], now: float) -> list[str]:
    rows = []
    for event in events:
        count = raw.dig(event, "count") or raw.dig(event, "series", "count") or 1
        times = f" (x{count})" if count != 1 else ""
        source = raw.dig(event, "source", "component") or raw.dig(event, "reportingComponent") or "-"
        rows.append(
            [
                durations.age(_when(event), now) + times,
                reading.text(event, "type") or "Normal",
                reading.text(event, "reason") or "-",
                str(source),
                reading.text(event, "message").strip(),
            ]
        )
    return _table(Table(["Age", "Type", "Reason", "From", "Message"], rows)) if rows else []


def _table(table: Table) -> list[str]:
    return rendering.plain(table).rstrip("\n").split("\n")
