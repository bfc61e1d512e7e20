"""`muster why`."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import click

from muster.api import errors, raw
from muster.api.raw import Document
from muster.cli import completing, object_lines, targets
from muster.cli.connecting import connect, namespace_option, output_option
from muster.cli.session import Session
from muster.sdk import finding, gangs, jobs, reading
from muster.sdk.client import Client
from muster.sdk.resources import PODS, WORKLOADS, Resource, Selection

_WORKLOAD_ANNOTATION = "kueue.x-k8s.io/workload"
_GROUP_LABEL = "kueue.x-k8s.io/pod-group-name"
_JOB_LABEL = "kueue.x-k8s.io/job-uid"
_KINDS = ("workloads.kueue.x-k8s.io", "jobs.batch", "jobs.batch.volcano.sh", "pytorchjobs", "podgroups", "pods")
"""What a bare name may mean, first found first."""


@dataclass(frozen=True, slots=True)
class Subject:
    """What was asked about."""

    resource: Resource
    document: Document

    @property
    def name(self) -> str:
        return reading.text(self.document, "metadata", "name")

    @property
    def shown(self) -> str:
        return f"{self.resource.kind} {self.name}"


@click.command()
@click.argument("what", metavar="[KIND] NAME", nargs=-1, required=True, shell_complete=completing.jobs)
@namespace_option
@output_option("json", "yaml")
@click.pass_obj
def command(session: Session, what: tuple[str, ...], namespace: str | None, output: str | None) -> None:
    """Tell why a job, pod or workload waits.

    First whether it waits for quota: how many are ahead, what is missing where, who holds it, and
    what was tried. What has quota, or needs none, may wait for a node: then the scheduler's reason.

    \b
    Examples:
      muster why train
      muster why job train -n research
    """
    if len(what) > 2:
        raise click.UsageError("one thing at a time: a name, or a kind and a name")
    client = connect(session, namespace)
    subject = find(client, "/".join(what))
    workload, waiting = workload_of(client, subject)
    explanation = client.explain(workload) if workload else {}
    has_quota = not explanation or _has_quota(explanation)
    pods = reasons(client, subject) if has_quota else []
    parts = client.explain(waiting[0]) if waiting and has_quota else {}
    if output:
        document = {**explanation, "pods": [{"pod": pod, "reason": reason} for pod, reason in pods]}
        if parts:
            document["parts"] = {"waiting": len(waiting), **parts}
        click.echo(raw.to_yaml(document) if output == "yaml" else json.dumps(document, indent=2), nl=output == "json")
    else:
        click.echo("\n".join(tell(subject, workload, explanation, pods)))
        if parts:
            more = "1 more pod waits" if len(waiting) == 1 else f"{len(waiting)} more pods wait"
            click.echo("\n".join(["", f"It runs with fewer pods than it wants: {more} for quota.", *_why(parts)]))


# What is meant


def find(client: Client, what: str) -> Subject:
    """Raises NotFound."""
    catalog = client.catalog()
    if "/" in what:
        [target] = targets.named([what], catalog)
        return Subject(target.resource, client.get(target.resource, target.name))
    for word in _KINDS:
        try:
            resource = catalog.find(word)
            return Subject(resource, client.get(resource, what))
        except errors.NotFound:
            continue
    raise errors.NotFound(
        f"nothing named {what!r} in namespace {client.namespace}: no workload, job or pod; name the kind where it is "
        "something else, for example mpijob/train"
    )


def workload_of(client: Client, subject: Subject) -> tuple[str, list[str]]:
    """The Workload that stands for it, empty where there is none; and those of further pods that wait."""
    if subject.resource.kind == WORKLOADS.kind:
        return subject.name, []
    named = reading.text(subject.document, "metadata", "annotations", _WORKLOAD_ANNOTATION)
    named = named or reading.text(subject.document, "metadata", "labels", _GROUP_LABEL)
    uid = reading.text(subject.document, "metadata", "uid")
    if not named:
        found = client.list(WORKLOADS, Selection(client.namespace, labels=f"{_JOB_LABEL}={uid}"))
        found = found or [
            entry for entry in client.list(WORKLOADS, Selection(client.namespace)) if _is_owned(entry, uid)
        ]
        named = reading.text(finding.newest(found), "metadata", "name")
        parts = [entry for entry in found if finding.is_part(entry) and not finding.has_quota(entry)]
        return named or _owners_workload(client, subject), [reading.text(part, "metadata", "name") for part in parts]
    return named, []


def _is_owned(workload: Document, uid: str) -> bool:
    owners = reading.objects(workload, "metadata", "ownerReferences")
    return any(reading.text(owner, "uid") == uid for owner in owners)


def _owners_workload(client: Client, subject: Subject) -> str:
    """Of the job that a pod belongs to."""
    for owner in reading.objects(subject.document, "metadata", "ownerReferences"):
        if owner.get("controller") is True:
            uid = reading.text(owner, "uid")
            for found in client.list(WORKLOADS, Selection(client.namespace, labels=f"{_JOB_LABEL}={uid}")):
                return reading.text(found, "metadata", "name")
    return ""


# Why it waits


def _has_quota(explanation: Document) -> bool:
    return reading.text(explanation, "state") in ("Admitted", "QuotaReserved")


def reasons(client: Client, subject: Subject) -> list[tuple[str, str]]:
    """Of its pods that wait for a node, and why."""
    if subject.resource.kind == PODS.kind:
        members: Sequence[Document] = [subject.document]
    else:
        uid = reading.text(subject.document, "metadata", "uid")
        owners = {uid, *(reading.text(entry, "uid") for entry in _owners(subject))}
        members = [
            pod
            for pod in client.list(PODS, Selection(client.namespace))
            if jobs.group_of(pod) == subject.name or any(_is_owned(pod, owner) for owner in owners)
        ]
    observed = [gangs.observe_pod(pod) for pod in members]
    return [(member.pod, member.reason) for member in observed if member.phase is gangs.Phase.PENDING and member.reason]


def _owners(subject: Subject) -> list[Document]:
    """Whose pods a workload's pods are."""
    is_workload = subject.resource.kind == WORKLOADS.kind
    return reading.objects(subject.document, "metadata", "ownerReferences") if is_workload else []


