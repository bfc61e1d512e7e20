"""What `muster submit --wait` shows: logs on standard output, its own words on standard error.

On a terminal a live status line with a bar stays below; in a pipe each turn is a line.
"""

import importlib
import sys
import time
from collections.abc import Callable
from typing import Protocol

from muster.cli import durations, prefixes, rendering
from muster.sdk.summaries import State, Summary

_BAR = 12


class View(Protocol):
    def line(self, number: int, text: str) -> None: ...

    def moved(self, summary: Summary) -> None: ...

    def say(self, text: str) -> None: ...

    def ended(self, summary: Summary) -> None: ...

    def close(self) -> None: ...


class PlainView:
    """One line for each turn: a state, or another reason to wait."""

    def __init__(self, name: str, writer: prefixes.Writer, began: float) -> None:
        self._name = name
        self._began = began
        self._writer = writer
        self._said = ""

    def line(self, number: int, text: str) -> None:
        self._writer.write(number, text)

    def moved(self, summary: Summary) -> None:
        said = f"{summary.state}{f': {summary.why}' if summary.why else ''}"
        if said != self._said and not summary.is_over:
            self._said = said
            self.say(said)

    def say(self, text: str) -> None:
        print(f"{self._name}: {text}", file=sys.stderr)

    def ended(self, summary: Summary) -> None:
        print(end_of(summary, time.monotonic() - self._began), file=sys.stderr)

    def close(self) -> None:
        pass


def situation(summary: Summary | None, seconds: float) -> tuple[str, str]:
    """The state and what there is to say about it. What may be cut off stands last."""
    took = durations.show_whole(seconds)
    if summary is None:
        return "Pending", f"{took}  submitted"
    if summary.state in (State.PENDING, State.SUSPENDED, State.SUSPENDING):
        return str(summary.state), f"{took}  {summary.why or 'waiting to start'}"
    bar = rendering.bar(summary.done, summary.wanted, _BAR)
    parts = [f"{summary.ready - summary.done} running", f"{summary.done} of {summary.wanted} done"]
    if summary.nodes:
        parts.append(f"on {','.join(summary.nodes[:4])}{'...' if len(summary.nodes) > 4 else ''}")
    return str(summary.state), f"{took}  {bar + '  ' if bar else ''}{', '.join(parts)}"


def end_of(summary: Summary, seconds: float) -> str:
    """One line: `train succeeded in 3.2s (4 of 4 done on node-0,node-1)`."""
    took = durations.show(seconds)
    if summary.state is State.SUCCEEDED:
        where = f" on {','.join(summary.nodes)}" if summary.nodes else ""
        return f"{summary.name} succeeded in {took} ({summary.done} of {summary.wanted} done{where})"
    word = "was stopped" if summary.state is State.STOPPED else "failed"
    return f"{summary.name} {word} after {took}: {summary.why or f'exit code {summary.exit_code}'}"


def open_view(name: str, label: Callable[[int], str], began: float, *, with_pod: bool) -> View:
    """`began`: when it was submitted, on the monotonic clock."""
    writer = prefixes.Writer(sys.stdout, with_rank=with_pod, label=label)
    if rendering.is_terminal(sys.stderr):
        view: View = importlib.import_module("muster.cli.submit_live").LiveView(name, writer, began)
        return view
    return PlainView(name, writer, began)
