"""The live status line of `muster submit --wait`."""

import time

from muster.cli import prefixes
from muster.cli.live_line import LiveLine
from muster.cli.submit_view import View, end_of, situation
from muster.sdk.summaries import State, Summary


class LiveView:
    def __init__(self, name: str, writer: prefixes.Writer, began: float) -> None:
        self._began = began
        self._summary: Summary | None = None
        self._line = LiveLine(name, writer, lambda: situation(self._summary, time.monotonic() - began))

    def line(self, number: int, text: str) -> None:
        self._line.line(number, text)

    def moved(self, summary: Summary) -> None:
        self._summary = summary

    def say(self, text: str) -> None:
        self._line.say(text)

    def ended(self, summary: Summary) -> None:
        style = "green" if summary.state is State.SUCCEEDED else "red"
        self._line.end(end_of(summary, time.monotonic() - self._began), style)

    def close(self) -> None:
        self._line.pause()


_: type[View] = LiveView