# In words


def tell(subject: Subject, workload: str, explanation: Document, pods: Sequence[tuple[str, str]]) -> Iterator[str]:
    if not workload:
        yield (
            f"{subject.shown} waits for no quota."
            if pods
            else f"{subject.shown} waits neither for quota nor for a node."
        )
    else:
        yield from quota_lines(subject, workload, explanation)
    if pods:
        yield ""
        yield from _pod_lines(pods)


def quota_lines(subject: Subject, workload: str, explanation: Document) -> Iterator[str]:
    queue = reading.text(explanation, "clusterQueue")
    facts = [f"Workload {workload}"] if subject.resource.kind != WORKLOADS.kind else []
    facts += [f"ClusterQueue {queue}"] if queue else []
    state = reading.text(explanation, "state") or "Waiting"
    yield f"{subject.shown}: {state}" + (f" ({', '.join(facts)})" if facts else "")
    yield from _why(explanation)


def _why(explanation: Document) -> Iterator[str]:
    yield from _position(explanation)
    problem, summary = reading.text(explanation, "problem"), reading.text(explanation, "summary")
    missing, unplaced = reading.objects(explanation, "missing"), explanation.get("unplaced") or []
    if problem or not (missing or unplaced):
        yield f"  {problem or summary}"
    yield from (f"  {reason}" for reason in unplaced)
    for lack in missing:
        yield ""
        yield from _lack(lack)
    tried = [entry for entry in reading.objects(explanation, "tried") if entry.get("reasons")]
    if tried:
        yield ""
        yield "Tried:"
        rows = [
            [reading.text(entry, "flavor"), reading.text(entry, "mode"), _joined(entry, "reasons")] for entry in tried
        ]
        yield from _table(["Flavor", "Result", "Because"], rows)


def _position(explanation: Document) -> Iterator[str]:
    at, locally = explanation.get("position"), explanation.get("positionInLocalQueue")
    if isinstance(at, int):
        ahead = f"{at} ahead" if at else "first"
        beside = f", {locally} of them from its own LocalQueue" if isinstance(locally, int) and at else ""
        yield f"  {ahead} in its ClusterQueue{beside}"


def _lack(lack: Document) -> Iterator[str]:
    what = f"{reading.text(lack, 'resource')} of flavor {reading.text(lack, 'flavor')}"
    asked, free = reading.text(lack, "asked"), reading.text(lack, "free")
    level = reading.text(lack, "level")
    if lack.get("isPermanent"):
        yield f"It can never start on {what}: it asks for {asked}, and {level} could give {free} at most."
        return
    yield f"Missing: {reading.text(lack, 'missing')} {what}. It asks for {asked}, {level} has {free} left."
    rows = [
        [
            reading.text(holder, "clusterQueue"),
            reading.text(holder, "used"),
            reading.text(holder, "borrowed"),
            _joined(holder, "workloads") or "-",
        ]
        for holder in reading.objects(lack, "holders")
    ]
    if rows:
        yield from _table(["Held by", "Used", "Borrowed", "Workloads that borrow"], rows)


def _pod_lines(pods: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Pods with one and the same reason stand together."""
    together: dict[str, list[str]] = {}
    for pod, reason in pods:
        together.setdefault(reason, []).append(pod)
    for reason, names in together.items():
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        yield f"Waiting for a node: {', '.join(names[:3])}{more}"
        yield f"  {reason}"


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return object_lines.indent(object_lines.table(columns, rows))


def _joined(entry: Document, field: str) -> str:
    listed = entry.get(field)
    return ", ".join(map(str, listed)) if isinstance(listed, list) else ""
