"""How far something is that takes its time: a bar on a terminal, nothing in a pipe."""

import contextlib
import importlib
import sys
from collections.abc import Iterator

from muster.cli import rendering
from muster.sdk.determined import Told


@contextlib.contextmanager
def transfer(label: str, total: int | None) -> Iterator[Told]:
    """Of bytes. `total`: None where it is not known."""
    if not rendering.is_terminal(sys.stderr):
        yield lambda _size: None
        return
    with importlib.import_module("muster.cli.experiments_bars").transfer(label, total) as told:
        yield told
