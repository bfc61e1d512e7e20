"""`muster queue`: Volcano's queues and Kueue's ClusterQueues, one by one. `muster queues` shows their quota."""

import json
import time
from collections.abc import Mapping, Sequence

import click

from muster.api import errors, raw
from muster.cli import choosing, completing, durations, object_lines, rendering
from muster.cli.connecting import connect, output_option
from muster.cli.groups import Group
from muster.cli.rendering import Table
from muster.cli.session import Session
from muster.sdk import queues, reading
from muster.sdk.client import Client
from muster.sdk.queues import CLUSTER, NewQueue, Queue

_PATIENCE_SECONDS = 30.0
_AMOUNTS = ("capability", "deserved", "guarantee")
_SHUT = ("Closed", "Closing")

_names_argument = click.argument(
    "names", metavar="[KIND/]NAME...", nargs=-1, required=True, shell_complete=completing.queue_names
)


@click.group(cls=Group)
def command() -> None:
    """Make, open, close and delete queues.

    Both kinds: volcano (Queue) and cluster (Kueue's ClusterQueue). Where both have the name, write
    volcano/NAME or cluster/NAME.

    \b
    Examples:
      muster queue ls
      muster queue create research --weight 2 --capability cpu=64,nvidia.com/gpu=8
      muster queue close research
    """


@command.command("ls")
@output_option("json", "yaml", "name")
@click.pass_obj
def ls(session: Session, output: str | None) -> None:
    """List queues of both kinds.

    \b
    Examples:
      muster queue ls
    """
    found = queues.listed(connect(session))
    if output == "name":
        for queue in found:
            click.echo(queue.shown)
    elif output:
        _dump([plain(queue) for queue in found], output)
    elif found:
        rendering.print_table(tabulate(found, time.time()))
    else:
        click.echo("No queues. Make one: muster queue create research --weight 2", err=True)


@command.command("get")
@_names_argument
@output_option("json", "yaml", "name")
@click.pass_obj
def get(session: Session, names: Sequence[str], output: str | None) -> None:
    """Show queues: state, shares, and which jobs are in them.

    \b
    Examples:
      muster queue get research
      muster queue get cluster/research -o yaml
    """
    client = connect(session)
    found = [choosing.queue(client, name) for name in names]
    if output == "name":
        for queue in found:
            click.echo(queue.shown)
    elif output:
        documents = [queue.document for queue in found]
        _dump(documents[0] if len(documents) == 1 else documents, output)
    else:
        click.echo("\n\n".join("\n".join(_told(client, queue)) for queue in found))


@command.command("create")
@click.argument("name")
@click.option("--weight", type=int, metavar="N", help="Its share beside its siblings; 1 if not given.")
@click.option("--capability", default="", metavar="AMOUNTS", help="What it may use at most, such as cpu=8,memory=32Gi.")
@click.option(
    "--deserved", default="", metavar="AMOUNTS", help="What is its own; what it uses beyond can be reclaimed."
)
@click.option("--guarantee", default="", metavar="AMOUNTS", help="What is kept for it even while it does not use it.")
@click.option("--parent", default="", metavar="QUEUE", help="The queue that it hangs below; `root` if not given.")
@click.option("--priority", type=int, metavar="N", help="Queues of higher priority come first.")
@click.option(
    "--reclaimable/--not-reclaimable", default=None, help="Whether others may take back what it has borrowed."
)
@output_option("json", "yaml", "name")
@click.pass_obj
def create(session: Session, /, **options: raw.JSON) -> None:
    """Make a Volcano queue.

    A ClusterQueue has more to say than options can: write it as YAML, and `muster apply -f` it.

    \b
    Examples:
      muster queue create research --weight 2
      muster queue create vision --parent research --deserved nvidia.com/gpu=4 --capability nvidia.com/gpu=8
    """
    output = options.pop("output")
    amounts = {name: parse_amounts(name, options[name]) for name in _AMOUNTS}
    made = queues.create(connect(session), NewQueue(**{**options, **amounts}))
    if output in ("json", "yaml"):
        _dump(made.document, output)
    else:
        click.echo(made.shown if output == "name" else f"{made.shown} created")


@command.command("delete")
@_names_argument
@click.pass_obj
def delete(session: Session, names: Sequence[str]) -> None:
    """Delete queues.

    \b
    Examples:
      muster queue delete research
    """
    client = connect(session)
    for queue in [choosing.queue(client, name) for name in names]:
        queues.delete(client, queue)
        click.echo(f"{queue.shown} deleted")


@command.command("open")
@_names_argument
@click.option("--wait/--no-wait", default=True, help="Wait until it has come to pass (the default).")
@click.pass_obj
def open_again(session: Session, names: Sequence[str], wait: bool) -> None:
    """Let jobs into queues again.

    \b
    Examples:
      muster queue open research
    """
    client = connect(session)
    for queue in [choosing.queue(client, name) for name in names]:
        queues.open_again(client, queue)
        state = _wait(client, queue, is_open=True) if wait else ""
        click.echo(f"{queue.shown} {state.lower() or 'told to open'}")


