"""What the shell offers for a word that is half typed."""

import click

from muster.api import errors
from muster.cli.connecting import connect
from muster.cli.session import Session
from muster.sdk import finding, queues
from muster.sdk.client import Client


def jobs(context: click.Context, _parameter: click.Parameter, begun: str) -> list[str]:
    """Names of jobs. Nothing where no platform answers: a shell is no place for errors."""
    try:
        client = _client(context)
        return sorted({job.name for job in finding.summarise(client, client.namespace) if job.name.startswith(begun)})
    except errors.ApiError:
        return []


def queue_names(context: click.Context, _parameter: click.Parameter, begun: str) -> list[str]:
    try:
        return sorted({queue.name for queue in queues.listed(_client(context)) if queue.name.startswith(begun)})
    except errors.ApiError:
        return []


def _client(context: click.Context) -> Client:
    given = context.find_root().params
    session = Session(*(given.get(name) or "" for name in Session._fields))
    return connect(session, context.params.get("namespace"))
