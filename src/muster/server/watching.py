"""Watches: a chunked stream of `{"type", "object"}` lines.

The store hands one and the same batch to all watchers of equal selections; the bytes of a batch are made once for each
form in which it is asked for, and shared by all of them. What a thousand watchers cost is then a thousand sends.
"""

from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from muster.api import errors, raw, status
from muster.api.raw import Document
from muster.server import reading, tables, versions
from muster.server.context import Call, Context
from muster.server.exchange import Query, Stream, closing
from muster.server.formats import Format, Shape
from muster.server.paths import Target
from muster.store.protocol import Change, Event, Revision, Selection

_DEFAULT_SECONDS = 3600.0  # clients resume after this; a connection that a proxy has lost is found out by then
_INITIAL_EVENTS_A_CHUNK = 500
_SHARED_CHUNKS = 64
_LARGEST_SHARED_CHUNK = 1024 * 1024
INITIAL_EVENTS_END = "k8s.io/initial-events-end"


@dataclass(frozen=True, slots=True)
class _Asked:
    """What a client's parameters mean."""

    since: Revision | None
    has_initial_events: bool
    has_bookmark_after_them: bool
    bookmarks: bool
    seconds: float


class _Rendering(NamedTuple):
    """How events become lines. Equal renderings of a batch make equal bytes, but for the ages in tables."""

    target: Target
    format: Format
    inclusion: str
    has_columns: bool


class Watching:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._chunks: OrderedDict[tuple[int, _Rendering], tuple[Sequence[Event], bytes]] = OrderedDict()

    def watch(self, call: Call) -> Stream:
        query, format_ = call.request.query, reading.wanted_format(call)
        asked = _asked(query)
        selection = reading.selection_of(call.target, query)
        rendering = _Rendering(call.target, format_, reading.inclusion(query), format_.shape is Shape.TABLE)
        if asked.has_initial_events:
            lines = self._initial_lines(selection, asked, rendering)
        else:
            # Not first within the generator: "from now on" begins before the client sees our status line.
            batches = self._context.store.watch(selection, since=asked.since, bookmarks=asked.bookmarks)
            lines = self._lines(batches, rendering)
        return Stream(lines, format_.content_type, asked.seconds)

    async def _initial_lines(
        self, selection: Selection, asked: _Asked, rendering: _Rendering
    ) -> AsyncGenerator[bytes, None]:
        page = await self._context.store.list(selection)
        if asked.since is not None and asked.since > page.revision:
            yield _error(errors.Timeout(f"Too large resource version: {asked.since}, current: {page.revision}"))
            return
        batches = self._context.store.watch(selection, since=page.revision, bookmarks=asked.bookmarks)
        for start in range(0, len(page.items), _INITIAL_EVENTS_A_CHUNK):
            some = page.items[start : start + _INITIAL_EVENTS_A_CHUNK]
            yield self._encode([Event(Change.ADDED, found, Revision(found.revision)) for found in some], rendering)
            rendering = rendering._replace(has_columns=False)
        if asked.has_bookmark_after_them:
            yield self._bookmark(page.revision, rendering, {INITIAL_EVENTS_END: "true"})
        async for line in self._lines(batches, rendering):
            yield line

    async def _lines(
        self, batches: AsyncIterator[Sequence[Event]], rendering: _Rendering
    ) -> AsyncGenerator[bytes, None]:
        try:
            async with closing(batches):
                async for batch in batches:
                    yield self._shared(batch, rendering)
                    if rendering.has_columns:
                        rendering = rendering._replace(has_columns=False)
        except errors.ApiError as error:
            # The status line is out and says 200: as Kubernetes does, the error is the last event.
            yield _error(error)

    def _shared(self, batch: Sequence[Event], rendering: _Rendering) -> bytes:
        key = (id(batch), rendering)
        known = self._chunks.get(key)
        if known is not None:
            return known[1]
        chunk = self._encode(batch, rendering)
        if len(chunk) <= _LARGEST_SHARED_CHUNK:
            # The batch is kept with its bytes: its id cannot become another batch's while it is a key here.
            self._chunks[key] = (batch, chunk)
            if len(self._chunks) > _SHARED_CHUNKS:
                self._chunks.popitem(last=False)
        return chunk

    def _encode(self, batch: Sequence[Event], rendering: _Rendering) -> bytes:
        lines = []
        for event in batch:
            if event.object is None:
                lines.append(self._bookmark(event.revision, rendering, {}))
            else:
                lines.append(_line(event.change.value, self._object(event, rendering)))
                rendering = rendering._replace(has_columns=False)
        return b"".join(lines)

    def _object(self, event: Event, rendering: _Rendering) -> bytes:
        found, target, wanted = event.object, rendering.target, rendering.format
        assert found is not None
        match wanted.shape:
            case Shape.OBJECT:
                return versions.encoded(found, target)
            case Shape.METADATA:
                return raw.encode(reading.metadata_only(versions.document(found, target), wanted.version))
            case Shape.TABLE:
                view = tables.TableView(target, wanted.version, rendering.inclusion, self._context.clock.now())
                meta: Document = {"resourceVersion": str(event.revision)}
                return tables.encode(view, [found], meta, has_columns=rendering.has_columns)

    def _bookmark(self, revision: Revision, rendering: _Rendering, annotations: dict[str, str]) -> bytes:
        target, wanted = rendering.target, rendering.format
        meta: Document = {"resourceVersion": str(revision), "creationTimestamp": None}
        if annotations:
            meta["annotations"] = annotations
        match wanted.shape:
            case Shape.OBJECT:
                document: Document = {"kind": target.kind.name, "apiVersion": target.api_version, "metadata": meta}
            case Shape.METADATA:
                document = reading.metadata_only({"metadata": meta}, wanted.version)
            case Shape.TABLE:
                document = {
                    "kind": "Table",
                    "apiVersion": f"meta.k8s.io/{wanted.version}",
                    "metadata": {"resourceVersion": str(revision)},
                    "columnDefinitions": None,
                    "rows": [{"cells": [], "object": reading.metadata_only({"metadata": meta}, wanted.version)}],
                }
        return _line(Change.BOOKMARK.value, raw.encode(document))


def _line(type_: str, encoded: bytes) -> bytes:
    return b'{"type":"%s","object":%s}\n' % (type_.encode(), encoded)


def _error(error: errors.ApiError) -> bytes:
    return _line("ERROR", raw.encode(status.from_error(error)))


def _asked(query: Query) -> _Asked:
    since = reading.revision(query.text("resourceVersion"))
    seconds = query.integer("timeoutSeconds") or 0
    match = query.text("resourceVersionMatch")
    if query.has("sendInitialEvents"):
        if match != "NotOlderThan":
            raise errors.BadRequest("sendInitialEvents requires setting resourceVersionMatch to NotOlderThan")
        is_initial = query.flag("sendInitialEvents")
    else:
        if match:
            raise errors.BadRequest("resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided")
        is_initial = since is None
    return _Asked(
        since=None if since is None else Revision(since),
        has_initial_events=is_initial,
        has_bookmark_after_them=is_initial and query.has("sendInitialEvents"),
        bookmarks=query.flag("allowWatchBookmarks"),
        seconds=float(seconds) if seconds > 0 else _DEFAULT_SECONDS,
    )
