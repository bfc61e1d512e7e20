"""Tables on a terminal. The one place that knows how they look."""

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from muster.cli.rendering import Table, column_widths, fitted, style_of

_GAP = 2
_LEAST_OF_A_SENTENCE = 16


def print_table(table: Table) -> None:
    console = Console(highlight=False)
    shown = RichTable(box=None, pad_edge=False, header_style="bold", padding=(0, _GAP, 0, 0))
    last = len(table.columns) - 1
    least = _LEAST_OF_A_SENTENCE if table.cut else None
    widths = fitted(column_widths(table), console.width - _GAP * last, last_to=least)
    for index, (column, width) in enumerate(zip(table.columns, widths, strict=True)):
        # The last column may hold prose and goes on below itself; the others are cut.
        is_prose = index == last and not table.cut
        shown.add_column(column.upper(), width=width, no_wrap=not is_prose, overflow="fold" if is_prose else "ellipsis")
    for row in table.rows:
        shown.add_row(*(Text(cell, style=style_of(cell)) for cell in row))
    console.print(shown)


def print_banner(title: str, facts: Mapping[str, str], hints: Sequence[str]) -> None:
    console = Console(highlight=False)
    console.print(Text(title, style="bold green"))
    for name, value in facts.items():
        console.print(Text.assemble(f"  {name:9}", (value, "cyan" if name == "address" else "")), soft_wrap=True)
    console.print(Text("  try next", style="bold"))
    for hint in hints:
        console.print(Text(f"    {hint}"), soft_wrap=True)
    console.print(Text("  Ctrl-C stops it; jobs go on.", style="dim"))
