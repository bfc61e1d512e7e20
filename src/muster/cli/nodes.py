"""`muster nodes`."""

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import click

from muster.api import quantity, raw
from muster.api.raw import Document
from muster.cli import durations, rendering
from muster.cli.connecting import connect, output_option
from muster.cli.rendering import Table
from muster.cli.session import Session
from muster.sdk import reading, resources
from muster.sdk.gangs import GPU, MACHINE_LABEL


@dataclass(frozen=True, slots=True)
class Usage:
    """Of one resource on one node, in the resource's own unit (cores, bytes, devices)."""

    used: float
    total: float


@dataclass(frozen=True, slots=True)
class Filled:
    name: str
    state: str
    cpu: Usage
    memory: Usage
    gpus: Usage
    pods: Usage
    machine: str
    created: str


@click.command()
@output_option("json", "yaml", "name")
@click.pass_obj
def command(session: Session, output: str | None) -> None:
    """Show nodes and how full they are.

    Used is what running and starting pods have asked for, which is what the scheduler counts.

    \b
    Example:
      muster nodes
    """
    client = connect(session)
    found = fill(client.list(resources.NODES), client.list(resources.PODS))
    if output == "name":
        for node in found:
            click.echo(node.name)
    elif output:
        listed = [_plain(node) for node in found]
        click.echo(raw.to_yaml(listed) if output == "yaml" else json.dumps(listed, indent=2), nl=output == "json")
    elif found:
        rendering.print_table(tabulate(found, time.time()))
    else:
        click.echo("No nodes. Join this machine: muster agent --server URL --token TOKEN", err=True)


def fill(nodes: Iterable[Document], pods: Iterable[Document]) -> list[Filled]:
    on_node: dict[str, list[Document]] = {}
    for pod in pods:
        if raw.dig(pod, "status", "phase") not in ("Succeeded", "Failed"):
            on_node.setdefault(reading.text(pod, "spec", "nodeName"), []).append(pod)
    found = []
    for node in nodes:
        name = reading.text(node, "metadata", "name")
        placed = on_node.get(name, [])
        found.append(
            Filled(
                name=name,
                state=_state(node),
                cpu=_usage(node, placed, "cpu"),
                memory=_usage(node, placed, "memory"),
                gpus=_usage(node, placed, GPU),
                pods=Usage(len(placed), _amount(raw.dig(node, "status", "allocatable", "pods", default="0"))),
                machine=reading.text(node, "metadata", "labels", MACHINE_LABEL),
                created=reading.text(node, "metadata", "creationTimestamp"),
            )
        )
    return sorted(found, key=lambda node: node.name)


def _usage(node: Document, pods: Iterable[Document], resource: str) -> Usage:
    total = _amount(raw.dig(node, "status", "allocatable", resource, default="0"))
    return Usage(sum(_asked(pod, resource) for pod in pods), total)


def _asked(pod: Document, resource: str) -> float:
    """What the scheduler counts: the containers together, or the largest init container where that is more."""
    main = sum(_request(entry, resource) for entry in reading.objects(pod, "spec", "containers"))
    first = max((_request(entry, resource) for entry in reading.objects(pod, "spec", "initContainers")), default=0.0)
    return max(main, first)


def _request(container: Document, resource: str) -> float:
    return _amount(raw.dig(container, "resources", "requests", resource, default="0"))


def _amount(value: raw.JSON) -> float:
    try:
        return quantity.parse(value).nano / quantity.NANO
    except (quantity.BadQuantity, TypeError):
        return 0.0


def _state(node: Document) -> str:
    ready = "Unknown"
    for condition in reading.objects(node, "status", "conditions"):
        if raw.dig(condition, "type") == "Ready":
            ready = {"True": "Ready", "False": "NotReady"}.get(reading.text(condition, "status"), "NotReady")
    return f"{ready},SchedulingDisabled" if raw.dig(node, "spec", "unschedulable") else ready


def tabulate(found: Sequence[Filled], now: float) -> Table:
    rows = [
        [
            node.name,
            node.state,
            _show(node.cpu, lambda amount: f"{amount:g}"),
            _show(node.memory, _bytes),
            _show(node.gpus, lambda amount: f"{amount:g}"),
            f"{node.pods.used:g}",
            durations.age(node.created, now),
        ]
        for node in found
    ]
    return Table(["Node", "State", "CPU", "Memory", "GPUs", "Pods", "Age"], rows)


def _show(usage: Usage, unit: Callable[[float], str]) -> str:
    if not usage.total:
        return "-"
    return f"{rendering.bar(usage.used, usage.total)} {unit(round(usage.used, 3))}/{unit(round(usage.total, 3))}"


def _bytes(amount: float) -> str:
    for suffix in ("", "Ki", "Mi", "Gi"):
        if amount < 1024:
            return f"{amount:.3g}{suffix}"
        amount /= 1024
    return f"{amount:.3g}Ti"


def _plain(node: Filled) -> Mapping[str, raw.JSON]:
    shown = {"cpu": node.cpu, "memory": node.memory, GPU: node.gpus, "pods": node.pods}
    return {
        "name": node.name,
        "state": node.state,
        "machine": node.machine,
        "used": {name: usage.used for name, usage in shown.items()},
        "allocatable": {name: usage.total for name, usage in shown.items()},
    }
