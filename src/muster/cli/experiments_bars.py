"""Bars on a terminal. Imports rich, so it is imported only there."""

import contextlib
from collections.abc import Iterator

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    SpinnerColumn,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TransferSpeedColumn,
)

from muster.sdk.determined import Told


@contextlib.contextmanager
def transfer(label: str, total: int | None) -> Iterator[Told]:
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task(label, total=total)
        yield lambda size: shown.advance(task, size)


class LiveBar:
    """Of an experiment that is waited for. Goes when it is closed."""

    def __init__(self, label: str) -> None:
        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TaskProgressColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[said]}"),
        )
        self._progress = Progress(*columns, console=Console(stderr=True, highlight=False), transient=True)
        self._task = self._progress.add_task(label, total=1.0, said="")
        self._progress.start()

    def show(self, share: float, said: str) -> None:
        self._progress.update(self._task, completed=share, said=said)

    def close(self) -> None:
        self._progress.stop()
