"""The logs of pods, read to their ends: each by a thread of its own, which puts lines where somebody takes them."""

import threading
from dataclasses import dataclass
from typing import Protocol

from muster.api import errors
from muster.sdk import gangs
from muster.sdk.client import Client, LogOptions
from muster.sdk.gangs import Member
from muster.sdk.transport import Stream, lines
from muster.sdk.watching import RECONNECT_SECONDS


@dataclass(frozen=True, slots=True)
class Line:
    """One whole line that a member wrote."""

    rank: int
    text: str


@dataclass(frozen=True, slots=True)
class LogLost:
    """The rest of a member's log could not be read."""

    rank: int
    error: str


@dataclass(frozen=True, slots=True)
class LogEnded:
    """From a `LogReader`: there is no more. `error` says why, where that is not the log's end."""

    member: Member
    error: str


class LogSink(Protocol):
    """Where a `LogReader` puts what it reads, from a thread of its own."""

    def put(self, message: Line | LogEnded, /) -> None: ...


class LogReader:
    """Reads one pod's log to its end, resuming by timestamp where the connection breaks."""

    def __init__(
        self,
        client: Client,
        member: Member,
        namespace: str,
        messages: LogSink,
        *,
        container: str = gangs.CONTAINER,
    ) -> None:
        self._client = client
        self._member = member
        self._namespace = namespace
        self._messages = messages
        self._container = container
        self._stream: Stream | None = None
        self._closed = threading.Event()
        self._last = ""
        self._at_last = 0
        """How many lines carried the timestamp `_last`: all of them come again after a resume."""

    def start(self) -> None:
        threading.Thread(target=self._run, name=f"log {self._member.pod}", daemon=True).start()

    def close(self) -> None:
        self._closed.set()
        if self._stream is not None:
            self._stream.close()

    def _run(self) -> None:
        error, failures = "", 0
        while True:
            before = self._last, self._at_last
            try:
                self._read()
                error = ""
                break
            except errors.ApiError as failed:
                error = failed.message
                failures = failures + 1 if before == (self._last, self._at_last) else 1
                is_hopeless = isinstance(failed, errors.NotFound) or failures > len(RECONNECT_SECONDS)
                if is_hopeless or self._closed.wait(RECONNECT_SECONDS[failures - 1]):
                    break
        self._messages.put(LogEnded(self._member, error if not self._closed.is_set() else ""))

    def _read(self) -> None:
        options = LogOptions(container=self._container, follow=True, timestamps=True, since_time=self._last)
        self._stream = self._client.open_log(self._member.pod, self._namespace, options)
        repeated = self._at_last
        try:
            for line in lines(self._stream):
                stamp, _, text = line.decode("utf-8", "replace").partition(" ")
                if stamp < self._last:
                    continue  # the server resumes at whole seconds
                if stamp == self._last and repeated:
                    repeated -= 1
                    continue
                self._at_last = self._at_last + 1 if stamp == self._last else 1
                self._last = stamp
                self._messages.put(Line(self._member.rank, text))
        finally:
            self._stream.close()
