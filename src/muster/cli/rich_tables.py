"""Tables on a terminal. The one place that knows how they look."""

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from muster.cli.rendering import Table, style_of


def print_table(table: Table) -> None:
    console = Console(highlight=False)
    shown = RichTable(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    last = len(table.columns) - 1
    for index, column in enumerate(table.columns):
        # The last column holds prose and takes what is left; the first is the name, which must stay whole to be copied.
        if index == last:
            shown.add_column(column.upper(), overflow="fold", no_wrap=False)
        else:
            shown.add_column(column.upper(), overflow="ellipsis", no_wrap=True)
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
