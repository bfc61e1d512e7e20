"""Tables: coloured and cut to fit on a terminal, plain aligned text in a pipe.

rich is imported only where a terminal is: it costs more than most commands take.
"""

import importlib
import os
import shutil
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TextIO

_STYLES = {
    "green": {"Running", "Ready", "True", "Active", "Bound", "Inqueue", "Admitted", "Open", "ok"},
    "cyan": {"Succeeded", "Completed", "Scheduled"},
    "yellow": {
        *("Pending", "Unknown", "Waiting", "ContainerCreating", "Terminating", "Stopping"),
        *("Suspended", "Suspending", "Restarting", "Closing", "Closed"),
        *("Paused", "Queued", "Pulling", "Starting", "Canceled", "Deleting", "warn"),
    },
    "red": {"Failed", "NotReady", "Error", "False", "OOMKilled", "DeadlineExceeded", "NodeLost", "Stopped", "fail"},
}
_LEAST_TO_FOLD = 16
_LONG_NAME, _LONG_CELL = 24, 16  # most names and all states are shorter
_STYLE_OF = {word: style for style, words in _STYLES.items() for word in words}


@dataclass(frozen=True, slots=True)
class Table:
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    cut: bool = False
    """Whether the last column ends with its line on a terminal. Prose, which goes on below itself, is not cut."""


def is_terminal(stream: TextIO = sys.stdout) -> bool:
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def print_table(table: Table) -> None:
    if is_terminal(sys.stdout):
        importlib.import_module("muster.cli.rich_tables").print_table(table)
    else:
        print(plain(table), end="")


def plain(table: Table, widths: Sequence[int] | None = None, *, with_header: bool = True) -> str:
    """Columns three spaces apart, headers in capitals: what scripts that read kubectl expect."""
    header = [column.upper() for column in table.columns]
    lines = [*([header] if with_header else []), *table.rows]
    widths = widths or column_widths(table)
    return "".join("   ".join(map(str.ljust, line, widths)).rstrip() + "\n" for line in lines)


def folded(table: Table, width: int | None = None) -> list[str]:
    """As `plain`, with the last column going on below itself where lines would be longer than `width`."""
    widths = column_widths(table)
    start = sum(widths[:-1]) + 3 * (len(widths) - 1)
    lines = []
    for line in plain(table).splitlines():
        if width is None or len(line) <= width:
            lines.append(line)
        elif width - start >= _LEAST_TO_FOLD:
            first, *rest = textwrap.wrap(line[start:], width - start)
            lines += [line[:start] + first, *(" " * start + more for more in rest)]
        else:  # no room beside the others: below them
            lines += [line[:start].rstrip(), *(f"    {more}" for more in textwrap.wrap(line[start:], width - 4))]
    return lines


def width() -> int | None:
    """Of the terminal; None where there is none, and lines may be as long as they are."""
    return shutil.get_terminal_size().columns if is_terminal(sys.stdout) else None


def column_widths(table: Table) -> list[int]:
    return [max(map(len, column)) for column in zip(table.columns, *table.rows, strict=True)]


def fitted(natural: Sequence[int], available: int, floor: int = 6, *, last_to: int | None = None) -> list[int]:
    """Widths that fit: columns of long cells give way first, then long names, in the first one; then the others down to
    `floor`, and the names last. Where `last_to` is given, the last column shrinks to that before any other gives
    way."""
    widths = list(natural)
    if last_to is not None:
        widths[-1] = max(min(widths[-1], last_to), min(widths[-1], available - sum(widths[:-1])))
    while sum(widths) > available:
        next_one = max(range(len(widths)), key=lambda index: (_readiness(index, widths[index], floor), widths[index]))
        if widths[next_one] <= 1:
            break
        widths[next_one] -= 1
    return widths


def _readiness(column: int, width: int, floor: int) -> int:
    """To give way: the highest first."""
    if column == 0:
        return 2 if width > _LONG_NAME else 0
    return 3 if width > _LONG_CELL else 1 if width > floor else 0


def style_of(cell: str) -> str:
    """The colour that a state has everywhere; "" for everything else."""
    return _STYLE_OF.get(cell.partition(",")[0].rpartition(":")[2], "")


def bar(used: float, total: float, width: int = 10) -> str:
    """`█████░░░░░`. Anything in use shows at least one mark, and only full shows as full."""
    if total <= 0:
        return ""
    marks = round(min(max(used / total, 0.0), 1.0) * width)
    if used > 0:
        marks = max(marks, 1)
    if used < total:
        marks = min(marks, width - 1)
    return "█" * marks + "░" * (width - marks)