@command.command("close")
@_names_argument
@click.option("--drain", is_flag=True, help="Of a ClusterQueue: also end what runs.")
@click.option("--wait/--no-wait", default=True, help="Wait until no more jobs get in (the default).")
@click.pass_obj
def close(session: Session, names: Sequence[str], drain: bool, wait: bool) -> None:
    """Let no more jobs into queues.

    What runs goes on. Volcano refuses new jobs for a closed queue; those for a ClusterQueue wait until
    it is open again.

    \b
    Examples:
      muster queue close research
      muster queue close cluster/gold --drain
    """
    client = connect(session)
    for queue in [choosing.queue(client, name) for name in names]:
        queues.close(client, queue, drain=drain)
        state = _wait(client, queue, is_open=False) if wait else ""
        click.echo(f"{queue.shown} {state.lower() or 'told to close'}")


def _wait(client: Client, queue: Queue, *, is_open: bool) -> str:
    """Raises Timeout."""
    last = queue.state

    def has_come(document: raw.Document | None) -> bool:
        nonlocal last
        if document is None:
            raise errors.NotFound(f"{queue.shown} was deleted meanwhile")
        last = Queue(queue.kind, document).state
        return (last not in _SHUT) is is_open

    client.wait(queue.resource, queue.name, has_come, timeout=_PATIENCE_SECONDS)
    return last


def parse_amounts(option: str, text: str) -> dict[str, str]:
    """`cpu=8,memory=32Gi`. Raises BadRequest that names the option."""
    found = {}
    for part in filter(None, text.split(",")):
        resource, _, amount = part.partition("=")
        if not resource.strip() or not amount.strip():
            raise errors.BadRequest(f"--{option} {part!r}: write it like cpu=8,memory=32Gi,nvidia.com/gpu=4")
        found[resource.strip()] = amount.strip()
    return found


# In words


def tabulate(found: Sequence[Queue], now: float) -> Table:
    columns = ["Queue", "Kind", "State", "Parent", "Weight", "Waiting", "Running", "Age"]
    rows = [
        [
            queue.name,
            queue.kind,
            queue.state,
            queue.parent or "-",
            _weight(queue) or "-",
            str(queue.waiting),
            str(queue.holding),
            durations.age(reading.text(queue.document, "metadata", "creationTimestamp"), now),
        ]
        for queue in found
    ]
    return Table(columns, rows)


def _weight(queue: Queue) -> str:
    path = ("fairSharing", "weight") if queue.kind == CLUSTER else ("weight",)
    return reading.text(queue.document, "spec", *path)


def _told(client: Client, queue: Queue) -> list[str]:
    created = reading.text(queue.document, "metadata", "creationTimestamp")
    lines = [
        f"Name:         {queue.name}",
        f"Kind:         {queue.kind} ({queue.resource.kind} of {queue.resource.api_version})",
        f"State:        {queue.state}, {queue.waiting} waiting, {queue.holding} running",
        f"Parent:       {queue.parent or 'none'}",
        f"Created:      {created} ({durations.age(created, time.time())} ago)",
    ]
    lines += [f"Weight:       {_weight(queue)}"] if _weight(queue) else []
    rows = _shares(queue)
    if rows:
        shown = object_lines.table(["Resource", "Used", "Deserved", "At most", "Guaranteed"], rows)
        lines += ["", "Shares:", *object_lines.indent(shown)]
    jobs = queues.jobs_in(client, queue)
    if jobs:
        shown = object_lines.table(
            ["Namespace", "Job", "State", "Pods", "Why"],
            [[job.namespace, job.name, str(job.state), f"{job.ready}/{job.wanted}", job.why or "-"] for job in jobs],
        )
        lines += ["", "Jobs:", *object_lines.indent(shown)]
    return lines


def _shares(queue: Queue) -> list[list[str]]:
    """A line for each resource that a Volcano queue says something about."""
    if queue.kind == CLUSTER:
        return []
    spec, used = reading.section(queue.document, "spec"), reading.section(queue.document, "status", "allocated")
    parts = [
        reading.section(spec, "deserved"),
        reading.section(spec, "capability"),
        reading.section(spec, "guarantee", "resource"),
    ]
    named = dict.fromkeys(name for part in (used, *parts) for name in part)
    return [[name, str(used.get(name, 0)), *(str(part.get(name, "-")) for part in parts)] for name in named]


def plain(queue: Queue) -> Mapping[str, raw.JSON]:
    return {
        "name": queue.name,
        "kind": queue.kind,
        "state": queue.state,
        "parent": queue.parent,
        "waiting": queue.waiting,
        "running": queue.holding,
        "spec": reading.section(queue.document, "spec"),
    }


def _dump(value: raw.JSON, output: str) -> None:
    click.echo(raw.to_yaml(value) if output == "yaml" else json.dumps(value, indent=2), nl=output == "json")
