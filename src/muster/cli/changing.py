"""What `suspend` and `resume` share: do it to each job named, and wait until it has come to pass."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import click

from muster.api import errors
from muster.api.raw import Document
from muster.cli import choosing, completing
from muster.cli.connecting import connect
from muster.cli.session import Session
from muster.sdk import finding
from muster.sdk.client import Client
from muster.sdk.dialects import Job
from muster.sdk.summaries import State, Surroundings, observe

_PATIENCE_SECONDS = 60.0

names_argument = click.argument(
    "names", metavar="[KIND/]NAME...", nargs=-1, required=True, shell_complete=completing.jobs
)
wait_option = click.option("--wait/--no-wait", default=True, help="Wait until it has come to pass (the default).")


@dataclass(frozen=True, slots=True)
class Change:
    word: str
    """What has happened to the job then."""
    make: Callable[[Client, Job], None]
    until: Collection[State]
    wait: bool


def each(session: Session, names: Sequence[str], namespace: str | None, change: Change) -> None:
    client = connect(session, namespace)
    found = [choosing.job(client, name) for name in names]  # a name that is not there stops it before it begins
    for job in found:
        change.make(client, job)
        if change.wait:
            until(client, job, change.until)
        click.echo(f"{job.shown} {change.word}")


def until(client: Client, job: Job, states: Collection[State]) -> None:
    """Raises Timeout that says how far it has come; NotFound where it is deleted meanwhile."""
    last = State.PENDING

    def is_there(document: Document | None) -> bool:
        nonlocal last
        if document is None:
            raise errors.NotFound(f"{job.shown} was deleted meanwhile")
        fresh = Job(job.dialect, document)
        last = observe(fresh, Surroundings(workload=finding.workload_of(client, fresh))).state
        return last in states

    try:
        client.wait(job.dialect.resource, job.name, is_there, job.namespace, timeout=_PATIENCE_SECONDS)
    except errors.Timeout as error:
        raise errors.Timeout(
            f"{job.shown} has been told, but is still {last} after {_PATIENCE_SECONDS:g} s; "
            f"`muster describe {job.shown}` shows what it waits for"
        ) from error
