"""`muster ps`."""

import json
import re
import time
from collections.abc import Mapping, Sequence

import click

from muster.api import raw
from muster.cli import cron_times, durations, rendering
from muster.cli.connecting import connect, namespace_option, output_option
from muster.cli.rendering import Table
from muster.cli.session import Session
from muster.sdk import finding
from muster.sdk.dialects import CRON
from muster.sdk.summaries import Summary

_WIDE = ("Phase", "Nodes")
_GIVES_WAY = ("Queue", "Age")
"""Columns that are left out, in this order, where a terminal is too narrow to say why as well."""
_ROOM_FOR_WHY = 24
_LACK = re.compile(r" of flavor \S+ missing at \S+( \(held by [^)]*\))?")
_GANG_PREFACE = re.compile(r"^\d+ of the \d+ pods that must start together can be placed: ")
_GAP = 2


@click.command()
@namespace_option
@click.option("-A", "--all-namespaces", is_flag=True, help="Look in all namespaces.")
@click.option("-a", "--active", is_flag=True, help="Leave out what has finished.")
@click.option("--queue", default="", metavar="NAME", help="Only jobs of this queue.")
@output_option("wide", "json", "yaml", "name")
@click.pass_obj
def command(
    session: Session, namespace: str | None, all_namespaces: bool, active: bool, queue: str, output: str | None
) -> None:
    """List jobs of every kind: state, pods, queue, and why they wait.

    Kinds are batch (Kubernetes Jobs), volcano, pytorch, cron, flow, gang (of `muster run`) and pod
    (one that belongs to nothing). Pods are those that run or are done, of those that are wanted; of
    a flow they are its jobs. `muster why NAME` tells the whole reason why a job waits.

    \b
    Examples:
      muster ps
      muster ps --active --queue research
      muster ps -o wide
    """
    client = connect(session, namespace)
    listed = finding.summarise(client, None if all_namespaces else client.namespace)
    found = [job for job in listed if not (active and job.is_over) and queue in ("", job.queue)]
    if output == "name":
        for job in found:
            click.echo(job.name)
    elif output in ("json", "yaml"):
        documents = [plain(job) for job in found]
        click.echo(raw.to_yaml(documents) if output == "yaml" else json.dumps(documents, indent=2), nl=output == "json")
    elif output == "wide":
        # As it is, however long the lines: who asks for all of it does not want it cut.
        table = tabulate(found, time.time(), wide=True, with_namespace=all_namespaces)
        click.echo(rendering.plain(table), nl=False)
    elif found:
        table = tabulate(found, time.time(), with_namespace=all_namespaces, width=rendering.width())
        rendering.print_table(table)
    else:
        click.echo("No jobs. Start one: muster run -- python train.py, or muster submit -f job.yaml", err=True)


def tabulate(
    found: Sequence[Summary],
    now: float,
    *,
    wide: bool = False,
    with_namespace: bool = False,
    width: int | None = None,
) -> Table:
    """`width`: of the terminal; columns that matter less give way. None: everything is shown."""
    columns = ["Name", "Kind", "State", "Pods", "Queue", "Age", "Why"]
    if with_namespace:
        columns.insert(0, "Namespace")
    if wide:
        columns[-1:-1] = _WIDE
    cells = [_cells(job, now, brief=width is not None) for job in found]
    for column in _GIVES_WAY if width is not None else ():
        if _needs(columns, cells) > width:  # type: ignore[operator]  # None is ruled out above
            columns.remove(column)
    return Table(columns, [[row[column] for column in columns] for row in cells], cut=width is not None)


def _needs(columns: Sequence[str], cells: Sequence[Mapping[str, str]]) -> int:
    """How wide a terminal must be for all columns and some words of the last."""
    widths = [max(len(column), *(len(row[column]) for row in cells)) for column in columns]
    return sum(widths[:-1]) + min(widths[-1], _ROOM_FOR_WHY) + _GAP * (len(columns) - 1)


def _cells(job: Summary, now: float, *, brief: bool) -> dict[str, str]:
    why = cron_times.words(job, now) if job.kind == CRON.word else job.why
    return {
        "Namespace": job.namespace,
        "Name": job.name,
        "Kind": job.kind,
        "State": str(job.state),
        "Pods": f"{job.ready}/{job.wanted}" if job.wanted or job.kind != CRON.word else "-",
        "Queue": job.queue or "-",
        "Age": durations.age(job.created, now),
        "Phase": job.phase or "-",
        "Nodes": _shortened(job.nodes),
        "Why": (in_brief(why) if brief else why) or "-",
    }


def in_brief(why: str) -> str:
    """The same with what matters first, for a column that is cut."""
    plain = _LACK.sub(" missing", _GANG_PREFACE.sub("", why))
    return plain.replace(" nodes are available: ", " nodes: ").replace(" in ClusterQueue ", " in ").removesuffix(".")


def _shortened(nodes: Sequence[str]) -> str:
    if not nodes:
        return "-"
    return ",".join(nodes) if len(nodes) <= 4 else f"{','.join(nodes[:3])} and {len(nodes) - 3} more"


def plain(job: Summary) -> Mapping[str, raw.JSON]:
    found: dict[str, raw.JSON] = {
        "name": job.name,
        "namespace": job.namespace,
        "kind": job.kind,
        "state": str(job.state),
        "phase": job.phase,
        "ready": job.ready,
        "done": job.done,
        "wanted": job.wanted,
        "queue": job.queue,
        "created": job.created,
        "why": job.why,
        "nodes": list(job.nodes),
        "exitCode": job.exit_code,
    }
    if job.schedule:
        found |= {"schedule": job.schedule, "timeZone": job.time_zone, "lastRun": job.last_run}
    return found
