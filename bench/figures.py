"""One measured number beside what was asked of it, and how figures are shown."""

import sys
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True, slots=True)
class Figure:
    """`target` is a floor, or with `at_most` a ceiling; None where nothing was asked."""

    name: str
    value: float
    unit: str
    target: float | None = None
    at_most: bool = False
    note: str = ""

    @property
    def is_met(self) -> bool | None:
        if self.target is None:
            return None
        return self.value <= self.target if self.at_most else self.value >= self.target

    def as_json(self) -> dict[str, object]:
        return {
            "value": self.value,
            "unit": self.unit,
            "target": self.target,
            "at_most": self.at_most,
            "met": self.is_met,
        }


class Progress:
    """Says on stderr what is being measured: some figures take a while."""

    def __init__(self, suite: str) -> None:
        self._suite = suite

    def __call__(self, what: str) -> None:
        print(f"  {self._suite}: {what} ...", file=sys.stderr, flush=True)


def show(suite: str, figures: list[Figure]) -> None:
    table = Table(title=f"bench {suite}", title_justify="left")
    table.add_column("figure")
    table.add_column("measured", justify="right")
    table.add_column("asked", justify="right")
    table.add_column("")
    table.add_column("note", overflow="fold")
    for figure in figures:
        asked = (
            "" if figure.target is None else f"{'≤' if figure.at_most else '≥'} {_number(figure.target)} {figure.unit}"
        )
        mark = {None: "", True: "[green]met[/]", False: "[red]missed[/]"}[figure.is_met]
        table.add_row(figure.name, f"{_number(figure.value)} {figure.unit}", asked, mark, figure.note)
    Console().print(table)


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
