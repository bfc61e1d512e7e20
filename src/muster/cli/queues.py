"""`muster queues`."""

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import click

from muster.api import quantity, raw
from muster.api.raw import Document
from muster.cli import rendering
from muster.cli.connecting import connect, output_option
from muster.cli.rendering import Table
from muster.cli.session import Session
from muster.sdk import reading, resources
from muster.sdk.queues import STANDS_FOR_LABEL

_WATCH_SECONDS = 2.0
_GAP = 3
_NARROWEST, _WIDEST = 5, 20
_COLUMNS = ("Queue", "Cohort", "State", "Pending", "Admitted", "Flavor", "Resource", "Used")


@dataclass(frozen=True, slots=True)
class Line:
    """Of one resource in one flavor. Amounts as Kubernetes writes them."""

    flavor: str
    resource: str
    used: str
    quota: str
    borrowed: str = "0"

    def shown(self, width: int) -> str:
        bar = rendering.bar(_amount(self.used), _amount(self.quota), width)
        text = f"{self.used}/{self.quota}"
        if _amount(self.borrowed):
            text += f", {self.borrowed} borrowed"
        return f"{bar} {text}" if bar else text


@dataclass(frozen=True, slots=True)
class Queue:
    name: str
    cohort: str
    state: str
    """`Active`, or the reason why it is not."""
    volcano: str
    """The Volcano queue that it stands for, if any."""
    pending: int
    admitted: int
    reserving: int
    lines: tuple[Line, ...]


@click.command()
@click.argument("names", metavar="[NAME]...", nargs=-1)
@click.option("-w", "--watch", is_flag=True, help="Show them again every two seconds, until Ctrl-C.")
@output_option("json", "yaml", "name")
@click.pass_obj
def command(session: Session, names: Sequence[str], watch: bool, output: str | None) -> None:
    """Show queues: who waits, and how much of their quota is used.

    Used is what workloads hold that quota was reserved for, whether they run yet or not. What goes
    beyond a queue's own quota is borrowed from its cohort. A Volcano queue with limits is here as
    volcano-NAME.

    \b
    Examples:
      muster queues
      muster queues research --watch
    """
    client = connect(session)
    while True:
        found = [read(document) for document in client.list(resources.CLUSTER_QUEUES)]
        chosen = [queue for queue in found if (queue.name in names if names else _is_worth_a_line(queue))]
        for name in names:
            if name not in {queue.name for queue in found}:
                client.get(resources.CLUSTER_QUEUES, name)  # says that there is none
        if watch and rendering.is_terminal():
            click.clear()
        _print(chosen, output)
        if not watch:
            return
        time.sleep(_WATCH_SECONDS)


def _is_worth_a_line(queue: Queue) -> bool:
    """What stands for a Volcano queue without limits says nothing here; `muster queue ls` has the queue itself."""
    return bool(queue.lines or queue.pending or not queue.volcano)


def _print(queues: Sequence[Queue], output: str | None) -> None:
    if output == "name":
        for queue in queues:
            click.echo(queue.name)
    elif output:
        listed = [_plain(queue) for queue in queues]
        click.echo(raw.to_yaml(listed) if output == "yaml" else json.dumps(listed, indent=2), nl=output == "json")
    else:
        rendering.print_table(tabulate(queues, rendering.width()))


def read(document: Document) -> Queue:
    status = reading.section(document, "status")
    return Queue(
        name=reading.text(document, "metadata", "name"),
        cohort=reading.text(document, "spec", "cohortName"),
        state=_state(status),
        volcano=reading.text(document, "metadata", "labels", STANDS_FOR_LABEL),
        pending=_count(status, "pendingWorkloads"),
        admitted=_count(status, "admittedWorkloads"),
        reserving=_count(status, "reservingWorkloads"),
        lines=tuple(_lines(document)),
    )


def _lines(document: Document) -> Iterator[Line]:
    """In the order in which the queue lists them."""
    held = {
        (reading.text(flavor, "name"), reading.text(entry, "name")): entry
        for flavor in reading.objects(document, "status", "flavorsReservation")
        for entry in reading.objects(flavor, "resources")
    }
    for group in reading.objects(document, "spec", "resourceGroups"):
        for flavor in reading.objects(group, "flavors"):
            for quota in reading.objects(flavor, "resources"):
                name, resource = reading.text(flavor, "name"), reading.text(quota, "name")
                taken = held.get((name, resource), {})
                yield Line(
                    name,
                    resource,
                    reading.text(taken, "total") or "0",
                    reading.text(quota, "nominalQuota") or "0",
                    reading.text(taken, "borrowed") or "0",
                )


def _state(status: Document) -> str:
    for condition in reading.objects(status, "conditions"):
        if raw.dig(condition, "type") == "Active":
            is_active = raw.dig(condition, "status") == "True"
            return "Active" if is_active else reading.text(condition, "reason") or "Inactive"
    return "Unknown"


def _count(status: Document, field: str) -> int:
    found = status.get(field)
    return found if isinstance(found, int) else 0


def _amount(text: str) -> float:
    try:
        return quantity.parse(text).nano / quantity.NANO
    except quantity.BadQuantity:
        return 0.0


def tabulate(queues: Sequence[Queue], width: int | None) -> Table:
    """Bars are as long as a terminal of so many columns allows, and cohorts are left out where they tell nothing."""
    if width is None:
        return Table(_COLUMNS, list(_rows(queues, _NARROWEST)))
    lengths = rendering.column_widths(Table(_COLUMNS, list(_rows(queues, 0))))
    room = width - sum(lengths) - _GAP * (len(_COLUMNS) - 1) - 1
    rows = list(_rows(queues, min(max(room, _NARROWEST), _WIDEST)))
    if room >= _NARROWEST or any(queue.cohort for queue in queues):
        return Table(_COLUMNS, rows)
    at = _COLUMNS.index("Cohort")
    return Table(_without(_COLUMNS, at), [_without(row, at) for row in rows])


def _without(cells: Sequence[str], at: int) -> list[str]:
    return [*cells[:at], *cells[at + 1 :]]


def _rows(queues: Iterable[Queue], bar_width: int) -> Iterator[list[str]]:
    for queue in queues:
        head = [queue.name, queue.cohort or "-", queue.state, str(queue.pending), str(queue.admitted)]
        if not queue.lines:
            yield [*head, "-", "-", "no quota is set"]
        for line in queue.lines:
            yield [*head, line.flavor, line.resource, line.shown(bar_width)]
            head = [""] * len(head)


def _plain(queue: Queue) -> Mapping[str, raw.JSON]:
    return {
        "name": queue.name,
        "cohort": queue.cohort,
        "state": queue.state,
        "pending": queue.pending,
        "reserving": queue.reserving,
        "admitted": queue.admitted,
        "quota": [
            {
                "flavor": line.flavor,
                "resource": line.resource,
                "used": line.used,
                "nominal": line.quota,
                "borrowed": line.borrowed,
            }
            for line in queue.lines
        ],
    }
