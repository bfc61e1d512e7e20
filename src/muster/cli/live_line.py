"""A line that stays below whatever else is printed. Imports rich, so it is imported only on a terminal."""

import sys
from collections.abc import Callable

from rich.console import Console
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from muster.cli import prefixes, rendering


class LiveLine:
    """`situation` is asked for the state and what there is to say about it, some times a second."""

    def __init__(self, name: str, writer: prefixes.Writer, situation: Callable[[], tuple[str, str]]) -> None:
        self._name = name
        self._writer = writer
        self._situation = situation
        self._console = Console(stderr=True, highlight=False)
        self._spinner = Spinner("dots")
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
        state, rest = self._situation()
        frame = self._spinner.render(self._console.get_time())
        assert isinstance(frame, Text)  # a spinner without text of its own
        style = rendering.style_of(state)
        line = Text.assemble(frame, " ", (self._name, "bold"), "  ", (state, style), "  ", rest)
        # Room for the ^C that a terminal echoes: where it wraps, the line can no longer be taken back.
        line.truncate(max(self._console.width - 4, 10), overflow="ellipsis")
        return line

    def line(self, number: int, text: str) -> None:
        """What a pod wrote."""
        if not rendering.is_terminal(sys.stdout):
            self._writer.write(number, text)
            return
        # Through the console that owns the status line, so that the line stays below the logs.
        shown = Text.from_ansi(self._writer.prefix(number) + prefixes.visible(text))
        self._console.print(shown, soft_wrap=True)

    def say(self, text: str) -> None:
        self._console.print(Text(f"{self._name}: {text}", style="yellow"), soft_wrap=True)

    def end(self, text: str, style: str) -> None:
        self._live.stop()
        self._console.print(Text(text, style=style), soft_wrap=True)

    def pause(self) -> None:
        """Take the line away: somebody else writes now."""
        self._live.stop()

    def resume(self) -> None:
        self._live = self._new_live()
        self._live.start()
