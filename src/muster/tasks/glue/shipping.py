"""Takes what a program writes, line by line, to the server."""

from __future__ import annotations

import re
import threading
import time
from collections import deque
from datetime import datetime, timezone

from .calls import Refused, Unreachable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .calls import Master

MOST_IN_BATCH = 1000
MOST_WAITING = 20_000
"""Whoever writes faster than the server takes it waits."""
LONGEST_LINE = 64 * 1024
_GATHER_SECONDS = 0.1
_PATIENCE_SECONDS = 600.0
_RANK = re.compile(r" ?\[rank=(\d+)\] ?")
_LEVEL = re.compile(r"(TRACE|DEBUG|INFO|WARNING|ERROR|CRITICAL): ")


def entry(text: str, stdtype: str, common: Mapping[str, object]) -> dict[str, object]:
    """A line as the server takes it."""
    found: dict[str, object] = {
        **common,
        "timestamp": datetime.now(timezone.utc).isoformat(timespec="microseconds"),  # noqa: UP017 - from 3.8 on
        "source": "task",
        "stdtype": stdtype,
    }
    rank = _RANK.match(text)
    if rank is not None:
        found["rank_id"] = int(rank.group(1))
        text = text[rank.end() :]
    level = _LEVEL.match(text)
    if level is not None:
        # Told apart, since whoever shows a line puts its level before it.
        found["level"] = "LOG_LEVEL_" + level.group(1)
        text = text[level.end() :]
    found["log"] = text + "\n"
    return found


class Lines:
    """Cuts what comes in pieces into lines."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[str]:
        *whole, self._rest = (self._rest + data).split(b"\n")
        found = [part for line in whole for part in _parts(line)]
        while len(self._rest) > LONGEST_LINE:
            found.append(self._rest[:LONGEST_LINE])
            self._rest = self._rest[LONGEST_LINE:]
        return [_text(line) for line in found]

    def end(self) -> list[str]:
        rest, self._rest = self._rest, b""
        return [_text(rest)] if rest else []


def _parts(line: bytes) -> list[bytes]:
    return [line[start : start + LONGEST_LINE] for start in range(0, max(1, len(line)), LONGEST_LINE)]


def _text(line: bytes) -> str:
    return line.decode("utf-8", errors="replace").rstrip("\r").replace("\0", "\N{REPLACEMENT CHARACTER}")


class Shipper:
    """A thread of its own. `complain`: told of what the server does not take."""

    def __init__(self, master: Master, complain: Callable[[str], None]) -> None:
        self._master = master
        self._complain = complain
        self._waiting: deque[dict[str, object]] = deque()
        self._errands: deque[str] = deque()
        self._changed = threading.Condition()
        self._is_closing = False
        self._thread = threading.Thread(target=self._run, name="ship logs", daemon=True)
        self._thread.start()

    def put(self, entries: list[dict[str, object]]) -> None:
        with self._changed:
            self._changed.wait_for(lambda: len(self._waiting) < MOST_WAITING)
            self._waiting.extend(entries)
            self._changed.notify_all()

    def post(self, path: str) -> None:
        """A call without a body, made as soon as possible."""
        with self._changed:
            self._errands.append(path)
            self._changed.notify_all()

    def close(self) -> None:
        """Returns when all is with the server, or cannot be brought there."""
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
        self._thread.join(_PATIENCE_SECONDS)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._errands or self._is_closing)
                errands = [self._errands.popleft() for _ in range(len(self._errands))]
                if not self._is_closing and not errands and len(self._waiting) < MOST_IN_BATCH:
                    # Lines come in bursts: a moment later there is more for the same call.
                    self._changed.wait_for(lambda: self._is_closing or self._errands, timeout=_GATHER_SECONDS)
                batch = [self._waiting.popleft() for _ in range(min(len(self._waiting), MOST_IN_BATCH))]
                self._changed.notify_all()
                is_done = self._is_closing and not batch and not errands
            if is_done:
                self._master.close()
                return
            for path in errands:
                self._call(path, None)
            if batch:
                self._call("/api/v1/task/logs", {"logs": batch})

    def _call(self, path: str, body: object) -> None:
        try:
            self._master.insist("POST", path, body, _PATIENCE_SECONDS)
        except (Refused, Unreachable) as error:
            self._complain(str(error))
            time.sleep(0.1)  # what is refused once is likely to be refused again
