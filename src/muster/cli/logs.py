"""`muster logs`."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import click

from muster.api import errors, raw
from muster.api.raw import Document
from muster.cli import choosing, completing, durations, prefixes
from muster.cli.connecting import connect, namespace_option
from muster.cli.merging import merged, one_by_one
from muster.cli.session import Session
from muster.sdk import finding, gangs, jobs, reading, resources
from muster.sdk.client import Client, LogOptions

_A_LONG_TIME = 30 * 86400.0  # a job may wait for days; the user can leave at any time


@dataclass(frozen=True, slots=True)
class _Options:
    name: str
    namespace: str | None
    follow: bool
    tail: int | None
    since: str | None
    timestamps: bool
    previous: bool
    container: str

    def log(self) -> LogOptions:
        seconds = None if self.since is None else max(1, round(durations.parse(self.since)))
        return LogOptions(
            container=self.container,
            follow=self.follow,
            tail=self.tail,
            since_seconds=seconds,
            timestamps=self.timestamps,
            previous=self.previous,
        )


@click.command()
@click.argument("name", metavar="[KIND/]NAME", shell_complete=completing.jobs)
@namespace_option
@click.option("-f", "--follow", is_flag=True, help="Go on until it has finished.")
@click.option("--tail", type=click.IntRange(min=0), metavar="N", help="Only the last N lines (of each pod).")
@click.option("--since", metavar="TIME", help="Only lines of the last TIME, such as 30s or 5m.")
@click.option("--timestamps", is_flag=True, help="Put the time before each line.")
@click.option("--previous", is_flag=True, help="The log of the run before the last restart.")
@click.option("-c", "--container", default="", metavar="NAME", help="Which container, where a pod has several.")
@click.pass_obj
def command(session: Session, /, **options: raw.JSON) -> None:
    """Print the logs of a pod or of a whole job.

    The lines of a job with several pods carry the rank, or the pod: `[2] epoch 1 ...`,
    `[worker-1] epoch 1 ...`. A job of any kind will do.

    \b
    Examples:
      muster logs web --tail 20
      muster logs -f train
      muster logs volcano/train --tail 5
    """
    asked = _Options(**options)
    client = connect(session, asked.namespace)
    pods = _pods(client, asked.name)
    if len(pods) == 1 and not sys.stdout.isatty():
        _copy(client, pods[0], asked.log())  # to a file or a pipe as it is, whatever it may be
        return
    labels = [_label(pod, asked.name.rpartition("/")[2]) for pod in pods]
    writer = prefixes.Writer(sys.stdout, with_rank=len(pods) > 1, label=labels.__getitem__)
    streams = [_lines(client, pod, asked.log()) for pod in pods]
    for number, line in merged(streams) if asked.follow and len(pods) > 1 else one_by_one(streams):
        writer.write(number, line)


def _copy(client: Client, pod: Document, options: LogOptions) -> None:
    member = gangs.observe_pod(pod)
    if options.follow:
        _wait_started(client, member)
    stream = client.open_log(member.pod, client.namespace, _with_container(pod, options))
    try:
        for chunk in stream.chunks():
            sys.stdout.buffer.write(chunk)
            sys.stdout.buffer.flush()
    finally:
        stream.close()


def _pods(client: Client, name: str) -> Sequence[Document]:
    kind, _, bare = name.rpartition("/")
    if kind in ("pod", "pods", "po"):
        return [client.get(resources.PODS, bare)]
    found = [] if kind else jobs.members(client, bare, client.namespace)
    if not found:
        job = choosing.job(client, name)
        found = finding.pods_of(client, job)
        if not found:
            raise errors.NotFound(f"{job.shown} has no pods, so no logs; `muster describe {job.shown}` tells how it is")
    return sorted(found, key=lambda pod: (gangs.observe_pod(pod).rank, reading.text(pod, "metadata", "name")))


def _label(pod: Document, job: str) -> str:
    """The rank, else the pod's name without the job's."""
    name = reading.text(pod, "metadata", "name")
    return reading.text(pod, "metadata", "labels", gangs.RANK_LABEL) or name.removeprefix(f"{job}-")


def _lines(client: Client, pod: Document, options: LogOptions) -> Iterator[str]:
    member = gangs.observe_pod(pod)
    if options.follow:
        _wait_started(client, member)
    yield from client.logs(member.pod, client.namespace, _with_container(pod, options))


def _with_container(pod: Document, options: LogOptions) -> LogOptions:
    """The first container where none was named, as kubectl does."""
    names = [reading.text(entry, "name") for entry in reading.objects(pod, "spec", "containers")]
    if options.container and options.container not in names:
        everything = [*names, *(reading.text(e, "name") for e in reading.objects(pod, "spec", "initContainers"))]
        if options.container not in everything:
            raise errors.BadRequest(f"there is no container {options.container!r}; it has {', '.join(everything)}")
    return options if options.container else replace(options, container=names[0] if names else "")


def _wait_started(client: Client, member: gangs.Member) -> None:
    def has_log(pod: Document | None) -> bool:
        if pod is None:
            raise errors.NotFound(f"pod {member.pod!r} was deleted before it started")
        found = gangs.observe_pod(pod)
        return found.has_log or found.is_finished

    client.wait(resources.PODS, member.pod, has_log, timeout=_A_LONG_TIME)
