"""What `muster run` shows: log lines on standard output, its own words on standard error.

On a terminal a live status line stays below the logs; in a pipe nothing moves.
"""

import importlib
import sys
import time
from typing import Protocol

from muster.cli import durations, prefixes, rendering
from muster.sdk.gangs import Phase, Status


class View(Protocol):
    def line(self, rank: int, text: str) -> None: ...

    def moved(self, status: Status) -> None: ...

    def say(self, text: str) -> None: ...

    def ended(self, status: Status, code: int) -> None: ...

    def pause(self) -> None:
        """Take the status line away: somebody else writes now."""
        ...

    def resume(self) -> None: ...

    def close(self) -> None: ...


class PlainView:
    """Says on standard error why a job waits, once for each reason, and how it ended."""

    def __init__(self, name: str, replicas: int, began: float) -> None:
        self._name = name
        self._began = began
        self._writer = prefixes.Writer(sys.stdout, with_rank=replicas > 1)
        self._said = ""

    def line(self, rank: int, text: str) -> None:
        self._writer.write(rank, text)

    def moved(self, status: Status) -> None:
        if status.phase is Phase.PENDING and status.waiting and status.waiting != self._said:
            self._said = status.waiting
            print(f"{self._name} waits: {status.waiting}", file=sys.stderr)

    def say(self, text: str) -> None:
        print(f"{self._name}: {text}", file=sys.stderr)

    def ended(self, status: Status, code: int) -> None:
        print(summary(status, code, time.monotonic() - self._began), file=sys.stderr)

    def pause(self) -> None:
        pass

    def resume(self) -> None:
        pass

    def close(self) -> None:
        pass


def summary(status: Status, code: int, seconds: float) -> str:
    """One line: `brisk-otter-417 succeeded in 3.2s (4 ranks on node-0,node-1)`."""
    ranks = f"{status.size} rank{'s' if status.size > 1 else ''}"
    where = f" on {','.join(status.nodes)}" if status.nodes else ""
    took = durations.show(seconds)
    if code == 0:
        return f"{status.name} succeeded in {took} ({ranks}{where})"
    failed = next((member for member in status.members if member.exit_code == code), None)
    if failed is None:
        return f"{status.name} failed after {took} with exit code {code}"
    who = f"rank {failed.rank} " if status.size > 1 else ""
    reason = f": {failed.reason}" if failed.reason else ""
    return (
        f"{status.name} failed after {took}: {who}exit code {code}{f' on {failed.node}' if failed.node else ''}{reason}"
    )


def situation(status: Status | None, seconds: float) -> tuple[str, str]:
    """The state and what there is to say about it, for the status line. What may be cut off stands last."""
    took = durations.show_whole(seconds)
    if status is None or not status.members:
        return "Pending", f"{took}  submitted"
    if status.phase is Phase.PENDING:
        return "Pending", f"{took}  {status.waiting or 'waiting to be placed'}"
    running, done = status.count(Phase.RUNNING), status.count(Phase.SUCCEEDED)
    parts = [f"{took}  {running} of {status.size} ranks"]
    if done:
        parts.append(f"{done} done")
    if status.nodes:
        parts.append(f"on {','.join(status.nodes[:4])}{'...' if len(status.nodes) > 4 else ''}")
    return str(status.phase), ", ".join(parts)


def open_view(name: str, replicas: int, began: float) -> View:
    """`began`: when the job was submitted, on the monotonic clock."""
    if rendering.is_terminal(sys.stderr):
        view: View = importlib.import_module("muster.cli.run_live").LiveView(name, replicas, began)
        return view
    return PlainView(name, replicas, began)
