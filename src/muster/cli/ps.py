"""`muster ps`."""

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import click

from muster.api import raw
from muster.api.raw import Document
from muster.cli import durations, rendering
from muster.cli.connecting import connect, namespace_option, output_option
from muster.cli.rendering import Table
from muster.cli.session import Session
from muster.sdk import gangs, jobs, reading, resources
from muster.sdk.gangs import Phase, Status
from muster.sdk.resources import Selection


@dataclass(frozen=True, slots=True)
class Job:
    """A gang, or a pod that belongs to none."""

    namespace: str
    status: Status
    created: str

    @property
    def why(self) -> str:
        """Why it waits, or why it failed."""
        status = self.status
        if status.phase is Phase.PENDING:
            missing = status.size - len(status.members)
            return status.waiting or (f"waits for {missing} more pods" if missing else "")
        failed = status.first_failure()
        if failed is None:
            return ""
        where = f"rank {failed.rank}: " if status.size > 1 else ""
        return f"{where}exit code {failed.exit_code}{f', {failed.reason}' if failed.reason else ''}"


@click.command()
@namespace_option
@click.option("-A", "--all-namespaces", is_flag=True, help="Look in all namespaces.")
@click.option("-a", "--active", is_flag=True, help="Leave out what has finished.")
@output_option("json", "yaml", "name")
@click.pass_obj
def command(session: Session, namespace: str | None, all_namespaces: bool, active: bool, output: str | None) -> None:
    """List jobs: state, ranks, nodes, and why they wait.

    A job is a gang (a PodGroup and its pods) or a pod that belongs to none.

    \b
    Examples:
      muster ps
      muster ps --active
    """
    client = connect(session, namespace)
    where = Selection(None if all_namespaces else client.namespace)
    groups, pods = client.list(resources.POD_GROUPS, where), client.list(resources.PODS, where)
    found = [job for job in collect(groups, pods) if not (active and job.status.is_finished)]
    if output == "name":
        for job in found:
            click.echo(job.status.name)
    elif output:
        listed = [_plain(job) for job in found]
        click.echo(raw.to_yaml(listed) if output == "yaml" else json.dumps(listed, indent=2), nl=output == "json")
    elif found:
        rendering.print_table(tabulate(found, time.time(), with_namespace=all_namespaces))
    else:
        click.echo("No jobs. Start one: muster run -- python train.py", err=True)


def collect(groups: Iterable[Document], pods: Iterable[Document]) -> list[Job]:
    """Oldest first."""
    gathered: dict[tuple[str, str], list[Document]] = {}
    found: list[Job] = []
    for pod in pods:
        name = jobs.group_of(pod)
        if name:
            gathered.setdefault((_meta(pod, "namespace"), name), []).append(pod)
        else:
            found.append(_job(_meta(pod, "name"), [pod], None))
    for group in groups:
        name = _meta(group, "name")
        found.append(_job(name, gathered.pop((_meta(group, "namespace"), name), []), group))
    found += [_job(name, members, None) for (_, name), members in gathered.items()]  # their PodGroup is gone
    return sorted(found, key=lambda job: (job.created, job.namespace, job.status.name))


def _job(name: str, members: Sequence[Document], group: Document | None) -> Job:
    first = group or members[0]
    return Job(_meta(first, "namespace"), gangs.observe(name, members, group), _meta(first, "creationTimestamp"))


def tabulate(found: Sequence[Job], now: float, *, with_namespace: bool) -> Table:
    columns = ["Job", "State", "Ranks", "Nodes", "Age", "Why"]
    rows = []
    for job in found:
        status = job.status
        done = status.count(Phase.RUNNING) + status.count(Phase.SUCCEEDED)
        ranks, nodes = f"{done}/{status.size}", _shortened(status.nodes)
        rows.append([status.name, status.phase, ranks, nodes, durations.age(job.created, now), job.why or "-"])
    if with_namespace:
        return Table(["Namespace", *columns], [[job.namespace, *row] for job, row in zip(found, rows, strict=True)])
    return Table(columns, rows)


def _shortened(nodes: Sequence[str]) -> str:
    if not nodes:
        return "-"
    return ",".join(nodes) if len(nodes) <= 4 else f"{','.join(nodes[:3])} and {len(nodes) - 3} more"


def _meta(document: Document, key: str) -> str:
    return reading.text(document, "metadata", key)


def _plain(job: Job) -> Mapping[str, raw.JSON]:
    status = job.status
    return {
        "name": status.name,
        "namespace": job.namespace,
        "state": str(status.phase),
        "size": status.size,
        "created": job.created,
        "why": job.why,
        "ranks": [
            {
                "rank": member.rank,
                "pod": member.pod,
                "state": str(member.phase),
                "node": member.node,
                "exitCode": member.exit_code,
                "reason": member.reason,
            }
            for member in status.members
        ],
    }
