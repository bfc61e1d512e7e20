"""`muster describe`: everything about an object, in the order in which a person asks."""

import json
import time
from collections.abc import Iterator, Sequence

import click

from muster.api import errors, raw
from muster.api.raw import JSON, Document
from muster.cli import choosing, describe_job, durations, object_lines, queues, targets
from muster.cli.connecting import connect, namespace_option, output_option
from muster.cli.object_lines import indent
from muster.cli.session import Session
from muster.sdk import details, dialects, gangs, reading, resources
from muster.sdk.client import Client
from muster.sdk.dialects import Job
from muster.sdk.resources import CLUSTER_QUEUES, PODS, WORKLOADS, Catalog, Selection

_NOISE = ("managedFields", "name", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp", "selfLink")


@click.command()
@click.argument("what", metavar="KIND NAME...", nargs=-1, required=True)
@namespace_option
@output_option("json", "yaml")
@click.pass_obj
def command(session: Session, what: Sequence[str], namespace: str | None, output: str | None) -> None:
    """Show all about one object, with its events.

    `job` finds a job of whichever kind has the name (batch, volcano, pytorch, cron, flow, or a gang of
    `muster run`) and shows its tasks, pods, quota and timeline.

    \b
    Examples:
      muster describe train
      muster describe job train eval
      muster describe volcano/train
      muster describe pod/web
      muster describe node node-0
    """
    client = connect(session, namespace)
    told = [
        _of_job(client, choosing.job(client, job), output) if job else _of_object(client, words, output)
        for words, job in _split(what, client.catalog())
    ]
    click.echo(("---\n" if output == "yaml" else "\n\n").join(told), nl=False)


def _split(what: Sequence[str], catalog: Catalog) -> Iterator[tuple[Sequence[str], str]]:
    """Each object's own words, and where they mean a job, that as KIND/NAME. One word alone that is no kind is a job's
    name."""
    if any("/" in word for word in what):
        for word in what:
            kind, _, name = word.partition("/")
            yield [word], f"{kind}/{name}" if _is_job(kind) else ""
    elif _is_job(what[0]):
        for name in what[1:] or [""]:
            if not name:
                raise errors.BadRequest("which job? Give a name, for example: muster describe job train")
            yield [what[0], name], f"{what[0]}/{name}"
    else:
        yield what, what[0] if len(what) == 1 and not catalog.has(what[0]) else ""


def _is_job(kind: str) -> bool:
    """Pods and pod groups as such are shown like any object; `gang` means the job that a pod group is."""
    word = kind.lower()
    if word in dialects.ANY or word == dialects.GANG.word:
        return True
    return any(entry.answers_to(word) for entry in dialects.DIALECTS if entry not in (dialects.GANG, dialects.POD))


def _of_job(client: Client, job: Job, output: str | None) -> str:
    found = details.describe(client, job)
    return _encoded(describe_job.plain(found), output) if output else describe_job.describe(found, time.time())


def _of_object(client: Client, words: Sequence[str], output: str | None) -> str:
    told = []
    for target in targets.named(words, client.catalog()):
        document = client.get(target.resource, target.name)
        events = _events(client, document) if target.resource != resources.EVENTS else []
        body = {"object": document, "events": list(events)}
        told.append(_encoded(body, output) if output else describe(document, events, time.time()))
    return "\n\n".join(told)


def _encoded(document: Document, output: str | None) -> str:
    return raw.to_yaml(document) if output == "yaml" else f"{json.dumps(document, indent=2)}\n"


def _events(client: Client, document: Document) -> Sequence[Document]:
    uid = reading.text(document, "metadata", "uid")
    inside = reading.text(document, "metadata", "namespace") or None
    found = client.list(resources.EVENTS, Selection(inside, fields=f"involvedObject.uid={uid}"))
    return sorted(found, key=details.when)


def describe(document: Document, events: Sequence[Document], now: float) -> str:
    metadata = reading.section(document, "metadata")
    lines = [*_head(document, metadata, now)]
    for section in (key for key in document if key not in ("apiVersion", "kind", "metadata", "status")):
        lines += ["", f"{_title(section)}:", *indent(_block(document[section]))]
    status = dict(reading.section(document, "status"))
    conditions = status.pop("conditions", None)
    if status:
        lines += ["", "Status:", *indent(_block(status))]
    if isinstance(conditions, list) and conditions:
        lines += ["", "Conditions:", *indent(object_lines.conditions(conditions, now))]
    lines += ["", "Events:" if events else "Events: none", *indent(object_lines.events(events, now))]
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
        yield from indent(_block(metadata[field]))


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


def _title(field: str) -> str:
    """`podIP` -> `Pod IP`, `ownerReferences` -> `Owner references`."""
    spaced = "".join(
        f" {letter}" if letter.isupper() and index and not field[index - 1].isupper() else letter
        for index, letter in enumerate(field)
    )
    return (spaced[:1].upper() + spaced[1:]).replace(" I P", " IP")
