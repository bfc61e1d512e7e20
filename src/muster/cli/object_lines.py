"""Lines that every description of an object has: its conditions and its events."""

from collections.abc import Sequence

from muster.api import raw
from muster.api.raw import Document
from muster.cli import durations, rendering
from muster.cli.rendering import Table
from muster.sdk import details, reading


def conditions(listed: Sequence[Document], now: float) -> list[str]:
    rows = [
        [
            reading.text(entry, "type"),
            reading.text(entry, "status"),
            durations.age(reading.text(entry, "lastTransitionTime"), now),
            reading.text(entry, "reason") or "-",
            reading.text(entry, "message") or "-",
        ]
        for entry in listed
    ]
    return table(["Type", "Status", "Since", "Reason", "Message"], rows)


def events(listed: Sequence[Document], now: float) -> list[str]:
    rows = []
    for event in listed:
        count = raw.dig(event, "count") or raw.dig(event, "series", "count") or 1
        times = f" (x{count})" if count != 1 else ""
        source = raw.dig(event, "source", "component") or raw.dig(event, "reportingComponent") or "-"
        rows.append(
            [
                durations.age(details.when(event), now) + times,
                reading.text(event, "type") or "Normal",
                reading.text(event, "reason") or "-",
                str(source),
                reading.text(event, "message").strip(),
            ]
        )
    return table(["Age", "Type", "Reason", "From", "Message"], rows) if rows else []


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Fits the terminal when it is indented."""
    width = rendering.width()
    return rendering.folded(Table(columns, rows), None if width is None else width - 2)


def indent(lines: Sequence[str]) -> list[str]:
    return [f"  {line}".rstrip() for line in lines]
