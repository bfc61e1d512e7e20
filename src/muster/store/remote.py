"""A `Store` at the other end of a connection: the four verbs as requests of the Kubernetes API.

A batch of writes is as many requests, some at a time; those on one object keep their order. What the connection does is
told as `Unavailable`: callers back off and try again, as with any store.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing
from typing import Self
from urllib.parse import urlencode

from muster.api import coordination, core, errors
from muster.api.kinds import Kind
from muster.api.objects import Key, Object
from muster.store import wire
from muster.store.connection import AT_ONCE, Connection, Response, Turn
from muster.store.protocol import Change, Event, Page, Refused, Result, Revision, Selection, Write, Written

_TURNS: Mapping[Kind, Turn] = {
    # Who leads, or is alive, must be able to say so while thousands of other writes wait.
    coordination.LEASE: Turn.FIRST,
    # A burst of what tells people of the work must not stand before the work itself.
    core.EVENT: Turn.LAST,
}
_QUIET_SECONDS = 1.0  # before a watch is taken up again that was ended before it said anything


class RemoteStore(ABC):
    """What servers have in common. Use as an async context manager."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def __aenter__(self) -> Self:
        await self._connection.__aenter__()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self._connection.__aexit__(*exc_info)

    @abstractmethod
    def _request(self, write: Write) -> wire.Request:
        """Raises what is wrong with the write already here."""

    @abstractmethod
    def _written(self, write: Write, response: Response, *, is_new: bool) -> Written: ...

    @abstractmethod
    async def _from_now_on(self, selection: Selection) -> dict[str, str]:
        """The part of a watch's query that says so."""

    def _error(self, kind: Kind, body: bytes, code: int) -> errors.ApiError:
        return wire.error(kind, body, code)

    # Reading

    async def get(self, kind: Kind, key: Key) -> Object:
        response = await self._ask(kind, wire.Request("GET", wire.path_of(kind, key)))
        return wire.object_of(kind, response.body)

    async def list(self, selection: Selection, *, limit: int = 0, token: str = "") -> Page:
        if selection.labels.nothing:
            # A selector that nothing can match has no text form; the page still says where a watch starts.
            page = await self.list(Selection(selection.kind, selection.namespace), limit=1)
            return Page([], page.revision)
        query = wire.selecting(selection)
        if limit:
            query["limit"] = str(limit)
        if token:
            query["continue"] = token
        path = wire.collection(selection.kind, selection.namespace)
        response = await self._ask(selection.kind, wire.Request("GET", path, query=urlencode(query)))
        return wire.page(selection.kind, response.body)

    async def watch(
        self, selection: Selection, *, since: Revision | None = None, bookmarks: bool = False
    ) -> AsyncGenerator[Sequence[Event], None]:
        """Goes on over the ends that the server puts to every watch; bookmarks keep the place to go on from."""
        query = wire.selecting(selection) | {"watch": "true", "allowWatchBookmarks": "true"}
        cursor = since
        while True:
            before = cursor
            place = await self._from_now_on(selection) if cursor is None else {"resourceVersion": str(cursor)}
            async with aclosing(self._watch_once(selection, urlencode(query | place))) as batches:
                async for events in batches:
                    cursor = events[-1].revision
                    kept = events if bookmarks else [e for e in events if e.change is not Change.BOOKMARK]
                    if kept:
                        yield kept
            if cursor == before:
                await asyncio.sleep(_QUIET_SECONDS)

    async def _watch_once(self, selection: Selection, query: str) -> AsyncGenerator[Sequence[Event], None]:
        kind = selection.kind
        async with self._connection.follow(wire.collection(kind, selection.namespace), query) as stream:
            if stream.status >= 400:
                raise self._error(kind, await stream.body(), stream.status)
            async for lines in stream.lines():
                events = [wire.event(kind, line) for line in lines]
                if events:
                    yield events

    async def _ask(self, kind: Kind, request: wire.Request) -> Response:
        response = await self._connection.ask(request, _TURNS.get(kind, Turn.USUAL))
        if response.status >= 400:
            raise self._error(kind, response.body, response.status)
        return response

    # Writing

    async def write(self, writes: Sequence[Write]) -> Sequence[Result]:
        if len(writes) == 1:
            return [await self._write_one(writes[0])]
        results: dict[int, Result] = {}
        for chains in wire.stages(writes):
            left = iter(chains)
            # No more tasks than turns: a thousand that queue for one would stand before whoever comes next.
            async with asyncio.TaskGroup() as group:
                for number in range(min(AT_ONCE, len(chains))):
                    group.create_task(self._write_chains(left, writes, results), name=f"writer {number}")
        return [results[index] for index in range(len(writes))]

    async def _write_chains(
        self, left: Iterator[Sequence[int]], writes: Sequence[Write], results: dict[int, Result]
    ) -> None:
        for chain in left:
            for index in chain:
                results[index] = await self._write_one(writes[index])

    async def _write_one(self, write: Write) -> Result:
        try:
            request = self._request(write)
            response = await self._ask(write.kind, request)
            return self._written(write, response, is_new=response.status == 201 and request.makes_new)
        except errors.ApiError as error:
            return Refused(error)
