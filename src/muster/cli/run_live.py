"""The live status line of `muster run`."""

import sys
import time

from muster.cli import prefixes
from muster.cli.live_line import LiveLine
from muster.cli.run_view import View, situation, summary
from muster.sdk.gangs import Status


class LiveView:
    def __init__(self, name: str, replicas: int, began: float) -> None:
        self._began = began
        self._status: Status | None = None
        writer = prefixes.Writer(sys.stdout, with_rank=replicas > 1)
        self._line = LiveLine(name, writer, lambda: situation(self._status, time.monotonic() - began))

    def line(self, rank: int, text: str) -> None:
        self._line.line(rank, text)

    def moved(self, status: Status) -> None:
        self._status = status

    def say(self, text: str) -> None:
        self._line.say(text)

    def ended(self, status: Status, code: int) -> None:
        seconds = time.monotonic() - self._began
        self._line.end(summary(status, code, seconds), "red" if code else "green")

    def pause(self) -> None:
        self._line.pause()

    def resume(self) -> None:
        self._line.resume()

    def close(self) -> None:
        self._line.pause()


_: type[View] = LiveView
