"""The live status line of `muster run`. Imports rich, so it is imported only on a terminal."""

import sys
import time

from rich.console import Console
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from muster.cli import prefixes, rendering
from muster.cli.run_view import View, situation, summary
from muster.sdk.gangs import Status


class LiveView:
    def __init__(self, name: str, replicas: int, began: float) -> None:
        self._name = name
        self._began = began
        self._status: Status | None = None
        self._console = Console(stderr=True, highlight=False)
        self._spinner = Spinner("dots")
        self._writer = prefixes.Writer(sys.stdout, with_rank=replicas > 1)
        self._live = self._new_live()
        self._live.start()

    def _new_live(self) -> Live:
        # transient: the line goes when the job ends, and the summary takes its place.
        return Live(
            get_renderable=self._render,
            console=self._console,
            transient=True,
            refresh_per_second=8,
            redirect_stdout=False,
            redirect_stderr=False,
        )

    def _render(self) -> Text:
        state, rest = situation(self._status, time.monotonic() - self._began)
        frame = self._spinner.render(self._console.get_time())
        assert isinstance(frame, Text)  # a spinner without text of its own
        style = rendering.style_of(state)
        line = Text.assemble(frame, " ", (self._name, "bold"), "  ", (state, style), "  ", rest)
        # Room for the ^C that a terminal echoes: where it wraps, the line can no longer be taken back.
        line.truncate(max(self._console.width - 4, 10), overflow="ellipsis")
        return line

    def line(self, rank: int, text: str) -> None:
        if not rendering.is_terminal(sys.stdout):
            self._writer.write(rank, text)
            return
        # Through the console that owns the status line, so that the line stays below the logs.
        shown = Text.from_ansi(self._writer.prefix(rank) + prefixes.visible(text))
        self._console.print(shown, soft_wrap=True)

    def moved(self, status: Status) -> None:
        self._status = status

    def say(self, text: str) -> None:
        self._console.print(Text(f"{self._name}: {text}", style="yellow"), soft_wrap=True)

    def ended(self, status: Status, code: int) -> None:
        self._live.stop()
        seconds = time.monotonic() - self._began
        self._console.print(Text(summary(status, code, seconds), style="red" if code else "green"), soft_wrap=True)

    def pause(self) -> None:
        self._live.stop()

    def resume(self) -> None:
        self._live = self._new_live()
        self._live.start()

    def close(self) -> None:
        self._live.stop()


_: type[View] = LiveView
