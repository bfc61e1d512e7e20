"""Log lines of many ranks on one screen: whole lines, each with its rank before it, in the rank's colour."""

import os
from collections.abc import Callable
from typing import TextIO

from muster.cli import rendering

_COLOURS = (36, 33, 32, 35, 34, 31, 96, 93, 92, 95, 94, 91)


class Writer:
    def __init__(self, stream: TextIO, *, with_rank: bool, label: Callable[[int], str] = str) -> None:
        self._stream = stream
        self._label = label
        self._with_rank = with_rank
        self._with_colour = rendering.is_terminal(stream) and not os.environ.get("NO_COLOR")

    def write(self, rank: int, line: str) -> None:
        self._stream.write(self.prefix(rank) + visible(line) + "\n")
        self._stream.flush()

    def prefix(self, rank: int) -> str:
        if not self._with_rank:
            return ""
        label = f"[{self._label(rank)}]"
        return f"\x1b[{_COLOURS[rank % len(_COLOURS)]}m{label}\x1b[0m " if self._with_colour else f"{label} "


def visible(line: str) -> str:
    """What a terminal would show of a line that a progress bar has overwritten many times."""
    return line.rstrip("\r").rpartition("\r")[2]
