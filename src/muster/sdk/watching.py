"""A watch that goes on: across broken connections, server restarts, and a server that has forgotten where it was."""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from muster.api import errors, raw, status
from muster.api.raw import Document
from muster.sdk import reading
from muster.sdk.resources import Resource, Selection
from muster.sdk.transport import Stream, lines

PERIOD_SECONDS = 300
"""How long one connection lasts; then the watch resumes on another."""

RECONNECT_SECONDS = (0.1, 0.2, 0.5, 1.0, 1.0, 2.0, 2.0, 3.0, 5.0, 5.0, 5.0, 5.0)
"""Pauses between attempts: together as long as a server may take to restart."""


@dataclass(frozen=True, slots=True)
class Change:
    type: str
    """ADDED, MODIFIED or DELETED (BOOKMARK where a stream is read raw)."""
    object: Document


class Source(Protocol):
    """What a watch needs of a client."""

    def page(self, resource: Resource, selection: Selection) -> tuple[Sequence[Document], str]: ...

    def open_watch(self, resource: Resource, selection: Selection, since: str, seconds: int, accept: str) -> Stream: ...


def changes(stream: Stream) -> Iterator[Change]:
    """What a watch sends, bookmarks included. Raises what the server reports in the stream."""
    for line in lines(stream):
        event = raw.decode_object(line)
        if event.get("type") == "ERROR":
            raise status.to_error(raw.as_object(event.get("object")))
        yield Change(str(event.get("type")), raw.as_object(event.get("object")))


def table_version(table: Document) -> str:
    """The version from which a watch of one-row tables goes on."""
    row = reading.text(table, "rows", 0, "object", "metadata", "resourceVersion")
    return row or reading.text(table, "metadata", "resourceVersion")


class Watching:
    """One watch, for one reader. `close` may be called from another thread.

    `known` are the objects as the reader saw them at version `since`: what of them has gone when the server has
    forgotten `since` is then told as deleted.
    """

    def __init__(
        self,
        source: Source,
        resource: Resource,
        selection: Selection,
        *,
        since: str = "",
        known: Sequence[Document] = (),
        timeout: float | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._source = source
        self._resource = resource
        self._selection = selection
        self._version = since
        self._deadline = math.inf if timeout is None else time.monotonic() + timeout
        self._sleep = sleep
        self._known = {_key(item): item for item in known}
        self._stream: Stream | None = None
        self._is_closed = False

    def close(self) -> None:
        self._is_closed = True
        if self._stream is not None:
            self._stream.close()

    def changes(self) -> Iterator[Change]:
        """Until closed or timed out. Raises Unavailable where the server stays away for some seconds."""
        failures = 0
        while not self._is_over():
            try:
                if not self._version:
                    yield from self._relist()
                for change in self._connected():
                    failures = 0
                    yield change
            except errors.Expired:
                self._version = ""
            except (errors.Unavailable, errors.Timeout):
                if self._is_over():
                    return
                if failures >= len(RECONNECT_SECONDS):
                    raise
                self._sleep(RECONNECT_SECONDS[failures])
                failures += 1

    def _is_over(self) -> bool:
        return self._is_closed or time.monotonic() >= self._deadline

    def _connected(self) -> Iterator[Change]:
        left = max(self._deadline - time.monotonic(), 1.0)
        seconds = math.ceil(min(left, PERIOD_SECONDS))
        self._stream = self._source.open_watch(
            self._resource, self._selection, self._version, seconds, "application/json"
        )
        try:
            for change in changes(self._stream):
                self._version = _version(change.object) or self._version
                if change.type != "BOOKMARK":
                    self._remember(change)
                    yield change
        finally:
            self._stream.close()

    def _relist(self) -> Iterator[Change]:
        found, self._version = self._source.page(self._resource, self._selection)
        present = {_key(item): item for item in found}
        for key in [key for key in self._known if key not in present]:
            yield Change("DELETED", self._known.pop(key))
        for key, item in present.items():
            before = self._known.get(key)
            self._known[key] = item
            if before is None:
                yield Change("ADDED", item)
            elif _version(before) != _version(item):
                yield Change("MODIFIED", item)

    def _remember(self, change: Change) -> None:
        if change.type == "DELETED":
            self._known.pop(_key(change.object), None)
        else:
            self._known[_key(change.object)] = change.object


def _key(document: Document) -> tuple[str, str]:
    return reading.text(document, "metadata", "namespace"), reading.text(document, "metadata", "name")


def _version(document: Document) -> str:
    return reading.text(document, "metadata", "resourceVersion")
